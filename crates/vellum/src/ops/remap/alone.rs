//! Moving a page that is alone in its table to where no table is.
//!
//! The tables of the old place go with the page, as where it is unmapped, and those of the new one
//! are filled before one store shows them. As where it is unmapped, the old nodes are dead, and
//! after the flush the entry in them is this verb's alone. They are freed and not revived, as
//! tables that move are: nobody has to have left them before.

use crate::addr::{Level, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::machine::{Act, Machine, Work};
use crate::ops::remap::lay::Lay;
use crate::ops::unmap::Unmap;
use crate::pagetable::single_table::above_table;
use crate::pagetable::unlinked::EmptyPath;
use crate::platform::over;
use crate::tlb::Receipt;
use crate::vma::detach::Chain;
use crate::vma::edit::Edit;

pub(crate) struct RelocateAlone<'v, M: Machine>(pub &'v Faults<M>);

over!(RelocateAlone, Faults);

impl<M: Machine> RelocateAlone<'_, M> {
    /// Moves the page that is mapped at `old` to `new`. `false` if they are more than a page, or it
    /// is not alone in its table, or is of an object, or a table is at the new place, or something
    /// else, or if there is no memory for tables there; then nothing was done.
    #[inline(never)]
    pub(super) fn relocate_alone(
        self,
        edit: &mut Edit<'_>,
        old: VaRange,
        new: VaRange,
    ) -> Result<bool, NoMemory> {
        let (m, space) = (&self.machine, edit.space);
        if old.pages() != 1 || new.pages() != 1 {
            return Ok(false);
        }
        let to = above_table(self.0, space, new).filter(|to| to.raw == 0);
        let (Some(from), Some(to)) = (self.in_table(space, old), to) else { return Ok(false) };
        let (node, slot) = (from.node(), from.slots.0);
        let chain = Chain::of(self.0, node, Some(to.node.pfn));
        let (1, Some(chain)) = (node.state().count(), chain) else { return Ok(false) };
        let Some(region) = self.region_of(node, slot).map(|handle| self.region(handle)) else {
            return Ok(false);
        };
        if region.packed().has_object() {
            return Ok(false);
        }
        let pages = (new.start().0.wrapping_sub(old.start().0) as i64 >> 12) as u64;
        let (attrs, shift) = (region.attrs(), region.shift().wrapping_sub(pages));
        let shifted = self.add_shift(space, shift, edit.token)?.then_some(shift);
        // The general way may do with less memory: it moves tables as they are.
        let generally = |edit: &mut Edit<'_>| {
            if let Some(shift) = shifted {
                self.undo_shift(space, shift, edit.token);
            }
            Ok(false)
        };
        let Ok((moved, made)) = self.region_beside(edit, None, attrs, shift) else {
            return generally(edit);
        };
        let path = EmptyPath(self.0).make(to, new.start()).ok().flatten();
        if made {
            self.keep_region(&space.changed, moved, path.is_some(), edit.deferred);
        }
        let Some(path) = path else { return generally(edit) };
        chain.detach(self.0);
        let mut receipt = Receipt::new();
        receipt.table(old.start(), old.end());
        let flushed = self.flush(space, receipt);
        let entry = Lay(self.0).arriving(m.entry(node.pfn, slot), Level::ONE, None);
        m.set_entry(node.pfn, slot, 0);
        let page = u64::from(entry != Entry::Reserved);
        let last = path.last_place(new.start());
        m.set_entry(last.node.pfn, last.slot, M::Codec::encode(entry, Level::ONE));
        last.node.set_state(last.node.state().with_count(1).with_resident(page));
        self.intervals(last.node).begin(last.slot, moved);
        space.note_hole(old.end(), self.user_end());
        // Who has seen the page at the old place learns that it is another.
        space.edited();
        {
            let _guard = to.node.lock(m, edit.token);
            path.link(m, to);
            to.node.set_state(to.node.state().with_count(to.node.state().count() + 1));
        }
        m.work(Work::Entry, 1);
        chain.end(self.0, &flushed, 1, edit.deferred);
        Unmap(self.0).raise_above(chain.node, 1);
        Ok(true)
    }
}
