//! Unmapping one page by itself.
//!
//! What `unmap` does in two passes over a range is here one entry long: mark, flush, free, write
//! down. Programs unmap single pages often enough (guard pages, allocators that give back what they
//! can) for the loops, the ragged ends and the walk from the root a second time to be worth leaving
//! out. Anything out of the ordinary is left to the passes, which are right for one page, too.

use crate::addr::{Level, PAGE_SIZE, Va};
use crate::entry::{Busy, Codec, Entry};
use crate::fault::Faults;
use crate::machine::{Act, Machine, Work};
use crate::ops::unmap::Unmap;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::raised;
use crate::platform::over;
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::sync::{MmapLock, Token};
use crate::tlb::Receipt;

pub(crate) struct UnmapPage<'v, M: Machine>(pub &'v Faults<M>);

over!(UnmapPage, Faults);

impl<M: Machine> UnmapPage<'_, M> {
    /// Unmaps a resident base page in a lowest node that keeps other entries, and every interval it
    /// has, of a space that maps no objects. `false` if it is none, and nothing was done.
    #[inline]
    pub(super) fn take_out_page(
        self,
        space: &SpaceRecord,
        va: Va,
        token: &mut Token<MmapLock>,
    ) -> bool {
        let m = &self.machine;
        let Place { node, level, slot, raw } = self.descend_entry(space, va);
        let state = node.state();
        if level != Level::ONE
            || state.count() <= 1
            || state.listed() != 0 && self.intervals(node).begins(slot)
        {
            return false;
        }
        let level = Level::ONE;
        let Entry::Leaf(pfn, _) = M::Codec::decode(raw, level) else { return false };
        if self.is_base_zero(pfn) {
            return false;
        }
        {
            let _guard = node.lock(m, token);
            // In vain if hardware or a fault was quicker.
            if m.swap_entry(
                node.pfn,
                slot,
                raw,
                M::Codec::encode(Entry::Busy(Busy::Page(pfn)), level),
            )
            .is_err()
            {
                return false;
            }
        }
        space.note_hole(Va(va.0 + PAGE_SIZE as u64), self.user_end());
        m.work(Work::Scan, 1);
        m.work(Work::Entry, 1);
        let mut receipt = Receipt::new();
        receipt.leaf(va, level);
        let flushed = self.flush_due(&self.due(space, &receipt));
        self.release_base(&flushed, pfn);
        {
            let _guard = node.lock(m, token);
            self.store(node.pfn, slot, level, Entry::Empty);
            node.set_state(raised(node.state().without(1, 1), 1));
            self.count_here(Counter::AnonPages, -1);
        }
        m.work(Work::Descend, 1);
        m.work(Work::Entry, 1);
        Unmap(self.0).raise_above(node, 1);
        true
    }
}
