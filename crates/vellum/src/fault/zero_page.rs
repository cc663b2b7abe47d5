//! Faults where the huge page of zeros is mapped, or shall be.
//!
//! A read maps it, whole, read-only. A write puts a fresh huge page in its place, cleared before
//! the node is locked, around the written address last. Where no huge page is to be had, the
//! mapping becomes a table of 512 base zeros, but for the one page that is written: the same fault,
//! one flush, and a failure at any step leaves the mapping as it was. Rejected: splitting first and
//! then copying on write as usual (two flushes, and a split that stays behind when the second step
//! finds no memory).
//!
//! Zeros are nobody's memory: mappings of them are in no node's count of resident pages, and the
//! mark in their place (`Busy`) names the node, so that nobody takes them for a page.

use crate::addr::{Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::clear::fresh_block::{Bytes, Short};
use crate::config::ZeroHuge;
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::Faults;
use crate::fault::{Seen, Step};
use crate::frame::{AllocRequest, Data};
use crate::machine::{Event, Machine, Work};
use crate::pagetable::unlinked::Chain;
use crate::space::{Fault, LeafSize};
use crate::stats::Counter;
use crate::sync::EpochGuard;
use crate::tlb::Receipt;

impl<M: Machine> Faults<M> {
    /// Whether a read of a promise at this level maps more than a base page of zeros.
    #[inline]
    pub(crate) fn reads_huge_zeros(&self, seen: &Seen<'_>, huge: bool) -> bool {
        seen.spot.level > Level::ONE
            && huge
            && self.config.zero_huge != ZeroHuge::Off
            && self.config.zero_page
            && seen.space.takes_zeros()
            && seen.attrs.leaf() == LeafSize::Policy
            && self.large_order(seen.attrs, Order::HUGE, huge).is_some()
    }

    /// Serves such a read, of a program or of a verb that wants the page.
    #[cold]
    pub(crate) fn read_huge_zeros(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        // The shared tables let nobody execute.
        let form = match self.config.zero_huge {
            ZeroHuge::Table if seen.attrs.rights().exec => ZeroHuge::TablePrivate,
            form => form,
        };
        if form == ZeroHuge::Table {
            return self.map_zero_table(seen);
        }
        if form == ZeroHuge::TablePrivate {
            return self.map_private_zeros(seen);
        }
        let at = spot.at;
        if self.uses_huge_zero(seen.space) {
            let chain = self.chain(at, seen.va, Level::TWO)?;
            return Ok(self.map_huge_zeros(seen, chain));
        }
        // The tables first: the space's reference to the page cannot be given back. They are in
        // hand when the epoch is over.
        let _in_hand = self.hands.begin(&self.machine);
        let chain = self.chain(at, seen.va, Level::TWO)?;
        let (space, va, attrs, was) =
            (seen.space, seen.va, seen.attrs, (spot.node.pfn, spot.level, spot.raw));
        drop(epoch);
        if self.use_huge_zero(space).is_err() {
            self.free_chain(chain);
            self.count(Counter::ThpFaultFallback, 1);
            return Ok(Step::Smaller);
        }
        let _epoch = self.epochs.enter(&self.machine);
        match self.seen(space, va) {
            Some(seen)
                if seen.attrs == attrs
                    && (seen.spot.node.pfn, seen.spot.level, seen.spot.raw) == was =>
            {
                Ok(self.map_huge_zeros(&seen, chain))
            }
            _ => {
                self.free_chain(chain);
                Ok(Step::Again)
            }
        }
    }

    fn map_huge_zeros(&self, seen: &Seen<'_>, chain: Option<Chain<'_>>) -> Step {
        let Some(page) = self.huge_zero() else {
            self.free_chain(chain);
            return Step::Again;
        };
        let flags =
            Flags { write: false, exec: seen.attrs.rights().exec, accessed: true, dirty: false };
        if !self.plant(seen, chain, Entry::Leaf(page, flags), false) {
            return Step::Again;
        }
        self.count_here(Counter::FaultsZero, 1);
        self.count_here(Counter::FaultsZeroHuge, 1);
        Step::Done(Fault::ZeroHuge)
    }

    /// A cleared huge page for a write at `va`; none where memory is short. No epoch and no lock is
    /// held.
    pub(crate) fn huge_page(&self, want: &AllocRequest, va: Va) -> Result<Option<Pfn>, FaultError> {
        let (new, bytes) = match self.take_block(Order::HUGE, want, false) {
            Ok(taken) => taken,
            Err(Short::Stopped) => return Err(FaultError::Stopped),
            Err(Short::Memory) => {
                self.count(Counter::ThpFaultFallback, 1);
                return Ok(None);
            }
        };
        if (bytes == Bytes::Old || self.machine.aliases())
            && let Err(stopped) = self.clear_block(&Extent::of_leaf(new, Order::HUGE, va))
        {
            self.untake_block(new, Order::HUGE);
            return Err(stopped.into());
        }
        Ok(Some(new))
    }

    /// Serves a write where the huge page of zeros is mapped.
    #[cold]
    pub(crate) fn write_huge_zeros(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let (space, va, attrs, want) = (seen.space, seen.va, seen.attrs, self.want(seen));
        drop(epoch);
        let _in_hand = self.hands.begin(&self.machine);
        let new = self.huge_page(&want, va)?;
        let _epoch = self.epochs.enter(&self.machine);
        if let Some(seen) = self.seen(space, va)
            && seen.spot.level == Level::TWO
            && seen.attrs == attrs
            && let Entry::Leaf(pfn, _) = M::Codec::decode(seen.spot.raw, Level::TWO)
            && self.is_huge_zero(pfn)
        {
            match new {
                None => return self.shatter_zeros(&seen),
                Some(new) if self.replace_zeros(&seen, new) => return Ok(Step::Done(Fault::Huge)),
                Some(_) => {}
            }
        }
        if let Some(new) = new {
            self.untake_block(new, Order::HUGE);
        }
        Ok(Step::Again)
    }

    /// Puts a cleared huge page where zeros of that size were seen; `false` if they are not there
    /// any more.
    fn replace_zeros(&self, seen: &Seen<'_>, new: Pfn) -> bool {
        Data::init(
            self.frames.record(new),
            Order::HUGE,
            seen.space.owner(),
            seen.index(Order::HUGE),
        );
        let entry = Entry::Leaf(new, Self::own_flags(seen));
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, seen.spot.level);
        if self.exchange_seen(seen, true, receipt, (entry, 1), || {}).is_none() {
            return false;
        }
        self.machine.hook(Event::Work(Work::Large, 1));
        self.count_pages(Order::HUGE, 1);
        self.count_here(Counter::ThpFaultAlloc, 1);
        true
    }

    /// Puts a table of base zeros where the huge page of zeros was seen, with one page of its own
    /// where it is written.
    fn shatter_zeros(&self, seen: &Seen<'_>) -> Result<Step, FaultError> {
        let m = &self.machine;
        let (node, slot, level) = (seen.spot.node, seen.spot.slot, seen.spot.level);
        let Entry::Leaf(_, flags) = M::Codec::decode(seen.spot.raw, level) else {
            return Ok(Step::Again);
        };
        let page = self.frames.alloc(m, Order::BASE, &self.want(seen))?;
        self.clear_page(page, seen.va);
        Data::init(
            self.frames.record(page),
            Order::BASE,
            seen.space.owner(),
            seen.index(Order::BASE),
        );
        let below = level.child();
        let child = match self.make_node(
            below,
            Some((node.pfn, slot)),
            M::Codec::encode(Entry::Reserved, below),
        ) {
            Ok(child) => child,
            Err(error) => {
                self.untake(page, Order::BASE);
                return Err(error.into());
            }
        };
        self.fill_zeros(child, seen.va.align_down(level.entry_bytes()), flags);
        let own = M::Codec::encode(Entry::Leaf(page, Self::own_flags(seen)), below);
        // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
        unsafe { m.direct(child.pfn).cast::<u64>().add(below.slot(seen.va)).write(own) };
        child.set_state(child.state().with_resident(1));
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, level);
        if self.exchange_seen(seen, true, receipt, (Entry::Table(child.pfn), 0), || {}).is_none() {
            self.untake_node(child.pfn);
            self.untake(page, Order::BASE);
            return Ok(Step::Again);
        }
        self.count_here(Counter::AnonPages, 1);
        self.count_here(Counter::ThpZeroSplit, 1);
        Ok(Step::Done(Fault::Copied(below)))
    }
}
