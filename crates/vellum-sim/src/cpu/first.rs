//! What a first level of data does beside holding lines, where the machine's file names it: lines
//! that are on their way, and ways that are predicted by linear addresses.

use super::access::Touch;
use super::{Kind, NONE};
use crate::cache::{Geometry, Level, WayPredictor, linear_hash};
use crate::format::Format;
use crate::machine::SimState;
use crate::machine::parts::FirstLevel;
use crate::memory::{Arrivals, Ticks};

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
            let arrivals = shape.refill.map(Arrivals::new);
            let ways = shape.predicts_ways.then(|| WayPredictor::new(l1d));
            Box::new(First { arrivals, ways })
        })
    }

    /// What tells lines on their way apart that have the same number.
    fn tag(&self, va: u64) -> u8 {
        if self.ways.is_some() { linear_hash(va) } else { 0 }
    }

    /// When a missed line comes, which would be at `at` if nothing else came into its set.
    pub(super) fn arrives(
        &mut self,
        touch: &Touch,
        set: usize,
        source: Level,
        [now, at]: [Ticks; 2],
    ) -> Ticks {
        let tag = self.tag(touch.va);
        let Some(arrivals) = &mut self.arrivals else { return at };
        let at = arrivals.after(set, now, at);
        arrivals.add(touch.line, set, tag, source as u8, at);
        at
    }
}

impl<F: Format> SimState<F> {
    /// An access to a line that is on its way waits for it. Says whether it is one.
    #[inline(never)]
    pub(super) fn joins(&mut self, c: usize, touch: &Touch) -> bool {
        let cpu = &mut self.cpus[c];
        let Some(First { arrivals: Some(arrivals), .. }) = cpu.first.as_deref() else {
            return false;
        };
        let (ready, dependent) = (touch.late.unwrap_or_default(), touch.is_dependent());
        let start = cpu.core.starts(ready.at, dependent);
        let tag = cpu.first.as_deref().map_or(0, |first| first.tag(touch.va));
        let Some((at, source)) = arrivals.find(touch.line, tag, start) else { return false };
        self.caches.joins(c, touch.kind.of_cache());
        // The caches may have lost it again: the next access looks.
        cpu.data.line = NONE;
        cpu.core.served_by(source);
        match touch.kind {
            Kind::Store => cpu.core.store_after(ready, Ticks::ZERO, false),
            _ => cpu.core.load_joining(ready, at, dependent),
        };
        true
    }

    /// The level that serves an access, after the way was predicted.
    #[inline(never)]
    pub(super) fn in_predicted_way(&mut self, c: usize, touch: &Touch, level: Level) -> Level {
        let Some(First { ways: Some(ways), .. }) = self.cpus[c].first.as_deref_mut() else {
            return level;
        };
        let set = self.caches.first_set(c, touch.line);
        if ways.access(set, touch.line, linear_hash(touch.va)) || level != Level::L1 {
            return level;
        }
        self.caches.misses_way(c, touch.line, touch.kind.of_cache())
    }
}
