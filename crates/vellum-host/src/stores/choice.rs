//! Which stores clear what.
//!
//! There are three answers: for a single page that is used at once, for a run that is not used at
//! once, and the length from which non-temporal stores pay. [`Choice::by_features`] answers from
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
    /// Around the caches.
    pub around: Method,
    /// Bytes from which going around pays; 0: from what the second-level cache holds; [`u64::MAX`]:
    /// never.
    pub from: u64,
}

impl Choice {
    /// Without measuring: the widest vector stores, fetched ahead, for a page, strings for a run,
    /// the widest stores around the caches for runs that the second-level cache does not hold.
    pub fn by_features() -> Choice {
        let first = |wanted: &[Method]| {
            wanted.iter().copied().find(|m| m.exists()).unwrap_or(Method::Memset)
        };
        let around = first(&[
            Method::Four64,
            Method::FourLines,
            Method::Around32,
            Method::Around16,
            Method::Lines,
        ]);
        Choice {
            page: first(&[Method::Ahead, Method::Vector64, Method::Vector32, Method::Lines]),
            run: first(&[Method::Strings, Method::Lines]),
            around,
            from: if around.goes_around() { 0 } else { u64::MAX },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_exists_and_goes_where_it_should() {
        let choice = Choice::by_features();
        assert!([choice.page, choice.run, choice.around].into_iter().all(Method::exists));
        assert!(!choice.page.goes_around() && !choice.run.goes_around());
        assert!(choice.around.goes_around() || choice.from == u64::MAX);
    }
}
