//! Finding a hole for a mapping, highest first.
//!
//! The entries say what is free, so the search is a walk from the top of the user half downwards
//! that joins neighbouring holes. Each node keeps a bound on the longest hole inside it; a node
//! whose bound is too small is stepped over, with a look only at its lowest slots, where a hole may
//! begin that goes on below. A search that looked into a node and found less than the bound said
//! writes the truth back, so the next search does not look again.
//!
//! A space keeps the result of its last searches, as Linux once did in `free_area_cache`: above
//! `hole_below` no hole is `hole_bytes` long. A search for that much or more starts there, so
//! mapping one thing after the other reads each slot once. An unmap moves the mark up as far as the
//! new hole can reach together with what was free above it, which was shorter than `hole_bytes`.

use crate::addr::{ENTRIES, Level, PAGE_SHIFT, Pfn, Va, VaRange};
use crate::entry::Entry;
use crate::machine::{Machine, Work};
use crate::platform::over;
use crate::space::SpaceRecord;
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::vma::Regions;

/// Below this nothing is mapped: 64 KiB, as Linux's `mmap_min_addr` is usually set. A kernel that
/// follows a null pointer, or an index beside one, finds nothing there that a program put.
pub(crate) const LOWEST: u64 = 0x10000;

struct Search {
    bytes: u64,
    align: u64,
    /// Nothing above this is of interest.
    below: u64,
    /// The hole being followed downwards, `[start, end)`.
    start: u64,
    end: u64,
}

impl Search {
    /// The highest place in the hole, if it is long enough.
    fn fit(&self) -> Option<Va> {
        let start = self.start.max(LOWEST);
        let at = self.end.checked_sub(self.bytes)? & !(self.align - 1);
        (at >= start).then_some(Va(at))
    }
    fn grow(&mut self, start: u64) {
        self.start = start;
    }
    fn cut(&mut self, start: u64) {
        self.start = start;
        self.end = start;
    }
}

impl SpaceRecord {
    /// A search for `bytes` bytes, at any page, found `at`, where they are mapped now. Under the
    /// mmap lock.
    pub fn found_hole(&self, bytes: u64, at: Va) {
        let hole_bytes = self.hole_bytes.load(Ordering::Relaxed);
        if hole_bytes == 0 || bytes <= hole_bytes {
            self.hole_bytes.store(bytes, Ordering::Relaxed);
            self.hole_below.store(at.0, Ordering::Relaxed);
        }
    }

    /// What ends at `end` is about to be a hole. Under the mmap lock.
    #[inline]
    pub fn note_hole(&self, end: Va, top: Va) {
        let reach = end.0 + self.hole_bytes.load(Ordering::Relaxed);
        if reach > self.hole_below.load(Ordering::Relaxed) {
            self.hole_below.store(reach.min(top.0), Ordering::Relaxed);
        }
    }
}

pub(crate) struct FindHole<'v, M: Machine>(pub &'v Regions<M>);

over!(FindHole, Regions);

impl<M: Machine> FindHole<'_, M> {
    /// The highest hole of `bytes` bytes at a multiple of `align`. Under the mmap lock.
    pub fn highest(self, space: &SpaceRecord, bytes: u64, align: u64) -> Option<Va> {
        let hole_bytes = space.hole_bytes.load(Ordering::Relaxed);
        let known = hole_bytes != 0 && hole_bytes <= bytes;
        let below =
            if known { space.hole_below.load(Ordering::Relaxed) } else { self.user_end().0 };
        let mut search = Search { bytes, align, below, start: below, end: below };
        self.search_node(space.root(), self.top(), 0, &mut search).or_else(|| search.fit())
    }

    fn search_node(self, table: Pfn, level: Level, base: u64, search: &mut Search) -> Option<Va> {
        let m = &self.machine;
        let node = self.node(table);
        let top = base + (level.entry_bytes() << 9);
        let end = self.user_end().0.min(top);
        let slots = (end.min(search.below) - base).div_ceil(level.entry_bytes());
        let mut longest = 0;
        m.work(Work::Descend, 1);
        for slot in (0..slots as usize).rev() {
            let va = base + ((slot as u64) << level.shift());
            match self.load(table, slot, level) {
                Entry::Empty => {
                    search.grow(va);
                    longest = longest.max(search.end.min(top) - va);
                    if let Some(found) = search.fit() {
                        return Some(found);
                    }
                }
                Entry::Table(child) => {
                    let below = self.node(child).state().run() << PAGE_SHIFT;
                    let above = search.end - search.start;
                    if above != 0 && below != 0 {
                        // A hole that crosses the edge between the two.
                        let inner = search.end.min(top) - search.start;
                        longest = longest.max(inner + self.high_hole(child, level.child()));
                    }
                    if below != 0 && above + below >= search.bytes {
                        if let Some(found) = self.search_node(child, level.child(), va, search) {
                            return Some(found);
                        }
                    } else {
                        search.cut(va);
                        if below != 0 {
                            search.end = va + self.low_hole(child, level.child());
                        }
                    }
                    longest = longest.max(self.node(child).state().run() << PAGE_SHIFT);
                    longest = longest.max(search.end.min(top) - search.start);
                }
                _ => search.cut(va),
            }
        }
        // Every hole inside was seen, unless the search began below some; a hole that crosses the
        // upper edge counts with its inner part.
        if search.below >= end && longest >> PAGE_SHIFT < node.state().run() {
            let mut token = Token::top();
            let _guard = node.lock(m, &mut token);
            node.set_state(node.state().with_run(longest >> PAGE_SHIFT));
        }
        None
    }

    /// Whether what the space remembers of its searches is true: the highest hole as long as was
    /// hole_bytes ends below the mark. Looks at entries only.
    pub fn cache_is_right(self, space: &SpaceRecord) -> bool {
        let (hole_bytes, below) =
            (space.hole_bytes.load(Ordering::Relaxed), space.hole_below.load(Ordering::Relaxed));
        let Ok(all) = VaRange::new(Va(0), self.user_end().0, self.user_end()) else { return false };
        let (mut start, mut right) = (0, true);
        let mut hole = |start: u64, end: u64| {
            right &= hole_bytes == 0 || end - start < hole_bytes || end <= below
        };
        self.scan(space, all, &mut |va, level, entry| {
            if !matches!(entry, Entry::Empty) {
                hole(start, va.0);
                start = va.0 + level.entry_bytes();
            }
            true
        });
        hole(start, self.user_end().0);
        right
    }

    /// Bytes that are free up to a node's last address.
    fn high_hole(self, table: Pfn, level: Level) -> u64 {
        let mut bytes = 0;
        for slot in (0..ENTRIES).rev() {
            match self.load(table, slot, level) {
                Entry::Empty => bytes += level.entry_bytes(),
                Entry::Table(child) => return bytes + self.high_hole(child, level.child()),
                _ => break,
            }
        }
        bytes
    }

    /// Bytes that are free from a node's first address on.
    fn low_hole(self, table: Pfn, level: Level) -> u64 {
        let mut bytes = 0;
        for slot in 0..ENTRIES {
            match self.load(table, slot, level) {
                Entry::Empty => bytes += level.entry_bytes(),
                Entry::Table(child) => return bytes + self.low_hole(child, level.child()),
                _ => break,
            }
        }
        bytes
    }
}
