//! Epochs: who frees memory that others may be reading waits until all of them have looked away.
//!
//! A line per CPU, written by that CPU alone: the low 30 bits count nesting, the rest how often the
//! CPU was outside. A reader enters by one exchange of its own line; there is no global epoch to
//! read, so readers share nothing. A freer notes every CPU that is inside and waits until each of
//! them was outside once.
//!
//! ```text
//!   reader                                  freer
//!   enter: own word 0 -> 1                  unlink the node
//!   full fence (the exchange)               full fence
//!   read the link                           read every word
//!   use the node                            1: wait until the word is another
//!   leftover: own word -> 1 << 30 (release)    free the node
//! ```
//! Either the reader's exchange comes before the freer's reading, which then waits, or after it,
//! and then the reader finds the link gone. Rejected: two or three global epochs (a shared line for
//! every reader, and frees that wait for the second-next epoch); hazard pointers (a fence per node
//! of a descent, not per fault).

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::atomic::{AtomicU64, Ordering, fence, fence_after_exchange};
use super::level::{Above, TableLock, Token};
use super::lines::Lines;
use super::touch;
use crate::machine::Machine;

/// How deep a CPU's readers are nested, and the greatest depth. Each is a guard of 16 bytes that
/// somebody holds with preemption off, 16 GiB of them for one CPU. With 8 bits the 256th guard of a
/// caller made all of them outside.
const DEPTH: u64 = (1 << 30) - 1;
/// Added when the CPU leaves. The 34 bits wrap, which is harmless: who waits compares for another
/// value, and one that comes back to the same between two looks is waited for once more.
const OUTSIDE: u64 = DEPTH + 1;

const _: () =
    assert!(DEPTH & OUTSIDE == 0 && OUTSIDE <= i32::MAX as u64, "an operand of one instruction");

/// The epoch words of every CPU.
pub struct Epochs {
    lines: Lines,
}

impl Epochs {
    /// The memory `cpus` CPUs need: a cache line each.
    pub fn layout(cpus: usize) -> Layout {
        Lines::layout(cpus)
    }

    /// Epochs in the memory handed in.
    ///
    /// # Safety
    /// `memory` is zero, laid out as [`layout`](Epochs::layout) says, and nobody else's while the
    /// value lives.
    pub unsafe fn new(cpus: usize, memory: NonNull<u8>) -> Epochs {
        // SAFETY: as the caller promises.
        Epochs { lines: unsafe { Lines::new(cpus, memory) } }
    }

    /// Enters: what is reachable from here on stays until the guard is dropped. Preemption is off
    /// until then; nests up to 2^30 - 1 deep; must not wait for anything that waits in
    /// [`synchronize`](Epochs::synchronize).
    #[inline]
    pub fn enter<'a, M: Machine>(&'a self, m: &'a M) -> EpochGuard<'a, M> {
        m.preempt_off();
        let word = self.lines.of(m.cpu());
        touch(m, word, true);
        let seen = word.load(Ordering::Relaxed);
        debug_assert!(seen & DEPTH != DEPTH, "epochs nested 2^30 - 1 deep");
        // The only place a reader pays a full fence.
        word.swap(seen + 1, Ordering::SeqCst);
        fence_after_exchange();
        EpochGuard { word, m, local: PhantomData }
    }

    /// How deep a CPU is inside, for audits.
    pub(crate) fn depth(&self, cpu: usize) -> u64 {
        self.lines.of(cpu).load(Ordering::Relaxed) & DEPTH
    }

    /// Whether this task is inside. While it is, it stays on its CPU, and no other task runs there.
    #[inline]
    pub fn is_inside<M: Machine>(&self, m: &M) -> bool {
        // A task that moves between the number and the look at the line would see whoever is inside
        // on the CPU it left.
        m.preempt_off();
        let inside = self.lines.of(m.cpu()).load(Ordering::Relaxed) & DEPTH != 0;
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
        inside
    }

    /// Waits until every CPU that is inside now has been outside. The caller is outside, and holds
    /// no lock that a reader takes: the token shows that it holds no table node.
    pub fn synchronize<M: Machine, H: Above<TableLock>>(&self, m: &M, above: &mut Token<H>) {
        let _ = above;
        debug_assert!(!self.is_inside(m), "waiting for epochs from inside one would never end");
        fence(Ordering::SeqCst);
        for word in self.lines.iter() {
            touch(m, word, false);
            let seen = word.load(Ordering::SeqCst);
            if seen & DEPTH == 0 {
                continue;
            }
            // Another depth is not outside; another count is.
            while word.load(Ordering::Acquire) & !DEPTH == seen & !DEPTH {
                m.relax();
            }
        }
        fence(Ordering::SeqCst);
    }
}

/// Being inside; leaves when dropped, on the CPU that entered.
#[must_use = "the epoch is left at once"]
pub struct EpochGuard<'a, M: Machine> {
    word: &'a AtomicU64,
    m: &'a M,
    local: PhantomData<*mut ()>,
}

impl<M: Machine> EpochGuard<'_, M> {
    /// The machine whose CPU is inside.
    #[inline]
    pub fn machine(&self) -> &M {
        self.m
    }
}

impl<M: Machine> Drop for EpochGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        touch(self.m, self.word, true);
        let seen = self.word.load(Ordering::Relaxed);
        debug_assert!(seen & DEPTH != 0, "an epoch is left twice");
        let left = seen - 1;
        let next = if left & DEPTH == 0 { left.wrapping_add(OUTSIDE) } else { left };
        self.word.store(next, Ordering::Release);
        // SAFETY: undoes the `preempt_off` of `enter`.
        unsafe { self.m.preempt_on() }
    }
}
