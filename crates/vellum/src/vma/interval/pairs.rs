//! The words of intervals: pairs of (first slot, region), in a node's record or in a list object,
//! and what a change does to them. Who may read and write them when: `interval`.

use crate::addr::{ENTRIES, PAGE_SIZE, PFN_END};
use crate::frame::SlabRef;
use crate::pagetable::node::{IN_LIST, Node};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Pairs in a list object of each class.
pub(crate) const LIST_PAIRS: [usize; 3] = [16, 128, ENTRIES];
const INLINE: usize = 3;

// A pair: the slot in the low nine bits, above it the region's handle, which is below 2^49. A
// list's second word: how many pairs there are, one for each slot at most, in the low 16 bits,
// above it the class.
const _: () = {
    assert!(ENTRIES == 1 << 9 && 2 * PFN_END * PAGE_SIZE as u64 <= 1 << (64 - 9));
    assert!(INLINE < IN_LIST as usize && ENTRIES < 1 << 16);
};

/// A pair: the first slot it speaks for, and the region or the ancestors' word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair(pub(super) u64);

impl Pair {
    pub fn new(slot: usize, region: Option<SlabRef>) -> Pair {
        Pair(region.map_or(0, SlabRef::raw) << 9 | slot as u64)
    }
    pub fn slot(self) -> usize {
        (self.0 & 0x1ff) as usize
    }
    pub fn region(self) -> Option<SlabRef> {
        SlabRef::from_raw(self.0 >> 9)
    }
}

/// The class of the smallest list for so many pairs.
pub(crate) fn list_class(pairs: usize) -> usize {
    LIST_PAIRS.iter().position(|&n| n >= pairs.min(ENTRIES)).unwrap_or(2)
}

/// A node's pairs, wherever they stand.
pub(super) struct Pairs<'a> {
    pub node: Node<'a>,
    /// The list's pairs, if they are in one.
    pub list: Option<(&'a [AtomicU64], u64)>,
    pub len: usize,
}

impl Pairs<'_> {
    pub fn capacity(&self) -> usize {
        self.list.map_or(INLINE, |(words, _)| words.len())
    }
    fn word(&self, i: usize) -> &AtomicU64 {
        match self.list {
            Some((words, _)) => &words[i],
            None => self.node.interval_word(i),
        }
    }
    pub fn get(&self, i: usize) -> Pair {
        Pair(self.word(i).load(Ordering::Relaxed))
    }
    pub fn set(&self, i: usize, pair: Pair) {
        self.word(i).store(pair.0, Ordering::Relaxed);
    }
    /// Number of pairs whose first slot is below `slot`.
    pub fn below(&self, slot: usize) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let mid = (low + high) / 2;
            if self.get(mid).slot() < slot { low = mid + 1 } else { high = mid }
        }
        low
    }
    /// What holds at `slot`.
    pub fn find(&self, slot: usize) -> Option<SlabRef> {
        match self.below(slot + 1) {
            0 => None,
            i => self.get(i - 1).region(),
        }
    }
    pub fn begins(&self, slot: usize) -> bool {
        let i = self.below(slot);
        i < self.len && self.get(i).slot() == slot
    }
    pub fn insert(&mut self, i: usize, pair: Pair) {
        assert!(self.len < self.capacity(), "interval room was not made");
        for j in (i..self.len).rev() {
            self.set(j + 1, self.get(j));
        }
        self.set(i, pair);
        self.len += 1;
    }
    pub fn remove(&mut self, i: usize) {
        for j in i + 1..self.len {
            self.set(j - 1, self.get(j));
        }
        self.len -= 1;
    }
    /// Writes the length where readers look. Inside the sequence count.
    pub fn publish(&self) {
        let listed = match self.list {
            Some((_, class)) => {
                self.node.interval_word(1).store(self.len as u64 | class << 16, Ordering::Relaxed);
                IN_LIST
            }
            None => self.len as u64,
        };
        self.node.set_state(self.node.state().with_listed(listed));
    }
}

/// What giving some slots to a region does to a node's pairs: those in `[from, to)` go, and up to
/// two come.
///
/// The decision is made twice, when room is made and when it is used, and comes out the same: in
/// between, what was mapped can only have become less. A pair that closes the run is left out if
/// nothing is mapped behind it, but that is looked for only where the pair would not fit, since
/// looking is up to 512 entries and a pair is eight bytes that are there anyway.
pub(super) struct Plan {
    pub from: usize,
    pub to: usize,
    /// A pair for the region, unless the one before says the same.
    pub open: bool,
    /// A pair for what held behind the slots.
    pub close: Option<Option<SlabRef>>,
}

impl Plan {
    pub fn growth(&self) -> isize {
        let (open, close) = (isize::from(self.open), isize::from(self.close.is_some()));
        self.from as isize - self.to as isize + open + close
    }
}
