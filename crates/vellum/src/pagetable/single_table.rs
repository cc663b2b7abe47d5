//! Verbs on a part of one lowest node: one descent instead of one for each step.
//!
//! Most calls that programs make are about a few pages, and most of their cost would be the way
//! there: to see whether the range is mapped, to open either end, to make room, to assign, to
//! write. Where the range lies inside one table of 4 KiB entries that is there already, nothing is
//! to be opened and the node says it all. Anything else (large leaves, reserved entries above 4
//! KiB, ranges across tables, several regions) is left to the general way, which is right for these
//! ranges, too.

use crate::addr::{Level, VaRange};
use crate::entry::Entry;
use crate::machine::Machine;
use crate::pagetable::PageTables;
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;

/// A range inside one lowest node.
#[derive(Clone, Copy)]
pub(crate) struct InTable<'a> {
    pub at: Cursor<'a>,
    /// First slot and end.
    pub slots: (usize, usize),
}

impl<'a> InTable<'a> {
    #[inline(always)]
    pub fn node(&self) -> Node<'a> {
        self.at.node
    }
}

impl<M: Machine> PageTables<M> {
    /// The lowest node that covers more than the range and all of it, if there is one. Under the
    /// mmap lock.
    #[inline]
    pub fn in_table(&self, space: &SpaceRecord, range: VaRange) -> Option<InTable<'_>> {
        let base = base_of_part(range)?;
        let Place { node, slot, .. } = self.descend_straight(space, range.start())?;
        Some(InTable {
            at: Cursor { node, level: Level::ONE, base },
            slots: (slot, slot + range.pages() as usize),
        })
    }

    /// Whether every entry of the slots is of a sort.
    #[inline]
    pub fn all_in_table(&self, part: &InTable<'_>, sort: impl Fn(Entry) -> bool) -> bool {
        let (first, end) = part.slots;
        self.scanned(first, end).all(|slot| sort(self.load(part.at.node.pfn, slot, Level::ONE)))
    }
}

/// The entry that decides about all of a range for which there could be such a node, and is none.
/// Under the mmap lock.
pub(crate) fn above_table<'v, M: Machine>(
    tables: &'v PageTables<M>,
    space: &SpaceRecord,
    range: VaRange,
) -> Option<Place<'v>> {
    base_of_part(range)?;
    Some(tables.descend_part(space, range.start())).filter(|at| at.level > Level::ONE)
}

/// Where a lowest node begins that covers more than the range and all of it.
#[inline(always)]
fn base_of_part(range: VaRange) -> Option<u64> {
    let span = Level::TWO.entry_bytes();
    let base = range.start().align_down(span).0;
    (range.end().0 - base <= span && range.bytes() != span).then_some(base)
}
