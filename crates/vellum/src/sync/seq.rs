//! A sequence count: readers go on without writing a shared line, and look again if a writer came
//! by.
//!
//! Odd while a write is under way. What is read in between must be atomics, and may be torn until
//! [`changed`](SeqCount::changed) says it was not; nothing may be concluded, and no pointer
//! followed, before that.

use super::atomic::{AtomicU64, Ordering, fence};
use super::touch;
use crate::machine::Machine;

/// The count. All zero is idle.
#[repr(transparent)]
#[derive(Default)]
pub struct SeqCount(AtomicU64);

impl SeqCount {
    /// An idle count.
    pub const fn new() -> Self {
        SeqCount(AtomicU64::new(0))
    }

    /// The count that lives in `word`.
    #[inline]
    pub fn from_word(word: &AtomicU64) -> &SeqCount {
        // SAFETY: `repr(transparent)` over the word.
        unsafe { &*core::ptr::from_ref(word).cast::<SeqCount>() }
    }

    /// Starts reading: waits while a write is under way.
    #[inline]
    pub fn begin<M: Machine>(&self, m: &M) -> u64 {
        touch(m, &self.0, false);
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if seen & 1 == 0 {
                return seen;
            }
            m.relax();
        }
    }

    /// Whether what was read since `begin` gave `seen` may be torn.
    #[inline]
    pub fn changed<M: Machine>(&self, m: &M, seen: u64) -> bool {
        touch(m, &self.0, false);
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) != seen
    }

    /// Starts a write, which ends when the guard is dropped. The caller holds the lock that makes
    /// it the only writer, with preemption off.
    #[inline]
    pub fn write<'a, M: Machine>(&'a self, m: &'a M) -> SeqWrite<'a, M> {
        touch(m, &self.0, true);
        let seen = self.0.load(Ordering::Relaxed);
        debug_assert!(seen & 1 == 0, "two writers in one sequence count");
        self.0.store(seen.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        SeqWrite { count: self, m }
    }
}

/// A write under way.
#[must_use = "the write ends at once"]
pub struct SeqWrite<'a, M: Machine> {
    count: &'a SeqCount,
    m: &'a M,
}

impl<M: Machine> Drop for SeqWrite<'_, M> {
    #[inline]
    fn drop(&mut self) {
        touch(self.m, &self.count.0, true);
        let seen = self.count.0.load(Ordering::Relaxed);
        self.count.0.store(seen.wrapping_add(1), Ordering::Release);
    }
}
