//! A write to a page that is shared, or was.
//!
//! The zeros give way to a fresh page. A page nobody else maps any more becomes writable where it
//! is: under the node's lock a count of one cannot rise, since a second mapping could only be
//! copied from this one. Anything else is copied. The entry is absent until the old translation is
//! flushed, so that no two CPUs read the old page and write the new one at the same time
//! (`transit.rs`).
//!
//! A base page is copied while the entry is absent; its mapping, still counted, keeps the source
//! what it is. A larger one is copied as fresh blocks are cleared, in portions with scheduling
//! points between and the page that is written as the last, so with nothing held: no lock, no
//! epoch, and no entry set aside either, for whom others would wait who may be what is scheduled.
//! What keeps the source is one mapping counted that is none. Nobody writes to it meanwhile: only a
//! fork leaves translations that may write a page that is shared, and while it does no fault gets
//! here (`fork.rs`); and while the mapping is counted the page is nobody's alone. If no huge frame
//! is to be had it is split instead, and a piece copied in the same way in the same fault, so that
//! a failure at any step leaves the leaf whole.

use crate::addr::{ENTRIES, Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::entry::{Codec, Entry, Flags};
use crate::error::{FaultError, NoMemory};
use crate::fault::Faults;
use crate::fault::{Seen, Step};
use crate::frame::Data;
use crate::machine::{Act, Event, Machine, Work};
use crate::pagetable::node::Node;
use crate::pagetable::unlinked::{Chain, leaf_level};
use crate::rmap::map_count::smaller;
use crate::space::attrs::Packed;
use crate::space::{Access, Fault, LeafSize, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::tlb::Receipt;

impl<M: Machine> Faults<M> {
    /// Makes the page behind a read-only leaf this space's own and writable; the region gives the
    /// right.
    #[inline(never)]
    pub(crate) fn unshare(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        huge: bool,
        (pfn, flags): (Pfn, Flags),
    ) -> Result<Step, FaultError> {
        if seen.spot.level != Level::ONE {
            return self.unshare_large(seen, epoch, pfn, flags);
        }
        // What only huge zeros need is asked where zeros were found, so that a copy pays nothing
        // for it.
        if self.is_base_zero(pfn) {
            return if self.may_give_way(seen, huge) {
                Ok(Step::GiveWay)
            } else {
                self.copy_base(seen, pfn, true)
            };
        }
        if self.is_mine(pfn, Order::BASE) {
            return Ok(self.reuse(seen, pfn, Order::BASE, flags));
        }
        self.copy_base(seen, pfn, false)
    }

    #[cold]
    fn unshare_large(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        pfn: Pfn,
        flags: Flags,
    ) -> Result<Step, FaultError> {
        let Some(order) = seen.spot.level.leaf_order() else { return Ok(Step::Again) };
        if self.is_huge_zero(pfn) {
            return self.write_huge_zeros(seen, epoch);
        }
        if self.is_mine(pfn, order) {
            return Ok(self.reuse(seen, pfn, order, flags));
        }
        self.copy_large(seen, epoch, pfn, order)
    }

    /// The flags of a page that was just made for the space. What `write_forced` makes in a region
    /// that gives no writes is neither writable nor dirty: dirty without the right to write once
    /// let a program write into the shared zeros of all (Linux, CVE-2017-1000405).
    pub(crate) fn own_flags(seen: &Seen<'_>) -> Flags {
        let rights = seen.attrs.rights();
        Flags { write: rights.write, exec: rights.exec, accessed: true, dirty: rights.write }
    }

    /// The last user keeps the page.
    #[inline(always)]
    fn reuse(&self, seen: &Seen<'_>, pfn: Pfn, order: Order, flags: Flags) -> Step {
        let m = &self.machine;
        let spot = &seen.spot;
        let mut top = Token::top();
        {
            let _guard = spot.node.lock(m, &mut top);
            // Asked again under the lock: before it, a fork could have made a second mapping from
            // this one, and a huge page could have been freed, become the zeros, and been mapped
            // here as such.
            let zeros = order > Order::BASE && self.is_huge_zero(pfn);
            if !self.still(seen) || zeros || !self.is_mine(pfn, order) {
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

    fn copy_base(&self, seen: &Seen<'_>, old: Pfn, zero: bool) -> Result<Step, FaultError> {
        let m = &self.machine;
        let new = self.frames.alloc(m, Order::BASE, &self.want(seen))?;
        if zero || self.config.alloc_zero {
            self.clear_page(new, seen.va);
        }
        Data::init(
            self.frames.record(new),
            Order::BASE,
            seen.space.owner(),
            seen.index(Order::BASE),
        );
        let entry = Entry::Leaf(new, Self::own_flags(seen));
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, Level::ONE);
        let copy = || {
            if !zero {
                m.copy_frame(new, old);
            }
        };
        // A mapping of zeros was no resident page.
        let Some(flushed) = self.exchange_seen(seen, zero, receipt, (entry, u64::from(zero)), copy)
        else {
            self.untake(new, Order::BASE);
            return Ok(Step::Again);
        };
        if zero {
            self.count_here(Counter::AnonPages, 1);
        } else {
            self.release(&flushed, old, Order::BASE);
        }
        self.count_here(Counter::CowCopies, 1);
        Ok(Step::Done(Fault::Copied(Level::ONE)))
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
        let _in_hand = self.hands.begin(m);
        let level = seen.spot.level;
        let exactly = seen.attrs.leaf() != LeafSize::Policy;
        let Ok(new) = self.alloc_block(order, &self.want(seen), exactly) else {
            return self.copy_piece(seen, epoch, old, order);
        };
        // Counted as one mapping more, the old block stays what it is, whoever else gives it up
        // meanwhile: nobody may reuse it.
        if !self.hold(seen, old, order) {
            self.untake_block(new, order);
            return Ok(Step::Again);
        }
        let (space, va, attrs, index) = (seen.space, seen.va, seen.attrs, seen.index(order));
        drop(epoch);
        let extent = Extent::of_leaf(new, order, va);
        let zeroed = if self.config.alloc_zero { self.clear_block(&extent) } else { Ok(()) };
        let copied = zeroed.and_then(|()| self.copy_block(old, &extent));
        let done = copied.is_ok() && self.replace(space, va, (old, attrs, index), (new, order));
        self.let_go(space, old, order);
        if done {
            return Ok(Step::Done(Fault::Copied(level)));
        }
        self.untake_block(new, order);
        copied.map(|()| Step::Again).map_err(FaultError::from)
    }

    /// Counts the block behind the seen leaf as mapped once more, if everything seen still holds
    /// and it is shared.
    fn hold(&self, seen: &Seen<'_>, pfn: Pfn, order: Order) -> bool {
        let mut top = Token::top();
        let _guard = seen.spot.node.lock(&self.machine, &mut top);
        // Since it was seen it can have become the zeros, which nobody counts.
        let holds = self.still(seen) && !self.is_huge_zero(pfn) && !self.is_mine(pfn, order);
        if holds {
            self.share(pfn, order, Data::of(self.frames.record(pfn)).owner());
        }
        holds
    }

    /// Takes back what [`hold`](Vm::hold) counted, which no CPU has a translation of.
    fn let_go(&self, space: &SpaceRecord, pfn: Pfn, order: Order) {
        let none = self.redeem(space, Receipt::new());
        self.release(&none, pfn, order);
    }

    /// Puts a finished copy where the old block still is mapped read-only, by the same region.
    fn replace(
        &self,
        space: &SpaceRecord,
        va: Va,
        (old, attrs, index): (Pfn, Packed, u64),
        (new, order): (Pfn, Order),
    ) -> bool {
        let _epoch = self.epochs.enter(&self.machine);
        let Some(seen) = self.seen(space, va) else { return false };
        let spot = &seen.spot;
        let same = match M::Codec::decode(spot.raw, spot.level) {
            Entry::Leaf(pfn, flags) => pfn == old && !flags.write,
            _ => false,
        };
        if !same
            || spot.level.leaf_order() != Some(order)
            || seen.attrs != attrs
            || seen.index(order) != index
        {
            return false;
        }
        Data::init(self.frames.record(new), order, space.owner(), index);
        let entry = Entry::Leaf(new, Self::own_flags(&seen));
        let mut receipt = Receipt::new();
        receipt.leaf(va, spot.level);
        let Some(flushed) = self.exchange_seen(&seen, false, receipt, (entry, 0), || {}) else {
            return false;
        };
        self.release(&flushed, old, order);
        self.count(Counter::CowCopies, 1);
        true
    }

    /// As [`copy_large`](Vm::copy_large) where no block of the leaf's size is to be had: the leaf
    /// is cut, but for the piece that is written, in whose place the largest copy comes that memory
    /// gives. The copy is made first, with nothing held and the leaf as it was, for the same
    /// reason.
    #[cold]
    #[inline(never)]
    fn copy_piece(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        old: Pfn,
        order: Order,
    ) -> Result<Step, FaultError> {
        let (spot, va) = (&seen.spot, seen.va);
        let (size, new, chain) =
            self.piece_for(seen, (spot.node, spot.level, spot.slot), smaller(order))?;
        let held = self.hold(seen, old, order);
        let (space, at) = (seen.space, (spot.node.pfn, spot.slot));
        let (attrs, index) = (seen.attrs, seen.index(size));
        drop(epoch);
        if !held {
            self.free_chain(Some(chain));
            self.untake(new, size);
            return Ok(Step::Again);
        }
        let extent = Extent::of_leaf(new, size, va);
        let from = old.add((extent.at.0 - va.align_down(order.bytes()).0) >> Level::ONE.shift());
        let zeroed = if self.config.alloc_zero { self.clear_block(&extent) } else { Ok(()) };
        let copied = zeroed.and_then(|()| self.copy_block(from, &extent));
        if copied.is_ok()
            && self.cut_in(space, va, &chain, at, (old, order, attrs), (new, size, index))
        {
            self.let_go(space, old, order);
            return Ok(Step::Done(Fault::Copied(chain.level)));
        }
        self.let_go(space, old, order);
        self.free_chain(Some(chain));
        self.untake(new, size);
        copied.map(|()| Step::Again).map_err(FaultError::from)
    }

    /// Puts the pieces of a block and the finished copy of one of them where the block still is
    /// mapped read-only by the same region, by the entry `at` for which the chain was made.
    fn cut_in(
        &self,
        space: &SpaceRecord,
        va: Va,
        chain: &Chain<'_>,
        at: (Pfn, usize),
        (old, order, attrs): (Pfn, Order, Packed),
        (new, size, index): (Pfn, Order, u64),
    ) -> bool {
        let epoch = self.epochs.enter(&self.machine);
        let Some(seen) = self.seen(space, va) else { return false };
        let spot = &seen.spot;
        let Entry::Leaf(pfn, flags) = M::Codec::decode(spot.raw, spot.level) else { return false };
        if pfn != old
            || flags.write
            || spot.level.leaf_order() != Some(order)
            || (spot.node.pfn, spot.slot) != at
            || seen.attrs != attrs
            || seen.index(size) != index
            || !self.set_seen_aside(&seen, false)
        {
            return false;
        }
        // The epoch, in which nobody is preempted, lasts: who waits for the entry may hold the
        // layout lock.
        let _epoch = epoch;
        let mut receipt = Receipt::new();
        receipt.leaf(va.align_down(order.bytes()), spot.level);
        let flushed = self.redeem(space, receipt);
        let piece = self.cut_around(chain, (old, order), flags, va);
        Data::init(self.frames.record(new), size, space.owner(), index);
        self.write_last(chain, va, Entry::Leaf(new, Self::own_flags(&seen)));
        self.put_back(spot.node, spot.level, spot.slot, Entry::Table(chain.first.pfn), -1);
        self.release(&flushed, piece, size);
        self.count(Counter::CowCopies, 1);
        true
    }

    /// A block for the piece of a large leaf that is written, of `size` or less, with the tables
    /// above it.
    fn piece_for(
        &self,
        seen: &Seen<'_>,
        at: (Node<'_>, Level, usize),
        mut size: Order,
    ) -> Result<(Order, Pfn, Chain<'_>), NoMemory> {
        loop {
            let tried = self.frames.alloc(&self.machine, size, &self.want(seen)).and_then(|new| {
                let chain = self
                    .chain(at, seen.va, leaf_level(size))
                    .and_then(|chain| chain.ok_or(NoMemory));
                chain.map(|chain| (size, new, chain)).inspect_err(|_| self.untake(new, size))
            });
            match tried {
                Err(NoMemory) if size > Order::BASE => size = smaller(size),
                tried => return tried,
            }
        }
    }

    /// Fills the tables of a chain with the pieces of a block that is set aside, and says which
    /// piece lies at `va` in the lowest.
    fn cut_around(
        &self,
        chain: &Chain<'_>,
        (block, order): (Pfn, Order),
        flags: Flags,
        va: Va,
    ) -> Pfn {
        let (mut node, mut level, mut pfn, mut order) =
            (chain.first, Level(chain.level.0 + chain.nodes as u8 - 1), block, order);
        loop {
            self.cut_block(pfn, order);
            let last = node.pfn == chain.last.pfn;
            let (size, next) = (smaller(order), self.load(node.pfn, level.slot(va), level));
            self.fill_pieces(node, level, pfn, |piece| Entry::Leaf(piece, flags));
            self.count_pages(order, -1);
            self.count_pages(size, ENTRIES as i64);
            if order == Order::HUGE {
                self.count(Counter::ThpSplit, 1);
            }
            (pfn, order) = (pfn.add(level.slot(va) as u64 * size.frames()), size);
            let Entry::Table(below) = next else { return pfn };
            if last {
                return pfn;
            }
            // One piece is a table instead.
            let words = self.machine.direct(node.pfn).cast::<u64>();
            // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
            unsafe { words.add(level.slot(va)).write(M::Codec::encode(next, level)) };
            node.set_state(node.state().with_resident(ENTRIES as u64 - 1));
            (node, level) = (self.node(below), level.child());
        }
    }
}
