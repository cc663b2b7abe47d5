//! Memory in hand: what verbs and faults have taken and neither put to use nor given back.
//!
//! A fault takes its frame before it locks the table, and gives it back if another CPU was first.
//! Whoever finds no memory meanwhile may not say that there is none. So it waits until all who had
//! memory in hand are at their end, and looks again if any gave some back.
//!
//! A line per CPU counts who began there and is at work. Unlike a reader of an
//! [epoch](super::Epochs), who has memory in hand may be preempted, move, and wait, so that others
//! may begin on that CPU at any time before it ends. There are two counts, therefore: whoever waits
//! lets those who come later begin in the other one, and the first one empties.
//!
//! Who was refused looks again alone, in the order of arrival ([`Turn`]). Whoever is refused
//! meanwhile took memory in vain once, and waits for his own turn. Rejected: all look at once, so
//! many times. Two of them in step kept each other from a frame that either could have had, however
//! often they looked.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::atomic::{AtomicU64, Ordering, fence, fence_after_exchange};
use super::lines::Lines;
use super::touch;
use crate::machine::{CpuId, Machine};

/// Bits of each of the two counts: tasks that began on one CPU and are not at their end. Each has a
/// stack; 2^24 of 4 KiB are 64 GiB for one CPU.
const BITS: u32 = 24;
const COUNT: u64 = (1 << BITS) - 1;
/// Added when the two change places. These 16 bits wrap, which is harmless: where they come back to
/// the same between two looks, the line is waited for once more.
const CHANGE: u64 = 1 << (2 * BITS);

/// Added to what a CPU gave back in vain for what is no frame of the allocator; frames are below.
/// An overflow after 2^40 of them makes somebody look once more.
const OTHER: u64 = 1 << 40;

/// What a line says.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    /// How often the counts changed places, in units of [`CHANGE`].
    fn changes(self) -> u64 {
        self.0 & CHANGE.wrapping_neg()
    }

    /// What one more in the count that is begun in adds.
    fn one(self) -> u64 {
        if self.0 & CHANGE == 0 { 1 } else { 1 << BITS }
    }

    /// How many are at work in the count that is begun in, and in the other.
    fn counts(self) -> (u64, u64) {
        let (low, high) = (self.0 & COUNT, self.0 >> BITS & COUNT);
        if self.0 & CHANGE == 0 { (low, high) } else { (high, low) }
    }
}

/// A time in which no other task ran on a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stay {
    pub cpu: CpuId,
    switches: u64,
}

/// Who has memory in hand.
pub(crate) struct Hands {
    /// Of a CPU: who is at work, and what was given back in vain.
    lines: Lines,
    /// Turns that were asked for, and those that are over. 64 bits do not wrap.
    asked: AtomicU64,
    over: AtomicU64,
}

impl Hands {
    /// The memory `cpus` CPUs need: a cache line each.
    pub fn layout(cpus: usize) -> Layout {
        Lines::layout(cpus)
    }

    /// Nobody has anything yet.
    ///
    /// # Safety
    /// As for [`Epochs::new`](super::Epochs::new).
    pub unsafe fn new(cpus: usize, memory: NonNull<u8>) -> Hands {
        // SAFETY: as the caller promises.
        let lines = unsafe { Lines::new(cpus, memory) };
        Hands { lines, asked: AtomicU64::new(0), over: AtomicU64::new(0) }
    }

    /// Waits until all who asked before have had their turn. Calls `give_way` before each look but
    /// the first. The caller has no memory in hand and no turn, holds no lock and is in no epoch.
    pub fn turn<'a, M: Machine>(&'a self, m: &'a M, give_way: impl Fn()) -> Turn<'a, M> {
        touch(m, &self.asked, true);
        let mine = self.asked.fetch_add(1, Ordering::Relaxed);
        let turn = Turn { over: &self.over, m };
        loop {
            touch(m, &self.over, false);
            // More of them where one that waited was unwound.
            if self.over.load(Ordering::Acquire) >= mine {
                return turn;
            }
            give_way();
            m.relax();
        }
    }

    /// From here until the guard is dropped the caller may have memory in hand. It asks for none
    /// before.
    #[inline]
    pub fn begin<'a, M: Machine>(&'a self, m: &'a M) -> InHand<'a, M> {
        // Any line will do; this CPU's is near.
        m.preempt_off();
        let word = self.lines.of(m.cpu());
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
        touch(m, word, true);
        let mut seen = Word(word.load(Ordering::Relaxed));
        loop {
            debug_assert!(seen.counts().0 < COUNT, "2^24 - 1 tasks have memory in hand");
            let next = seen.0 + seen.one();
            match word.compare_exchange_weak(seen.0, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = Word(now),
            }
        }
        fence_after_exchange();
        InHand { word, one: seen.one(), m }
    }

    /// The caller gave back so many frames of the allocator that it had taken in vain. It is still
    /// in hand, or in an epoch, whose end shows it.
    pub fn untook<M: Machine>(&self, m: &M, frames: u64) {
        self.count(m, frames);
    }

    /// The same of what is no frame of the allocator: objects of slabs, a block of a pool.
    pub fn gave_back<M: Machine>(&self, m: &M) {
        self.count(m, OTHER);
    }

    fn count<M: Machine>(&self, m: &M, what: u64) {
        m.preempt_off();
        let untaken = self.lines.second_of(m.cpu());
        touch(m, untaken, true);
        untaken.fetch_add(what, Ordering::Release);
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
    }

    /// How often anything was given back in vain, and how many frames of the allocator, before now.
    pub fn untaken<M: Machine>(&self, m: &M) -> (u64, u64) {
        let second = |cpu| {
            let untaken = self.lines.second_of(cpu);
            touch(m, untaken, false);
            untaken.load(Ordering::Acquire)
        };
        let all = (0..self.lines.cpus()).map(second).fold(0, u64::wrapping_add);
        (all, Self::frames(all))
    }

    /// Of what was given back in vain the frames of the allocator.
    pub fn frames(untaken: u64) -> u64 {
        untaken & (OTHER - 1)
    }

    /// This stay of the task on its CPU, and that CPU's part of the first of those.
    pub fn untaken_here<M: Machine>(&self, m: &M) -> (Stay, u64) {
        m.preempt_off();
        let stay = Stay { cpu: m.cpu(), switches: m.switches() };
        let untaken = self.lines.second_of(stay.cpu).load(Ordering::Relaxed);
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
        (stay, untaken)
    }

    /// Waits until all who have memory in hand now are at their end. Who begins later is waited for
    /// only if he begins before the counts of his line change places, which is at once unless
    /// another waits there already. Calls `turn` before each look but the first. The caller has
    /// none, holds no lock and is in no epoch.
    pub fn wait<M: Machine>(&self, m: &M, turn: impl Fn()) {
        fence(Ordering::SeqCst);
        self.lines.iter().for_each(|word| empty(word, m, &turn));
    }

    /// How many are at work, for audits.
    pub fn at_work(&self) -> u64 {
        let all = |word: &AtomicU64| {
            let (now, before) = Word(word.load(Ordering::Relaxed)).counts();
            now + before
        };
        self.lines.iter().map(all).sum()
    }
}

/// Waits until all whom a line counts now are at their end.
fn empty<M: Machine>(word: &AtomicU64, m: &M, turn: impl Fn()) {
    touch(m, word, true);
    let mut seen = Word(word.load(Ordering::Acquire));
    let first = seen.changes();
    loop {
        let (now, before) = seen.counts();
        match seen.changes().wrapping_sub(first) {
            0 if before == 0 && now == 0 => return,
            // They change places only when the other is empty, so it has nobody who came later.
            0 if before == 0 => {
                let next = seen.0.wrapping_add(CHANGE);
                let _ = word.compare_exchange(seen.0, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            CHANGE if before == 0 => return,
            0 | CHANGE => {
                turn();
                m.relax();
            }
            // Each was empty once.
            _ => return,
        }
        seen = Word(word.load(Ordering::Acquire));
    }
}

/// Looking for memory again while nobody else does; over when dropped, on whatever CPU.
#[must_use = "it is over at once"]
pub(crate) struct Turn<'a, M: Machine> {
    over: &'a AtomicU64,
    m: &'a M,
}

impl<M: Machine> Drop for Turn<'_, M> {
    fn drop(&mut self) {
        touch(self.m, self.over, true);
        self.over.fetch_add(1, Ordering::Release);
    }
}

/// Having memory in hand; over when dropped, on whatever CPU.
#[must_use = "it is over at once"]
pub(crate) struct InHand<'a, M: Machine> {
    word: &'a AtomicU64,
    one: u64,
    m: &'a M,
}

impl<M: Machine> Drop for InHand<'_, M> {
    #[inline]
    fn drop(&mut self) {
        touch(self.m, self.word, true);
        let seen = self.word.fetch_sub(self.one, Ordering::Release);
        debug_assert!(seen & (self.one * COUNT) != 0, "memory in hand ends twice");
    }
}
