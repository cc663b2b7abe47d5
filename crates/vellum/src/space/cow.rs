//! A write to a page that is shared, or was.
//!
//! The zeros give way to a fresh page. A page nobody else maps any more becomes writable where it is: under the node's lock a
//! count of one cannot rise, since a second mapping could only be copied from this one. Anything else is copied. The old
//! translation is flushed before the call returns; if another CPU runs the space (or the MMU insists) the entry is absent
//! until then, so that no two CPUs read the old page and write the new one at the same time.
//!
//! A base page is copied under the node's lock, a few hundred cycles in which the source cannot change its use. A 2 MiB page
//! is set aside for the time, without lock or epoch; if no huge frame is to be had it is split instead.

use crate::addr::{Order, Pfn, Va};
use crate::entry::{Entry, Flags};
use crate::error::FaultError;
use crate::frame::Data;
use crate::machine::{Event, Machine, Work};
use crate::space::fault::{Seen, Step};
use crate::space::{Access, Fault, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::tlb::Receipt;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// Makes the page behind a read-only leaf this space's own and writable; the region gives the right.
    pub(crate) fn unshare(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        pfn: Pfn,
        flags: Flags,
    ) -> Result<Step, FaultError> {
        let level = seen.spot.level;
        let Some(order) = level.leaf_order() else { return Ok(Step::Again) };
        let zero = self.is_zero(pfn);
        if !zero && self.is_mine(pfn, order) {
            return Ok(self.reuse(seen, pfn, order, flags));
        }
        if zero && order == Order::HUGE {
            return self.write_huge_zeros(seen, epoch);
        }
        if order == Order::BASE { self.copy_base(seen, pfn, zero) } else { self.copy_large(seen, epoch, pfn, order) }
    }

    /// The flags of a page that was just made for the space. What `write_forced` makes in a region that gives no writes is
    /// neither writable nor dirty: dirty without the right to write once let a program write into the shared zeros of all
    /// (Linux, CVE-2017-1000405).
    pub(crate) fn own_flags(seen: &Seen<'_>) -> Flags {
        let rights = seen.attrs.rights();
        Flags { write: rights.write, exec: rights.exec, accessed: true, dirty: rights.write }
    }

    /// The last user keeps the page.
    fn reuse(&self, seen: &Seen<'_>, pfn: Pfn, order: Order, flags: Flags) -> Step {
        let m = &self.machine;
        let spot = &seen.spot;
        let mut top = Token::top();
        {
            let _guard = spot.node.lock(m, &mut top);
            // Asked again under the lock: before it, a fork could have made a second mapping from this one.
            if !self.still(seen) || !self.is_mine(pfn, order) {
                return Step::Again;
            }
            self.own(pfn, order, seen.space.owner());
            let write = seen.attrs.allows(Access::Write);
            let flags = Flags { write, accessed: true, dirty: write, ..flags };
            self.store(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
            m.hook(Event::Work(Work::Entry, 1));
        }
        if !self.rules.fault_invalidates {
            self.flush_here(seen.space, seen.va);
        }
        self.count_here(Counter::CowReuses, 1);
        Step::Done(Fault::Reused(spot.level))
    }

    /// Whether this CPU alone can have translations of the space in use, so that it cannot race with itself.
    pub(crate) fn runs_here_only(&self, space: &SpaceRecord) -> bool {
        let me = self.machine.cpu();
        (0..crate::space::CpuWords::words(self.cpus)).all(|i| {
            let mine = if me / 64 == i { 1 << (me % 64) } else { 0 };
            space.active.word(i) & !mine == 0
        })
    }

    fn copy_base(&self, seen: &Seen<'_>, old: Pfn, zero: bool) -> Result<Step, FaultError> {
        let m = &self.machine;
        let spot = &seen.spot;
        let (node, slot, level) = (spot.node, spot.slot, spot.level);
        let new = self.frames.alloc(m, Order::BASE, &self.want(seen))?;
        if zero || self.config.alloc_zero {
            self.clear_page(new, seen.va);
        }
        Data::init(self.frames.record(new), Order::BASE, seen.space.owner(), seen.index(Order::BASE));
        let entry = Entry::Leaf(new, Self::own_flags(seen));
        // A mapping of zeros was no resident page.
        let resident = u64::from(zero);
        let absent = self.rules.break_before_make || !self.runs_here_only(seen.space);
        let mut top = Token::top();
        {
            let _guard = node.lock(m, &mut top);
            if !self.still(seen) {
                drop(_guard);
                self.frames.free(m, new, Order::BASE);
                return Ok(Step::Again);
            }
            if !zero {
                m.copy(new, old, 1);
            }
            if absent {
                self.store(node.pfn, slot, level, Entry::Moving(old));
                node.add_transit();
            } else {
                self.store(node.pfn, slot, level, entry);
                node.add_resident(resident);
            }
            m.hook(Event::Work(Work::Entry, 1));
        }
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, level);
        let flushed = self.redeem(seen.space, receipt);
        if absent {
            self.put_back(node, level, slot, entry, resident as i64);
        }
        if zero {
            self.count_here(Counter::AnonPages, 1);
        } else {
            self.release(&flushed, old, Order::BASE);
        }
        self.count_here(Counter::CowCopies, 1);
        Ok(Step::Done(Fault::Copied(level)))
    }

    #[cold]
    fn copy_large(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        old: Pfn,
        order: Order,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let spot = &seen.spot;
        let at = (spot.node, spot.level, spot.slot);
        let base = Va(seen.va.0 & !(order.bytes() - 1));
        let Ok(new) = self.frames.alloc(m, order, &self.want(seen)) else {
            let frame = self.table_frame()?;
            if !self.split_leaf(seen.space, at, spot.raw, base, frame) {
                self.frames.free(m, frame, Order::BASE);
            }
            return Ok(Step::Again);
        };
        if !self.take_aside(seen) {
            self.frames.free(m, new, order);
            return Ok(Step::Again);
        }
        let index = seen.index(order);
        if self.config.alloc_zero {
            m.clear(new, order.frames());
        }
        // From here the transit mark keeps the node, and this mapping keeps the old block.
        drop(epoch);
        let mut receipt = Receipt::new();
        receipt.leaf(base, spot.level);
        let flushed = self.redeem(seen.space, receipt);
        m.copy(new, old, order.frames());
        Data::init(self.frames.record(new), order, seen.space.owner(), index);
        self.put_back(spot.node, spot.level, spot.slot, Entry::Leaf(new, Self::own_flags(seen)), 0);
        self.release(&flushed, old, order);
        self.count(Counter::CowCopies, 1);
        Ok(Step::Done(Fault::Copied(spot.level)))
    }

    /// Sets the seen entry aside, if everything seen still holds.
    pub(crate) fn take_aside(&self, seen: &Seen<'_>) -> bool {
        let spot = &seen.spot;
        let mut top = Token::top();
        let _guard = spot.node.lock(&self.machine, &mut top);
        if !self.still(seen) {
            return false;
        }
        let Some(pfn) = super::transit::frame_of(<M::Codec as crate::entry::Codec>::decode(spot.raw, spot.level))
        else {
            return false;
        };
        self.store(spot.node.pfn, spot.slot, spot.level, Entry::Moving(pfn));
        spot.node.add_transit();
        true
    }
}
