//! Redeeming a promise that is larger than the page it is redeemed with.
//!
//! A mapping of 1 GiB is one entry until it is touched. The first page in it takes one or more
//! tables, which are made together with the page and shown together with it.

use crate::addr::{Level, Order, Pfn};
use crate::entry::{Entry, Flags};
use crate::error::{FaultError, NoMemory};
use crate::fault::Faults;
use crate::fault::{Ask, By, Seen, Step};
use crate::frame::Data;
use crate::machine::Machine;
use crate::pagetable::unlinked::{Chain, leaf_level};
use crate::space::{Access, Fault};
use crate::stats::Counter;
use crate::sync::EpochGuard;

impl<M: Machine> Faults<M> {
    /// Serves a fault where a promise above the size of leaf was seen that redeems it.
    #[cold]
    #[inline(never)]
    pub(crate) fn redeem_below(
        &self,
        seen: &Seen<'_>,
        (ask, huge): (Ask, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let order = self.order_below(seen, huge);
        if order > Order::BASE {
            let (space, attrs, want) = (seen.space, seen.attrs, self.want(seen));
            drop(epoch);
            return self.fresh_large(space, ask, order, &want, attrs);
        }
        let chain = self.chain(seen.spot.at, ask.va, Level::ONE)?;
        if self.zeros_will_do(seen, ask) {
            let block = self.zero_block_here();
            let flags = Flags {
                write: false,
                exec: seen.attrs.rights().exec,
                accessed: true,
                dirty: false,
            };
            if !self.plant(seen, chain, Entry::Leaf(block.frame(ask.va), flags), false) {
                return Ok(Step::Again);
            }
            self.count_colour(block, ask.va);
            self.count_here(Counter::FaultsZero, 1);
            return Ok(Step::Done(Fault::Zero));
        }
        let pfn = match self.frames.alloc(m, Order::BASE, &self.want(seen)) {
            Ok(pfn) => pfn,
            Err(error) => {
                self.free_chain(chain);
                return Err(error.into());
            }
        };
        self.clear_page(pfn, ask.va);
        if !self.plant_page(seen, chain, (pfn, Order::BASE), ask.access) {
            self.untake(pfn, Order::BASE);
            return Ok(Step::Again);
        }
        self.count_here(Counter::AnonPages, 1);
        self.count_here(Counter::Faults, i64::from(ask.by == By::Program));
        Ok(Step::Done(Fault::Base))
    }

    /// The size of the leaf that a promise at a level above it is redeemed with.
    fn order_below(&self, seen: &Seen<'_>, huge: bool) -> Order {
        let mut level = seen.spot.level;
        loop {
            match self.leaf_order(seen.attrs, level, huge) {
                Some(order) => return order,
                None => level = level.child(),
            }
        }
    }

    /// Puts a fresh, cleared block where a promise of a higher level was seen, with the tables
    /// above it; `Ok(false)` if the promise is not there any more. The block stays the caller's
    /// unless the answer is `Ok(true)`.
    pub(crate) fn plant_large(
        &self,
        seen: &Seen<'_>,
        pfn: Pfn,
        order: Order,
        access: Access,
    ) -> Result<bool, NoMemory> {
        let chain = self.chain(seen.spot.at, seen.va, leaf_level(order))?;
        Ok(self.plant_page(seen, chain, (pfn, order), access))
    }

    fn plant_page(
        &self,
        seen: &Seen<'_>,
        chain: Option<Chain<'_>>,
        (pfn, order): (Pfn, Order),
        access: Access,
    ) -> bool {
        Data::init(self.frames.record(pfn), order, seen.space.owner(), seen.index(order));
        let rights = seen.attrs.rights();
        let flags = Flags {
            write: rights.write,
            exec: rights.exec,
            accessed: true,
            dirty: access == Access::Write,
        };
        self.plant(seen, chain, Entry::Leaf(pfn, flags), true)
    }
}
