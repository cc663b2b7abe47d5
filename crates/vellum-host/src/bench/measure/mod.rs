//! The clock, the pinning, the statistics.
//!
//! A repetition runs its threads side by side. Each is pinned to a core, they meet before every
//! phase, and each times its own part. The result is the mean over threads of the time per
//! operation, so a slower second thread shows.
//!
//! A thread that works alone is timed by the wall clock and by its CPU time, and the smaller
//! counts. They agree to a microsecond on a quiet computer; on a busy one, the first contains what
//! others did with the core. Threads that work side by side are timed by the wall clock alone: if
//! they take turns on one core, CPU time would hide it.

pub mod conditions;
pub mod ratio;
pub mod table;

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use conditions::host_faults;

/// How much to measure, and whether to go on.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Repetitions that count, after one that does not.
    pub repetitions: usize,
    /// Operations are divided by this: 1 for numbers worth printing, more for a test that only asks
    /// whether it runs.
    pub shrink: u64,
    /// Lives that are averaged where one life differs from the next by more than what is compared.
    pub lives: usize,
    /// Asked between repetitions: whoever waits may have seen enough. What was measured until then
    /// is reported.
    pub stop: fn() -> bool,
}

impl Effort {
    /// For numbers worth printing.
    pub const FULL: Effort = Effort { repetitions: 7, shrink: 1, lives: 4, stop: || false };
    /// The same, so that all benchmarks together take two minutes.
    pub const SHORT: Effort = Effort { repetitions: 3, lives: 2, ..Effort::FULL };
    /// For a test.
    pub const QUICK: Effort = Effort { repetitions: 1, shrink: 64, lives: 1, ..Effort::FULL };
}

/// Where the threads of a repetition meet: a spinning barrier, since one that sleeps would let them
/// start apart.
#[derive(Debug)]
pub struct Start {
    threads: usize,
    arrived: AtomicUsize,
}

impl Start {
    /// A meeting point of that many threads.
    pub fn new(threads: usize) -> Start {
        Start { threads, arrived: AtomicUsize::new(0) }
    }
    /// Waits for the others.
    pub fn meet(&self) {
        self.meet_with(|| ());
    }
    /// Waits for the others and calls `relax` meanwhile: a thread that is a CPU of a machine has
    /// flushes to serve.
    pub fn meet_with(&self, relax: impl Fn()) {
        let mine = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (mine / self.threads + 1) * self.threads;
        let mut spins = 0u32;
        while self.arrived.load(Ordering::Acquire) < all {
            spins += 1;
            if spins.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
            relax();
            spin_loop();
        }
    }
}

/// Pins this thread to the `nth` core it is allowed to run on. Where the system refuses, it runs
/// where it may.
pub fn pin(nth: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&c| allowed.is_set(c)).collect();
    if let Some(&core) = cores.get(nth % cores.len().max(1)) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Runs `f(thread)` on that many pinned threads and returns what each found.
pub fn threads<R: Send>(n: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    std::thread::scope(|s| {
        let f = &f;
        let spawned: Vec<_> = (0..n)
            .map(|i| {
                s.spawn(move || {
                    pin(i);
                    ALONE.set(n == 1);
                    f(i)
                })
            })
            .collect();
        spawned
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Runs `f` on a pinned thread of its own.
pub fn alone<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| {
        let thread = s.spawn(|| {
            pin(0);
            ALONE.set(true);
            f()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Nanoseconds per operation by the wall's clock alone: for one thread that is to be compared with
/// two.
#[inline]
pub fn wall(operations: u64, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / operations.max(1) as f64
}

thread_local! {
    /// Whether this thread was started to work alone.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Nanoseconds per operation of `f`, which does `operations`.
#[inline]
pub fn time(operations: u64, f: impl FnOnce()) -> f64 {
    let own = ALONE.get().then(|| clock_gettime(ClockId::ThreadCPUTime));
    let by_wall = wall(1, f);
    let own = own.map(|from| {
        let to = clock_gettime(ClockId::ThreadCPUTime);
        (to.tv_sec - from.tv_sec) as f64 * 1e9 + (to.tv_nsec - from.tv_nsec) as f64
    });
    charged(by_wall, own) / operations.max(1) as f64
}

/// Of the wall's clock and the thread's own, where that counts, what is shorter.
fn charged(by_wall: f64, own: Option<f64>) -> f64 {
    own.map_or(by_wall, |own| by_wall.min(own))
}

/// What a timed piece of work was like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// Nanoseconds per operation.
    pub each: f64,
    /// First touches the host's own kernel served to this thread meanwhile. Anything but a few
    /// means that memory was not warm and that the host was measured instead.
    pub host_faults: u64,
}

/// [`time`], with the host's own faults counted.
#[inline]
pub fn timed(operations: u64, f: impl FnOnce()) -> Timed {
    let before = host_faults();
    let each = time(operations, f);
    Timed { each, host_faults: host_faults() - before }
}

/// Calls `f` with more and more operations until they take 2 ms, then times as many once more. For
/// acts whose cost differs a hundredfold from one allocator to the next.
pub fn time_enough(effort: Effort, mut f: impl FnMut(u64)) -> f64 {
    let mut n = 256;
    let enough = 2_000_000.0 / effort.shrink as f64;
    loop {
        let each = time(n, || f(n));
        if each * n as f64 >= enough {
            return time(n, || f(n));
        }
        n *= 2;
    }
}

/// Numbers of one row, one a repetition.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// One more.
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// From the lowest to the highest.
    pub fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
    fn quantile(&self, q: f64) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            n => sorted[((n - 1) as f64 * q).round() as usize],
        }
    }
    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
    /// The highest.
    pub fn highest(&self) -> f64 {
        self.quantile(1.0)
    }
    /// The mean, for numbers without wild ones.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
    /// Third minus first quartile, over the median.
    pub fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_spread_ignore_one_wild_sample() {
        let mut s = Samples::default();
        [10.0, 11.0, 9.0, 10.0, 1000.0].into_iter().for_each(|v| s.add(v));
        assert_eq!(s.median(), 10.0);
        assert!((s.spread() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_thread_that_works_alone_is_not_charged_for_what_others_do_with_its_core() {
        assert_eq!(charged(30e6, Some(1e3)), 1e3, "sleeping is no work");
        assert_eq!(
            charged(1e3, Some(2e3)),
            1e3,
            "what reading its own clock takes is none, either"
        );
        assert_eq!(charged(30e6, None), 30e6, "side by side the wall counts");
        assert!(alone(|| ALONE.get()) && !threads(2, |_| ALONE.get()).contains(&true));
    }

    #[test]
    fn threads_meet_at_every_phase() {
        let start = Start::new(2);
        let phase = [AtomicUsize::new(0), AtomicUsize::new(0)];
        threads(2, |me| {
            for n in 1..100 {
                phase[me].store(n, Ordering::SeqCst);
                start.meet();
                assert!(phase[1 - me].load(Ordering::SeqCst) >= n);
            }
        });
    }
}
