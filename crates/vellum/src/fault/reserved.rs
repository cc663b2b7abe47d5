//! Fresh pages where an entry is reserved.
//!
//! A mapping of 1 GiB is one entry until it is touched. The first page in it takes one or more
//! tables, which are made together with the page and shown together with it.

use crate::addr::{Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::clear::fresh_block::{BlockContents, NoBlock};
use crate::entry::{Codec, Entry};
use crate::error::{FaultError, NoMemory};
use crate::fault::{FaultRequest, Faults, Seen, Step};
use crate::frame::AllocRequest;
use crate::machine::Machine;
use crate::pagetable::unlinked::{UnlinkedPath, leaf_level};
use crate::platform::over;
use crate::space::attrs::Packed;
use crate::space::{Access, Fault, LeafSize, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};

pub(crate) struct Reserved<'v, M: Machine>(pub &'v Faults<M>);

over!(Reserved, Faults);

impl<M: Machine> Reserved<'_, M> {
    /// A fresh 4 KiB page, cleared before the node is locked.
    #[inline(always)]
    pub fn fresh_base(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        want: &AllocRequest,
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let pfn = self.frames.alloc_base(epoch, want)?;
        self.clear_page(pfn, seen.va);
        if self.install(seen, pfn, Order::BASE, ask.access, epoch) {
            let counters = self.counters_here();
            counters.add(Counter::AnonPages, 1);
            self.count_fault(ask, counters);
            return Ok(Step::Done(Fault::Base));
        }
        self.untake(pfn, Order::BASE);
        Ok(Step::Again)
    }

    /// A cleared block for the page at `va`, `None` where memory is short and a smaller one will
    /// do. No epoch and no lock is held.
    pub fn fresh_block(
        self,
        order: Order,
        want: &AllocRequest,
        va: Va,
        exact: bool,
    ) -> Result<Option<Pfn>, FaultError> {
        let (pfn, bytes) = match self.take_block(order, want, exact) {
            Ok(taken) => taken,
            Err(NoBlock::Stopped) => return Err(FaultError::Stopped),
            Err(NoBlock::Memory) if exact => return Err(FaultError::NoMemory),
            Err(NoBlock::Memory) => {
                self.count(Counter::ThpFaultFallback, 1);
                return Ok(None);
            }
        };
        // What the allocator cleared, it cleared by another address than the program's.
        if (bytes == BlockContents::Old || self.machine.aliases())
            && let Err(stopped) = self.clear_block(&Extent::of_leaf(pfn, order, va))
        {
            self.untake_block(pfn, order, exact);
            return Err(stopped.into());
        }
        Ok(Some(pfn))
    }

    /// A fresh page of 2 MiB or 1 GiB. Called outside of epochs.
    #[cold]
    pub fn fresh_large(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        order: Order,
        want: &AllocRequest,
        attrs: Packed,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let FaultRequest { va, access, .. } = ask;
        let exact = attrs.leaf() != LeafSize::Policy;
        let _in_hand = self.hands.begin(m);
        let Some(pfn) = self.fresh_block(order, want, va, exact)? else {
            return Ok(Step::Smaller);
        };
        let epoch = self.epochs.enter(m);
        let leaf = leaf_level(order);
        if let Some(seen) = self.seen(space, va)
            && seen.spot.level >= leaf
            && seen.spot.raw == M::Codec::encode(Entry::Reserved, seen.spot.level)
            && seen.attrs == attrs
        {
            let done = if seen.spot.level == leaf {
                self.install(&seen, pfn, order, access, &epoch)
            } else {
                match self.plant_large(&seen, pfn, order, access) {
                    Ok(done) => done,
                    Err(error) => {
                        self.untake_block(pfn, order, exact);
                        // With the block given back there may be enough for a base page and its
                        // tables.
                        if exact {
                            return Err(error.into());
                        }
                        self.count_here(Counter::ThpFaultFallback, 1);
                        return Ok(Step::Smaller);
                    }
                }
            };
            if done {
                self.count_large(order);
                let giant = order > Order::HUGE;
                return Ok(Step::Done(if giant { Fault::Giant } else { Fault::Huge }));
            }
        }
        self.untake_block(pfn, order, exact);
        Ok(Step::Again)
    }

    /// Puts a fresh, cleared block where the reserved entry was seen; `false` if it is not there
    /// any more.
    #[inline(always)]
    fn install(
        self,
        seen: &Seen<'_>,
        pfn: Pfn,
        order: Order,
        access: Access,
        epoch: &EpochGuard<'_, M>,
    ) -> bool {
        let spot = &seen.spot;
        let node = spot.node.pfn;
        if !self.config.alloc_cursor && !self.is_found_again(seen.space, seen.va, node) {
            return false;
        }
        self.init_page(seen, pfn, order);
        let flags = seen.fresh_flags(access);
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if !self.still(seen) {
            return false;
        }
        self.write_entry(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
        spot.node.add_resident(1);
        true
    }

    /// Whether a second descent ends in the same node (`alloc.cursor=off`).
    #[cold]
    #[inline(never)]
    fn is_found_again(self, space: &SpaceRecord, va: Va, node: Pfn) -> bool {
        self.descend_entry(space, va).node.pfn == node
    }

    /// Serves a fault where the reserved entry is larger than the leaf that comes there.
    #[cold]
    #[inline(never)]
    pub fn populate_below(
        self,
        seen: &Seen<'_>,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let order = self.order_below(seen, huge);
        if order > Order::BASE {
            let (space, attrs, want) = (seen.space, seen.attrs, self.want_block(seen, order));
            drop(epoch);
            return self.fresh_large(space, ask, order, &want, attrs);
        }
        let path = self.unlinked_path(seen.spot.at, ask.va, Level::ONE)?;
        if self.serves_zeros(seen.space, ask) {
            let block = self.zero_block_here();
            let zeros = Entry::Leaf(block.frame(ask.va), seen.zero_flags());
            if !self.plant(seen, path, zeros, false) {
                return Ok(Step::Again);
            }
            self.count_colour(block, ask.va);
            let counters = self.counters_here();
            counters.add(Counter::FaultsZero, 1);
            self.count_fault(ask, counters);
            return Ok(Step::Done(Fault::Zero));
        }
        let pfn = match self.frames.alloc(m, Order::BASE, &self.want(seen)) {
            Ok(pfn) => pfn,
            Err(error) => {
                self.free_path(path);
                return Err(error.into());
            }
        };
        self.clear_page(pfn, ask.va);
        if !self.plant_page(seen, path, (pfn, Order::BASE), ask.access) {
            self.untake(pfn, Order::BASE);
            return Ok(Step::Again);
        }
        self.count_here(Counter::AnonPages, 1);
        self.count_fault(ask, self.counters_here());
        Ok(Step::Done(Fault::Base))
    }

    /// The size of the leaf that comes where a larger entry is reserved.
    fn order_below(self, seen: &Seen<'_>, huge: bool) -> Order {
        let mut level = seen.spot.level;
        loop {
            match self.leaf_order(seen.attrs, level, huge) {
                Some(order) => return order,
                None => level = level.child(),
            }
        }
    }

    /// Puts a fresh, cleared block where a reserved entry of a higher level was seen, with the
    /// tables above it; `Ok(false)` if that entry is not there any more. The block stays the
    /// caller's unless the answer is `Ok(true)`.
    pub fn plant_large(
        self,
        seen: &Seen<'_>,
        pfn: Pfn,
        order: Order,
        access: Access,
    ) -> Result<bool, NoMemory> {
        let path = self.unlinked_path(seen.spot.at, seen.va, leaf_level(order))?;
        Ok(self.plant_page(seen, path, (pfn, order), access))
    }

    fn plant_page(
        self,
        seen: &Seen<'_>,
        path: Option<UnlinkedPath<'_>>,
        (pfn, order): (Pfn, Order),
        access: Access,
    ) -> bool {
        self.init_page(seen, pfn, order);
        self.plant(seen, path, Entry::Leaf(pfn, seen.fresh_flags(access)), true)
    }
}
