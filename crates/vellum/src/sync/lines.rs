//! Two words for each CPU, in a cache line of its own.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::atomic::AtomicU64;
use crate::machine::MAX_CPUS;

#[repr(C, align(64))]
struct Line(AtomicU64, AtomicU64);

/// The words of all CPUs, in memory that the embedder gave.
pub(super) struct Lines {
    lines: NonNull<Line>,
    cpus: usize,
}

// SAFETY: the lines are atomics, and `new` made their memory this value's.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// The memory `cpus` CPUs need: a cache line each.
    pub fn layout(cpus: usize) -> Layout {
        // The bound on CPUs keeps this far from overflow.
        Layout::array::<Line>(cpus.clamp(1, MAX_CPUS)).unwrap_or(Layout::new::<Line>())
    }

    /// Every word is 0.
    ///
    /// # Safety
    /// `memory` is zero, laid out as [`layout`](Lines::layout) says, and nobody else's while the
    /// value lives.
    pub unsafe fn new(cpus: usize, memory: NonNull<u8>) -> Lines {
        Lines { lines: memory.cast(), cpus }
    }

    #[inline]
    pub fn of(&self, cpu: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus);
        // SAFETY: below `cpus`, so inside the memory of `new`.
        unsafe { &self.lines.add(cpu).as_ref().0 }
    }

    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// The second word, which [`iter`](Lines::iter) does not go by.
    #[inline]
    pub fn second_of(&self, cpu: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus);
        // SAFETY: as above.
        unsafe { &self.lines.add(cpu).as_ref().1 }
    }

    pub fn iter(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..self.cpus).map(|cpu| self.of(cpu))
    }
}
