//! Estimates with their intervals, and signs.

use vellum_host::bench::measure::ratio::Ratios;

/// What is known of a figure: its best value, and from where to where it may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// On which side of 1 a ratio is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// Below: the change makes the program faster.
    Faster,
    /// Above.
    Slower,
    /// The interval has 1 in it.
    Open,
}

/// Fewer values than this have no interval of 95 %.
pub const FEWEST: usize = 6;

/// The median; of an even number of values the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The median with its interval of 95 %.
pub fn of_median(values: &[f64]) -> Estimate {
    let mut ratios = Ratios::default();
    values.iter().for_each(|&value| ratios.add(value));
    let (low, high) = ratios.interval();
    Estimate { value: median(values), low, high }
}

/// The median with the least and the greatest value.
pub fn of_range(values: &[f64]) -> Estimate {
    let fold = |start, pick: fn(f64, f64) -> f64| values.iter().copied().fold(start, pick);
    Estimate {
        value: median(values),
        low: fold(f64::INFINITY, f64::min),
        high: fold(f64::NEG_INFINITY, f64::max),
    }
}

impl Estimate {
    /// The side of 1 on which the whole interval is.
    pub fn sign(&self) -> Sign {
        if self.high < 1.0 {
            Sign::Faster
        } else if self.low > 1.0 {
            Sign::Slower
        } else {
            Sign::Open
        }
    }
    /// Whether a predicted value is on the side on which this was measured to be; `None` where
    /// this may be on either.
    pub fn agrees(&self, predicted: f64) -> Option<bool> {
        match self.sign() {
            Sign::Faster => Some(predicted < 1.0),
            Sign::Slower => Some(predicted > 1.0),
            Sign::Open => None,
        }
    }
}

/// By how much a predicted value is off, as a share of the measured one; negative if it is too
/// small.
pub fn error(predicted: f64, measured: f64) -> f64 {
    predicted / measured - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_interval_leaves_out_what_tables_of_the_sign_test_say() {
        let outside = |count: usize| {
            let low = of_median(&(0..count).map(|n| n as f64).collect::<Vec<_>>()).low;
            low.is_finite().then_some(low as usize)
        };
        // The published critical values for 5 %, both sides, less one: ranks begin with 0 here.
        let published =
            [(5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (11, Some(1)), (12, Some(2))];
        for (count, cut) in published {
            assert_eq!(outside(count), cut, "{count}");
        }
        assert_eq!([outside(20), outside(25)], [Some(5), Some(7)]);
        assert_eq!(outside(FEWEST - 1), None);
        assert!(outside(FEWEST).is_some());
    }

    #[test]
    fn one_wild_value_moves_neither_the_median_nor_the_interval() {
        let mut values: Vec<f64> = (0..11).map(|n| 1.0 + f64::from(n) / 100.0).collect();
        let calm = of_median(&values);
        assert_eq!((calm.value, calm.low, calm.high), (1.05, 1.01, 1.09));
        values[10] = 1000.0;
        assert_eq!(of_median(&values), calm);
        assert_eq!(of_range(&values).high, 1000.0);
    }

    #[test]
    fn a_sign_counts_only_where_the_interval_excludes_one() {
        let of = |low, high| Estimate { value: f64::midpoint(low, high), low, high };
        assert_eq!(of(0.8, 0.9).sign(), Sign::Faster);
        assert_eq!(of(1.1, 1.2).sign(), Sign::Slower);
        assert_eq!(of(0.9, 1.1).sign(), Sign::Open);
        assert_eq!(of(0.8, 0.9).agrees(0.99), Some(true));
        assert_eq!(of(0.8, 0.9).agrees(1.0), Some(false));
        assert_eq!(of(1.1, 1.2).agrees(0.99), Some(false));
        assert_eq!(of(0.9, 1.1).agrees(0.5), None);
        assert_eq!(of_median(&[0.5; 5]).agrees(2.0), None, "too few values say nothing");
    }

    #[test]
    fn an_error_is_a_share_of_what_was_measured() {
        assert_eq!(error(1.5, 1.0), 0.5);
        assert_eq!(error(0.5, 2.0), -0.75);
    }
}
