//! A data frame's record.
//!
//! A private page lives in page tables alone; its record says how many entries map it, whose it is, and at which index. The
//! index is fixed for life (a remap changes where an index is seen, not the index), so together with the owner's list of
//! displacements it finds every mapping. A block of 2 MiB and up is *whole*, one record counting for all of it, or
//! *shattered*, every 4 KiB frame counting for itself; that changes once, in one direction, under the busy lock.
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | lock | busy | |
//! | flags | 1: shattered | busy lock held |
//! | 1 | map count in the low half, pins in the high half | anyone, atomically |
//! | 2 | owner: tag in the two low bits, id above | node lock of the only mapping, or busy lock |
//! | 3 | index in base pages | nobody |
//! | 4 | generation of the last flush this frame's old translations wait for | node lock of the mapping |

use super::Record;
use crate::addr::Order;
use crate::machine::Use;
use crate::sync::atomic::Ordering;
use crate::sync::{Busy, Lock};

const SHATTERED: u16 = 1;
const PIN: u64 = 1 << 32;
const COUNT: usize = 1;
const OWNER: usize = 2;
const INDEX: usize = 3;
const GENERATION: usize = 4;

/// Whose a data frame is. Ids are below 2^62.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
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
    #[inline]
    fn pack(self) -> u64 {
        match self {
            Owner::None => 0,
            Owner::Space(id) => id << 2 | 1,
            Owner::Family(id) => id << 2 | 2,
            Owner::Object(id) => id << 2 | 3,
        }
    }

    #[inline]
    fn unpack(raw: u64) -> Owner {
        match raw & 3 {
            1 => Owner::Space(raw >> 2),
            2 => Owner::Family(raw >> 2),
            3 => Owner::Object(raw >> 2),
            _ => Owner::None,
        }
    }
}

/// A record seen as that of a data frame.
#[derive(Clone, Copy)]
pub struct Data<'a>(&'a Record);

impl<'a> Data<'a> {
    /// Starts a data frame's life: mapped once, whole, not pinned. The caller has the frame to itself.
    #[inline]
    pub fn init(record: &'a Record, order: Order, owner: Owner, index: u64) -> Data<'a> {
        record.word(COUNT).store(1, Ordering::Relaxed);
        record.word(OWNER).store(owner.pack(), Ordering::Relaxed);
        record.word(INDEX).store(index, Ordering::Relaxed);
        record.word(GENERATION).store(0, Ordering::Relaxed);
        record.set_head(Use::Data, order);
        Data(record)
    }

    /// The data view of a record whose frame is known to be data.
    #[inline]
    pub fn of(record: &'a Record) -> Data<'a> {
        debug_assert_eq!(record.use_(), Use::Data, "the data view of a frame that is none");
        Data(record)
    }

    /// Entries that map the frame, parked ones included.
    #[inline]
    pub fn map_count(self) -> u32 {
        self.0.word(COUNT).load(Ordering::Acquire) as u32
    }

    /// Counts one more mapping; gives the new count.
    #[inline]
    pub fn map(self) -> u32 {
        let old = self.0.word(COUNT).fetch_add(1, Ordering::AcqRel) as u32;
        debug_assert_ne!(old, u32::MAX, "the map count ran over");
        old.wrapping_add(1)
    }

    /// Counts one mapping less; gives the new count, 0 for the last.
    #[inline]
    pub fn unmap(self) -> u32 {
        let old = self.0.word(COUNT).fetch_sub(1, Ordering::AcqRel) as u32;
        debug_assert_ne!(old, 0, "unmapped more often than mapped");
        old.wrapping_sub(1)
    }

    /// Sets the count, where the caller knows that nobody else counts: a block being shattered.
    #[inline]
    pub fn set_map_count(self, count: u32) {
        let word = self.0.word(COUNT);
        word.store(word.load(Ordering::Relaxed) & !(PIN - 1) | count as u64, Ordering::Release);
    }

    /// Whose it is.
    #[inline]
    pub fn owner(self) -> Owner {
        Owner::unpack(self.0.word(OWNER).load(Ordering::Acquire))
    }

    /// Changes whose it is.
    #[inline]
    pub fn set_owner(self, owner: Owner) {
        self.0.word(OWNER).store(owner.pack(), Ordering::Release);
    }

    /// The page index it was made for, in base pages of its owner.
    #[inline]
    pub fn index(self) -> u64 {
        self.0.word(INDEX).load(Ordering::Acquire)
    }

    /// Holders who forbid moving, evicting and sharing it.
    #[inline]
    pub fn pins(self) -> u32 {
        // The highest byte is `space::share`'s: into what units a block was cut.
        (self.0.word(COUNT).load(Ordering::Acquire) / PIN) as u32 & 0xff_ffff
    }

    /// One more such holder.
    #[inline]
    pub fn pin(self) {
        self.0.word(COUNT).fetch_add(PIN, Ordering::AcqRel);
    }

    /// One less.
    #[inline]
    pub fn unpin(self) {
        let old = self.0.word(COUNT).fetch_sub(PIN, Ordering::AcqRel);
        debug_assert!(old >= PIN, "unpinned more often than pinned");
    }

    /// Whether each base frame of the block counts for itself.
    #[inline]
    pub fn is_shattered(self) -> bool {
        self.0.flags() & SHATTERED != 0
    }

    /// From here each base frame counts for itself. There is no way back.
    #[inline]
    pub fn set_shattered(self) {
        self.0.set_flags(SHATTERED);
    }

    /// The lock that keeps the frame where and whose it is.
    #[inline]
    pub fn busy(self) -> &'a Lock<Busy> {
        Lock::from_word(self.0.lock_word())
    }

    /// The flush generation that old translations of what this frame replaced wait for; 0 for none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_pins_owner_and_index_are_kept_apart() {
        // SAFETY: a record is made of integers.
        let record: Record = unsafe { core::mem::zeroed() };
        let data = Data::init(&record, Order::HUGE, Owner::Space(7), 1 << 40);
        assert_eq!((data.map_count(), data.pins(), data.index()), (1, 0, 1 << 40));
        data.pin();
        assert_eq!((data.map(), data.pins()), (2, 1));
        data.set_map_count(9);
        assert_eq!((data.map_count(), data.pins()), (9, 1));
        assert_eq!(data.unmap(), 8);
        data.unpin();
        for owner in [Owner::None, Owner::Space(1), Owner::Family((1 << 62) - 1), Owner::Object(3)] {
            data.set_owner(owner);
            assert_eq!(data.owner(), owner);
        }
        assert!(!data.is_shattered());
        data.set_shattered();
        assert!(data.is_shattered());
        assert_eq!((record.use_(), record.order(), data.pins()), (Use::Data, Order::HUGE, 0));
    }
}
