//! Where in a tree of table nodes someone is.

use crate::addr::{ENTRIES, Level, VaRange};
use crate::machine::{Machine, Work};
use crate::pagetable::node::Node;

/// One entry, as it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub node: Node<'a>,
    pub level: Level,
    pub slot: usize,
    pub raw: u64,
}

/// A node on the way along a range.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub node: Node<'a>,
    /// The level of its entries.
    pub level: Level,
    /// The first address it covers.
    pub base: u64,
}

impl<'a> Cursor<'a> {
    /// The address of a slot.
    #[inline(always)]
    pub fn va(&self, slot: usize) -> u64 {
        self.base + ((slot as u64) << self.level.shift())
    }

    /// The node below a slot.
    #[inline(always)]
    pub fn below(&self, slot: usize, child: Node<'a>) -> Cursor<'a> {
        Cursor { node: child, level: self.level.child(), base: self.va(slot) }
    }

    /// The slots that a range touches, which meets the node.
    #[inline(always)]
    pub fn part(&self, range: VaRange) -> SlotRange {
        part(self.level, self.base, range)
    }

    /// The same, on the way along the range. Reports a visit to the node.
    #[inline(always)]
    pub fn visit<M: Machine>(&self, m: &M, range: VaRange) -> SlotRange {
        m.work(Work::Descend, 1);
        self.part(range)
    }

    /// The entry of a slot, seen as `raw`.
    #[inline(always)]
    pub fn place(&self, slot: usize, raw: u64) -> Place<'a> {
        Place { node: self.node, level: self.level, slot, raw }
    }
}

/// The slots of a node that a range touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotRange {
    /// First and one past the last slot touched.
    pub first: usize,
    pub end: usize,
    /// First and one past the last slot covered whole; `whole_first >= whole_end` if none is.
    pub whole_first: usize,
    pub whole_end: usize,
}

/// The part of `range` in the node of `level` whose first address is `base`. They meet.
#[inline]
pub(crate) fn part(level: Level, base: u64, range: VaRange) -> SlotRange {
    let shift = level.shift();
    let bytes = level.entry_bytes();
    let start = range.start().0.max(base) - base;
    let end = (range.end().0 - base).min(bytes * ENTRIES as u64);
    SlotRange {
        first: (start >> shift) as usize,
        end: (end.div_ceil(bytes)) as usize,
        whole_first: (start.div_ceil(bytes)) as usize,
        whole_end: (end >> shift) as usize,
    }
}

impl SlotRange {
    /// Whether the range covers the slot whole.
    #[inline]
    pub fn covers(&self, slot: usize) -> bool {
        self.whole_first <= slot && slot < self.whole_end
    }

    /// The slots at its ends: one, if that is both.
    pub fn ends(&self) -> impl Iterator<Item = usize> + use<> {
        [self.first, self.end - 1].into_iter().take((self.end - self.first).min(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Va;

    fn range(start: u64, bytes: u64) -> VaRange {
        VaRange::new(Va(start), bytes, Va(1 << 47)).unwrap()
    }

    #[test]
    fn a_range_is_cut_into_whole_slots_and_ragged_ends() {
        let two = Level::TWO;
        let mib = 1 << 20;
        let got = |start, bytes| {
            let p = part(two, 1 << 30, range(start, bytes));
            (p.first, p.end, p.whole_first, p.whole_end)
        };
        assert_eq!(got(1 << 30, 2 * mib), (0, 1, 0, 1));
        assert_eq!(got((1 << 30) + mib, mib), (0, 1, 1, 1));
        assert_eq!(got((1 << 30) + mib, 4 * mib), (0, 3, 1, 2));
        assert_eq!(got((1 << 30) - mib, 2 * mib), (0, 1, 0, 0));
        assert_eq!(got((2 << 30) - mib, 2 * mib), (511, 512, 512, 512));
        assert_eq!(got(0, 1 << 40), (0, 512, 0, 512));
    }
}
