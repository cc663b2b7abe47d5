//! The memory that is cleared, and the workloads.
//!
//! Single pages are cleared in three ways: one page over and over (hot); pages that are then read
//! line by line, as after a fault; and pages scattered over all of memory, with one fence for a
//! batch. Runs are cleared from end to end with nobody waiting for them, and again for a program
//! that faulted at their first page, has a working set, reads half of the run next, and then its
//! working set. Half, because nobody knows how much of a large
//! page is read at once: if nothing is read, non-temporal stores win from a few pages on; if all is
//! read, the others win up to the size of the last level.
//!
//! Each way finds the caches as the way before left them, which is worth tens of nanoseconds a
//! page, since dirty lines are written back first. So no way clears the frames that the way before
//! cleared, pages that are read and runs find the caches full of other clean lines, and the order
//! of the ways is drawn anew for each repetition. Without those lines the caches may still hold the
//! page tables of a run, those of the hypervisor among them, and hide what a way waits for them: on
//! a guest of a Zen 5 stores of 64 bytes take 44 ns a page beside 58, whatever the length, and four
//! pages at a time 45 beside 45.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;
use std::iter::repeat_n;

use vellum::addr::{PAGE_SIZE, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::machine::{Machine, Stores};
use vellum::unstable::Extent;

use crate::bench::measure::ratio::Ratios;
use crate::bench::measure::{Effort, Samples, time};
use crate::host_vm::HostVm;
use crate::machine::{FIRST, Plan, geometry};
use crate::rng::Rng;
use crate::stores::{Choice, Method, fence};

/// Pages of the runs measured: 16 KiB to 1 GiB.
const RUNS: [(usize, &str); 7] = [
    (4, "16K"),
    (16, "64K"),
    (64, "256K"),
    (512, "2M"),
    (2048, "8M"),
    (8192, "32M"),
    (1 << 18, "1G"),
];
/// A run of a length between two of those, which no calibration has seen.
const BETWEEN: [(usize, &str); 1] = [(10, "40K")];
/// Pages of the runs that are cleared for somebody. Beyond these nothing of what is read was left
/// anyway.
const USED: [(usize, &str); 8] = [
    (16, "64K"),
    (32, "128K"),
    (64, "256K"),
    (128, "512K"),
    (256, "1M"),
    (512, "2M"),
    (1024, "4M"),
    (2048, "8M"),
];
/// Those of them that reports show: the shortest, and a large page.
const SHOWN: [usize; 2] = [16, 512];
/// Runs with a working set in one repetition, at most.
const USES: usize = 32;
/// Scattered pages that share a fence.
const BATCH: usize = 64;
/// Scattered pages, and pages that are read after clearing, of one repetition.
const PAGES: usize = 8192;
/// Pages of one turn where the library stands beside one other way.
const PAIRED: usize = 128;
/// Turns of each in a pair.
const TURNS: u64 = 4;
/// Times the hot page is cleared.
const HOT: u64 = 4000;

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    Hot,
    Read,
    Scattered,
    Run(usize),
    /// A run of so many pages, for a program with a working set.
    Used(usize),
}

impl Workload {
    pub(super) fn name(self) -> String {
        let of = |runs: &[(usize, &'static str)], pages| {
            runs.iter().find(|r| r.0 == pages).map_or("", |r| r.1)
        };
        match self {
            Workload::Hot => "clear/page-hot".into(),
            Workload::Read => "clear/page-then-read".into(),
            Workload::Scattered => "clear/page-scattered".into(),
            Workload::Run(pages) => {
                format!("clear/run-{}{}", of(&RUNS, pages), of(&BETWEEN, pages))
            }
            Workload::Used(pages) => format!("clear/used-{}", of(&USED, pages)),
        }
    }
    /// How often it is measured in a repetition. Where ways lie closest together a measurement
    /// takes milliseconds.
    fn times(self) -> usize {
        match self {
            Workload::Scattered => 2,
            Workload::Run(pages) if pages <= 512 => 2,
            _ => 1,
        }
    }
}

/// The memory and the order in which pages of it are visited.
pub(super) struct Fixture {
    pub(super) host: HostVm<X86_64, false>,
    pub(super) pages: usize,
    order: Vec<(Pfn, Va)>,
    /// Pages of the working set: half of the second level.
    pub(super) working: usize,
    /// Pages that fill all caches.
    forget: usize,
    /// Where the next pages and the next runs with a working set start.
    next: Cell<usize>,
}

impl Fixture {
    pub(super) fn new(effort: Effort, choice: Choice) -> io::Result<Fixture> {
        let pages = ((1 << 18) / effort.shrink as usize).max(2048);
        let plan = Plan { clears: choice, ..Plan::new(1, (pages * PAGE_SIZE) as u64) };
        let mut host = HostVm::new(plan, Config::default())?;
        host.vm.machine().memory().warm();
        // All of it is this benchmark's.
        host.vm.reserve(FIRST, pages as u64).map_err(io::Error::other)?;
        let mut rng = Rng::new(0x5ca1ab1e);
        let mut all: Vec<u64> = (0..pages as u64).collect();
        rng.shuffle(&mut all);
        let order = all.iter().map(|&i| (FIRST.add(i), Va(i * PAGE_SIZE as u64))).collect();
        let caches = geometry::here();
        // What most processors have, where nobody says.
        let known =
            |bytes: u64, usual: u64| (if bytes == 0 { usual } else { bytes }) as usize / PAGE_SIZE;
        let working = (known(caches.l2.bytes(), 1 << 20) / 2).clamp(1, pages / 8);
        let forget = (2 * known(caches.llc.bytes(), 32 << 20)).min(pages / 4);
        Ok(Fixture { host, pages, order, working, forget, next: Cell::new(0) })
    }

    pub(super) fn at(&self, pfn: Pfn) -> *mut u8 {
        let base = self.host.vm.machine().memory().base().as_ptr();
        // SAFETY: every frame of the benchmark lies in the mapping.
        unsafe { base.add((pfn.0 - FIRST.0) as usize * PAGE_SIZE) }
    }

    fn clear(&self, method: Method, pfn: Pfn, pages: usize) {
        // SAFETY: the frames are this benchmark's, reserved in `new`; methods measured exist here.
        unsafe { method.clear(self.at(pfn), pages * PAGE_SIZE) }
    }

    /// Reads every line of some frames.
    pub(super) fn read(&self, pfn: Pfn, pages: usize) -> u64 {
        let at = self.at(pfn).cast::<u64>();
        // SAFETY: words of frames that nobody writes meanwhile.
        (0..pages * 512).step_by(8).map(|i| unsafe { at.add(i).read_volatile() }).sum::<u64>()
    }

    /// The last frames of memory.
    pub(super) fn last(&self, pages: usize) -> Pfn {
        FIRST.add((self.pages - pages) as u64)
    }

    /// Pages that were not cleared lately.
    fn some(&self, pages: usize) -> &[(Pfn, Va)] {
        let pages = pages.min(self.pages);
        let at = self.next.get().next_multiple_of(pages) % self.pages;
        self.next.set(at + pages);
        &self.order[at..(at + pages).min(self.pages)]
    }

    /// Runs of so many pages in one measurement: all together at most half of what
    /// [`forget`](Fixture::forget) leaves, so that the next measurement goes elsewhere; but one.
    fn runs(&self, pages: usize) -> usize {
        let most = ((self.pages - self.forget) / 2).min(PAGES * 4);
        (most / pages).max(1)
    }

    /// Where so many pages in a row start that were neither cleared lately nor read by
    /// [`forget`](Fixture::forget), if there are as many: at a multiple of their number, so that
    /// two such places are the same or apart.
    fn unused(&self, pages: usize) -> usize {
        let at = self.next.get().next_multiple_of(pages);
        let at = if at + pages > self.pages - self.forget { 0 } else { at };
        self.next.set(at + pages);
        at
    }

    /// A run, for a fault at one of its pages or for nobody.
    fn run(&self, method: Option<Method>, first: Pfn, pages: usize, fault: Option<u64>) {
        let Some(m) = method else {
            let extent = Extent { first, frames: pages as u64, at: Va(0), fault };
            // SAFETY: the frames are this benchmark's, reserved in `new`.
            unsafe { self.host.vm.clear_extent(&extent) }.expect("nobody asks to stop");
            return;
        };
        self.clear(m, first, pages);
        if m.is_non_temporal() {
            fence();
        }
    }

    /// Nanoseconds a page with one of the ways; with `None` by the library.
    fn measure(&self, workload: Workload, method: Option<Method>) -> f64 {
        if matches!(workload, Workload::Read | Workload::Run(_)) {
            self.forget();
        }
        self.measure_pages(workload, method, PAGES)
    }

    /// Fills the caches with clean lines of something else.
    fn forget(&self) {
        black_box(self.read(self.last(self.forget), self.forget));
    }

    fn measure_pages(&self, workload: Workload, method: Option<Method>, pages: usize) -> f64 {
        let non_temporal = method.is_some_and(Method::is_non_temporal);
        let single = |pfn: Pfn, va: Va| match method {
            // SAFETY: as in `run`; the library clears a page for a fault like that.
            None => unsafe { self.host.vm.machine().clear_run(pfn, 1, Stores::Cached, va) },
            Some(m) => {
                self.clear(m, pfn, 1);
                if non_temporal {
                    fence();
                }
            }
        };
        match workload {
            Workload::Hot => time(HOT, || (0..HOT).for_each(|_| single(FIRST, Va(0)))),
            Workload::Read => {
                let order = self.some(pages);
                time(order.len() as u64, || {
                    for &(pfn, va) in order {
                        single(pfn, va);
                        black_box(self.read(pfn, 1));
                    }
                })
            }
            Workload::Scattered => {
                let order = self.some(pages);
                time(order.len() as u64, || {
                    for batch in order.chunks(BATCH) {
                        match method {
                            // SAFETY: as in `run`; no frame comes twice in the order.
                            None => unsafe { self.host.vm.clear_frames(batch) }
                                .expect("nobody asks to stop"),
                            Some(m) => {
                                let (fours, rest) = batch.as_chunks();
                                for four in fours {
                                    // SAFETY: as in `clear`; no frame comes twice in the order.
                                    unsafe { m.clear_four(four.map(|(pfn, _)| self.at(pfn))) }
                                }
                                rest.iter().for_each(|&(pfn, _)| self.clear(m, pfn, 1));
                                if non_temporal {
                                    fence();
                                }
                            }
                        }
                    }
                })
            }
            Workload::Run(pages) => {
                let runs = self.runs(pages);
                let at = self.unused(runs * pages);
                time((runs * pages) as u64, || {
                    let first = |n: usize| FIRST.add((at + n * pages) as u64);
                    (0..runs).for_each(|n| self.run(method, first(n), pages, None));
                })
            }
            Workload::Used(pages) => self.used(method, pages),
        }
    }

    fn used(&self, method: Option<Method>, pages: usize) -> f64 {
        let set = self.last(self.working);
        let room = (self.pages - self.working) / pages * pages;
        let runs = (room / pages).min((PAGES / pages).clamp(1, USES));
        let each = |_| {
            let at = self.next.get().next_multiple_of(pages) % room;
            self.next.set(at + pages);
            let first = FIRST.add(at as u64);
            // Twice, so that lines are where lines in use are.
            (0..2).for_each(|_| _ = black_box(self.read(set, self.working)));
            time(1, || {
                self.run(method, first, pages, Some(0));
                black_box(self.read(first, pages / 2));
                black_box(self.read(set, self.working));
            })
        };
        (0..runs).map(each).sum::<f64>() / (runs * pages) as f64
    }

    /// What is measured to choose, or to show the library beside the rest.
    fn workloads(&self, library: bool) -> Vec<Workload> {
        let between = BETWEEN.iter().filter(|_| library);
        let runs = RUNS.iter().filter(|r| r.0 <= self.pages).chain(between);
        let runs = runs.map(|r| Workload::Run(r.0));
        let used = USED.iter().filter(|r| r.0 < self.pages / 2);
        let used = used.filter(|r| !library || SHOWN.contains(&r.0)).map(|r| Workload::Used(r.0));
        [Workload::Hot, Workload::Read, Workload::Scattered]
            .into_iter()
            .chain(runs)
            .chain(used)
            .collect()
    }
}

/// What every way took at every workload; the library's way is `None`.
pub(super) type Measured = BTreeMap<Workload, BTreeMap<Option<Method>, Samples>>;

/// Every way at every workload, in turn, repeated; with the library if asked for, and then of the
/// runs for somebody only those that are shown.
pub(super) fn sample(fixture: &Fixture, effort: Effort, library: bool) -> Measured {
    let mut all = Measured::new();
    let mut ways: Vec<Option<Method>> =
        Method::here().map(Some).chain(library.then_some(None)).collect();
    let mut rng = Rng::new(0xc1ea);
    let _cpu = fixture.host.vm.machine().bind(0);
    for turn in 0..=effort.repetitions {
        if turn > 1 && (effort.stop)() {
            break;
        }
        let workloads = fixture.workloads(library).into_iter();
        for workload in workloads.flat_map(|w| repeat_n(w, w.times())) {
            rng.shuffle(&mut ways);
            for &way in &ways {
                let ns = fixture.measure(workload, way);
                // The first turn warms up.
                if turn > 0 {
                    all.entry(workload).or_default().entry(way).or_default().add(ns);
                }
            }
        }
    }
    all
}

/// How many times as fast as `peer` a way is (`None`: the library's) at scattered pages or those
/// read at once. A pair is some hundred microseconds in which the two take turns, each as often
/// first as the other.
pub(super) fn beside(
    fixture: &Fixture,
    effort: Effort,
    workload: Workload,
    (way, peer): (Option<Method>, Method),
) -> Ratios {
    let _cpu = fixture.host.vm.machine().bind(0);
    let pairs = (40 * effort.repetitions as u64 / effort.shrink).max(6);
    let mut ratios = Ratios::default();
    for pair in 0..pairs {
        if pair > 5 && (effort.stop)() {
            break;
        }
        fixture.forget();
        let (mut ours, mut theirs) = (0.0, 0.0);
        for turn in 0..TURNS {
            let mut us = || ours += fixture.measure_pages(workload, way, PAIRED);
            let mut them = || theirs += fixture.measure_pages(workload, Some(peer), PAIRED);
            // Who comes first finds what `forget` left, so that is one in every other pair.
            if (pair + turn) % 2 == 0 {
                (us(), them())
            } else {
                (them(), us())
            };
        }
        ratios.add(theirs / ours);
    }
    ratios
}

/// Lengths of the runs that were measured in a kind of workload, in pages, ascending.
pub(super) fn lengths(all: &Measured, workload: fn(usize) -> Workload) -> Vec<usize> {
    let known = RUNS.iter().chain(&USED).map(|r| r.0).filter(|&p| all.contains_key(&workload(p)));
    let mut lengths: Vec<usize> = known.collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_nobody_was_a_moment_ago() {
        for shrink in [1, 2, 3, 4, 7, 8, 16, 64, 128] {
            let effort = Effort { shrink, ..Effort::QUICK };
            let fixture = Fixture::new(effort, Choice::by_features()).expect("memory");
            let left = fixture.pages - fixture.forget;
            for (pages, name) in RUNS.into_iter().chain(BETWEEN) {
                if pages > fixture.pages {
                    continue;
                }
                let span = fixture.runs(pages) * pages;
                fixture.next.set(8192);
                let [a, b] = [0; 2].map(|_| fixture.unused(span));
                for at in [a, b] {
                    assert!(at + span <= fixture.pages && at.is_multiple_of(pages), "{name}");
                    assert!(at + span <= left || span > left, "{name} of 1 GiB / {shrink}");
                }
                let apart = a.abs_diff(b) >= span;
                assert!(apart || 2 * span > left, "{name} of 1 GiB / {shrink}: {a}, {b}");
            }
        }
    }
}
