//! Clearing: every way this processor has, by length, beside the library's own choice; and the choice itself.
//!
//! A row is nanoseconds for a 4 KiB page, the best repetition: on a shared machine disturbances only add, and a GiB takes longer than
//! another task lets it be. Its peers are the ways of [`Method`]. The memory is one mapping of which every page was touched.
//! Single pages come three ways, for they differ most: one page over and over (hot), pages cleared and then read line by line (what a
//! fault does), and pages scattered over all of memory with one fence for a batch of them. Runs are cleared from end to end.
//!
//! [`calibrate`] measures and chooses: the fastest way through the caches for a hot page and for a run, the fastest way around them, and the
//! length from which going around wins at every length measured. [`beside`] measures again
//! with the library on a machine that clears so, [`run`] does both.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::io;

use vellum::addr::{PAGE_SIZE, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::zero::clear::Extent;

use super::measure::{Effort, Samples, pin, time};
use super::{Report, Row};
use crate::machine::{FIRST, Plan};
use crate::rng::Rng;
use crate::stores::{Choice, Method, fence};
use crate::stress::HostVm;

/// Pages of the runs measured: 16 KiB to 1 GiB.
const RUNS: [(usize, &str); 7] =
    [(4, "16K"), (16, "64K"), (64, "256K"), (512, "2M"), (2048, "8M"), (8192, "32M"), (1 << 18, "1G")];
/// Scattered pages that share a fence.
const BATCH: usize = 64;
/// Scattered pages, and pages that are read after clearing, of one repetition.
const PAGES: usize = 8192;
/// Times the hot page is cleared.
const HOT: u64 = 4000;

/// What was measured and what follows from it.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The rows; `ours` is the way chosen.
    pub report: Report,
    /// The choice.
    pub choice: Choice,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { page, run, around, from } = self.choice;
        writeln!(f, "A page that is used at once: {}. Runs through the caches: {}.", page.name(), run.name())?;
        if from == u64::MAX {
            return writeln!(f, "Going around the caches ({}) wins at no length here.", around.name());
        }
        writeln!(
            f,
            "Around the caches: {}, which wins from {} KiB on at every length measured.",
            around.name(),
            from >> 10
        )
    }
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scene {
    Hot,
    Read,
    Scattered,
    Run(usize),
}

impl Scene {
    fn name(self) -> String {
        match self {
            Scene::Hot => "clear/page-hot".into(),
            Scene::Read => "clear/page-then-read".into(),
            Scene::Scattered => "clear/page-scattered".into(),
            Scene::Run(pages) => {
                let name = RUNS.iter().find(|r| r.0 == pages).map_or("", |r| r.1);
                format!("clear/run-{name}")
            }
        }
    }
}

/// The memory and the order in which pages of it are visited.
struct Ground {
    host: HostVm<X86_64, false>,
    pages: usize,
    order: Vec<(Pfn, Va)>,
}

impl Ground {
    fn new(effort: Effort, choice: Choice) -> io::Result<Ground> {
        let pages = ((1 << 18) / effort.shrink as usize).max(2048);
        let plan = Plan { clears: choice, ..Plan::new(1, (pages * PAGE_SIZE) as u64) };
        let host = HostVm::new(plan, Config::default())?;
        host.vm.machine().memory().warm();
        // All of it is this benchmark's.
        host.vm.reserve(FIRST, pages as u64);
        let mut rng = Rng::new(0x5ca1ab1e);
        let mut all: Vec<u64> = (0..pages as u64).collect();
        (1..pages).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
        all.truncate(PAGES.min(pages));
        let order = all.iter().map(|&i| (FIRST.add(i), Va(i * PAGE_SIZE as u64))).collect();
        Ok(Ground { host, pages, order })
    }

    fn at(&self, pfn: Pfn) -> *mut u8 {
        let base = self.host.vm.machine().memory().base().as_ptr();
        // SAFETY: every frame of the benchmark lies in the mapping.
        unsafe { base.add((pfn.0 - FIRST.0) as usize * PAGE_SIZE) }
    }

    fn clear(&self, method: Method, pfn: Pfn, pages: usize) {
        // SAFETY: the frames are this benchmark's, reserved in `new`; methods measured exist here.
        unsafe { method.clear(self.at(pfn), pages * PAGE_SIZE) }
    }

    fn read(&self, pfn: Pfn) -> u64 {
        let at = self.at(pfn).cast::<u64>();
        // SAFETY: 512 words of one frame that nobody writes meanwhile.
        (0..512).step_by(8).map(|i| unsafe { at.add(i).read_volatile() }).sum()
    }

    /// Nanoseconds a page with one of the ways; with `None` by the library.
    fn measure(&self, scene: Scene, method: Option<Method>) -> f64 {
        let around = method.is_some_and(Method::goes_around);
        let single = |pfn: Pfn, va: Va| match method {
            None => self.host.vm.clear_page(pfn, va),
            Some(m) => {
                self.clear(m, pfn, 1);
                if around {
                    fence();
                }
            }
        };
        match scene {
            Scene::Hot => time(HOT, || (0..HOT).for_each(|_| single(FIRST, Va(0)))),
            Scene::Read => time(self.order.len() as u64, || {
                for &(pfn, va) in &self.order {
                    single(pfn, va);
                    black_box(self.read(pfn));
                }
            }),
            Scene::Scattered => time(self.order.len() as u64, || {
                for batch in self.order.chunks(BATCH) {
                    match method {
                        None => self.host.vm.clear_frames(batch).expect("nobody asks to stop"),
                        Some(m) => {
                            batch.iter().for_each(|&(pfn, _)| self.clear(m, pfn, 1));
                            if around {
                                fence();
                            }
                        }
                    }
                }
            }),
            Scene::Run(pages) => {
                let runs = (self.pages / pages).min((PAGES * 4 / pages).max(1));
                time((runs * pages) as u64, || {
                    for n in 0..runs {
                        let first = FIRST.add((n * pages) as u64);
                        let Some(m) = method else {
                            let extent = Extent { first, frames: pages as u64, at: Va(0), fault: 0 };
                            self.host.vm.clear_extent(&extent).expect("nobody asks to stop");
                            continue;
                        };
                        self.clear(m, first, pages);
                        if around {
                            fence();
                        }
                    }
                })
            }
        }
    }

    fn scenes(&self) -> Vec<Scene> {
        let runs = RUNS.iter().filter(|r| r.0 <= self.pages).map(|r| Scene::Run(r.0));
        [Scene::Hot, Scene::Read, Scene::Scattered].into_iter().chain(runs).collect()
    }
}

type Measured = BTreeMap<Scene, BTreeMap<Option<Method>, Samples>>;

/// Every way at every scene, in turn, repeated; with the library if asked for.
fn sample(ground: &Ground, effort: Effort, library: bool) -> Measured {
    let mut all = Measured::new();
    let ways: Vec<Option<Method>> = Method::here().map(Some).chain(library.then_some(None)).collect();
    let _seat = ground.host.vm.machine().sit(0);
    for turn in 0..=effort.repetitions {
        if turn > 1 && (effort.stop)() {
            break;
        }
        for scene in ground.scenes() {
            for &way in &ways {
                let ns = ground.measure(scene, way);
                // The first turn warms up.
                if turn > 0 {
                    all.entry(scene).or_default().entry(way).or_default().add(ns);
                }
            }
        }
    }
    all
}

fn choose(all: &Measured) -> Choice {
    let fastest = |scene: Scene, around: bool| {
        let ways = all.get(&scene).into_iter().flatten();
        let ways = ways.filter_map(|(m, s)| m.map(|m| (m, s.lowest()))).filter(|(m, _)| m.goes_around() == around);
        ways.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let runs: Vec<usize> = RUNS.iter().map(|r| r.0).filter(|&p| all.contains_key(&Scene::Run(p))).collect();
    let longest = Scene::Run(runs.last().copied().unwrap_or(512));
    let run = fastest(Scene::Run(512), false).map_or(Method::Memset, |w| w.0);
    let around = fastest(longest, true).or_else(|| fastest(longest, false)).map_or(run, |w| w.0);
    let at = |pages: usize, m: Method| all[&Scene::Run(pages)].get(&Some(m)).map_or(f64::NAN, Samples::lowest);
    let wins = |&&pages: &&usize| around.goes_around() && at(pages, around) < at(pages, run);
    let from = runs.iter().rev().take_while(wins).last().map_or(u64::MAX, |&pages| (pages * PAGE_SIZE) as u64);
    Choice { page: fastest(Scene::Hot, false).map_or(Method::Memset, |w| w.0), run, around, from }
}

/// What a way is called where only the fastest of its kind is shown.
const fn kind(method: Method) -> &'static str {
    match method {
        Method::Strings => "strings",
        Method::Memset | Method::Vector32 | Method::Vector64 => "plain",
        Method::Around16 | Method::Around32 | Method::Around64 => "around",
        Method::Lines if method.goes_around() => "around",
        Method::Lines => "line",
    }
}

fn report(all: &Measured, choice: Choice) -> Report {
    let mut report = Report::default();
    for (&scene, ways) in all {
        let chosen = match scene {
            Scene::Hot | Scene::Read => choice.page,
            Scene::Scattered if (BATCH * PAGE_SIZE) as u64 >= choice.from => choice.around,
            Scene::Scattered => choice.page,
            Scene::Run(pages) if (pages * PAGE_SIZE) as u64 >= choice.from => choice.around,
            Scene::Run(_) => choice.run,
        };
        let ours = ways.get(&None).or(ways.get(&Some(chosen)));
        let Some(ours) = ours else { continue };
        let mut peers = BTreeMap::new();
        for (method, ns) in ways.iter().filter_map(|(m, s)| m.map(|m| (m, s.lowest()))) {
            let best = peers.entry(kind(method)).or_insert(ns);
            *best = ns.min(*best);
        }
        report.benchmarks.push(Row {
            name: scene.name(),
            threads: 1,
            unit: "ns",
            ours: ours.lowest(),
            floor: None,
            peers,
            spread: ours.spread(),
        });
    }
    report
}

/// Measures every way there is and chooses. Takes some seconds and a GiB of memory with [`Effort::FULL`].
///
/// # Errors
/// Memory the system refuses.
pub fn calibrate(effort: Effort) -> io::Result<Calibration> {
    pin(0);
    let ground = Ground::new(effort, Choice::by_features())?;
    let all = sample(&ground, effort, false);
    let choice = choose(&all);
    Ok(Calibration { report: report(&all, choice), choice })
}

/// The library on a machine that clears as `choice` says, beside the ways there are.
///
/// # Errors
/// Memory the system refuses.
pub fn beside(effort: Effort, choice: Choice) -> io::Result<Report> {
    pin(0);
    let ground = Ground::new(effort, choice)?;
    Ok(report(&sample(&ground, effort, true), choice))
}

/// Calibrates, then measures the library with what was found.
///
/// # Errors
/// Memory the system refuses.
pub fn run(effort: Effort) -> io::Result<Report> {
    let found = calibrate(Effort { repetitions: effort.repetitions.min(3), ..effort })?;
    let mut report = beside(effort, found.choice)?;
    report.notes.extend(found.to_string().lines().map(str::to_owned));
    Ok(report)
}

/// What the rows mean, in sentences computed from them.
pub fn explain(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    let row = |name: &str| report.benchmarks.iter().find(|r| r.name == name);
    let mut say = |name: &str, what: &str, peer: Option<Method>| {
        let Some(row) = row(name) else { return };
        let (peer, theirs) = match peer {
            Some(method) => match row.peers.get(kind(method)) {
                Some(&ns) => (kind(method), ns),
                None => return,
            },
            None => row.best_peer().unwrap_or(("nothing", f64::NAN)),
        };
        let times = theirs / row.ours;
        said.push(format!("{what}: {:.1} ns a page, {peer} {theirs:.1} ns: {times:.2} times as fast.", row.ours));
    };
    say("clear/page-hot", "One page over and over, beside the fastest way", None);
    say("clear/page-then-read", "A page cleared and then read, beside plain stores", Some(Method::Memset));
    say(
        "clear/page-scattered",
        "Scattered pages with one fence a batch, beside strings page by page",
        Some(Method::Strings),
    );
    say("clear/run-2M", "2 MiB, beside the fastest way", None);
    say("clear/run-1G", "1 GiB, beside the fastest way", None);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_chooses_among_what_exists_and_the_library_clears_by_it() {
        let effort = Effort { shrink: 128, ..Effort::QUICK };
        let found = calibrate(effort).expect("memory");
        assert!([found.choice.page, found.choice.run, found.choice.around].into_iter().all(Method::exists));
        assert!(!found.choice.page.goes_around() && !found.choice.run.goes_around());
        let rows = beside(effort, found.choice).expect("memory").benchmarks;
        assert_eq!(rows.len(), found.report.benchmarks.len());
        for row in rows {
            let kinds: std::collections::BTreeSet<_> = Method::here().map(kind).collect();
            assert!(row.ours > 0.0 && row.peers.len() == kinds.len(), "{row:?}");
        }
        assert!(found.to_string().lines().count() >= 2);
        assert_eq!(explain(&found.report).len(), 4, "no GiB in a quick run");
    }
}
