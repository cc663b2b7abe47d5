//! What lies at an address.

use crate::addr::{Level, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::machine::{Act, Machine};
use crate::space::{Access, Page, Space, SpaceRecord};
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// What lies at `va`, at some instant of the call. Takes the layout lock, and waits while a fault
    /// has the entry in transit.
    pub fn query(&self, space: &Space, va: Va) -> Page {
        if va >= self.user_end() {
            return Page::Unmapped;
        }
        let m = &self.machine;
        let record = self.record_of(space);
        loop {
            // Under the lock no verb is under way: what it has written already is not yet true on
            // every CPU.
            let page = self.with_layout(record, || match self.refusal(record, va, Access::Read) {
                Err(FaultError::Unmapped) => Some(Page::Unmapped),
                _ => self.look(record, va),
            });
            if let Some(page) = page {
                return page;
            }
            m.relax();
        }
    }

    /// What lies there, if that was one thing all the while.
    fn look(&self, space: &SpaceRecord, va: Va) -> Option<Page> {
        let _epoch = self.epochs.enter(&self.machine);
        let edits = space.edits();
        let spot = self.descend(space, va);
        let rights = self.region(spot.region?).attrs().rights;
        // The region was read after the entry: what was mapped anew in between shows the old entry with
        // the new rights, even where the entry has come to say the same again.
        if space.edits() != edits {
            return None;
        }
        match M::Codec::decode(spot.raw, spot.level) {
            Entry::Reserved => Some(Page::Reserved { rights }),
            Entry::Leaf(pfn, flags) => {
                // A space that has never used the huge page of zeros does not map it, whatever that is by now.
                let zero =
                    self.is_zero_leaf(pfn, spot.level) && (spot.level == Level::ONE || self.uses_huge_zero(space));
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
            Entry::Parked(pfn) => Some(Page::Parked { pfn, level: spot.level }),
            // Nothing, or the middle of a verb.
            _ => None,
        }
    }
}
