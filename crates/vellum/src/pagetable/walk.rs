//! Walking a table: down to one address, and along a range.
//!
//! A descent takes no lock; it says where it ended and which region is the nearest. A range is cut
//! at each node into the part of the node's slots it touches, which says which of them it covers
//! whole.

use core::ops::Range;

use crate::addr::{ENTRIES, Level, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::machine::{Act, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::single_table::above_table;
use crate::space::SpaceRecord;
use crate::sync::Token;

impl<M: Machine> PageTables<M> {
    /// Goes down to the entry that decides about `va`. Inside an epoch, or under the mmap lock.
    #[inline(always)]
    pub fn descend_entry(&self, space: &SpaceRecord, va: Va) -> Place<'_> {
        self.descend_straight(space, va).unwrap_or_else(|| self.descend_part(space, va))
    }

    /// All the way down to a lowest node, if there is one for the address. Nothing is kept of the
    /// way there.
    #[inline(always)]
    pub fn descend_straight(&self, space: &SpaceRecord, va: Va) -> Option<Place<'_>> {
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
        let raw = m.entry(table, Level::ONE.slot(va));
        Some(self.found(table, Level::ONE, va, raw))
    }

    /// Down to wherever the way ends.
    #[inline(never)]
    pub fn descend_part(&self, space: &SpaceRecord, va: Va) -> Place<'_> {
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
    fn found(&self, table: Pfn, level: Level, va: Va, raw: u64) -> Place<'_> {
        self.machine.work(Work::Descend, (self.levels - level.0 + 1) as u64);
        Place { node: self.node(table), level, slot: level.slot(va), raw }
    }

    /// Calls `see` with every run of the range that one entry or one run of equal absence decides:
    /// first address, length, level, entry (never `Table`). Stops at the first `false`. Under the
    /// mmap lock.
    pub fn scan(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        see: &mut impl FnMut(Va, Level, Entry) -> bool,
    ) -> bool {
        self.scan_node(self.root(space), range, see)
    }

    fn scan_node(
        &self,
        at: Cursor<'_>,
        range: VaRange,
        see: &mut impl FnMut(Va, Level, Entry) -> bool,
    ) -> bool {
        let part = at.part(range);
        for slot in self.scanned(part.first, part.end) {
            let go = match self.load(at.node.pfn, slot, at.level) {
                Entry::Table(child) => self.scan_node(at.below(slot, self.node(child)), range, see),
                entry => see(Va(at.va(slot)), at.level, entry),
            };
            if !go {
                return false;
            }
        }
        true
    }

    /// Calls `change` with every entry of an open range that is neither empty nor a table, its node
    /// and slot, under the node's lock. `false` says that the entry is in transit by a fault: the
    /// lock is dropped, and the entry looked at again. Under the mmap lock.
    pub fn alter<F>(&self, space: &SpaceRecord, range: VaRange, change: &mut F)
    where
        F: FnMut(&Cursor<'_>, usize, u64) -> bool,
    {
        self.alter_node(self.root(space), range, &mut |at: &Cursor<'_>, (slot, _), raw| {
            slot + usize::from(change(at, slot, raw))
        });
    }

    /// The same below a node, where `change` may go on to entries behind the one it is called with,
    /// up to an end: it says which slot comes next. The same slot again says that the entry is in
    /// transit.
    pub fn alter_node<F>(&self, at: Cursor<'_>, range: VaRange, change: &mut F)
    where
        F: FnMut(&Cursor<'_>, (usize, usize), u64) -> usize,
    {
        let p = at.part(range);
        if at.level == Level::ONE {
            return self.alter_leaves(at, (p.first, p.end), change);
        }
        let Range { start: mut slot, end } = self.scanned(p.first, p.end);
        while slot < end {
            if let Entry::Table(child) = self.load(at.node.pfn, slot, at.level) {
                self.alter_node(at.below(slot, self.node(child)), range, change);
                slot += 1;
            } else {
                slot = self.alter_run(at, (slot, end), change);
            }
        }
    }

    /// The same for slots of one lowest node.
    #[inline(always)]
    pub fn alter_leaves<F>(&self, at: Cursor<'_>, slots: (usize, usize), change: &mut F)
    where
        F: FnMut(&Cursor<'_>, (usize, usize), u64) -> usize,
    {
        let at = Cursor { level: Level::ONE, ..at };
        let Range { start: mut slot, end } = self.scanned(slots.0, slots.1);
        while slot < end {
            slot = self.alter_run(at, (slot, end), change);
        }
    }

    /// One hold of a node's lock: up to a table, or an entry that is in transit. Says how far it
    /// came.
    #[inline(always)]
    pub fn alter_run<F>(
        &self,
        at: Cursor<'_>,
        (mut slot, end): (usize, usize),
        change: &mut F,
    ) -> usize
    where
        F: FnMut(&Cursor<'_>, (usize, usize), u64) -> usize,
    {
        let m = &self.machine;
        let level = at.level;
        let mut top = Token::top();
        let guard = at.node.lock(m, &mut top);
        while slot < end {
            let raw = m.entry(at.node.pfn, slot);
            if raw != 0 {
                if level > Level::ONE && matches!(M::Codec::decode(raw, level), Entry::Table(_)) {
                    return slot;
                }
                let next = change(&at, (slot, end), raw);
                if next == slot {
                    drop(guard);
                    m.relax();
                    return slot;
                }
                slot = next;
            } else {
                slot += 1;
            }
        }
        slot
    }

    /// Whether all of the range lies in regions. Under the mmap lock.
    pub fn is_mapped(&self, space: &SpaceRecord, range: VaRange) -> bool {
        if let Some(part) = self.in_table(space, range) {
            return self.all_in_table(&part, |entry| !matches!(entry, Entry::Empty));
        }
        is_full(self, self.root(space), range)
    }

    /// Whether none of it does. Under the mmap lock.
    pub fn is_hole(&self, space: &SpaceRecord, range: VaRange) -> bool {
        if let Some(part) = self.in_table(space, range) {
            return self.all_in_table(&part, |entry| matches!(entry, Entry::Empty));
        }
        if let Some(at) = above_table(self, space, range) {
            return at.raw == 0;
        }
        self.scan(space, range, &mut |_, _, entry| matches!(entry, Entry::Empty))
    }
}

/// Whether a node has an entry for every page of the range.
fn is_full<M: Machine>(tables: &PageTables<M>, at: Cursor<'_>, range: VaRange) -> bool {
    let p = at.part(range);
    let slots = (p.end - p.first) as u64;
    // A table that has fewer entries than the range takes has holes, and one that has all has
    // none.
    if at.node.state().count() < slots {
        return false;
    }
    if at.level == Level::ONE {
        let m = &tables.machine;
        return slots == ENTRIES as u64
            || tables.scanned(p.first, p.end).all(|slot| m.entry(at.node.pfn, slot) != 0);
    }
    tables.scanned(p.first, p.end).all(|slot| match tables.load(at.node.pfn, slot, at.level) {
        Entry::Table(child) => is_full(tables, at.below(slot, tables.node(child)), range),
        entry => !matches!(entry, Entry::Empty),
    })
}

/// Calls `each` with every table below one. Under the mmap lock.
pub(crate) fn each_table_below<M: Machine>(
    tables: &PageTables<M>,
    table: Pfn,
    level: Level,
    mut each: impl FnMut(Pfn),
) {
    if level == Level::ONE {
        return;
    }
    // The count says when nothing more can follow; it is fixed while the mmap lock is held.
    let (mut left, mut slot) = (tables.node(table).state().count(), 0);
    while left != 0 && slot < tables.slots(level) {
        let entry = tables.load(table, slot, level);
        if let Entry::Table(child) = entry {
            each(child);
        }
        left -= u64::from(entry != Entry::Empty);
        slot += 1;
    }
    tables.machine.work(Work::Scan, slot as u64);
}
