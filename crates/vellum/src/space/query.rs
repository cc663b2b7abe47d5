//! What lies at an address.

use crate::addr::Va;
use crate::entry::{Codec, Entry};
use crate::machine::Machine;
use crate::space::{Page, Rights, Space};
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// What lies at `va`, at some instant of the call. Takes no lock; waits while the entry is in transit.
    pub fn query(&self, space: &Space, va: Va) -> Page {
        if va >= self.user_end() {
            return Page::Unmapped;
        }
        let m = &self.machine;
        loop {
            {
                let _epoch = self.epochs.enter(m);
                let spot = self.descend(space.record(), va);
                let rights = spot.region.map_or(Rights::NONE, |name| self.region(name).attrs().rights);
                match M::Codec::decode(spot.raw, spot.level) {
                    Entry::Empty | Entry::Gone(_) => return Page::Unmapped,
                    Entry::Reserved => return Page::Reserved { rights },
                    Entry::Leaf(pfn, flags) => {
                        return Page::Mapped { pfn, level: spot.level, flags, rights, zero: self.is_zero(pfn) };
                    }
                    Entry::Parked(pfn) => return Page::Parked { pfn, level: spot.level },
                    Entry::Table(_) | Entry::Moving(_) | Entry::Detached(_) => {}
                }
            }
            m.relax();
        }
    }
}
