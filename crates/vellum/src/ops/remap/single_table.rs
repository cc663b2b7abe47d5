//! Moving a few pages between lowest nodes that are both there.
//!
//! No table has to be made at the new place, so nothing can fail once the pages are stashed,
//! nothing has to be held at the new place meanwhile, and each node is visited once for each step
//! instead of each step walking from the root.

use crate::addr::{Level, Va, VaRange};
use crate::entry::{Busy, Entry};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::machine::{Act, Machine, Work};
use crate::ops::protect::Protect;
use crate::ops::remap::Remap;
use crate::ops::unmap::Unmap;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::raised;
use crate::platform::over;
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

pub(crate) struct RelocateInTable<'v, M: Machine>(pub &'v Faults<M>);

over!(RelocateInTable, Faults);

impl<M: Machine> RelocateInTable<'_, M> {
    /// Moves what is mapped at `old`, all of it, to `new`. `false` if they are not as long as each
    /// other, inside one lowest node each, of one region, empty at the new place, or all the old
    /// node has; then nothing was done.
    pub(super) fn relocate_in_table(
        self,
        edit: &mut Edit<'_>,
        old: VaRange,
        new: VaRange,
    ) -> Result<bool, NoMemory> {
        let m = &self.machine;
        let space = edit.space;
        if old.bytes() != new.bytes() {
            return Ok(false);
        }
        let (Some(from), Some(to)) = (self.in_table(space, old), self.in_table(space, new)) else {
            return Ok(false);
        };
        let pages = old.pages();
        let (from_node, to_node) = (from.node(), to.node());
        let (until, own) = self.intervals(from_node).from(from.slots.0);
        if from_node.state().count() <= pages
            || until < from.slots.1
            || (to.slots.0..to.slots.1).any(|slot| m.entry(to_node.pfn, slot) != 0)
        {
            return Ok(false);
        }
        let Some(handle) = own.or_else(|| self.region_of(from_node, from.slots.0)) else {
            return Ok(false);
        };
        // What is kept for the next change must not keep an object.
        if self.region(handle).packed().has_object() {
            return Ok(false);
        }
        let attrs = self.region(handle).attrs();
        let delta = new.start().0.wrapping_sub(old.start().0);
        let shift = self.region(handle).shift().wrapping_sub((delta as i64 >> 12) as u64);
        let shifted = self.add_shift(space, shift, edit.token)?;
        let left = self.left_of(to_node, to.slots.0);
        let (moved, made) = match self.region_beside(edit, left, attrs, shift) {
            Ok(found) => found,
            Err(error) => return self.not_moved(edit, shifted.then_some(shift), error),
        };
        let set = self.intervals(to_node).set(edit, to.slots, Some(moved));
        if made {
            self.keep_region(&space.changed, moved, set.is_ok(), edit.deferred);
        }
        if let Err(error) = set {
            return self.not_moved(edit, shifted.then_some(shift), error);
        }
        let mut receipt = Receipt::new();
        self.alter_leaves(from.at, from.slots, &mut |at: &Cursor<'_>, (slot, _), raw| {
            let place = at.place(slot, raw);
            let done = Remap(self.0).stash_entry(place, Va(at.va(slot)), &mut receipt);
            slot + usize::from(done)
        });
        let _flushed = self.flush(space, receipt);
        // Marked entries are this verb's alone, so they need no lock.
        let mut resident = 0;
        {
            let _guard = to_node.lock(m, edit.token);
            for (from_slot, slot) in (from.slots.0..from.slots.1).zip(to.slots.0..) {
                let entry = match self.load(from_node.pfn, from_slot, Level::ONE) {
                    Entry::Busy(Busy::Page(pfn)) => {
                        resident += 1;
                        Protect(self.0).page_entry(attrs.rights, pfn, Level::ONE, None)
                    }
                    _ => Entry::Reserved,
                };
                self.store(to_node.pfn, slot, Level::ONE, entry);
            }
            let state = to_node.state();
            let (count, there) = (state.count() + pages, state.resident() + resident);
            to_node.set_state(state.with_count(count).with_resident(there));
        }
        space.note_hole(old.end(), self.user_end());
        {
            let _guard = from_node.lock(m, edit.token);
            (from.slots.0..from.slots.1)
                .for_each(|slot| self.store(from_node.pfn, slot, Level::ONE, Entry::Empty));
            from_node.set_state(raised(from_node.state().without(pages, resident), pages));
        }
        m.work(Work::Entry, 2 * pages);
        self.intervals(from_node).forget(edit, from.slots);
        Unmap(self.0).raise_above(from_node, pages);
        Ok(true)
    }

    /// Takes the index shift back that was added for nothing.
    #[cold]
    fn not_moved(
        self,
        edit: &mut Edit<'_>,
        added: Option<u64>,
        error: NoMemory,
    ) -> Result<bool, NoMemory> {
        if let Some(shift) = added {
            self.undo_shift(edit.space, shift, edit.token);
        }
        Err(error)
    }
}
