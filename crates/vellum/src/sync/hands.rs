//! Memory in hand: what verbs and faults have taken and neither put to use nor given back.
//!
//! A fault takes its frame before it locks the table, and gives it back if another CPU was first.
//! Whoever finds no memory meanwhile may not say that there is none. So it waits until all who had
//! memory in hand are at their end, and looks again if any gave some back.
//!
//! A line per CPU counts who began there: the low 32 bits how many are at work, the rest how often
//! none was. Unlike a reader of an [epoch](super::Epochs), who has memory in hand may be preempted,
//! move, and wait.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::atomic::{AtomicU64, Ordering, fence, fence_after_exchange};
use super::touch;
use crate::machine::{MAX_CPUS, Machine};

/// How many are at work, at most: tasks that began on one CPU.
const AT_WORK: u64 = u32::MAX as u64;
/// Added when the last of them ends. The upper half wraps, which is harmless: who waits compares
/// for another value.
const NONE: u64 = AT_WORK + 1;

#[repr(C, align(64))]
struct Line(AtomicU64);

/// Who has memory in hand.
pub(crate) struct Hands {
    lines: NonNull<Line>,
    cpus: usize,
    /// How often memory was given back that nobody had used.
    returned: AtomicU64,
}

// SAFETY: the lines are atomics, and `new` made their memory this value's.
unsafe impl Send for Hands {}
// SAFETY: as above.
unsafe impl Sync for Hands {}

impl Hands {
    /// The memory `cpus` CPUs need: a cache line each.
    pub fn layout(cpus: usize) -> Layout {
        // The bound on CPUs keeps this far from overflow.
        Layout::array::<Line>(cpus.clamp(1, MAX_CPUS)).unwrap_or(Layout::new::<Line>())
    }

    /// Nobody has anything yet.
    ///
    /// # Safety
    /// `memory` is zero, laid out as [`layout`](Hands::layout) says, and nobody else's while the value lives.
    pub unsafe fn new(cpus: usize, memory: NonNull<u8>) -> Hands {
        Hands { lines: memory.cast(), cpus, returned: AtomicU64::new(0) }
    }

    fn line(&self, cpu: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus);
        // SAFETY: below `cpus`, so inside the memory of `new`.
        unsafe { &self.lines.add(cpu).as_ref().0 }
    }

    /// From here until the guard is dropped the caller may have memory in hand. It asks for none
    /// before.
    #[inline]
    pub fn begin<'a, M: Machine>(&'a self, m: &'a M) -> InHand<'a, M> {
        // Any line will do; this CPU's is near.
        m.preempt_off();
        let word = self.line(m.cpu());
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
        touch(m, word, true);
        word.fetch_add(1, Ordering::SeqCst);
        fence_after_exchange();
        InHand { word, m }
    }

    /// Memory that nobody has used was given back. The caller is still in hand, or in an epoch,
    /// whose end shows it.
    #[inline]
    pub fn gave_back<M: Machine>(&self, m: &M) {
        touch(m, &self.returned, true);
        self.returned.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was, before now.
    pub fn returned<M: Machine>(&self, m: &M) -> u64 {
        touch(m, &self.returned, false);
        self.returned.load(Ordering::Relaxed)
    }

    /// Waits until all who have memory in hand now are at their end; calls `turn` before each look.
    /// The caller has none, holds no lock and is in no epoch.
    pub fn wait<M: Machine>(&self, m: &M, turn: impl Fn()) {
        fence(Ordering::SeqCst);
        for cpu in 0..self.cpus {
            let word = self.line(cpu);
            touch(m, word, false);
            let seen = word.load(Ordering::Acquire);
            while seen & AT_WORK != 0 && word.load(Ordering::Acquire) & !AT_WORK == seen & !AT_WORK {
                turn();
                m.relax();
            }
        }
    }

    /// How many are at work, for audits.
    pub fn at_work(&self) -> u64 {
        (0..self.cpus).map(|cpu| self.line(cpu).load(Ordering::Relaxed) & AT_WORK).sum()
    }
}

/// Having memory in hand; over when dropped, on whatever CPU.
#[must_use = "it is over at once"]
pub(crate) struct InHand<'a, M: Machine> {
    word: &'a AtomicU64,
    m: &'a M,
}

impl<M: Machine> Drop for InHand<'_, M> {
    #[inline]
    fn drop(&mut self) {
        touch(self.m, self.word, true);
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(seen & AT_WORK != 0, "memory in hand ends twice");
            let left = seen - 1;
            let next = if left & AT_WORK == 0 { left.wrapping_add(NONE) } else { left };
            match self.word.compare_exchange_weak(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
