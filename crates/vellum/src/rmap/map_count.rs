//! Map counts of data frames: one more mapping, one less, mine alone.
//!
//! A block is *whole* (one record counts the leaves that map all of it) or split into smaller
//! *units* that count each for themselves, which happens when some space splits its leaf while
//! others keep theirs. A leaf's order may then be larger than the units under it, and counting
//! walks the units.
//!
//! The count and the unit's order live in one word, so that a split and a count that race are
//! ordered by one exchange: the cutter prepares the sub-blocks' records with the count it saw, then
//! exchanges "whole, c" for "split, c"; if someone counted in between, the exchange fails and the
//! sub-blocks are prepared again. Nobody looks at the sub-blocks before it succeeds. Rejected:
//! counting large blocks under the busy lock, which stands above the node lock that callers hold.
//!
//! Word 1 of a data frame's record, beside `frame::Data`'s use of it: the five highest bits
//! hold 1 + the order of the units the block was split into, 0 while it is whole.

use crate::addr::{Level, Order, Pfn};
use crate::error::NoMemory;
use crate::frame::{Data, Owner, REFERENCE, Record, SPLIT, SPLIT_SHIFT, USES};
use crate::machine::{Machine, Use, Work};
use crate::rmap::Rmap;
use crate::rmap::object_page::ObjectFrame;
use crate::sync::Top;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Token, touch};
use crate::tlb::Flushed;

/// Entries that map a page of an object, at most: half of what its count has room for, so that CPUs
/// that count at once stay inside.
pub(super) const MOST_SHARED: u64 = 1 << 31;

/// The next smaller size a leaf can have.
pub(crate) fn smaller(order: Order) -> Order {
    if order > Order::HUGE { Order::HUGE } else { Order::BASE }
}

/// The next larger one.
fn larger(order: Order) -> Order {
    if order < Order::HUGE { Order::HUGE } else { Order::GIANT }
}

/// Whether a count word says: one mapping, no reference.
#[inline(always)]
fn is_one(word: u64) -> bool {
    word << USES.leading_zeros() == 1 << USES.leading_zeros()
}

/// Whether it says of a page of an object that no entry maps it.
#[inline(always)]
pub(super) fn is_objects_alone(word: u64) -> bool {
    word as u32 == 1
}

/// A page of 4 KiB that an entry maps: its record, looked up once.
#[derive(Clone, Copy)]
pub(crate) struct BasePage<'a>(&'a Record);

impl<'a> BasePage<'a> {
    #[inline(always)]
    pub fn of(record: &'a Record) -> BasePage<'a> {
        BasePage(record)
    }

    /// As [`Rmap::is_exclusive`].
    #[inline(always)]
    pub fn is_exclusive<M: Machine>(self, m: &M) -> bool {
        touch(m, self.0.word(1), false);
        is_one(self.0.word(1).load(Ordering::Acquire))
    }

    /// As [`Rmap::set_block_owner`].
    #[inline(always)]
    pub fn set_owner(self, owner: Owner) {
        let data = Data::of(self.0);
        if !data.is_owned_by(owner) {
            data.set_owner(owner);
        }
    }
}

impl<M: Machine> Rmap<M> {
    #[inline]
    pub(super) fn count_word(&self, pfn: Pfn) -> &AtomicU64 {
        self.frames.record(pfn).word(1)
    }

    /// The size of the units that count, given the count word just seen.
    fn unit(&self, pfn: Pfn, word: u64) -> Order {
        match (word & SPLIT) >> SPLIT_SHIFT {
            0 => self.frames.record(pfn).order(),
            n => Order::new(n as u8 - 1).unwrap_or(Order::BASE),
        }
    }

    /// The size of the unit that starts at a frame.
    pub(crate) fn unit_of(&self, pfn: Pfn) -> Order {
        self.unit(pfn, self.count_word(pfn).load(Ordering::Acquire))
    }

    /// The first frame of every sub-block beside the first, from units of `unit` up to a leaf of
    /// `order`, with its size.
    fn siblings(pfn: Pfn, unit: Order, order: Order, mut each: impl FnMut(Pfn, Order)) {
        let mut size = unit;
        while size < order {
            for i in 1..512 {
                each(pfn.add(i * size.frames()), size);
            }
            size = larger(size);
        }
    }

    /// Counts one more leaf of `order` that maps the block, which the caller's own leaf keeps
    /// mapped, and makes its owner `owner`.
    #[inline]
    pub(crate) fn add_mapping(&self, pfn: Pfn, order: Order, owner: Owner) {
        let record = self.frames.record(pfn);
        Data::of(record).set_owner(owner);
        touch(&self.machine, record.word(1), true);
        let old = record.word(1).fetch_add(1, Ordering::AcqRel);
        if order > Order::BASE {
            self.add_sibling_mappings(pfn, order, owner, old);
        }
    }

    #[cold]
    fn add_sibling_mappings(&self, pfn: Pfn, order: Order, owner: Owner, word: u64) {
        Self::siblings(pfn, self.unit(pfn, word), order, |sub_block, size| {
            self.add_mapping(sub_block, size, owner)
        });
    }

    /// Counts one more entry of a level that maps a page of an object, or a block, which the object
    /// itself counts as one mapping. The object keeps the page meanwhile.
    ///
    /// # Errors
    /// The page is mapped too often already: a space may map it at many places.
    pub(crate) fn add_shared_mapping(&self, pfn: Pfn, level: Level) -> Result<(), NoMemory> {
        if level != Level::ONE {
            ObjectFrame(self).add_leaf(pfn);
        } else {
            let is_first = ObjectFrame(self).add_mapping(pfn)?;
            self.count_object(1, i64::from(is_first));
        }
        Ok(())
    }

    /// One such entry less, of which no CPU has a translation. The object's own mapping is left.
    pub(crate) fn sub_shared_mapping(&self, pfn: Pfn, level: Level) {
        self.assert_data(pfn);
        if level != Level::ONE {
            ObjectFrame(self).sub_leaf(pfn);
        } else {
            let is_last = ObjectFrame(self).sub_mapping(pfn);
            self.count_object(-1, -i64::from(is_last));
        }
    }

    /// Takes the flush of the leaf as proof.
    #[inline]
    pub(crate) fn release_shared(&self, _flushed: &Flushed, pfn: Pfn, level: Level) {
        self.sub_shared_mapping(pfn, level);
    }

    /// Whether no entry maps a page of an object.
    pub(crate) fn is_unmapped(&self, pfn: Pfn) -> bool {
        let word = self.count_word(pfn);
        touch(&self.machine, word, false);
        is_objects_alone(word.load(Ordering::Acquire))
    }

    /// Keeps a block of `order` that the caller's own leaf maps from being freed, reused or
    /// exchanged, without a mapping.
    pub(crate) fn add_reference(&self, pfn: Pfn, order: Order) {
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        let old = word.fetch_add(REFERENCE, Ordering::AcqRel);
        Self::siblings(pfn, self.unit(pfn, old), order, |sub_block, size| {
            self.add_reference(sub_block, size)
        });
    }

    /// Takes such a reference back. Units without any use are freed.
    pub(crate) fn drop_reference(&self, flushed: &Flushed, pfn: Pfn, order: Order) {
        self.drop_use(flushed, pfn, order, REFERENCE);
    }

    /// Counts one leaf of `order` less; units without any use are freed. The flush of the leaf is
    /// over, as `flushed` shows.
    pub(crate) fn release(&self, flushed: &Flushed, pfn: Pfn, order: Order) {
        if order == Order::BASE {
            return self.release_base(flushed, pfn);
        }
        self.drop_use(flushed, pfn, order, 1);
    }

    fn drop_use(&self, flushed: &Flushed, pfn: Pfn, order: Order, one: u64) {
        self.assert_data(pfn);
        let old = self.count_less(self.count_word(pfn), one);
        let unit = self.unit(pfn, old);
        if old & USES == one {
            flushed.free(self, pfn, unit);
        }
        Self::siblings(pfn, unit, order, |sub_block, size| {
            self.drop_use(flushed, sub_block, size, one);
        });
    }

    /// The same for a leaf of 4 KiB.
    #[inline(always)]
    pub(crate) fn release_base(&self, flushed: &Flushed, pfn: Pfn) {
        self.assert_data(pfn);
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        if is_one(word.load(Ordering::Acquire)) || is_one(word.fetch_sub(1, Ordering::AcqRel)) {
            flushed.free(self, pfn, Order::BASE);
        }
    }

    /// The shared zeros, tables and what is free have records, too, which count no mappings. To be
    /// asked of frames that the caller keeps mapped.
    #[inline(always)]
    fn assert_data(&self, pfn: Pfn) {
        debug_assert_eq!(
            self.frames.record(pfn).use_(),
            Use::Data,
            "{pfn:?} is mapped once less, and is no data"
        );
    }

    /// One use less; what was counted before. Of the last use nothing is written: nobody can count
    /// one more beside it, since that could only be copied from it, and the count of a frame that
    /// goes means nothing.
    #[inline(always)]
    fn count_less(&self, word: &AtomicU64, one: u64) -> u64 {
        touch(&self.machine, word, true);
        let seen = word.load(Ordering::Acquire);
        if seen & USES == one { seen } else { word.fetch_sub(one, Ordering::AcqRel) }
    }

    /// Whether the caller's leaf is the only use of every part of the block. Under the lock of
    /// the leaf's node the answer stays true: a second mapping could only come from this one.
    #[inline]
    pub(crate) fn is_exclusive(&self, pfn: Pfn, order: Order) -> bool {
        touch(&self.machine, self.count_word(pfn), false);
        let word = self.count_word(pfn).load(Ordering::Acquire);
        if !is_one(word) {
            return false;
        }
        if order == Order::BASE {
            return true;
        }
        let mut mine = true;
        Self::siblings(pfn, self.unit(pfn, word), order, |sub_block, size| {
            mine &= self.is_exclusive(sub_block, size)
        });
        mine
    }

    /// Makes `owner` the owner of every unit of a block that is the caller's alone.
    pub(crate) fn set_block_owner(&self, pfn: Pfn, order: Order, owner: Owner) {
        self.set_unit_owner(pfn, owner);
        if order > Order::BASE {
            let word = self.count_word(pfn).load(Ordering::Acquire);
            Self::siblings(pfn, self.unit(pfn, word), order, |sub_block, size| {
                self.set_block_owner(sub_block, size, owner)
            });
        }
    }

    /// The same of one unit.
    #[inline]
    pub(crate) fn set_unit_owner(&self, pfn: Pfn, owner: Owner) {
        BasePage::of(self.frames.record(pfn)).set_owner(owner);
    }

    /// Lets the sub-blocks of a block of `order`, one leaf size smaller, count for themselves. The
    /// caller's leaf keeps the block mapped, and no node lock is held.
    pub(crate) fn split_block(&self, pfn: Pfn, order: Order) {
        let m = &self.machine;
        let record = self.frames.record(pfn);
        let data = Data::of(record);
        let size = smaller(order);
        let mut top: Token<Top> = Token::top();
        let _busy = data.busy().lock(m, &mut top, pfn.0);
        let word = self.count_word(pfn);
        let mut seen = word.load(Ordering::Acquire);
        if self.unit(pfn, seen) < order {
            return;
        }
        // SAFETY: the block is mapped, and its sub-blocks are freed only by who finds it split,
        // which the exchange below says.
        unsafe { self.frames.split(m, pfn, order, size) };
        m.work(Work::Scan, 512);
        loop {
            let (owner, index) = (data.owner(), data.index());
            for i in 1..512 {
                let first = i * size.frames();
                let sub_block =
                    Data::init(self.frames.record(pfn.add(first)), size, owner, index + first);
                sub_block.set_uses(seen & USES);
            }
            let cut = seen & !SPLIT | (size.get() as u64 + 1) << SPLIT_SHIFT;
            touch(m, word, true);
            match word.compare_exchange(seen, cut, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
