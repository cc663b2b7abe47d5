//! The lock of an open block.
//!
//! The holder of the lock changes the block's bits by plain loads and stores. The lock is a bit of
//! the state, taken by one exchange and released by a store of the new state. So closing a block,
//! indexing its free runs and counting what was freed cost a few instructions under a lock that is
//! held anyway, and a refill takes 128 frames for one exchange.
//!
//! **Nobody waits for it.** An allocation that finds a block locked goes to another block. A free
//! sets the frames' *remote-free* bits, by atomic operations, and marks the block as dirty; the
//! next sweep clears those bits under the lock. A holder that is stopped for long thus keeps one
//! block out of reach, no more. Only an allocation that would be refused otherwise waits.
//!
//! A CPU *claims* the open block that it takes small frames from. Other CPUs use it only when they
//! find no other block, it stays open when it is empty for a moment, and its free runs are noted in
//! its state only, not in the free index.
//!
//! Rejected: bits changed by atomic operations without a lock (closing a block then takes three
//! states and eight exchanges, each race leaves hints to be mended, and every word of a batch costs
//! an exchange); blocks that a CPU owns, guarded by its magazine's lock (a CPU stopped at the wrong
//! moment would keep all of its blocks out of reach).

use crate::frame::block::array::Blocks;
use crate::frame::block::bits::{ROWS, WORDS};
use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::state::{
    ALL_ROWS, CLAIMED, DIRTY, FREE, KIND, LOCKED, MOST_UNCOUNTED, ONE_UNCOUNTED, OPEN, ORDER_SHIFT,
    rows, uncounted,
};
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{prefetch, touch};

/// An open block whose lock is held. It ends by [`release`](Locked::release),
/// [`leave`](Locked::leave) or [`close`](Locked::close).
#[must_use = "the block stays locked"]
pub struct Locked<'a> {
    pub node: &'a NumaNode,
    pub block: usize,
    state: u32,
    // Found before the exchange that locks, which nothing behind it overtakes.
    word: &'a AtomicU32,
    words: &'a [AtomicU64; WORDS],
}

impl NumaNode {
    /// Locks a block if it is open and nobody has locked it.
    #[inline]
    pub fn lock<M: Machine>(&self, m: &M, block: usize) -> Option<Locked<'_>> {
        let (word, words) = (self.blocks.state(block), self.blocks.words(block));
        touch(m, word, true);
        let state = word.load(Relaxed);
        if state & (KIND | LOCKED) != OPEN
            || word.compare_exchange(state, state | LOCKED, Acquire, Relaxed).is_err()
        {
            return None;
        }
        Some(Locked { node: self, block, state, word, words })
    }

    /// Goes on with a block whose lock the caller holds, after [`Locked::suspend`].
    pub fn resume(&self, block: usize, state: u32) -> Locked<'_> {
        let (word, words) = (self.blocks.state(block), self.blocks.words(block));
        debug_assert!(word.load(Relaxed) & LOCKED != 0, "block {block}: the lock is not held");
        Locked { node: self, block, state, word, words }
    }

    /// Locks a block if it is open, waiting for the holder of its lock. A holder waits for nothing
    /// and is not preempted.
    #[cold]
    pub fn lock_waiting<M: Machine>(&self, m: &M, block: usize) -> Option<Locked<'_>> {
        loop {
            if let Some(locked) = self.lock(m, block) {
                return Some(locked);
            }
            let state = self.blocks.state(block).load(Relaxed);
            if state & KIND != OPEN {
                return None;
            }
            if state & LOCKED != 0 {
                m.relax();
            }
        }
    }

    /// Opens a free block whose busy bit the caller has set.
    pub fn open<M: Machine>(&self, m: &M, block: usize, claimed: bool) -> Locked<'_> {
        let (word, words) = (self.blocks.state(block), self.blocks.words(block));
        let mut opened = Locked {
            node: self,
            block,
            state: if claimed { OPEN | CLAIMED } else { OPEN },
            word,
            words,
        };
        touch(m, word, true);
        // Before any row is read: see `FreeIndex::clear_stale`.
        word.store(opened.state | LOCKED, SeqCst);
        opened.note(m, ROWS - 1);
        // The next to be opened, as a rule.
        if block + 1 < self.blocks.end {
            prefetch(self.blocks.words(block + 1));
        }
        opened
    }
}

impl<'a> Locked<'a> {
    /// The block and the state it is released with. It stays locked: [`NumaNode::resume`].
    #[inline]
    pub fn suspend(self) -> (usize, u32) {
        (self.block, self.state)
    }

    /// The frame bits.
    #[inline]
    pub fn words(&self) -> &'a [AtomicU64; WORDS] {
        self.words
    }

    /// Whether it may have a run of exactly `row`.
    #[inline]
    pub fn says(&self, row: usize) -> bool {
        rows(self.state) >> row & 1 == 1
    }

    /// Whether a CPU claims it.
    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.state & CLAIMED != 0
    }

    /// Notes that it has a run of exactly `row`: in the free index, too, unless it is claimed.
    #[inline]
    pub fn note<M: Machine>(&mut self, m: &M, row: usize) {
        if !self.says(row) {
            self.state |= 1 << (ORDER_SHIFT + row as u32);
            if !self.is_claimed() {
                self.node.free_index.set(m, self.block, row);
            }
        }
    }

    /// Notes that it has none.
    pub fn forget<M: Machine>(&mut self, m: &M, row: usize) {
        self.state &= !(1 << (ORDER_SHIFT + row as u32));
        self.node.free_index.clear(m, self.block, row);
    }

    /// Replaces the rows of a claimed block, which stand in its state only.
    pub fn set_rows(&mut self, rows: u32) {
        self.state = self.state & !(ALL_ROWS << ORDER_SHIFT) | rows << ORDER_SHIFT;
    }

    /// Clears bits. Their runs are not noted yet.
    #[inline]
    pub fn put_back<M: Machine>(&mut self, m: &M, word: usize, mask: u64) {
        let word = &self.words()[word];
        touch(m, word, true);
        let old = word.load(Relaxed);
        debug_assert_eq!(
            old & mask,
            mask,
            "freed twice: a frame of {:?}",
            self.node.block_pfn(self.block)
        );
        word.store(old & !mask, Relaxed);
    }

    /// Frees one frame, which the next sweep of the block notes and counts. `false` if there is
    /// more to do: [`note_one`](Locked::note_one).
    #[inline]
    pub fn put_back_one<M: Machine>(&mut self, m: &M, index: u32) -> bool {
        let word = &self.words[index as usize / 64 % WORDS];
        touch(m, word, true);
        let old = word.load(Relaxed);
        let now = old & !(1 << (index % 64));
        if now == old {
            debug_assert!(false, "freed twice: {:?}", self.node.pfn(index));
            return true;
        }
        word.store(now, Relaxed);
        debug_assert!(
            uncounted(self.state) < MOST_UNCOUNTED,
            "block {}: frames taken, none counted",
            self.block
        );
        self.state += ONE_UNCOUNTED;
        self.state & DIRTY != 0 && now != 0
    }

    /// The same of frames of one word: `mask` says which of the 64 from an index on.
    pub fn put_back_some<M: Machine>(&mut self, m: &M, index: u32, mask: u64) -> bool {
        let freed = mask.count_ones();
        self.put_back(m, index as usize / 64 % WORDS, mask);
        debug_assert!(
            uncounted(self.state) + freed <= MOST_UNCOUNTED,
            "block {}: frames taken, none counted",
            self.block
        );
        self.state += freed * ONE_UNCOUNTED;
        self.state & DIRTY != 0 && self.words[index as usize / 64 % WORDS].load(Relaxed) != 0
    }

    /// Makes the block dirty. Says whether it is empty and to be closed.
    pub fn note_one<M: Machine>(&mut self, m: &M) -> bool {
        if self.state & DIRTY == 0 {
            self.state |= DIRTY;
            self.node.free_index.set(m, self.block, DIRTY_ROW);
        }
        !self.is_claimed() && self.is_empty()
    }

    /// Counts frames that were freed uncounted. To be called before any frame is taken: see
    /// [`MOST_UNCOUNTED`].
    #[inline]
    pub fn count_freed(&mut self, held: Option<&Held>) {
        let n = uncounted(self.state);
        self.state &= ONE_UNCOUNTED - 1;
        self.node.count_late(held, n as u64);
    }

    /// Nothing is left to be noted or counted.
    pub fn swept(&mut self, held: Option<&Held>) {
        self.count_freed(held);
        self.state &= !DIRTY;
    }

    fn is_empty(&self) -> bool {
        self.words().iter().all(|w| w.load(Relaxed) == 0)
    }

    /// Releases the lock.
    #[inline]
    pub fn release<M: Machine>(self, m: &M) {
        touch(m, self.word, true);
        self.word.store(self.state, Release);
    }

    /// Releases the lock, and closes the block if it is empty and nobody claims it.
    #[inline]
    pub fn leave<M: Machine>(self, m: &M, held: Option<&Held>) {
        if !self.is_claimed() && self.is_empty() { self.close(m, held) } else { self.release(m) }
    }

    /// Makes an empty block that nobody claims free.
    pub fn close<M: Machine>(mut self, m: &M, held: Option<&Held>) {
        self.count_freed(held);
        touch(m, self.word, true);
        self.word.store(FREE, Release);
        self.node.blocks.clear_busy(m, self.block, Blocks::busy_bit(self.block));
        if let Some(held) = held {
            held.lower_cursor(self.block);
        }
    }

    /// Gives up the claim and releases the lock.
    pub fn unclaim<M: Machine>(mut self, m: &M, held: Option<&Held>) {
        debug_assert!(self.is_claimed(), "block {}: claim given up that nobody had", self.block);
        self.state &= !CLAIMED;
        if self.is_empty() {
            return self.close(m, held);
        }
        for row in 0..ROWS {
            if self.says(row) {
                self.node.free_index.set(m, self.block, row);
            }
        }
        self.release(m);
    }
}
