//! `vellum bench threads`: the throughput of two threads against one.
//!
//! One thread faults in a part of a space. Then two fault side by side, each as much, in parts that
//! share no table node below the third level. The ratio of their throughputs is the gain; two is
//! the most possible. Other load spoils it easily: a core that is busy elsewhere looks like a lock.
//! So pairs of runs are taken in turn. The best run of two threads against the best of one shows
//! what the design can do; the median shows what this computer allowed. The kernel under us does
//! the same beside.
//!
//! The floor is two threads that do about as much and share nothing: the cores of a virtual machine
//! may be two halves of one, and then nothing scales. A loop that only clears, the frames that the
//! faults were given and in the same order, shows what of a fault is memory. Last, two threads in
//! one space are compared with two threads on one machine each, in pairs. The computer's effects
//! cancel in that ratio. A lock makes it a half or less.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use vellum::addr::{Pfn, Va};
use vellum::machine::Machine;
use vellum::space::{Access, Page, Space};

use super::fixture::{BareVm, HUGE, PAGE, Pages, area, boot, fault_all, map, memory_note, unmap};
use super::frames::peers::SwapLock;
use super::measure::conditions::{cores, interruptions};
use super::measure::ratio::Ratios;
use super::measure::{Effort, Samples, Start, threads, wall};
use super::{Report, Row, linux};

/// Pairs of undisturbed runs, of which the best counts.
pub const PAIRS: usize = 10;

/// Pairs tried where too many are interrupted.
pub const TRIES: usize = 60;

/// A run: nanoseconds per page of each thread, and whether something came between: a thread lost
/// its core on the way, or the threads did not run side by side, because one of them had no core
/// when the other began.
#[derive(Clone, Debug)]
pub(super) struct Run {
    each: Vec<f64>,
    interrupted: bool,
}

/// A thread's part of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    each: f64,
    interruptions: u64,
    began: Instant,
    ended: Instant,
}

impl Run {
    pub(super) fn of(parts: Vec<Part>) -> Run {
        let interrupted = parts.iter().any(|p| p.interruptions != 0) || !side_by_side(&parts);
        Run { each: parts.into_iter().map(|p| p.each).collect(), interrupted }
    }
    /// Threads that each did as much, over the time it took the slowest: pages a nanosecond.
    fn rate(&self) -> f64 {
        self.each.len() as f64 / self.each.iter().copied().fold(0.0, f64::max)
    }
}

/// Pairs of runs, one thread's beside two threads'. Those that were interrupted count only as long
/// as there are no others.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    quiet: usize,
    tried: usize,
    one: Samples,
    two: Samples,
    ratios: Samples,
}

impl Pairs {
    pub(super) fn add(&mut self, [one, two]: [Run; 2]) {
        let interrupted = one.interrupted || two.interrupted;
        self.tried += 1;
        if interrupted && self.quiet > 0 {
            return;
        }
        if !interrupted && self.quiet == 0 {
            *self = Pairs { tried: self.tried, ..Pairs::default() };
        }
        self.quiet += usize::from(!interrupted);
        self.one.add(one.rate());
        self.two.add(two.rate());
        self.ratios.add(two.rate() / one.rate());
    }
    pub(super) fn is_enough(&self) -> bool {
        self.quiet >= PAIRS || self.tried >= TRIES
    }
    /// The best of two threads over the best of one: a pair whose single thread was disturbed
    /// cannot make it look good.
    pub(super) fn best(&self) -> f64 {
        self.two.highest() / self.one.highest()
    }
    pub(super) fn median(&self) -> f64 {
        self.ratios.median()
    }
    pub(super) fn spread(&self) -> f64 {
        self.ratios.spread()
    }
    /// How many pairs were quiet, of how many tried.
    pub(super) fn counts(&self) -> String {
        format!("{} of {}", self.quiet, self.tried)
    }
}

/// Whether all ran at once for four fifths of the time that the shortest of them took.
fn side_by_side(parts: &[Part]) -> bool {
    let (Some(began), Some(ended)) =
        (parts.iter().map(|p| p.began).max(), parts.iter().map(|p| p.ended).min())
    else {
        return true;
    };
    let shortest = parts.iter().map(|p| p.ended - p.began).min().unwrap_or_default();
    ended.saturating_duration_since(began) * 5 >= shortest * 4
}

/// [`wall`], with when it was and what the thread lost its core for.
pub(super) fn clocked(pages: u64, f: impl FnOnce()) -> Part {
    let (before, began) = (interruptions(), Instant::now());
    let each = wall(pages, f);
    Part { each, ended: Instant::now(), interruptions: interruptions() - before, began }
}

/// `on`: where the threads fault, all of them at one place or each at its own.
fn ours(on: &[(&BareVm, &Space)], n: usize, bytes: u64, huge: bool) -> Run {
    let start = Start::new(n);
    let step = if huge { HUGE } else { PAGE };
    Run::of(threads(n, |cpu| {
        let (host, space) = on[cpu % on.len()];
        let vm = &host.vm;
        let _cpu = vm.machine().bind(cpu);
        vm.activate(space);
        let at = area(cpu);
        map(vm, space, at, bytes, huge);
        start.meet_with(|| vm.machine().relax());
        let took = clocked(bytes / step, || {
            fault_all(vm, space, Pages::new(at, bytes, huge), Access::Write)
        });
        start.meet_with(|| vm.machine().relax());
        unmap(vm, space, at, bytes);
        vm.deactivate();
        took
    }))
}

/// Threads that clear the frames of pages that they have just faulted in, in the order of the
/// faults.
fn clearing(host: &BareVm, space: &Space, n: usize, bytes: u64) -> Run {
    let start = Start::new(n);
    Run::of(threads(n, |cpu| {
        let vm = &host.vm;
        let _cpu = vm.machine().bind(cpu);
        vm.activate(space);
        let at = area(cpu);
        map(vm, space, at, bytes, false);
        fault_all(vm, space, Pages::new(at, bytes, false), Access::Write);
        let frame = |page| match vm.query(space, Va(at.0 + page * PAGE)) {
            Page::Mapped { pfn, .. } => pfn,
            other => panic!("a page that was written is mapped, not {other:?}"),
        };
        let frames: Vec<Pfn> = (0..bytes / PAGE).map(frame).collect();
        start.meet_with(|| vm.machine().relax());
        let took = clocked(bytes / PAGE, || {
            for &pfn in &frames {
                // SAFETY: the frame backs a private page of this thread, which reads none of it.
                unsafe { vm.machine().clear(pfn, 1) }
            }
        });
        start.meet_with(|| vm.machine().relax());
        unmap(vm, space, at, bytes);
        vm.deactivate();
        took
    }))
}

/// Threads that do about what a fault does and share nothing at all: a swap and a store on a lock
/// of one's own, a line written, and arithmetic that keeps a core busy. Instructions that wait for
/// each other would leave room for a second thread on the same core.
fn nothing_shared(n: usize, pages: u64) -> Run {
    let start = Start::new(n);
    Run::of(threads(n, |_| {
        let own = SwapLock::new(0u64);
        // Written once, or the kernel's own faults would be part of it.
        let mut lines = vec![[1u64; 8]; pages as usize];
        start.meet();
        let took = clocked(pages, || {
            for line in &mut lines {
                let n = own.with(|n| {
                    *n += 1;
                    *n
                });
                let mut chains = [n; 8];
                for _ in 0..16 {
                    for x in &mut chains {
                        *x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
                    }
                }
                *line = std::hint::black_box(chains);
            }
        });
        start.meet();
        took
    }))
}

/// A run directly after one that does not count: two cores have twice the cache of one, and would
/// otherwise be paid for that.
fn warm(on: &[(&BareVm, &Space)], n: usize, bytes: u64, huge: bool) -> Run {
    ours(on, n, bytes, huge);
    ours(on, n, bytes, huge)
}

fn theirs(n: usize, bytes: u64) -> io::Result<Run> {
    let start = Start::new(n);
    let each = threads(n, |_| -> io::Result<Part> {
        let area = linux::Area::new(bytes, false);
        area.iter().for_each(|a| a.advise(false));
        start.meet();
        let took = clocked(bytes / PAGE, || area.iter().for_each(|a| a.touch(PAGE, true)));
        start.meet();
        area.map(|_| took)
    });
    Ok(Run::of(each.into_iter().collect::<io::Result<_>>()?))
}

/// What the second thread is worth, with clearing, without it, and with huge pages. No rows on a
/// computer of one core.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort) -> io::Result<Report> {
    if cores() < 2 {
        return Ok(Report {
            notes: vec!["skipped: it takes two cores".to_owned()],
            ..Report::default()
        });
    }
    let bytes = (64 << 20) / effort.shrink.min(16);
    let hosts = [boot(2, 512 << 20, true)?, boot(2, 512 << 20, false)?, boot(2, 512 << 20, false)?];
    let space = |host: &BareVm| {
        let _cpu = host.vm.machine().bind(0);
        host.vm.create().map_err(io::Error::other)
    };
    let spaces = [space(&hosts[0])?, space(&hosts[1])?, space(&hosts[2])?];
    let bare = [(&hosts[1], &spaces[1]), (&hosts[2], &spaces[2])];
    let rows = [("4k", 0, false), ("4k/bare", 1, false), ("2m", 0, true)];
    let mut found: [(Pairs, Pairs); 3] = Default::default();
    let tries = if effort.shrink > 1 { PAIRS } else { TRIES };
    let [mut control, mut clears] = [Pairs::default(), Pairs::default()];
    let mut shared = Ratios::default();
    for pair in 0..tries {
        if pair > 1 && (effort.stop)() {
            break;
        }
        if !control.is_enough() {
            control.add([1, 2].map(|n| nothing_shared(n, bytes / PAGE)));
        }
        if !clears.is_enough() {
            clears.add([1, 2].map(|n| clearing(&hosts[0], &spaces[0], n, bytes)));
        }
        if shared.len() < PAIRS {
            let [one, two] = [&bare[..1], &bare].map(|on| warm(on, 2, bytes, false));
            if !one.interrupted && !two.interrupted {
                shared.add(one.rate() / two.rate());
            }
        }
        for (&(_, at, huge), (own, linux)) in rows.iter().zip(&mut found) {
            if !own.is_enough() {
                own.add([1, 2].map(|n| warm(&[(&hosts[at], &spaces[at])], n, bytes, huge)));
            }
            if at == 0 && !huge && !linux.is_enough() {
                linux.add([theirs(1, bytes)?, theirs(2, bytes)?]);
            }
        }
    }
    let mut report = Report::default();
    let alone = (clears, Pairs::default());
    let faults =
        rows.iter().zip(&found).map(|((name, ..), pairs)| (format!("fault-{name}"), pairs));
    for (name, (own, linux)) in faults.chain([("clear-4k".to_owned(), &alone)]) {
        for (suffix, of) in [("", Pairs::best as fn(&Pairs) -> f64), ("/median", Pairs::median)] {
            report.benchmarks.push(Row {
                name: format!("threads/{name}{suffix}"),
                threads: 2,
                unit: "x",
                ours: of(own),
                floor: Some(of(&control)),
                peers: (!linux.ratios.is_empty())
                    .then(|| (linux::NAME, of(linux)))
                    .into_iter()
                    .collect(),
                spread: own.spread(),
            });
        }
    }
    if !shared.is_empty() {
        report.benchmarks.push(Row {
            name: "threads/one-space-over-two-machines".to_owned(),
            threads: 2,
            unit: "x",
            ours: shared.median(),
            floor: None,
            peers: BTreeMap::new(),
            spread: shared.uncertainty(),
        });
    }
    let counts = found.iter().map(|(own, _)| own.counts()).collect::<Vec<_>>();
    report.notes = vec![
        memory_note(&hosts[0]),
        format!("pairs in which no thread lost its core, of all tried: {}", counts.join(", ")),
    ];
    for (host, space) in hosts.iter().zip(spaces) {
        let _cpu = host.vm.machine().bind(0);
        host.vm.exit(space);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(each: &[f64], interrupted: bool) -> Run {
        Run { each: each.to_vec(), interrupted }
    }

    #[test]
    fn the_slower_thread_decides_the_rate() {
        let rate = |each: &[f64]| run(each, false).rate();
        assert_eq!(rate(&[10.0]), 0.1);
        assert_eq!(
            rate(&[10.0, 20.0]) / rate(&[10.0]),
            1.0,
            "a second thread that takes twice as long adds nothing"
        );
        assert_eq!(rate(&[10.0, 10.0]) / rate(&[10.0]), 2.0);
    }

    #[test]
    fn threads_that_took_turns_did_not_run_side_by_side() {
        use std::time::Duration;
        let zero = Instant::now();
        let part = |from, to| Part {
            each: 1.0,
            interruptions: 0,
            began: zero + Duration::from_micros(from),
            ended: zero + Duration::from_micros(to),
        };
        assert!(!Run::of(vec![part(0, 700)]).interrupted);
        assert!(!Run::of(vec![part(0, 700), part(100, 800)]).interrupted);
        assert!(Run::of(vec![part(0, 700), part(3000, 3700)]).interrupted, "one after the other");
        assert!(Run::of(vec![part(0, 700), part(300, 1000)]).interrupted);
    }

    #[test]
    fn a_pair_whose_single_thread_was_disturbed_does_not_count_as_the_best() {
        let mut pairs = Pairs::default();
        pairs.add([run(&[10.0], false), run(&[11.0, 12.5], false)]);
        pairs.add([run(&[50.0], false), run(&[12.0, 13.0], false)]);
        assert!((pairs.best() - 1.6).abs() < 1e-9);
    }

    #[test]
    fn interrupted_pairs_count_only_where_there_are_no_others() {
        let mut pairs = Pairs::default();
        pairs.add([run(&[10.0], false), run(&[10.0, 90.0], true)]);
        assert!(pairs.best() < 1.0);
        pairs.add([run(&[10.0], false), run(&[10.0, 10.0], false)]);
        pairs.add([run(&[2.0], true), run(&[10.0, 10.0], false)]);
        assert_eq!((pairs.best(), pairs.median(), pairs.quiet, pairs.tried), (2.0, 2.0, 1, 3));
    }
}
