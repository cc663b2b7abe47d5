//! Which stores clear what.
//!
//! There are five answers: for a single page that is used at once, for a run that is not used at
//! once through the caches and around them, for pages that lie anywhere, and the length from which
//! non-temporal stores pay. [`Choice::by_features`] answers from
//! the processor's features; [`calibrate`](crate::bench::clear::calibrate) measures. A machine
//! built with the measured answer clears as fast as this host can.

use super::Method;

/// The answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// A page that is used at once, and short runs.
    pub page: Method,
    /// A longer run through the caches.
    pub run: Method,
    /// A run with non-temporal stores.
    pub non_temporal: Method,
    /// Pages that lie anywhere, with non-temporal stores.
    pub scattered: Method,
    /// Bytes from which non-temporal stores pay; 0: from what the second-level cache holds;
    /// [`u64::MAX`]: never.
    pub from: u64,
}

impl Choice {
    /// Without measuring: the widest vector stores, fetched ahead, for a page, strings for a run,
    /// the widest non-temporal stores for runs that the second-level cache does not hold.
    pub fn by_features() -> Choice {
        let first = |wanted: &[Method]| {
            wanted.iter().copied().find(|m| m.exists()).unwrap_or(Method::Memset)
        };
        let non_temporal =
            first(&[Method::Four64, Method::NonTemporal32, Method::NonTemporal16, Method::Lines]);
        let scattered = first(&[Method::Four64, Method::FourLines, non_temporal]);
        Choice {
            page: first(&[Method::Ahead, Method::Vector64, Method::Vector32, Method::Lines]),
            run: first(&[Method::Strings, Method::Lines]),
            non_temporal,
            scattered,
            from: if non_temporal.is_non_temporal() { 0 } else { u64::MAX },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_exists_and_goes_where_it_should() {
        let choice = Choice::by_features();
        let Choice { page, run, non_temporal, scattered, .. } = choice;
        assert!([page, run, non_temporal, scattered].into_iter().all(Method::exists));
        assert!(!choice.page.is_non_temporal() && !choice.run.is_non_temporal());
        assert!(choice.non_temporal.is_non_temporal() || choice.from == u64::MAX);
    }
}
