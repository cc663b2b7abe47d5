//! A frame's record: 64 bytes, one cache line, whose meaning depends on the frame's use.
//!
//! Allocating and freeing touch no record: whoever takes a frame writes its record before anyone
//! can find the frame. The record of a free frame is therefore whatever its last user left, and
//! zero if the frame was never used. There are no list links for every use, since nearly every
//! frame is on no list.

pub mod data;

use crate::addr::Order;
use crate::machine::{USES, Use};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most frames a node may have: indices fit 32 bits with the 1 GiB below its start.
pub const MAX_FRAMES: u64 = 1 << 31;

/// Words of a pending frame.
pub const PENDING_NEXT: usize = 1;
pub const PENDING_GENERATION: usize = 2;

/// Words of a slab's page.
pub const SLAB_TAKEN: usize = 1;
pub const SLAB_NEXT: usize = 2;
pub const SLAB_PREV: usize = 3;
pub const SLAB_SIZE: usize = 4;

/// A frame's 64 bytes. All zero: free, never used.
///
/// This is the one description of its words: for each its bits, who writes it, and under which
/// lock. *Owner* is whoever has just allocated the frame, before anyone else can find it.
///
/// **Every use.**
/// - head: bits 0..8 the use, 8..16 the order of the block that the frame starts (18 at most), both
///   by the owner; 16..32 flags of the use. A table has one: bit 16, made to map zeros, by the
///   owner. A page of an object has six (`data`): frozen, under the object's guard, and others.
/// - lock: the frame busy lock of data, the node lock of a table.
///
/// **Data** (`data`; map count and split: `rmap::map_count`). Only the first frame of a block, or
/// of each unit of a split block, has them.
/// - 1: bits 0..32 the map count, 32..59 references that are no mappings (faults that copy the
///   block), both by anyone, atomically; 59..64 1 + the order of the units that the block was split
///   into, 0 while it is not split, by one exchange under the busy lock, never back.
/// - 2: bits 0..2 the kind of owner, 2..64 its id, under the node lock of the only mapping or the
///   busy lock.
/// - 3: the page index in base pages, by the owner, fixed for life.
/// - 4: the flush generation that old translations of what the frame replaced wait for, 0 for none,
///   under the node lock of the mapping.
/// - 5: of a block of an object, the entries of 2 MiB that map it, by anyone, atomically; of a page
///   that such a block has replaced, the next one, frame number + 1, by who froze it.
/// - 7: while the block lies in a pool of free blocks: the next one, frame number + 1, under the
///   pool's lock.
///
/// **Table** (`pagetable::node`). L is the space's mmap lock, N the node's own lock.
/// - 1: bits 0..3 level, by the owner; 3 dead, under L and N; 4..7 inline intervals or "in a list",
///   under L and N; 7..17 entries that are not empty, under L and N; 17..27 resident pages, under
///   N; 27..64 the longest run without a mapping in base pages, under L and N.
/// - 2: bits 0..36 the parent's frame, 36..45 the slot there, 45 root, all by the owner; 46..48
///   zero; 48..64 entries in transit, under N.
/// - 3: the highest flush generation of a translation through the table, under N; of a dead table
///   the next one to be freed.
/// - 4 to 6: intervals, or their list, under L and N, inside word 7.
/// - 7: the sequence count of the intervals, under L and N.
///
/// **Slab**, under the slab's lock.
/// - 1: taken objects, a bit each. 2, 3: next and previous page of the slab, frame number + 1. 4:
///   object size in bytes, by the owner.
///
/// **Large node of a trie** (`object::trie::node`), of use slab, under the guard of its trie.
/// - 1: the parent, a word of `object::trie::word` with the slot there, 0 for a root. 2: bits 0..52
///   the first index that it covers, for life; 63 dead. 3: bits 0..10 slots in use, 10..40 slots
///   with each of the three marks. 4: of a dead node the next one to be freed.
///
/// **Pending.**
/// - 1: next block of the node's queue, frame number + 1, 0 for none, under the queue's lock. 2:
///   the flush generation it waits for, by whoever retires it.
///
/// **Free, zero page, zero table's frame, poisoned**: no words. A zero table in use is a table.
#[repr(C, align(64))]
pub struct Record {
    head: AtomicU32,
    lock: AtomicU32,
    words: [AtomicU64; 7],
}

const _: () = assert!(size_of::<Record>() == 64 && USES <= 1 << 8);

impl Record {
    /// Initializes the record: use and order as given, flags and all words zero, the lock word
    /// kept. The caller is the frame's only user.
    #[inline]
    pub(crate) fn init(&self, use_: Use, order: Order) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
        self.set_head(use_, order);
    }

    /// Sets use and order, and clears the flags.
    #[inline]
    pub(crate) fn set_head(&self, use_: Use, order: Order) {
        self.head.store(use_ as u32 | (order.get() as u32) << 8, Ordering::Release);
    }

    /// What the frame is used for. It means nothing if the frame may be free.
    #[inline]
    pub fn use_(&self) -> Use {
        match self.head.load(Ordering::Acquire) & 0xff {
            1 => Use::Pending,
            2 => Use::Table,
            3 => Use::Slab,
            4 => Use::Data,
            5 => Use::Zero,
            6 => Use::ZeroTable,
            7 => Use::Poisoned,
            8 => Use::Object,
            _ => Use::Free,
        }
    }

    /// The order of the block that the frame starts.
    #[inline]
    pub fn order(&self) -> Order {
        Order::new((self.head.load(Ordering::Acquire) >> 8) as u8).unwrap_or(Order::GIANT)
    }

    /// The frame starts no block any more. As `set_flags`.
    pub(super) fn set_base_order(&self) {
        self.head.fetch_and(!0xff00, Ordering::AcqRel);
    }

    /// The use's flags, 16 of them.
    #[inline]
    pub fn flags(&self) -> u16 {
        (self.head.load(Ordering::Acquire) >> 16) as u16
    }

    /// Sets flags. No lock is needed; the meaning of the flag says who does it.
    #[inline]
    pub(crate) fn set_flags(&self, flags: u16) {
        self.head.fetch_or((flags as u32) << 16, Ordering::AcqRel);
    }

    /// Clears flags, and says what they were. As `set_flags`.
    #[inline]
    pub(super) fn clear_flags(&self, flags: u16) -> u16 {
        (self.head.fetch_and(!((flags as u32) << 16), Ordering::AcqRel) >> 16) as u16
    }

    /// 32 bits for a [`Lock`](crate::sync::Lock).
    #[inline]
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.lock
    }

    /// The first four of the use's words.
    #[inline]
    pub(crate) fn first_words(&self) -> &[AtomicU64; 4] {
        // SAFETY: the array has seven.
        unsafe { &*core::ptr::from_ref(&self.words).cast() }
    }

    /// A reading of the use's words, for tools and tests.
    pub fn words(&self) -> [u64; 7] {
        core::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// One of the use's words, 1 to 7.
    ///
    /// # Panics
    /// If `word` is not in that range.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        &self.words[word - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_zeros_is_a_free_base_frame() {
        // SAFETY: a record is made of integers.
        let record: Record = unsafe { core::mem::zeroed() };
        assert_eq!((record.use_(), record.order(), record.flags()), (Use::Free, Order::BASE, 0));
    }

    #[test]
    fn use_order_and_flags_do_not_disturb_each_other() {
        // SAFETY: a record is made of integers.
        let record: Record = unsafe { core::mem::zeroed() };
        for use_ in [
            Use::Free,
            Use::Pending,
            Use::Table,
            Use::Slab,
            Use::Data,
            Use::Zero,
            Use::ZeroTable,
            Use::Poisoned,
        ] {
            record.init(use_, Order::GIANT);
            record.set_flags(0x8001);
            assert_eq!(
                (record.use_(), record.order(), record.flags()),
                (use_, Order::GIANT, 0x8001)
            );
        }
    }
}
