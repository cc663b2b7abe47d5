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
//! epoch, and no entry in transit either, for whom others would wait who may be what is scheduled.
//! What keeps the source is a reference. Nobody writes to it meanwhile: only a fork leaves
//! translations that may write a page that is shared, and while it does no fault gets here
//! (`fork.rs`); and while there is a reference no mapping is exclusive. If no huge frame
//! is to be had, or `cow.huge=split`, it is split instead, and a sub-block copied in the same way
//! in the same fault, so that a failure at any step leaves the leaf whole.

use crate::addr::{ENTRIES, Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::config::CowHuge;
use crate::entry::{Codec, Entry, Flags};
use crate::error::{FaultError, NoMemory, Stopped};
use crate::fault::zeros::ZeroPage;
use crate::fault::{Faults, Seen, Step, ZeroTable};
use crate::machine::{Act, Machine};
use crate::pagetable::transit::Settled;
use crate::pagetable::unlinked::{UnlinkedPath, leaf_level};
use crate::platform::over;
use crate::rmap::map_count::smaller;
use crate::space::attrs::Packed;
use crate::space::{Access, Fault, LeafSize, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::tlb::Receipt;

/// A copy of a large leaf, or of a sub-block of it, that is made with nothing held, and what
/// decided it.
struct PageCopy<'s> {
    space: &'s SpaceRecord,
    va: Va,
    attrs: Packed,
    /// The block that the leaf maps, and its size.
    old: Pfn,
    order: Order,
    /// The copy, its size, and the index of its first page.
    new: Pfn,
    size: Order,
    index: u64,
}

/// A fresh block for a part of a large leaf, with the tables that are to lead to it.
struct FreshPart<'v> {
    new: Pfn,
    size: Order,
    path: UnlinkedPath<'v>,
}

impl<'s> PageCopy<'s> {
    /// A copy of all of the leaf.
    fn decided_by(seen: &Seen<'s>, old: Pfn, new: Pfn, size: Order) -> PageCopy<'s> {
        let (space, va, attrs, index) = (seen.space, seen.va, seen.attrs, seen.index(size));
        PageCopy { space, va, attrs, old, order: size, new, size, index }
    }
}

pub(crate) struct Unshare<'v, M: Machine>(pub &'v Faults<M>);

over!(Unshare, Faults);

impl<'v, M: Machine> Unshare<'v, M> {
    /// Makes the page behind a read-only leaf this space's own and writable; the region gives the
    /// right.
    #[inline(never)]
    pub fn unshare(
        self,
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
            return if ZeroTable(self.0).may_replace_zero_table(seen, huge) {
                Ok(Step::ReplaceZeroTable)
            } else {
                self.copy_base(seen, pfn, true)
            };
        }
        if self.is_exclusive(pfn, Order::BASE) {
            return Ok(self.reuse(seen, pfn, Order::BASE, flags));
        }
        self.copy_base(seen, pfn, false)
    }

    #[cold]
    fn unshare_large(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        pfn: Pfn,
        flags: Flags,
    ) -> Result<Step, FaultError> {
        let Some(order) = seen.spot.level.leaf_order() else { return Ok(Step::Again) };
        if self.is_huge_zero(pfn) {
            return ZeroPage(self.0).write_huge_zeros(seen, epoch);
        }
        if self.is_exclusive(pfn, order) {
            return Ok(self.reuse(seen, pfn, order, flags));
        }
        self.copy_large(seen, epoch, pfn, order)
    }

    /// The last user keeps the page.
    #[inline(always)]
    fn reuse(self, seen: &Seen<'_>, pfn: Pfn, order: Order, flags: Flags) -> Step {
        let m = &self.machine;
        let spot = &seen.spot;
        let mut top = Token::top();
        {
            let _guard = spot.node.lock(m, &mut top);
            // Asked again under the lock: before it, a fork could have made a second mapping from
            // this one, and a huge page could have been freed, become the zeros, and been mapped
            // here as such.
            let zeros = order > Order::BASE && self.is_huge_zero(pfn);
            if !self.still(seen) || zeros || !self.is_exclusive(pfn, order) {
                return Step::Again;
            }
            if order == Order::BASE {
                self.set_unit_owner(pfn, seen.space.owner());
            } else {
                self.set_block_owner(pfn, order, seen.space.owner());
            }
            let write = seen.attrs.allows(Access::Write);
            let flags = Flags { write, accessed: true, dirty: write, ..flags };
            self.write_entry(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
        }
        if !self.rules.fault_invalidates {
            self.flush_here(seen.space, seen.va);
        }
        self.count_here(Counter::CowReuses, 1);
        Step::Done(Fault::Reused(spot.level))
    }

    fn copy_base(self, seen: &Seen<'_>, old: Pfn, zero: bool) -> Result<Step, FaultError> {
        let m = &self.machine;
        let new = self.frames.alloc(m, Order::BASE, &self.want(seen))?;
        if zero || self.config.alloc_zero {
            self.clear_page(new, seen.va);
        }
        self.init_page(seen, new, Order::BASE);
        let entry = Entry::Leaf(new, seen.own_flags());
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, Level::ONE);
        let copy = || {
            if !zero {
                m.copy_frame(new, old);
            }
        };
        // A mapping of zeros was no resident page.
        let settled = Settled::new(entry, i64::from(zero));
        let Some(flushed) = self.exchange_seen(seen, zero, receipt, settled, copy) else {
            self.untake(new, Order::BASE);
            return Ok(Step::Again);
        };
        if zero {
            self.count_here(Counter::AnonPages, 1);
        } else {
            self.release_base(&flushed, old);
        }
        self.count_here(Counter::CowCopies, 1);
        Ok(Step::Done(Fault::Copied(Level::ONE)))
    }

    #[cold]
    fn copy_large(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        old: Pfn,
        order: Order,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let _in_hand = self.hands.begin(m);
        let level = seen.spot.level;
        let exactly = seen.attrs.leaf() != LeafSize::Policy;
        if self.config.cow_huge == CowHuge::Split && !exactly {
            return self.copy_sub_block(seen, epoch, old, order);
        }
        let Ok(new) = self.alloc_block(order, &self.want_block(seen, order), exactly) else {
            return self.copy_sub_block(seen, epoch, old, order);
        };
        // By the reference the old block stays what it is, whoever else gives it up meanwhile:
        // nobody may reuse it.
        if !self.hold(seen, old, order) {
            self.untake_block(new, order, exactly);
            return Ok(Step::Again);
        }
        let copy = PageCopy::decided_by(seen, old, new, order);
        drop(epoch);
        let copied = self.fill_copy(&copy);
        let done = copied.is_ok() && self.replace(&copy);
        self.let_go(copy.space, old, order);
        if done {
            return Ok(Step::Done(Fault::Copied(level)));
        }
        self.untake_block(new, order, exactly);
        copied.map(|()| Step::Again).map_err(FaultError::from)
    }

    /// Takes a reference to the block behind the seen leaf, if everything seen still holds and it
    /// is shared.
    fn hold(self, seen: &Seen<'_>, pfn: Pfn, order: Order) -> bool {
        let mut top = Token::top();
        let _guard = seen.spot.node.lock(&self.machine, &mut top);
        // Since it was seen it can have become the zeros, which nobody counts.
        let holds = self.still(seen) && !self.is_huge_zero(pfn) && !self.is_exclusive(pfn, order);
        if holds {
            self.add_reference(pfn, order);
        }
        holds
    }

    /// Copies the bytes. Nothing is held.
    fn fill_copy(self, copy: &PageCopy<'_>) -> Result<(), Stopped> {
        let extent = Extent::of_leaf(copy.new, copy.size, copy.va);
        let first = copy.va.align_down(copy.order.bytes());
        let from = copy.old.add((extent.at.0 - first.0) >> Level::ONE.shift());
        if self.config.alloc_zero {
            self.clear_block(&extent)?;
        }
        self.copy_block(from, &extent)
    }

    /// The leaf that was copied, if it is still there, read-only, and by the same region. Inside an
    /// epoch.
    fn still_copied(self, copy: &PageCopy<'v>) -> Option<(Seen<'v>, Flags)> {
        let seen = self.0.seen(copy.space, copy.va)?;
        let spot = &seen.spot;
        match M::Codec::decode(spot.raw, spot.level) {
            Entry::Leaf(pfn, flags)
                if pfn == copy.old
                    && !flags.write
                    && spot.level.leaf_order() == Some(copy.order)
                    && seen.attrs == copy.attrs
                    && seen.index(copy.size) == copy.index =>
            {
                Some((seen, flags))
            }
            _ => None,
        }
    }

    /// Drops the reference of [`hold`](Self::hold), of which no CPU has a translation.
    fn let_go(self, space: &SpaceRecord, pfn: Pfn, order: Order) {
        let none = self.flush(space, Receipt::new());
        self.drop_reference(&none, pfn, order);
    }

    /// Puts a finished copy where the old block still is mapped read-only, by the same region.
    fn replace(self, copy: &PageCopy<'_>) -> bool {
        let _epoch = self.epochs.enter(&self.machine);
        let Some((seen, _)) = self.still_copied(copy) else { return false };
        self.init_page(&seen, copy.new, copy.size);
        let entry = Entry::Leaf(copy.new, seen.own_flags());
        let mut receipt = Receipt::new();
        receipt.leaf(copy.va, seen.spot.level);
        let Some(flushed) =
            self.exchange_seen(&seen, false, receipt, Settled::new(entry, 0), || {})
        else {
            return false;
        };
        self.release(&flushed, copy.old, copy.order);
        self.count(Counter::CowCopies, 1);
        true
    }

    /// As [`copy_large`](Self::copy_large) where no block of the leaf's size is wanted, or none is
    /// to be had: the leaf is split, but for the part that is written, in whose place the largest
    /// copy comes that memory gives. The copy is made first, with nothing held and the leaf as it
    /// was, for the same reason.
    #[cold]
    #[inline(never)]
    fn copy_sub_block(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        old: Pfn,
        order: Order,
    ) -> Result<Step, FaultError> {
        let FreshPart { new, size, path } = self.part_for(seen, smaller(order))?;
        let held = self.hold(seen, old, order);
        let copy = PageCopy { order, ..PageCopy::decided_by(seen, old, new, size) };
        drop(epoch);
        if !held {
            self.free_path(Some(path));
            self.untake(new, size);
            return Ok(Step::Again);
        }
        let copied = self.fill_copy(&copy);
        let done = copied.is_ok() && self.link_split(&copy, &path);
        self.let_go(copy.space, old, order);
        if done {
            return Ok(Step::Done(Fault::Copied(path.level)));
        }
        self.free_path(Some(path));
        self.untake(new, size);
        copied.map(|()| Step::Again).map_err(FaultError::from)
    }

    /// Puts the sub-blocks of a block and the finished copy of one of them where the block still is
    /// mapped read-only by the same region, by the entry for which the path was made.
    fn link_split(self, copy: &PageCopy<'_>, path: &UnlinkedPath<'_>) -> bool {
        let epoch = self.epochs.enter(&self.machine);
        let (va, order) = (copy.va, copy.order);
        let Some((seen, flags)) = self.still_copied(copy) else { return false };
        let spot = &seen.spot;
        if !path.is_below(spot.at) {
            return false;
        }
        let Some(transit) = self.make_seen_busy(&seen, false) else { return false };
        // The epoch, in which nobody is preempted, lasts: who waits for the entry may hold the
        // mmap lock.
        let _epoch = epoch;
        let (flushed, sub_block) = self.settle(transit, || {
            let mut receipt = Receipt::new();
            receipt.leaf(va.align_down(order.bytes()), spot.level);
            let flushed = self.flush(copy.space, receipt);
            let sub_block = self.split_around(path, (copy.old, order), flags, va);
            self.init_page(&seen, copy.new, copy.size);
            path.write_last(&self.machine, va, Entry::Leaf(copy.new, seen.own_flags()));
            (Settled::new(Entry::Table(path.first.pfn), -1), (flushed, sub_block))
        });
        self.release(&flushed, sub_block, copy.size);
        self.count(Counter::CowCopies, 1);
        true
    }

    /// A block for the part of a large leaf that is written, of `size` or less, with the tables
    /// above it.
    fn part_for(self, seen: &Seen<'v>, mut size: Order) -> Result<FreshPart<'v>, NoMemory> {
        loop {
            let want = self.want_block(seen, size);
            let tried = self.frames.alloc(&self.machine, size, &want).and_then(|new| {
                let path = self.0.unlinked_path(seen.spot.at, seen.va, leaf_level(size));
                path.and_then(|path| path.ok_or(NoMemory))
                    .map(|path| FreshPart { new, size, path })
                    .inspect_err(|_| self.untake(new, size))
            });
            match tried {
                Err(NoMemory) if size > Order::BASE => size = smaller(size),
                tried => return tried,
            }
        }
    }

    /// Fills the tables of a path with the sub-blocks of a block that is in transit, and says which
    /// sub-block lies at `va` in the lowest.
    fn split_around(
        self,
        path: &UnlinkedPath<'_>,
        (block, order): (Pfn, Order),
        flags: Flags,
        va: Va,
    ) -> Pfn {
        let (mut node, mut level, mut pfn, mut order) =
            (path.first, Level(path.level.0 + path.nodes as u8 - 1), block, order);
        loop {
            self.split_block(pfn, order);
            let last = node.pfn == path.last.pfn;
            let (size, next) = (smaller(order), self.load(node.pfn, level.slot(va), level));
            self.fill_sub_blocks(node, level, pfn, |sub_block| Entry::Leaf(sub_block, flags));
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
            // One sub-block is a table instead.
            let words = self.machine.direct(node.pfn).cast::<u64>();
            // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
            unsafe { words.add(level.slot(va)).write(M::Codec::encode(next, level)) };
            node.set_state(node.state().with_resident(ENTRIES as u64 - 1));
            (node, level) = (self.node(below), level.child());
        }
    }
}
