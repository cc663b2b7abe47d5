//! What a first level of data does beside holding lines, where the machine's file names it: lines
//! that are on their way, and ways that are predicted by linear addresses.

use super::geometry::Geometry;
use super::ways::{WayPredictor, linear_hash};
use crate::memory::{Arrivals, Coming, Refill, Ticks};

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FirstLevel {
    /// Time between two lines that come into one set; accesses to a line on its way then wait for
    /// it. `None`: a line is there from the access that misses it.
    pub refill: Option<Ticks>,
    /// The same where the line that leaves is dirty. `None`: no more than where it is clean.
    pub refill_dirty: Option<Ticks>,
    /// Ways are predicted by linear addresses.
    pub predicts_ways: bool,
}

/// The state of one CPU's first level.
#[derive(Clone, Debug)]
pub(crate) struct First {
    arrivals: Option<Arrivals>,
    ways: Option<WayPredictor>,
}

impl First {
    /// `None` where the machine names nothing of it.
    pub(crate) fn new(shape: FirstLevel, l1d: &Geometry) -> Option<Box<First>> {
        (shape != FirstLevel::default()).then(|| {
            let refill =
                |clean| Refill { clean, dirty: shape.refill_dirty.unwrap_or(clean).max(clean) };
            let arrivals = shape.refill.map(|clean| Arrivals::new(refill(clean)));
            let ways = shape.predicts_ways.then(|| WayPredictor::new(l1d));
            Box::new(First { arrivals, ways })
        })
    }

    /// What tells lines on their way apart that have the same number.
    fn tag(&self, va: u64) -> u8 {
        if self.ways.is_some() { linear_hash(va) } else { 0 }
    }

    /// When a line is there that an access by `va` finds on its way at `start`, and what serves it.
    pub(crate) fn on_its_way(&self, line: u64, va: u64, start: Ticks) -> Option<(Ticks, u8)> {
        self.arrivals.as_ref()?.find(line, self.tag(va), start)
    }

    /// Whether an access at `now` by `va` to a line that is there is as any other: the line is not
    /// on its way, and the way is predicted as it was for the last access to the set.
    #[inline]
    pub(crate) fn is_plain(&self, (line, set): (u64, usize), va: u64, now: Ticks) -> bool {
        self.arrivals.as_ref().is_none_or(|arrivals| arrivals.lacks(line, now))
            && self.ways.as_ref().is_none_or(|ways| ways.is_last(set, line, linear_hash(va)))
    }

    /// When a missed line comes, which would be at `at` if nothing else came into its set.
    /// `pushed`: a dirty line leaves for it. `now`: no access will ask for an earlier time.
    pub(crate) fn arrives(
        &mut self,
        line: Coming,
        va: u64,
        pushed: bool,
        [now, at]: [Ticks; 2],
    ) -> Ticks {
        let line = Coming { tag: self.tag(va), ..line };
        self.arrivals.as_mut().map_or(at, |arrivals| arrivals.add(line, pushed, now, at))
    }

    /// Whether an access by `va` looks for the line in the right way.
    pub(crate) fn predicts(&mut self, (line, set): (u64, usize), va: u64) -> bool {
        self.ways.as_mut().is_none_or(|ways| ways.access(set, line, linear_hash(va)))
    }
}
