//! `vellum bench threads`: does a second thread help?
//!
//! One thread faults in a part of a space, then two fault side by side, each as much, in parts that share no table node below the third
//! level; the ratio of their throughputs is what the second thread is worth, two being the most there can be. Such a ratio is easily spoilt by whatever
//! else runs (a core that was busy elsewhere looks like a lock), so pairs of runs are taken in turn, and the best run of two threads is held
//! against the best of one: what the design can do, where the median shows what this computer allowed. The kernel under us does the same beside.

use std::io;

use vellum::machine::Machine;
use vellum::space::{Access, Space};

use super::conditions::cores;
use super::measure::{Effort, Samples, Start, threads, wall};
use super::work::{Ground, HUGE, PAGE, area, built, fault_all, ground, map, unmap};
use super::{Report, Row, linux};

/// Pairs of runs, of which the best counts.
pub const PAIRS: usize = 10;

/// Threads that each did as much, over the time it took the slowest: pages a nanosecond.
fn rate(each: &[f64]) -> f64 {
    each.len() as f64 / each.iter().copied().fold(0.0, f64::max)
}

/// Pairs of runs: the rate of one thread, the rate of two.
#[derive(Clone, Debug, Default)]
struct Pairs {
    one: Samples,
    two: Samples,
    ratios: Samples,
}

impl Pairs {
    fn add(&mut self, [one, two]: [f64; 2]) {
        self.one.add(one);
        self.two.add(two);
        self.ratios.add(two / one);
    }
    /// The best of two threads over the best of one: a pair whose single thread was disturbed cannot make it look good.
    fn best(&self) -> f64 {
        self.two.highest() / self.one.highest()
    }
    fn median(&self) -> f64 {
        self.ratios.median()
    }
}

fn ours(host: &Ground, space: &Space, n: usize, bytes: u64, huge: bool) -> f64 {
    let vm = &host.vm;
    let start = Start::new(n);
    let step = if huge { HUGE } else { PAGE };
    let each = threads(n, |cpu| {
        let _seat = vm.machine().sit(cpu);
        vm.activate(space);
        let at = area(cpu);
        map(vm, space, at, bytes, huge);
        start.meet_with(|| vm.machine().relax());
        let each = wall(bytes / step, || fault_all(vm, space, at, bytes, step, Access::Write));
        start.meet_with(|| vm.machine().relax());
        unmap(vm, space, at, bytes);
        vm.idle();
        each
    });
    rate(&each)
}

/// A run directly after one that does not count: two cores have twice the cache of one, and would otherwise be paid for that.
fn warm(host: &Ground, space: &Space, n: usize, bytes: u64, huge: bool) -> f64 {
    ours(host, space, n, bytes, huge);
    ours(host, space, n, bytes, huge)
}

fn theirs(n: usize, bytes: u64) -> io::Result<f64> {
    let start = Start::new(n);
    let each = threads(n, |_| -> io::Result<f64> {
        let area = linux::Area::new(bytes, false);
        area.iter().for_each(|a| a.advise(false));
        start.meet();
        let each = wall(bytes / PAGE, || area.iter().for_each(|a| a.touch(PAGE, true)));
        start.meet();
        area.map(|_| each)
    });
    Ok(rate(&each.into_iter().collect::<io::Result<Vec<_>>>()?))
}

/// What a second thread that faults in the same space is worth at best, without clearing: for a test. Pairs are taken until the
/// ratio is `enough` or `most` of them were.
///
/// # Errors
/// The machine could not be built.
pub fn worth(enough: f64, most: usize) -> io::Result<f64> {
    let host = built(2, 512 << 20, false)?;
    let space = {
        let _cpu = host.vm.machine().sit(0);
        host.vm.create().map_err(io::Error::other)?
    };
    let mut pairs = Pairs::default();
    for pair in 0..=most {
        let rates = [1, 2].map(|n| warm(&host, &space, n, 64 << 20, false));
        if pair > 0 {
            pairs.add(rates);
        }
        if pair >= PAIRS && pairs.best() >= enough {
            break;
        }
    }
    let _cpu = host.vm.machine().sit(0);
    host.vm.exit(space);
    Ok(pairs.best())
}

/// What the second thread is worth, with clearing, without it, and with huge pages. No rows on a computer of one core.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort) -> io::Result<Report> {
    if cores() < 2 {
        return Ok(Report { notes: vec!["skipped: it takes two cores".to_owned()], ..Report::default() });
    }
    let bytes = (64 << 20) / effort.shrink.min(16);
    let hosts = [built(2, 512 << 20, true)?, built(2, 512 << 20, false)?];
    let space = |host: &Ground| {
        let _cpu = host.vm.machine().sit(0);
        host.vm.create().map_err(io::Error::other)
    };
    let spaces = [space(&hosts[0])?, space(&hosts[1])?];
    let rows = [("4k", 0, false), ("4k/bare", 1, false), ("2m", 0, true)];
    let mut found: [(Pairs, Pairs); 3] = Default::default();
    for pair in 0..=PAIRS {
        if pair > 1 && (effort.stop)() {
            break;
        }
        for (i, &(_, at, huge)) in rows.iter().enumerate() {
            let own = [1, 2].map(|n| warm(&hosts[at], &spaces[at], n, bytes, huge));
            let linux = if i == 0 { Some([theirs(1, bytes)?, theirs(2, bytes)?]) } else { None };
            if pair > 0 {
                found[i].0.add(own);
                linux.into_iter().for_each(|rates| found[i].1.add(rates));
            }
        }
    }
    let mut report = Report::default();
    for ((name, ..), (own, linux)) in rows.iter().zip(&found) {
        for (suffix, of) in [("", Pairs::best as fn(&Pairs) -> f64), ("/median", Pairs::median)] {
            report.benchmarks.push(Row {
                name: format!("threads/fault-{name}{suffix}"),
                threads: 2,
                unit: "x",
                ours: of(own),
                floor: None,
                peers: (!linux.ratios.is_empty()).then(|| (linux::NAME, of(linux))).into_iter().collect(),
                spread: own.ratios.spread(),
            });
        }
    }
    let pairs = found[0].0.ratios.len();
    report.notes = vec![ground(&hosts[0]), format!("best and median of {pairs} pairs of runs, in turn")];
    for (host, space) in hosts.iter().zip(spaces) {
        let _cpu = host.vm.machine().sit(0);
        host.vm.exit(space);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_thread_decides_the_rate() {
        assert_eq!(rate(&[10.0]), 0.1);
        assert_eq!(rate(&[10.0, 20.0]) / rate(&[10.0]), 1.0, "a second thread that takes twice as long adds nothing");
        assert_eq!(rate(&[10.0, 10.0]) / rate(&[10.0]), 2.0);
    }

    #[test]
    fn a_pair_whose_single_thread_was_disturbed_does_not_count_as_the_best() {
        let mut pairs = Pairs::default();
        pairs.add([0.1, 0.18]);
        pairs.add([0.02, 0.17]);
        assert!((pairs.best() - 1.8).abs() < 1e-9);
    }
}
