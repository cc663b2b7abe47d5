//! What lies at an address.

use crate::addr::{Level, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::machine::Machine;
use crate::space::{Access, Page, Rights, Space};
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// What lies at `va`, at some instant of the call. Waits while the entry is in transit; takes the layout lock only to say
    /// that nothing is mapped there.
    pub fn query(&self, space: &Space, va: Va) -> Page {
        if va >= self.user_end() {
            return Page::Unmapped;
        }
        let m = &self.machine;
        let record = self.record_of(space);
        loop {
            {
                let _epoch = self.epochs.enter(m);
                let edits = record.edits();
                let spot = self.descend(record, va);
                let rights = spot.region.map_or(Rights::NONE, |name| self.region(name).attrs().rights);
                // The region was read after the entry: what was mapped anew in between shows the old entry with the new rights.
                if record.edits() != edits {
                    continue;
                }
                match M::Codec::decode(spot.raw, spot.level) {
                    Entry::Empty | Entry::Gone(_) => {}
                    // The middle of a verb that takes the region away, or brings it.
                    _ if spot.region.is_none() => {}
                    Entry::Reserved => return Page::Reserved { rights },
                    Entry::Leaf(pfn, flags) => {
                        // A space that has never used the huge page of zeros does not map it, whatever that is by now.
                        let zero = if spot.level == Level::ONE || self.uses_huge_zero(record) {
                            self.is_zero(pfn)
                        } else {
                            false
                        };
                        return Page::Mapped { pfn, level: spot.level, flags, rights, zero };
                    }
                    Entry::ZeroTable(table) => {
                        let flags = Flags { accessed: true, ..Flags::default() };
                        if let Some(pfn) = self.zeros_below(table, spot.level.child(), va) {
                            return Page::Mapped { pfn, level: Level::ONE, flags, rights, zero: true };
                        }
                    }
                    Entry::Parked(pfn) => return Page::Parked { pfn, level: spot.level },
                    Entry::Table(_) | Entry::Moving(_) | Entry::Busy(_) | Entry::Detached(_) => {}
                }
            }
            let unmapped = FaultError::Unmapped;
            if self.confirm_refusal(record, va, Access::Read, unmapped) == Err(unmapped) {
                return Page::Unmapped;
            }
            m.relax();
        }
    }
}
