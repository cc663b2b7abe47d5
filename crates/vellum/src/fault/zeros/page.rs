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

use crate::addr::{Level, Order, Pfn};
use crate::clear::fresh_block::NoBlock;
use crate::config::ZeroHuge;
use crate::entry::{Codec, Entry};
use crate::error::FaultError;
use crate::fault::reserved::Reserved;
use crate::fault::{FaultRequest, Faults, Seen, Step, ZeroTable};
use crate::machine::Machine;
use crate::pagetable::transit::Settled;
use crate::pagetable::unlinked::UnlinkedPath;
use crate::platform::over;
use crate::space::{Fault, LeafSize};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::tlb::Receipt;

pub(crate) struct ZeroPage<'v, M: Machine>(pub &'v Faults<M>);

over!(ZeroPage, Faults);

impl<M: Machine> ZeroPage<'_, M> {
    /// Maps the shared zeros, read-only.
    pub fn map_zeros(self, seen: &Seen<'_>, ask: FaultRequest, epoch: &EpochGuard<'_, M>) -> Step {
        match self.only_zeros() {
            Some(pfn) => self.map_zero_frame(seen, ask, pfn, epoch),
            None => self.map_coloured(seen, ask, epoch),
        }
    }

    /// As [`map_zeros`](Self::map_zeros) where there are several: in the address's colour.
    #[inline(never)]
    fn map_coloured(self, seen: &Seen<'_>, ask: FaultRequest, epoch: &EpochGuard<'_, M>) -> Step {
        let block = self.zero_block_here();
        let step = self.map_zero_frame(seen, ask, block.frame(seen.va), epoch);
        if matches!(step, Step::Done(_)) {
            self.count_colour(block, seen.va);
        }
        step
    }

    #[inline(always)]
    pub fn map_zero_frame(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        pfn: Pfn,
        epoch: &EpochGuard<'_, M>,
    ) -> Step {
        let spot = &seen.spot;
        let flags = seen.zero_flags();
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        // Whether zeros are forbidden is asked again under the lock: whoever forbids them comes by
        // here.
        if !self.still(seen) || !seen.space.takes_zeros() {
            return Step::Again;
        }
        self.write_entry(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
        let counters = self.counters_here();
        counters.add(Counter::FaultsZero, 1);
        self.count_fault(ask, counters);
        Step::Done(Fault::Zero)
    }

    /// Whether a read of a reserved entry of this level maps more than a base page of zeros.
    #[inline]
    pub fn reads_huge_zeros(self, seen: &Seen<'_>, huge: bool) -> bool {
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
    pub fn read_huge_zeros(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        // The shared tables let nobody execute.
        let form = match self.config.zero_huge {
            _ if !M::Codec::ZERO_TABLES => ZeroHuge::Page,
            ZeroHuge::Table if seen.attrs.rights().exec => ZeroHuge::TablePrivate,
            form => form,
        };
        if form == ZeroHuge::Table {
            return ZeroTable(self.0).map_shared(seen);
        }
        if form == ZeroHuge::TablePrivate {
            return ZeroTable(self.0).map_private(seen);
        }
        let at = spot.at;
        if self.uses_huge_zero(seen.space) {
            let path = self.unlinked_path(at, seen.va, Level::TWO)?;
            return Ok(self.map_huge_zeros(seen, path));
        }
        // The tables first: the space's reference to the page cannot be given back. They are in
        // hand when the epoch is over.
        let _in_hand = self.hands.begin(&self.machine);
        let path = self.unlinked_path(at, seen.va, Level::TWO)?;
        let (space, va, attrs, was) =
            (seen.space, seen.va, seen.attrs, (spot.node.pfn, spot.level, spot.raw));
        drop(epoch);
        if let Err(why) = self.use_huge_zero(space) {
            self.free_path(path);
            if why == NoBlock::Stopped {
                return Err(FaultError::Stopped);
            }
            self.count(Counter::ThpFaultFallback, 1);
            return Ok(Step::Smaller);
        }
        let _epoch = self.epochs.enter(&self.machine);
        match self.seen(space, va) {
            Some(seen)
                if seen.attrs == attrs
                    && (seen.spot.node.pfn, seen.spot.level, seen.spot.raw) == was =>
            {
                Ok(self.map_huge_zeros(&seen, path))
            }
            _ => {
                self.free_path(path);
                Ok(Step::Again)
            }
        }
    }

    fn map_huge_zeros(self, seen: &Seen<'_>, path: Option<UnlinkedPath<'_>>) -> Step {
        let Some(page) = self.huge_zero() else {
            self.free_path(path);
            return Step::Again;
        };
        let flags = seen.zero_flags();
        if !self.plant(seen, path, Entry::Leaf(page, flags), false) {
            return Step::Again;
        }
        self.count_here(Counter::FaultsZero, 1);
        self.count_here(Counter::FaultsZeroHuge, 1);
        Step::Done(Fault::ZeroHuge)
    }

    /// Serves a write where the huge page of zeros is mapped.
    #[cold]
    pub fn write_huge_zeros(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let (space, va, attrs) = (seen.space, seen.va, seen.attrs);
        let want = self.want_block(seen, Order::HUGE);
        drop(epoch);
        let _in_hand = self.hands.begin(&self.machine);
        let new = Reserved(self.0).fresh_block(Order::HUGE, &want, va, false)?;
        let _epoch = self.epochs.enter(&self.machine);
        if let Some(seen) = self.seen(space, va)
            && seen.spot.level == Level::TWO
            && seen.attrs == attrs
            && let Entry::Leaf(pfn, _) = M::Codec::decode(seen.spot.raw, Level::TWO)
            && self.is_huge_zero(pfn)
        {
            match new {
                None => return self.split_zeros(&seen),
                Some(new) if self.replace_zeros(&seen, new) => return Ok(Step::Done(Fault::Huge)),
                Some(_) => {}
            }
        }
        if let Some(new) = new {
            self.untake(new, Order::HUGE);
        }
        Ok(Step::Again)
    }

    /// Puts a cleared huge page where zeros of that size were seen; `false` if they are not there
    /// any more.
    fn replace_zeros(self, seen: &Seen<'_>, new: Pfn) -> bool {
        self.init_page(seen, new, Order::HUGE);
        let entry = Entry::Leaf(new, seen.own_flags());
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, seen.spot.level);
        if self.exchange_seen(seen, true, receipt, Settled::new(entry, 1), || {}).is_none() {
            return false;
        }
        self.count_large(Order::HUGE);
        true
    }

    /// Puts a table of base zeros where the huge page of zeros was seen, with one page of its own
    /// where it is written.
    fn split_zeros(self, seen: &Seen<'_>) -> Result<Step, FaultError> {
        let m = &self.machine;
        let (node, slot, level) = (seen.spot.node, seen.spot.slot, seen.spot.level);
        let Entry::Leaf(_, flags) = M::Codec::decode(seen.spot.raw, level) else {
            return Ok(Step::Again);
        };
        let page = self.frames.alloc(m, Order::BASE, &self.want(seen))?;
        self.clear_page(page, seen.va);
        self.init_page(seen, page, Order::BASE);
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
        let own = M::Codec::encode(Entry::Leaf(page, seen.own_flags()), below);
        // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
        unsafe { m.direct(child.pfn).cast::<u64>().add(below.slot(seen.va)).write(own) };
        child.set_state(child.state().with_resident(1));
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, level);
        let table = Settled::new(Entry::Table(child.pfn), 0);
        if self.exchange_seen(seen, true, receipt, table, || {}).is_none() {
            self.untake_node(child.pfn);
            self.untake(page, Order::BASE);
            return Ok(Step::Again);
        }
        self.count_here(Counter::AnonPages, 1);
        self.count_here(Counter::ThpZeroSplit, 1);
        Ok(Step::Done(Fault::Copied(below)))
    }
}
