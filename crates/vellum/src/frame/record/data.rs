//! A data frame's record.
//!
//! A private page lives in page tables alone. Its record says how many entries map it, who owns it,
//! and at which page index. The index is fixed for life: a remap changes where an index is seen,
//! not the index. So together with the owner's index shifts it finds every mapping. A block of 2
//! MiB and more has one record that counts for all of it until it is split into units that count
//! for themselves, which is never undone. [`Record`] has the words and their locks.

use crate::addr::{Order, PAGE_SIZE, PFN_END, Pfn};
use crate::frame::record::{MAX_FRAMES, Record};
use crate::machine::{MAX_NODES, Use};
use crate::space::MAX_SPACES;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Busy, Lock};

/// The map count, at most one of each space: a frame has one index.
const COUNT_BITS: u64 = (1 << 32) - 1;
/// References that are no mappings: at most one of each fault that copies a huge page, and has
/// allocated a block of 2 MiB or more for that.
pub(crate) const REFERENCE: u64 = 1 << 32;
const REFERENCE_BITS: u64 = (1 << SPLIT_SHIFT) - REFERENCE;
const MOST_REFERENCES: u64 = MAX_NODES as u64 * (MAX_FRAMES >> Order::HUGE.get());
/// Mappings and references: a frame is freed when the last of either goes.
pub(crate) const USES: u64 = COUNT_BITS | REFERENCE_BITS;
/// 1 + the order of the units that a block was split into, 0 while it is not split.
pub(crate) const SPLIT_SHIFT: u32 = 59;
pub(crate) const SPLIT: u64 = 0x1f << SPLIT_SHIFT;

const _: () = {
    assert!(MAX_SPACES <= COUNT_BITS && MOST_REFERENCES <= REFERENCE_BITS / REFERENCE);
    assert!((Order::GIANT.get() as u64) < SPLIT >> SPLIT_SHIFT);
    // An owner's id is the handle of an object, which is below 2^49.
    assert!(2 * PFN_END * PAGE_SIZE as u64 <= 1 << 62);
};
/// Flags of an object's page: see [`Data::is_frozen`], [`PageIo`].
const FROZEN: u16 = 1;
const READING: u16 = 2;
const WRITING: u16 = 4;
const FAILED: u16 = 8;
const AHEAD: u16 = 16;
const BLOCK: u16 = 32;
const COUNT: usize = 1;
const OWNER: usize = 2;
const INDEX: usize = 3;
const GENERATION: usize = 4;
const LEAVES: usize = 5;

/// Who owns a data frame. Ids are below 2^62.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Nobody's yet.
    None,
    /// Mapped by one space only.
    Space(u64),
    /// Shared, or once shared, by the spaces of a fork family.
    Family(u64),
    /// Contents of an object.
    Object(u64),
}

impl Owner {
    /// In one word; 0 for none.
    #[inline]
    pub fn pack(self) -> u64 {
        match self {
            Owner::None => 0,
            Owner::Space(id) => id << 2 | 1,
            Owner::Family(id) => id << 2 | 2,
            Owner::Object(id) => id << 2 | 3,
        }
    }

    /// The opposite of [`Owner::pack`].
    #[inline]
    pub fn unpack(raw: u64) -> Owner {
        match raw & 3 {
            1 => Owner::Space(raw >> 2),
            2 => Owner::Family(raw >> 2),
            3 => Owner::Object(raw >> 2),
            _ => Owner::None,
        }
    }
}

/// What a pager does with a page of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageIo {
    /// Fills it. It is frozen meanwhile.
    Read,
    /// Reads it, to write it elsewhere.
    Write,
}

impl PageIo {
    fn flag(self) -> u16 {
        match self {
            PageIo::Read => READING,
            PageIo::Write => WRITING,
        }
    }
}

/// A record seen as that of a data frame.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a>(&'a Record);

impl<'a> Data<'a> {
    /// Initializes the record of a data frame: mapped once, not split. The caller is the frame's
    /// only user.
    #[inline]
    pub fn init(record: &'a Record, order: Order, owner: Owner, index: u64) -> Data<'a> {
        record.word(COUNT).store(1, Ordering::Relaxed);
        record.word(OWNER).store(owner.pack(), Ordering::Relaxed);
        record.word(INDEX).store(index, Ordering::Relaxed);
        record.word(GENERATION).store(0, Ordering::Relaxed);
        record.set_head(Use::Data, order);
        Data(record)
    }

    /// Initializes the record of the first frame of a block of an object. As [`Data::init`].
    pub fn init_block(record: &'a Record, owner: Owner, index: u64) -> Data<'a> {
        let data = Data::init(record, Order::HUGE, owner, index);
        record.word(LEAVES).store(0, Ordering::Relaxed);
        record.set_flags(BLOCK);
        data
    }

    /// Whether the frame is the first of a block that its object has as one entry.
    #[inline]
    pub fn is_block(self) -> bool {
        self.0.flags() & BLOCK != 0
    }

    /// Of a block: whether its other frames have records of their own.
    pub fn is_cut(self) -> bool {
        self.0.order() == Order::BASE
    }

    /// They have. Under the busy lock.
    pub fn set_cut(self) {
        self.0.set_base_order();
    }

    /// The block is one no more: its object has an entry for each page. By who froze it, which it
    /// is no more either.
    pub fn end_block(self) {
        self.0.clear_flags(BLOCK | FROZEN);
    }

    /// Of a block: entries of 2 MiB that map it.
    pub fn leaves(self) -> &'a AtomicU64 {
        self.0.word(LEAVES)
    }

    /// Of a page that a block has replaced: the next one of them.
    pub fn next(self) -> Option<Pfn> {
        self.0.word(LEAVES).load(Ordering::Relaxed).checked_sub(1).map(Pfn)
    }

    /// Sets it.
    pub fn set_next(self, next: Option<Pfn>) {
        self.0.word(LEAVES).store(next.map_or(0, |next| next.0 + 1), Ordering::Relaxed);
    }

    /// The data view of a record whose frame is known to be data.
    #[inline]
    pub fn of(record: &'a Record) -> Data<'a> {
        debug_assert_eq!(record.use_(), Use::Data, "a frame that is not data read as data");
        Data(record)
    }

    /// Entries that map the frame, inaccessible ones included.
    #[inline]
    pub fn map_count(self) -> u32 {
        self.0.word(COUNT).load(Ordering::Acquire) as u32
    }

    /// Mappings and references, as they stand in the word.
    #[inline]
    pub fn uses(self) -> u64 {
        self.0.word(COUNT).load(Ordering::Acquire) & USES
    }

    /// Sets both, where the caller knows that nobody else counts: a block being split, a copy that
    /// nobody maps yet.
    #[inline]
    pub fn set_uses(self, uses: u64) {
        let word = self.0.word(COUNT);
        word.store(word.load(Ordering::Relaxed) & !USES | uses, Ordering::Release);
    }

    /// Who owns it.
    #[inline]
    pub fn owner(self) -> Owner {
        Owner::unpack(self.0.word(OWNER).load(Ordering::Acquire))
    }

    /// Whether that is its owner.
    #[inline]
    pub fn is_owned_by(self, owner: Owner) -> bool {
        self.0.word(OWNER).load(Ordering::Acquire) == owner.pack()
    }

    /// Whether the count's word has only bits that have a meaning, and the units of a split block
    /// are smaller than the block.
    pub fn is_in_bounds(self) -> bool {
        let word = self.0.word(COUNT).load(Ordering::Relaxed);
        let split = (word & SPLIT) >> SPLIT_SHIFT;
        let units = [0, 1 + Order::BASE.get() as u64, 1 + Order::HUGE.get() as u64];
        word & !(COUNT_BITS | SPLIT) == 0
            && units.contains(&split)
            && split <= self.0.order().get() as u64
    }

    /// Changes the owner.
    #[inline]
    pub fn set_owner(self, owner: Owner) {
        self.0.word(OWNER).store(owner.pack(), Ordering::Release);
    }

    /// The page index it was made for, in base pages of its owner.
    #[inline]
    pub fn index(self) -> u64 {
        self.0.word(INDEX).load(Ordering::Acquire)
    }

    /// Whether a page of an object is frozen: nobody maps it anew, or touches its bytes, but who
    /// froze it.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.0.flags() & FROZEN != 0
    }

    /// Whether it may not be frozen now: somebody has it frozen, or a pager is at it.
    #[inline]
    pub fn is_taken(self) -> bool {
        is_taken(self.0)
    }

    /// Whether that is so, or it is a block.
    #[inline]
    pub fn is_taken_or_block(self) -> bool {
        self.0.flags() & (FROZEN | READING | WRITING | BLOCK) != 0
    }

    /// Freezes it. Under the object's guard.
    #[inline]
    pub fn freeze(self) {
        self.0.set_flags(FROZEN);
    }

    /// The opposite, by who froze it.
    #[inline]
    pub fn thaw(self) {
        self.0.clear_flags(FROZEN);
    }

    /// Whether it is neither frozen, nor a block, nor still to be used for the first time.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.0.flags() & (FROZEN | AHEAD | BLOCK) == 0
    }

    /// Whether its pager was asked for it before anybody wanted it, and nobody has used it yet.
    pub fn is_ahead(self) -> bool {
        self.0.flags() & AHEAD != 0
    }

    /// Says so.
    pub fn set_ahead(self) {
        self.0.set_flags(AHEAD);
    }

    /// Somebody uses it. `true`: the caller is the first.
    pub fn end_ahead(self) -> bool {
        self.0.clear_flags(AHEAD) & AHEAD != 0
    }

    /// What a pager does with a page of an object.
    #[inline]
    pub fn io(self) -> Option<PageIo> {
        io_of(self.0)
    }

    /// A pager begins. By who froze the page.
    pub fn begin_io(self, io: PageIo) {
        self.0.set_flags(io.flag());
    }

    /// A pager has filled the page, and it is thawed; or it has failed, and says so to who waits.
    pub fn end_read(self, failed: bool) {
        if failed {
            self.0.set_flags(FAILED);
            self.0.clear_flags(READING);
        } else {
            self.0.clear_flags(READING | FROZEN);
        }
    }

    /// No pager fills the page, which is on its way out: who waits looks again.
    pub fn drop_read(self) {
        self.0.clear_flags(READING);
    }

    /// A pager has written the page, or has failed at that.
    pub fn end_write(self) {
        self.0.clear_flags(WRITING);
    }

    /// The lock under which the frame keeps its owner and its place.
    #[inline]
    pub fn busy(self) -> &'a Lock<Busy> {
        Lock::from_word(self.0.lock_word())
    }

    /// The flush generation that old translations of what this frame replaced wait for; 0: none.
    #[inline]
    pub fn generation(self) -> u64 {
        self.0.word(GENERATION).load(Ordering::Acquire)
    }

    /// Sets it.
    #[inline]
    pub fn set_generation(self, generation: u64) {
        self.0.word(GENERATION).store(generation, Ordering::Release);
    }
}

/// What a pager does with the page of a frame that the caller has a reference to.
pub(crate) fn io_of(record: &Record) -> Option<PageIo> {
    match record.flags() & (READING | WRITING) {
        0 => None,
        READING => Some(PageIo::Read),
        _ => Some(PageIo::Write),
    }
}

/// Whether somebody has such a page frozen, or a pager is at it. A page out of use is not.
pub(crate) fn is_taken(record: &Record) -> bool {
    record.flags() & (FROZEN | READING | WRITING) != 0
}

/// Whether a pager could not fill it.
pub(crate) fn has_failed(record: &Record) -> bool {
    record.flags() & FAILED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_owner_and_index_are_kept_apart() {
        // SAFETY: a record is made of integers.
        let record: Record = unsafe { core::mem::zeroed() };
        let data = Data::init(&record, Order::HUGE, Owner::Space(7), 1 << 40);
        assert_eq!((data.map_count(), data.index()), (1, 1 << 40));
        record.word(COUNT).fetch_or(1 << 59, Ordering::Relaxed);
        data.set_uses(9);
        assert_eq!(
            (data.map_count(), record.word(COUNT).load(Ordering::Relaxed)),
            (9, 1 << 59 | 9)
        );
        for owner in [Owner::None, Owner::Space(1), Owner::Family((1 << 62) - 1), Owner::Object(3)]
        {
            data.set_owner(owner);
            assert_eq!(data.owner(), owner);
        }
        assert_eq!((record.use_(), record.order()), (Use::Data, Order::HUGE));
    }
}
