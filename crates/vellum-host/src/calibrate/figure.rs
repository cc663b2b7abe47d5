//! A measured time and how well two runs of its measurement agree.

use std::time::Instant;

/// A time of one act, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The shortest of the runs: whatever disturbs a measurement makes it slower.
    pub ns: f64,
    /// By how much the second-best run was slower, as a share.
    pub spread: f64,
}

/// Two runs that differ by less agree.
const AGREE: f64 = 0.05;
/// Runs at most.
const RUNS: usize = 5;

impl Figure {
    /// Repeats a measurement until its two best runs agree to 5 %, at most five times.
    pub(super) fn settle(mut run: impl FnMut() -> f64) -> Figure {
        let (first, second) = (run(), run());
        let mut best = [first.min(second), first.max(second)];
        for _ in 2..RUNS {
            if best[1] <= best[0] * (1.0 + AGREE) {
                break;
            }
            let next = run();
            best = match next < best[0] {
                true => [next, best[0]],
                false => [best[0], best[1].min(next)],
            };
        }
        Figure { ns: best[0], spread: best[1] / best[0] - 1.0 }
    }

    /// The time beyond that of another act; not below nothing.
    pub fn beyond(self, other: Figure) -> Figure {
        let ns = (self.ns - other.ns).max(0.0);
        let apart = self.ns * self.spread + other.ns * other.spread;
        Figure { ns, spread: if ns > 0.0 { apart / ns } else { 0.0 } }
    }
}

/// The shortest of several repetitions, as nanoseconds for each of `count` acts. A repetition
/// shorter than a scheduler's turn is now and then undisturbed even on a busy computer.
pub(super) fn fastest(repetitions: u32, count: usize, mut run: impl FnMut()) -> f64 {
    let times = (0..repetitions.max(1)).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let best = times.min().unwrap_or_default();
    (best.as_nanos() as f64 / count.max(1) as f64).max(1e-3)
}

/// Pieces that take so many times as long as the fastest are not of the same kind: a hypervisor had
/// to find memory.
const OTHER_KIND: f64 = 4.0;

/// The median of pieces, without those of another kind. For work over memory: where its lines are
/// makes a piece faster as well as slower, and programs meet all of them.
pub(super) fn typical(mut pieces: Vec<f64>) -> f64 {
    pieces.sort_by(f64::total_cmp);
    let fastest = pieces.first().copied().unwrap_or(f64::INFINITY);
    let alike = pieces.partition_point(|&ns| ns <= fastest * OTHER_KIND);
    pieces.get(alike / 2).copied().unwrap_or(fastest)
}

/// The mean of the same pieces. For work that a long run has one after the other: it meets all.
pub(super) fn mean(pieces: &[f64]) -> f64 {
    let fastest = pieces.iter().copied().fold(f64::INFINITY, f64::min);
    let alike = || pieces.iter().filter(|&&ns| ns <= fastest * OTHER_KIND);
    if pieces.is_empty() { fastest } else { alike().sum::<f64>() / alike().count() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_repeated_until_two_agree() {
        let of = |runs: &[f64]| {
            let (mut left, mut taken) = (runs.iter(), 0);
            let figure = Figure::settle(|| {
                taken += 1;
                *left.next().expect("no more runs than that")
            });
            (figure.ns, (figure.spread * 1000.0).round() / 1000.0, taken)
        };
        assert_eq!(of(&[100.0, 104.0]), (100.0, 0.04, 2));
        assert_eq!(of(&[200.0, 100.0, 150.0, 102.0]), (100.0, 0.02, 4));
        assert_eq!(of(&[200.0, 150.0, 120.0, 100.0, 80.0]), (80.0, 0.25, 5));
    }

    #[test]
    fn the_typical_piece_is_the_median_of_those_that_needed_no_memory_of_a_hypervisor() {
        assert_eq!(typical(vec![87.0, 31.0, 4700.0, 88.0, 86.0, 4800.0, 4900.0]), 87.0);
        assert_eq!(typical(vec![4700.0]), 4700.0);
        assert_eq!(typical(vec![]), f64::INFINITY);
    }

    #[test]
    fn the_mean_is_that_of_the_same_pieces() {
        assert_eq!(mean(&[10.0, 12.0, 4700.0, 38.0]), 20.0);
        assert_eq!(mean(&[4700.0]), 4700.0);
        assert_eq!(mean(&[]), f64::INFINITY);
    }

    #[test]
    fn a_difference_carries_the_spread_of_both() {
        let (whole, part) = (Figure { ns: 50.0, spread: 0.02 }, Figure { ns: 40.0, spread: 0.05 });
        assert_eq!(whole.beyond(part), Figure { ns: 10.0, spread: 0.3 });
        assert_eq!(part.beyond(whole), Figure { ns: 0.0, spread: 0.0 });
    }
}
