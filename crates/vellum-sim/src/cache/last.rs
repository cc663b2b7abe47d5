//! A last level, and how many lines of each page a victim cache holds.
//!
//! Most lines that miss above are of pages of which a victim cache holds none: of fresh memory, or
//! of data larger than it. Its tags take more memory than the host's own caches near the core have,
//! so a look there costs more than all else that an access does. A byte for each page of memory
//! says when none is needed.

use super::geometry::{Geometry, GeometryError};
use super::single::{Cache, Lookup, Victim};

/// Lines of a page of 4 KiB.
const PAGE_LINES: u64 = 64;

/// The last level of a group of CPUs.
#[derive(Clone, Debug)]
pub(super) struct LastLevel {
    cache: Cache,
    /// Of a cache that lines enter by [`LastLevel::fill`] alone: lines held of each page of memory.
    /// Empty for any other.
    held: Vec<u8>,
}

impl LastLevel {
    /// An empty one, for a memory of so many lines; `victim` says that lines enter it by
    /// [`LastLevel::fill`] alone.
    pub(super) fn new(
        geometry: Geometry,
        lines: u64,
        victim: bool,
    ) -> Result<LastLevel, GeometryError> {
        let pages = if victim { lines.div_ceil(PAGE_LINES) as usize } else { 0 };
        Ok(LastLevel { cache: Cache::new(geometry)?, held: vec![0; pages] })
    }

    /// It is about to be used.
    pub(super) fn wake(&mut self) {
        self.cache.wake();
    }

    /// The cache, to look at.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// As [`Cache::access`], where it is no victim cache.
    #[inline]
    pub(super) fn access(&mut self, line: u64) -> Lookup {
        debug_assert!(self.held.is_empty());
        self.cache.access(line, false)
    }

    /// As [`Cache::mark_dirty`].
    #[inline]
    pub(super) fn mark_dirty(&mut self, line: u64) -> bool {
        self.cache.mark_dirty(line)
    }

    /// As [`Cache::take`].
    #[inline]
    pub(super) fn take(&mut self, line: u64) -> Option<bool> {
        let held = self.held.get_mut((line / PAGE_LINES) as usize);
        if let Some(0) = held {
            return None;
        }
        let taken = self.cache.take(line);
        if let (Some(held), Some(_)) = (held, taken) {
            *held -= 1;
        }
        taken
    }

    /// As [`Cache::fill`].
    #[inline]
    pub(super) fn fill(&mut self, from_above: Victim) -> Option<Victim> {
        let Lookup::Miss(pushed) = self.cache.fill(from_above) else { return None };
        if let Some(held) = self.held.get_mut((from_above.line / PAGE_LINES) as usize) {
            *held += 1;
        }
        if let Some(pushed) = pushed
            && let Some(held) = self.held.get_mut((pushed.line / PAGE_LINES) as usize)
        {
            *held -= 1;
        }
        pushed
    }

    /// A mistake, for tests.
    #[cfg(test)]
    pub(super) fn forget_counts(&mut self) {
        self.held.fill(0);
    }

    /// Checks the cache, and recounts the lines of each page that it has lines of.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.cache.validate()?;
        if self.held.is_empty() || self.cache.is_empty() {
            return Ok(());
        }
        let mut found = vec![0; self.held.len()];
        let pages = || {
            let pages = self.cache.lines().map(|l| (l.line / PAGE_LINES) as usize);
            pages.filter(|page| *page < self.held.len())
        };
        pages().for_each(|page| found[page] += 1);
        match pages().find(|&page| found[page] != self.held[page]) {
            Some(page) => {
                Err(format!("page {page}: {} lines, {} counted", found[page], self.held[page]))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Index, Policy};

    /// Some lines are beyond the memory that is counted.
    #[test]
    fn counting_pages_changes_nothing_but_where_is_looked() {
        for (policy, index) in [
            (Policy::Lru, Index::Modulo),
            (Policy::Plru, Index::Hash),
            (Policy::Rrip, Index::Modulo),
        ] {
            let geometry = Geometry { sets: 16, ways: 4, policy, index, seed: 1 };
            let mut plain = Cache::new(geometry).expect("a cache");
            let mut counts = LastLevel::new(geometry, 1900, true).expect("a cache");
            let (mut x, mut taken, mut absent) = (1u64, 0, 0);
            for _ in 0..20_000 {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let line = (x >> 40) % 2048;
                if x >> 62 == 0 {
                    let took = plain.take(line);
                    assert_eq!(counts.take(line), took);
                    taken += u32::from(took.is_some());
                    absent += u32::from(counts.held.get((line / PAGE_LINES) as usize) == Some(&0));
                } else {
                    let victim = Victim { line, dirty: x >> 63 != 0, reused: x >> 61 & 1 != 0 };
                    let Lookup::Miss(pushed) = plain.fill(victim) else {
                        assert_eq!(counts.fill(victim), None);
                        continue;
                    };
                    assert_eq!(counts.fill(victim), pushed);
                }
            }
            assert!(taken > 50 && absent > 50, "{taken} were there, {absent} looks were saved");
            assert!(plain.lines().eq(counts.cache.lines()));
            assert_eq!(counts.validate(), Ok(()));
            let some = plain.lines().map(|l| l.line).find(|l| *l < 1900).expect("it is full");
            counts.held[(some / PAGE_LINES) as usize] += 1;
            assert!(counts.validate().is_err());
        }
    }
}
