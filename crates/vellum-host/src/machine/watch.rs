//! The use of every frame, as the library reports it through `Hooks`.
//!
//! One byte a frame. An impossible change of use panics at once: a frame allocated or freed twice,
//! a program that reads a free frame through a stale translation, a walk inside a freed table, a
//! write to the shared zeros. A comparison of contents would find these much later or never. A
//! `Pending` frame may still be read until the CPU has served the flush.

use std::sync::atomic::{AtomicU8, Ordering};

use vellum::addr::{Order, Pfn};
use vellum::machine::Use;

/// A byte a frame.
#[derive(Debug)]
pub struct Watch {
    first: Pfn,
    uses: Box<[AtomicU8]>,
}

impl Watch {
    /// Every frame free.
    pub fn new(first: Pfn, frames: u64) -> Watch {
        Watch { first, uses: (0..frames).map(|_| AtomicU8::new(Use::Free as u8)).collect() }
    }
    /// What a frame is.
    pub fn get(&self, pfn: Pfn) -> Use {
        match self.uses[(pfn.0 - self.first.0) as usize].load(Ordering::Relaxed) {
            n if n == Use::Pending as u8 => Use::Pending,
            n if n == Use::Table as u8 => Use::Table,
            n if n == Use::Slab as u8 => Use::Slab,
            n if n == Use::Data as u8 => Use::Data,
            n if n == Use::Zero as u8 => Use::Zero,
            n if n == Use::ZeroTable as u8 => Use::ZeroTable,
            n if n == Use::Poisoned as u8 => Use::Poisoned,
            n if n == Use::Object as u8 => Use::Object,
            _ => Use::Free,
        }
    }
    /// A block changes its use.
    ///
    /// # Panics
    /// If a frame of it was free and becomes free, or is in use and is given out again, or was
    /// taken out of use for good.
    pub fn set(&self, first: Pfn, order: Order, to: Use) {
        for i in 0..order.frames() {
            let pfn = first.add(i);
            let was = self.get(pfn);
            let legal = match to {
                Use::Free => !matches!(was, Use::Free | Use::Poisoned),
                Use::Pending => !matches!(was, Use::Free | Use::Pending | Use::Poisoned),
                Use::Poisoned => matches!(was, Use::Data | Use::Object),
                _ => was == Use::Free,
            };
            assert!(
                legal,
                "{pfn:?} of the block {first:?} of order {} was {was:?} and becomes {to:?}",
                order.get()
            );
            self.uses[(pfn.0 - self.first.0) as usize].store(to as u8, Ordering::Relaxed);
        }
    }
    /// Frames of one use.
    pub fn count(&self, of: Use) -> u64 {
        self.uses.iter().filter(|u| u.load(Ordering::Relaxed) == of as u8).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_frame_goes_from_free_to_a_use_and_back_and_not_twice() {
        let w = Watch::new(Pfn(512), 1024);
        let refused =
            |pfn, to| catch_unwind(AssertUnwindSafe(|| w.set(pfn, Order::BASE, to))).is_err();
        w.set(Pfn(1024), Order::HUGE, Use::Data);
        assert_eq!((w.count(Use::Data), w.count(Use::Free)), (512, 512));
        assert!(refused(Pfn(1030), Use::Table), "given out twice");
        w.set(Pfn(1030), Order::BASE, Use::Pending);
        assert!(refused(Pfn(1030), Use::Pending), "retired twice");
        w.set(Pfn(1030), Order::BASE, Use::Free);
        assert!(refused(Pfn(1030), Use::Free), "freed twice");
        w.set(Pfn(1030), Order::BASE, Use::Zero);
        assert_eq!(w.get(Pfn(1030)), Use::Zero);
    }

    #[test]
    fn a_frame_is_poisoned_out_of_data_and_for_good() {
        let w = Watch::new(Pfn(512), 1024);
        let refused =
            |pfn, to| catch_unwind(AssertUnwindSafe(|| w.set(pfn, Order::BASE, to))).is_err();
        assert!(refused(Pfn(600), Use::Poisoned), "poisoned while it is free");
        w.set(Pfn(600), Order::BASE, Use::Data);
        w.set(Pfn(600), Order::BASE, Use::Poisoned);
        for to in [Use::Free, Use::Pending, Use::Data, Use::Table, Use::Poisoned] {
            assert!(refused(Pfn(600), to), "and becomes {to:?}");
        }
        assert_eq!((w.get(Pfn(600)), w.count(Use::Poisoned)), (Use::Poisoned, 1));
    }
}
