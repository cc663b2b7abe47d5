//! Unmapping all that a lowest table has.
//!
//! A small mapping is often alone in its table, and the table in those above. All of them go by one
//! entry, as a table does that the range covers: no entry below is marked, and no node is passed
//! through twice.

use crate::addr::VaRange;
use crate::fault::Faults;
use crate::machine::{Act, Machine};
use crate::ops::unmap::Unmap;
use crate::pagetable::single_table::InTable;
use crate::platform::over;
use crate::tlb::Receipt;
use crate::vma::detach::Chain;
use crate::vma::edit::Edit;

pub(crate) struct UnmapTable<'v, M: Machine>(pub &'v Faults<M>);

over!(UnmapTable, Faults);

impl<M: Machine> UnmapTable<'_, M> {
    /// Unmaps a part of a lowest node that has nothing beside it, of a space that maps no objects.
    /// `false` if it is none, and nothing was done.
    pub(super) fn take_out_table(self, edit: &mut Edit<'_>, range: VaRange) -> bool {
        let space = edit.space;
        // The passes look for an interval that keeps an object of which nothing is mapped.
        if space.maps_objects() {
            return false;
        }
        let Some(InTable { at, slots }) = self.in_table(space, range) else { return false };
        let node = at.node;
        let there = |slot: &usize| self.machine.entry(node.pfn, *slot) != 0;
        let going = self.scanned(slots.0, slots.1).filter(there).count() as u64;
        if going != node.state().count() {
            return false;
        }
        let Some(chain) = Chain::of(self.0, node, None) else { return false };
        chain.detach(self.0);
        space.note_hole(range.end(), self.user_end());
        let mut receipt = Receipt::new();
        receipt.table(range.start(), range.end());
        let flushed = self.flush(space, receipt);
        self.free_leaves(&flushed, node, slots);
        chain.end(self.0, &flushed, range.pages(), edit.deferred);
        Unmap(self.0).raise_above(chain.node, range.pages());
        true
    }
}
