//! What lies at an address.

use crate::addr::{Level, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::fault::Faults;
use crate::machine::{Act, Machine};
use crate::platform::over;
use crate::space::{Page, Space, SpaceRecord};

pub(crate) struct Query<'v, M: Machine>(pub &'v Faults<M>);

over!(Query, Faults);

impl<M: Machine> Query<'_, M> {
    /// `Vm::query`.
    pub fn query(self, space: &Space, va: Va) -> Page {
        if va >= self.user_end() {
            return Page::Unmapped;
        }
        let record = self.record_of(space);
        loop {
            // Under the lock no verb is under way: what it has written already is not yet true on
            // every CPU.
            if let Some(page) = self.with_mmap_lock(record, || self.look(record, va)) {
                return page;
            }
            self.machine.relax();
        }
    }

    /// What lies there, unless a fault has it in transit. Under the mmap lock.
    fn look(self, space: &SpaceRecord, va: Va) -> Option<Page> {
        let _epoch = self.epochs.enter(&self.machine);
        let spot = self.descend(space, va);
        let Some(region) = spot.region else { return Some(Page::Unmapped) };
        let rights = self.region(region).packed().rights();
        match M::Codec::decode(spot.raw, spot.level) {
            Entry::Reserved => Some(Page::Reserved { rights }),
            Entry::Shared(pfn, flags) => {
                Some(Page::Mapped { pfn, level: spot.level, flags, rights, zero: false })
            }
            Entry::Device(pfn, flags, cache) => {
                Some(Page::Device { pfn, level: spot.level, flags, rights, cache })
            }
            Entry::Leaf(pfn, flags) => {
                // A space that has never used the huge page of zeros does not map it, whatever that
                // is by now.
                let zero = self.is_zero_leaf(pfn, spot.level)
                    && (spot.level == Level::ONE || self.uses_huge_zero(space));
                // The frame may have been freed since, and have become the zeros.
                if self.machine.entry(spot.node.pfn, spot.slot) != spot.raw {
                    return None;
                }
                Some(Page::Mapped { pfn, level: spot.level, flags, rights, zero })
            }
            Entry::ZeroTable(table) => {
                let flags = Flags { accessed: true, ..Flags::default() };
                let pfn = self.zeros_below(table, spot.level.child(), va)?;
                Some(Page::Mapped { pfn, level: Level::ONE, flags, rights, zero: true })
            }
            Entry::Inaccessible(pfn) => Some(Page::Inaccessible { pfn, level: spot.level }),
            Entry::Empty => Some(Page::Unmapped),
            _ => None,
        }
    }
}
