//! Walking a table: down to one address, and along a range.
//!
//! A descent takes no lock; it says where it ended and which region is the nearest. A range is cut
//! at each node into the part of the node's slots it touches; [`part`] says which of them it covers
//! whole.

use crate::addr::{ENTRIES, Level, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::machine::{Act, Event, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;
use crate::sync::Token;

/// The slots of a node that a range touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// First and one past the last slot touched.
    pub first: usize,
    pub end: usize,
    /// First and one past the last slot covered whole; `whole_first >= whole_end` if none is.
    pub whole_first: usize,
    pub whole_end: usize,
}

/// The part of `range` in the node of `level` whose first address is `base`. They meet.
#[inline]
pub(crate) fn part(level: Level, base: u64, range: VaRange) -> Part {
    let shift = level.shift();
    let bytes = level.entry_bytes();
    let start = range.start().0.max(base) - base;
    let end = (range.end().0 - base).min(bytes * ENTRIES as u64);
    Part {
        first: (start >> shift) as usize,
        end: (end.div_ceil(bytes)) as usize,
        whole_first: (start.div_ceil(bytes)) as usize,
        whole_end: (end >> shift) as usize,
    }
}

impl Part {
    /// Whether the range covers the slot whole.
    #[inline]
    pub fn covers(&self, slot: usize) -> bool {
        self.whole_first <= slot && slot < self.whole_end
    }
}

impl<M: Machine> PageTables<M> {
    /// The first half of [`descend`](Vm::descend), for those who do not ask for the region or want
    /// no function in between: node, level, slot, entry.
    #[inline(always)]
    pub(crate) fn descend_entry(
        &self,
        space: &SpaceRecord,
        va: Va,
    ) -> (Node<'_>, Level, usize, u64) {
        match self.descend_straight(space, va) {
            Some((table, raw)) => self.found(table, Level::ONE, va, raw),
            None => self.descend_part(space, va),
        }
    }

    /// All the way down to a lowest node, if there is one for the address. Nothing is kept of the
    /// way there.
    #[inline(always)]
    fn descend_straight(&self, space: &SpaceRecord, va: Va) -> Option<(Pfn, u64)> {
        let m = &self.machine;
        let mut table = space.root();
        if self.top() > Level(4) {
            let Entry::Table(next) = M::Codec::decode(m.entry(table, Level(5).slot(va)), Level(5))
            else {
                return None;
            };
            table = next;
        }
        // Constants: shifts and level tests are known in each copy.
        for level in [Level(4), Level(3), Level::TWO] {
            let Entry::Table(next) = M::Codec::decode(m.entry(table, level.slot(va)), level) else {
                return None;
            };
            table = next;
        }
        Some((table, m.entry(table, Level::ONE.slot(va))))
    }

    /// Down to wherever the way ends.
    #[inline(never)]
    pub fn descend_part(&self, space: &SpaceRecord, va: Va) -> (Node<'_>, Level, usize, u64) {
        let (mut table, mut level) = (space.root(), self.top());
        loop {
            let raw = self.machine.entry(table, level.slot(va));
            match M::Codec::decode(raw, level) {
                Entry::Table(next) if level > Level::ONE => (table, level) = (next, level.child()),
                _ => return self.found(table, level, va, raw),
            }
        }
    }

    #[inline(always)]
    fn found(&self, table: Pfn, level: Level, va: Va, raw: u64) -> (Node<'_>, Level, usize, u64) {
        self.machine.hook(Event::Work(Work::Descend, (self.levels - level.0 + 1) as u64));
        (self.node(table), level, level.slot(va), raw)
    }

    /// Calls `see` with every run of the range that one entry or one run of equal absence decides:
    /// first address, length, level, entry (never `Table`). Stops at the first `false`. Under the
    /// layout lock.
    pub(crate) fn scan(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        see: &mut impl FnMut(Va, Level, Entry) -> bool,
    ) -> bool {
        self.scan_node(space.root(), self.top(), 0, range, see)
    }

    fn scan_node(
        &self,
        table: Pfn,
        level: Level,
        base: u64,
        range: VaRange,
        see: &mut impl FnMut(Va, Level, Entry) -> bool,
    ) -> bool {
        let part = part(level, base, range);
        self.machine.hook(Event::Work(Work::Scan, (part.end - part.first) as u64));
        for slot in part.first..part.end {
            let va = base + ((slot as u64) << level.shift());
            let go = match self.load(table, slot, level) {
                Entry::Table(child) => self.scan_node(child, level.child(), va, range, see),
                entry => see(Va(va), level, entry),
            };
            if !go {
                return false;
            }
        }
        true
    }

    /// Calls `change` with every entry of an open range that is neither empty nor a table (node,
    /// level, slot, address, raw entry), under its node's lock. `false` says that the entry is set
    /// aside by a fault: the lock is dropped, and the entry looked at again. Under the layout lock.
    pub(crate) fn alter<F>(&self, space: &SpaceRecord, range: VaRange, change: &mut F)
    where
        F: FnMut(Node<'_>, Level, usize, Va, u64) -> bool,
    {
        self.alter_node((space.root(), self.top()), 0, range, change);
    }

    fn alter_node<F>(&self, (table, level): (Pfn, Level), base: u64, range: VaRange, change: &mut F)
    where
        F: FnMut(Node<'_>, Level, usize, Va, u64) -> bool,
    {
        let node = self.node(table);
        let p = part(level, base, range);
        if level == Level::ONE {
            return self.alter_leaves(node, base, (p.first, p.end), change);
        }
        self.machine.hook(Event::Work(Work::Scan, (p.end - p.first) as u64));
        let mut slot = p.first;
        while slot < p.end {
            if let Entry::Table(child) = self.load(table, slot, level) {
                let base = base + ((slot as u64) << level.shift());
                self.alter_node((child, level.child()), base, range, change);
                slot += 1;
            } else {
                slot = self.alter_run(node, level, base, (slot, p.end), change);
            }
        }
    }

    /// The same for slots of one lowest node.
    #[inline(always)]
    pub(crate) fn alter_leaves<F>(
        &self,
        node: Node<'_>,
        base: u64,
        slots: (usize, usize),
        change: &mut F,
    ) where
        F: FnMut(Node<'_>, Level, usize, Va, u64) -> bool,
    {
        self.machine.hook(Event::Work(Work::Scan, (slots.1 - slots.0) as u64));
        let mut slot = slots.0;
        while slot < slots.1 {
            slot = self.alter_run(node, Level::ONE, base, (slot, slots.1), change);
        }
    }

    /// One hold of a node's lock: up to a table, or an entry that is set aside. Says how far it
    /// came.
    #[inline(always)]
    fn alter_run<F>(
        &self,
        node: Node<'_>,
        level: Level,
        base: u64,
        (mut slot, end): (usize, usize),
        change: &mut F,
    ) -> usize
    where
        F: FnMut(Node<'_>, Level, usize, Va, u64) -> bool,
    {
        let m = &self.machine;
        let mut top = Token::top();
        let guard = node.lock(m, &mut top);
        while slot < end {
            let raw = m.entry(node.pfn, slot);
            if raw != 0 {
                if level > Level::ONE && matches!(M::Codec::decode(raw, level), Entry::Table(_)) {
                    return slot;
                }
                if !change(node, level, slot, Va(base + ((slot as u64) << level.shift())), raw) {
                    drop(guard);
                    m.relax();
                    return slot;
                }
            }
            slot += 1;
        }
        slot
    }

    /// Whether all of the range lies in regions. Under the layout lock.
    pub(crate) fn is_mapped(&self, space: &SpaceRecord, range: VaRange) -> bool {
        if let Some(near) = self.near(space, range) {
            return self.all_near(&near, |entry| !matches!(entry, Entry::Empty | Entry::Gone(_)));
        }
        self.scan(space, range, &mut |_, _, entry| !matches!(entry, Entry::Empty | Entry::Gone(_)))
    }

    /// Whether none of it does. Under the layout lock.
    pub(crate) fn is_hole(&self, space: &SpaceRecord, range: VaRange) -> bool {
        if let Some(near) = self.near(space, range) {
            return self.all_near(&near, |entry| matches!(entry, Entry::Empty | Entry::Gone(_)));
        }
        self.scan(space, range, &mut |_, _, entry| matches!(entry, Entry::Empty | Entry::Gone(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
