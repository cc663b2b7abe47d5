//! Ratios of two things that are measured at the same moment, again and again.
//!
//! The load of a computer changes from one second to the next and affects both halves of a pair
//! alike. So pairs are divided, never one best or median by another from another second. The result
//! is the median of the ratios, with its 95 % confidence interval. The interval is read off the
//! sorted ratios (the number below the median is binomial), so it assumes nothing about the
//! distribution of disturbances.
//!
//! A limit inside the interval is undecided: more pairs may decide it. Rejected: the mean and its
//! deviation, which one disturbed pair moves; quartiles, which tell how pairs differ and not how
//! well the median is known.

use super::Samples;

/// Ratios of pairs.
#[derive(Clone, Debug, Default)]
pub struct Ratios(Samples);

/// On which side of a limit the median lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// All of the interval is less.
    Below,
    /// All of the interval is more.
    Above,
    /// The pairs do not tell.
    Open,
}

impl Ratios {
    /// One more pair.
    pub fn add(&mut self, ratio: f64) {
        self.0.add(ratio);
    }
    /// Pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The median; not a number if there are no pairs.
    pub fn median(&self) -> f64 {
        self.0.median()
    }
    /// Where the median lies with 95 % certainty; anywhere for fewer than six pairs.
    pub fn interval(&self) -> (f64, f64) {
        let n = self.len();
        let sorted = self.0.sorted();
        match outer(n) {
            Some(k) => (sorted[k], sorted[n - 1 - k]),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }
    /// Half the length of the interval, over the median: by how much the median may be wrong.
    pub fn uncertainty(&self) -> f64 {
        let (low, high) = self.interval();
        (high - low) / 2.0 / self.median()
    }
    /// On which side of `limit` the median lies.
    pub fn side(&self, limit: f64) -> Side {
        match self.interval() {
            (_, high) if high < limit => Side::Below,
            (low, _) if low > limit => Side::Above,
            _ => Side::Open,
        }
    }
}

/// How many of `n` sorted samples lie outside the interval on each side: as many as a coin thrown n
/// times shows heads no more often than in 2.5 % of all cases.
fn outer(n: usize) -> Option<usize> {
    let mut exactly = 0.5f64.powi(n as i32);
    let mut at_most = exactly;
    let mut k = 0;
    while at_most <= 0.025 {
        exactly *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
        at_most += exactly;
    }
    k.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: impl IntoIterator<Item = f64>) -> Ratios {
        let mut all = Ratios::default();
        ratios.into_iter().for_each(|r| all.add(r));
        all
    }

    #[test]
    fn the_interval_is_that_of_the_tables_of_the_binomial_distribution() {
        // Ranks counted from 1 in such tables: 6: 1 and 6; 10: 2 and 9; 20: 6 and 15; 50: 18 and
        // 33; 100: 40 and 61.
        assert_eq!(
            [5, 6, 10, 20, 50, 100].map(outer),
            [None, Some(0), Some(1), Some(5), Some(17), Some(39)]
        );
        assert_eq!(of((1..=10).map(f64::from)).interval(), (2.0, 9.0));
    }

    #[test]
    fn a_limit_is_decided_only_where_the_interval_does_not_hold_it() {
        let even = || (0..20).map(|n| 0.9 + 0.01 * f64::from(n));
        assert_eq!(of(even()).side(2.0), Side::Below);
        assert_eq!(of(even()).side(0.5), Side::Above);
        assert_eq!(of(even()).side(1.0), Side::Open);
        assert_eq!(of([0.1; 5]).side(1.0), Side::Open, "five pairs say nothing");
        assert_eq!(of([0.1; 6]).side(1.0), Side::Below);
        assert_eq!(of([]).side(1.0), Side::Open);
    }

    #[test]
    fn a_few_disturbed_pairs_move_neither_the_median_nor_the_verdict() {
        let ratios = of((0..20).map(|n| if n < 4 { 50.0 } else { 0.97 + 0.001 * f64::from(n) }));
        assert_eq!(ratios.side(1.0), Side::Below);
        assert!(ratios.median() < 1.0 && ratios.uncertainty() < 0.01);
    }
}
