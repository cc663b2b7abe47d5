//! A frame's record: 64 bytes, one cache line, eight words that mean what the frame's use says.
//!
//! The head word is the same for every use: what the frame is, how long a block it starts, flags,
//! and 32 bits for a lock. The other seven belong to the use: [`Data`](crate::frame::Data) for data
//! frames, a table node's counts and intervals, a slab's bitmap, the pending queue's link. There
//! are no list links for everyone, since nearly every frame is on no list.
//!
//! Allocating and freeing touch no record: whoever takes a frame writes its record before anyone
//! can find the frame. The record of a free frame is therefore whatever was left there, and zero if
//! the frame was never used.

pub mod data;

use crate::addr::Order;
use crate::machine::{USES, Use};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A frame's 64 bytes. All zero: free, never used.
#[repr(C, align(64))]
pub struct Record {
    /// Bits 0..8 use, 8..16 order (18 at most), 16..32 flags of the use.
    head: AtomicU32,
    lock: AtomicU32,
    words: [AtomicU64; 7],
}

const _: () = assert!(size_of::<Record>() == 64 && USES <= 1 << 8);

impl Record {
    /// Starts a new life of the frame: use and order as given, flags and all words zero, the lock
    /// word kept. The caller has the frame to itself.
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

    /// What the frame is used for. Means something only for whoever knows that the frame is not
    /// free.
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
            _ => Use::Free,
        }
    }

    /// The order of the block this record stands for.
    #[inline]
    pub fn order(&self) -> Order {
        Order::new((self.head.load(Ordering::Acquire) >> 8) as u8).unwrap_or(Order::GIANT)
    }

    /// The use's flags, 16 of them.
    #[inline]
    pub fn flags(&self) -> u16 {
        (self.head.load(Ordering::Acquire) >> 16) as u16
    }

    /// Sets flags. Anyone may, at any time; what the flag means says who does.
    #[inline]
    pub(crate) fn set_flags(&self, flags: u16) {
        self.head.fetch_or((flags as u32) << 16, Ordering::AcqRel);
    }

    /// 32 bits for a [`Lock`](crate::sync::Lock).
    #[inline]
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.lock
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
