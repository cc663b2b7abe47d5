//! Moving a few pages between lowest nodes that are both there.
//!
//! No table has to be made at the new place, so nothing can fail once the pages are frozen, nothing
//! has to be held at the new place meanwhile, and each node is visited once for each step instead
//! of each step walking from the root.

use crate::addr::{Level, VaRange};
use crate::entry::Entry;
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::machine::{Act, Event, Machine, Work};
use crate::ops::over_faults;
use crate::ops::protect::Protect;
use crate::ops::remap::Remap;
use crate::ops::unmap::Unmap;
use crate::ops::unmap::raised;
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;
use crate::sync::{Layout, Token};
use crate::tlb::Receipt;
use crate::vma::deferred_free::Trash;

pub(crate) struct RelocateInTable<'v, M: Machine>(pub &'v Faults<M>);

over_faults!(RelocateInTable);

impl<M: Machine> RelocateInTable<'_, M> {
    /// Moves what is mapped at `old`, all of it, to `new`. `false` if they are not as long as each
    /// other, inside one lowest node each, of one region, empty at the new place, or all the old
    /// node has; then nothing was done.
    pub(crate) fn relocate_near(
        self,
        space: &SpaceRecord,
        old: VaRange,
        new: VaRange,
        token: &mut Token<Layout>,
        trash: &mut Trash,
    ) -> Result<bool, NoMemory> {
        let m = &self.machine;
        if old.bytes() != new.bytes() {
            return Ok(false);
        }
        let (Some(from), Some(to)) = (self.near(space, old), self.near(space, new)) else {
            return Ok(false);
        };
        let pages = old.pages();
        let (until, own) = self.interval_from(from.node, from.slots.0);
        if from.node.state().count() <= pages
            || until < from.slots.1
            || (to.slots.0..to.slots.1).any(|slot| m.entry(to.node.pfn, slot) != 0)
        {
            return Ok(false);
        }
        let Some(name) = own.or_else(|| self.region_of(from.node, from.slots.0)) else {
            return Ok(false);
        };
        let attrs = self.region(name).attrs();
        let delta = new.start().0.wrapping_sub(old.start().0);
        let shift = self.region(name).shift().wrapping_sub((delta as i64 >> 12) as u64);
        let displaced = self.displace(space, shift, token)?;
        let left = self.left_of(to.node, to.slots.0);
        let (moved, made) = match self.region_near(space, left, (attrs, shift), token) {
            Ok(found) => found,
            Err(error) => return self.not_moved(space, displaced.then_some(shift), error, token),
        };
        let set = self.interval_set(space, to.node, to.slots, Some(moved), token, trash);
        if made {
            self.keep_region(&space.changed, moved, set.is_ok(), trash);
        }
        if let Err(error) = set {
            return self.not_moved(space, displaced.then_some(shift), error, token);
        }
        let mut receipt = Receipt::new();
        let zeros = self.zero_span();
        self.alter_leaves(
            from.node,
            from.base,
            from.slots,
            &mut |node: Node<'_>, level, slot, va, _| {
                Remap(self.0).freeze_entry(
                    (node, level, slot, va),
                    space.root(),
                    zeros,
                    &mut receipt,
                )
            },
        );
        let _flushed = self.redeem(space, receipt);
        // Marked entries are this verb's alone, so they need no lock.
        let mut resident = 0;
        {
            let _guard = to.node.lock(m, token);
            for (from_slot, slot) in (from.slots.0..from.slots.1).zip(to.slots.0..) {
                let entry = match self.load(from.node.pfn, from_slot, Level::ONE) {
                    Entry::Moving(pfn) if pfn != space.root() => {
                        resident += 1;
                        Protect(self.0).page_entry(attrs.rights, pfn, Level::ONE, None)
                    }
                    _ => Entry::Reserved,
                };
                self.store(to.node.pfn, slot, Level::ONE, entry);
            }
            let state = to.node.state();
            let (count, there) = (state.count() + pages, state.resident() + resident);
            to.node.set_state(state.with_count(count).with_resident(there));
        }
        space.opens_hole(old.end(), self.user_end());
        {
            let _guard = from.node.lock(m, token);
            (from.slots.0..from.slots.1)
                .for_each(|slot| self.store(from.node.pfn, slot, Level::ONE, Entry::Empty));
            from.node.set_state(raised(from.node.state().without(pages, resident), pages));
        }
        m.hook(Event::Work(Work::Entry, 2 * pages));
        self.interval_forget(space, from.node, from.slots, token, trash);
        Unmap(self.0).raise_above(from.node, pages);
        Ok(true)
    }

    /// Takes the displacement back that was added for nothing.
    #[cold]
    fn not_moved(
        self,
        space: &SpaceRecord,
        added: Option<u64>,
        error: NoMemory,
        token: &mut Token<Layout>,
    ) -> Result<bool, NoMemory> {
        if let Some(shift) = added {
            self.undo_displace(space, shift, token);
        }
        Err(error)
    }
}
