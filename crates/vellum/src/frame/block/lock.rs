//! A 2 MiB block, and who may take what of it.
//!
//! Its state says which of two ways it is used. *Free* and *large* blocks are had whole: the busy
//! bit of a free one is taken in its hint word (`large`), after which the state is its owner's to
//! write, and their bits are all clear. An *open* block is had in pieces: there the bits are the
//! truth, and they are changed with plain loads and stores by whoever has locked it.
//!
//! ```text
//!   Free --open--> Open, locked <---> Open --last frame came back--> Free
//!    |  ^                              ^
//!    v  | free                         |
//!   Large, Tail -----------split-------+
//! ```
//!
//! The lock is a bit of the state, taken by one exchange and given back by a store of the state as
//! it is then: so closing a block, noting what room it has and counting what came back cost a few
//! instructions under a lock that is held anyway, and a refill takes 128 frames for one exchange.
//!
//! **Nobody waits for it.** Whoever wants frames and finds it taken goes to another block; whoever
//! brings frames back puts them *remote*, in a second set of bits that is changed by atomics only,
//! and marks the block as dirty; who next sweeps it (`sweep`) clears those bits under the lock. A
//! holder that is stopped for long, preempted say, thus keeps one block out of reach, as one that
//! holds a magazine keeps that. While it is held the state has but one writer, and only open blocks
//! are locked: who frees a frame of a block knows that it is open, since the frame's bit keeps it
//! so.
//!
//! A CPU *claims* the open block it takes small frames from: contention keep off it as long as there is
//! another, it is not closed when it is empty for a moment, and its rooms are noted in its state
//! alone.
//!
//! Rejected: bits changed by atomics without a lock (a block is then closed in three states and
//! eight exchanges, whoever takes looks at the state once more afterwards and undoes, hints have to
//! be mended after each race, and every word of a batch costs an exchange); blocks that belong to a
//! CPU and are guarded by its magazine's lock (one exchange less for a piece, but a CPU stopped at
//! the wrong moment would keep all of its blocks out of reach).

use core::ops::Range;

use super::bits;
use crate::addr::{Order, Pfn};
use crate::frame::block::free_index::{DIRTY_ROW, ROWS};
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::{BLOCK, NumaNode, WORDS};
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{prefetch, touch};

pub const KIND: u32 = 7;
/// All 512 frames free, bits clear.
pub const FREE: u32 = 0;
/// Had in pieces; the bits say which are taken.
pub const OPEN: u32 = 1;
/// First block of an allocation of 2 MiB or more; its order is in the state.
pub const HUGE_HEAD: u32 = 2;
/// A further block of one.
pub const HUGE_TAIL: u32 = 3;
/// Taken out before first use.
pub const HOLE: u32 = 4;

/// Added to an open state: a CPU's own.
pub const CLAIMED: u32 = 1 << 3;
/// Someone changes its bits.
pub const LOCKED: u32 = 1 << 4;
/// Frames came back of which neither the rooms nor the counts know.
pub const DIRTY: u32 = 1 << 5;
/// The order of a large block; of an open one, the rows it may have room for: at least those it
/// has, unless it is dirty.
const ORDER_SHIFT: u32 = 8;
/// Frames that came back and are not counted yet, up to the top of the word.
const UNCOUNTED_SHIFT: u32 = 18;
const ONE_UNCOUNTED: u32 = 1 << UNCOUNTED_SHIFT;
/// Their greatest number: every frame of the block, once. Whoever takes frames of a block counts
/// first what came back to it ([`Locked::count_back`]), so no frame comes back twice in between.
pub const MOST_UNCOUNTED: u32 = 1 << BLOCK;
const ALL_ROWS: u32 = (1 << ROWS) - 1;
/// Bits of an open state without a meaning.
const SPARE: u32 =
    !(KIND | CLAIMED | LOCKED | DIRTY | ALL_ROWS << ORDER_SHIFT | !0 << UNCOUNTED_SHIFT);

const _: () = assert!(
    ORDER_SHIFT + ROWS as u32 <= UNCOUNTED_SHIFT && MOST_UNCOUNTED <= u32::MAX >> UNCOUNTED_SHIFT
);

#[inline]
pub const fn huge_state(order: Order) -> u32 {
    HUGE_HEAD | (order.get() as u32) << ORDER_SHIFT
}

#[inline]
pub const fn huge_order(state: u32) -> u32 {
    state >> ORDER_SHIFT
}

/// Whether a state has no bit that its kind gives no meaning, and no order that a large block
/// cannot have.
pub const fn is_in_bounds(state: u32) -> bool {
    match state & KIND {
        OPEN => state & SPARE == 0,
        HUGE_HEAD => {
            let order = huge_order(state);
            state == HUGE_HEAD | order << ORDER_SHIFT
                && order >= BLOCK
                && order <= Order::GIANT.get() as u32
        }
        kind => state == kind && kind <= HOLE,
    }
}

/// Rows an open block says it has.
#[inline]
pub const fn rows(state: u32) -> u32 {
    state >> ORDER_SHIFT & ALL_ROWS
}

/// Frames of an open block that came back uncounted.
#[inline]
pub const fn uncounted(state: u32) -> u32 {
    state >> UNCOUNTED_SHIFT
}

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
    /// Locks a block if it is open and nobody has.
    #[inline]
    pub fn lock<M: Machine>(&self, m: &M, block: usize) -> Option<Locked<'_>> {
        let (word, words) = (self.state(block), self.words(block));
        touch(m, word, true);
        let state = word.load(Relaxed);
        if state & (KIND | LOCKED) != OPEN
            || word.compare_exchange(state, state | LOCKED, Acquire, Relaxed).is_err()
        {
            return None;
        }
        Some(Locked { node: self, block, state, word, words })
    }

    /// Locks a block if it is open, pending for who has it. Who has one waits for nothing, and is
    /// not preempted.
    #[cold]
    pub fn lock_waiting<M: Machine>(&self, m: &M, block: usize) -> Option<Locked<'_>> {
        loop {
            if let Some(locked) = self.lock(m, block) {
                return Some(locked);
            }
            let state = self.state(block).load(Relaxed);
            if state & KIND != OPEN {
                return None;
            }
            if state & LOCKED != 0 {
                m.relax();
            }
        }
    }

    /// Opens a free block whose busy bit the caller took.
    pub fn open<M: Machine>(&self, m: &M, block: usize, claimed: bool) -> Locked<'_> {
        let (word, words) = (self.state(block), self.words(block));
        let mut opened = Locked {
            node: self,
            block,
            state: if claimed { OPEN | CLAIMED } else { OPEN },
            word,
            words,
        };
        touch(m, word, true);
        // Before any row is looked at: see `rooms`.
        word.store(opened.state | LOCKED, SeqCst);
        opened.note(m, ROWS - 1);
        // The next to be opened, as a rule.
        if block + 1 < self.blocks {
            prefetch(self.words(block + 1));
        }
        opened
    }

    /// Gives a run below 2 MiB back to its block, without counting it.
    pub fn give_run<M: Machine>(&self, m: &M, held: Option<&Held>, index: u32, order: u32) {
        let (block, at) = ((index >> BLOCK) as usize, index % (1 << BLOCK));
        let (first, mask) = (at as usize / 64, bits::mask(order.min(6)) << (at % 64));
        let words = first..first + if order > 6 { 1 << (order - 6) } else { 1 };
        let Some(mut locked) = self.lock(m, block) else {
            return self.free_remote(m, block, words, mask);
        };
        for word in words {
            locked.put_back(m, word, mask);
        }
        locked.note_run(m, at, order);
        locked.leave(m, held);
    }

    /// Gives single frames of one word of a block back, without counting them.
    pub fn give_singles<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        block: usize,
        word: usize,
        mask: u64,
    ) {
        let Some(mut locked) = self.lock(m, block) else {
            return self.free_remote(m, block, word..word + 1, mask);
        };
        locked.put_back(m, word, mask);
        locked.note_runs(m, word, mask);
        locked.leave(m, held);
    }

    #[cold]
    fn free_remote<M: Machine>(&self, m: &M, block: usize, words: Range<usize>, mask: u64) {
        for word in &self.remote(block)[words] {
            touch(m, word, true);
            let old = word.fetch_or(mask, SeqCst);
            debug_assert_eq!(
                old & mask,
                0,
                "freed twice: a frame of {:?}",
                self.pfn((block << BLOCK) as u32)
            );
        }
        self.set_indexed(m, block, DIRTY_ROW);
    }

    /// Turns a large block of 2 MiB into an open one all of whose frames are taken.
    pub fn split_huge<M: Machine>(&self, m: &M, block: usize) {
        self.words(block).iter().for_each(|word| word.store(!0, Relaxed));
        touch(m, self.state(block), true);
        self.state(block).store(OPEN, SeqCst);
    }

    /// Takes the whole block out of the allocator, or the part of it between two frames of the
    /// node, before first use.
    pub fn exclude(&self, block: usize, from: Pfn, to: Pfn) {
        let (from, to) = self.within(block, from, to);
        self.hint(block).fetch_or(NumaNode::hint_bit(block), Relaxed);
        if from == 0 && to == 1 << BLOCK {
            self.state(block).store(HOLE, Relaxed);
            return;
        }
        for at in from..to {
            let word = &self.words(block)[at as usize / 64];
            word.fetch_or(1 << (at % 64), Relaxed);
        }
        // Whoever sweeps it sees what is left.
        self.state(block).store(OPEN | DIRTY, Relaxed);
        self.note_at_boot(block, DIRTY_ROW);
    }

    /// Whether none of the frames of a block was excluded, nothing being allocated yet.
    pub fn is_whole_yet(&self, block: usize, from: Pfn, to: Pfn) -> bool {
        let (from, to) = self.within(block, from, to);
        let is_free =
            |at: u64| self.words(block)[at as usize / 64].load(Relaxed) >> (at % 64) & 1 == 0;
        self.state(block).load(Relaxed) & KIND != HOLE && (from..to).all(is_free)
    }

    /// Frames of a block, counted from its first.
    fn within(&self, block: usize, from: Pfn, to: Pfn) -> (u64, u64) {
        let start = self.base + ((block as u64) << BLOCK);
        (from.0.max(start) - start, to.0.min(start + (1 << BLOCK)) - start)
    }
}

impl<'a> Locked<'a> {
    #[inline]
    pub fn words(&self) -> &'a [AtomicU64; WORDS] {
        self.words
    }

    /// A frame of it that the node has: all of an empty block's are.
    pub fn first(&self) -> Pfn {
        self.node.pfn((self.block << BLOCK) as u32)
    }

    /// Whether it may have a run of exactly `row`.
    #[inline]
    pub fn says(&self, row: usize) -> bool {
        rows(self.state) >> row & 1 == 1
    }

    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.state & CLAIMED != 0
    }

    /// Notes that it has a run of exactly `row`: for everyone, unless it is claimed.
    #[inline]
    pub fn note<M: Machine>(&mut self, m: &M, row: usize) {
        if !self.says(row) {
            self.state |= 1 << (ORDER_SHIFT + row as u32);
            if !self.is_claimed() {
                self.node.index_run(m, self.block, row);
            }
        }
    }

    /// Notes that it has none.
    pub fn forget<M: Machine>(&mut self, m: &M, row: usize) {
        self.state &= !(1 << (ORDER_SHIFT + row as u32));
        self.node.clear_indexed(m, self.block, row);
    }

    /// Clears bits. Their runs are not noted yet.
    #[inline]
    fn put_back<M: Machine>(&mut self, m: &M, word: usize, mask: u64) {
        let word = &self.words()[word];
        touch(m, word, true);
        let old = word.load(Relaxed);
        debug_assert_eq!(
            old & mask,
            mask,
            "freed twice: a frame of {:?}",
            self.node.pfn((self.block << BLOCK) as u32)
        );
        word.store(old & !mask, Relaxed);
    }

    /// Gives one frame back, to be noted and counted by whoever sweeps the block. `false` if there
    /// is more to do: [`note_one`](Locked::note_one).
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

    /// Makes the block dirty. Whether it is empty, and to be closed.
    pub fn note_one<M: Machine>(&mut self, m: &M) -> bool {
        if self.state & DIRTY == 0 {
            self.state |= DIRTY;
            self.node.index_run(m, self.block, DIRTY_ROW);
        }
        !self.is_claimed() && self.is_empty()
    }

    /// Counts what came back uncounted. To be called before any frame is taken: see
    /// [`MOST_UNCOUNTED`].
    #[inline]
    pub fn count_back(&mut self, held: Option<&Held>) {
        let n = uncounted(self.state);
        self.state &= ONE_UNCOUNTED - 1;
        self.node.count_late(held, n as u64);
    }

    /// Nothing is left to be noted or counted.
    pub fn swept(&mut self, held: Option<&Held>) {
        self.count_back(held);
        self.state &= !DIRTY;
    }

    fn is_empty(&self) -> bool {
        self.words().iter().all(|w| w.load(Relaxed) == 0)
    }

    /// Gives the lock back.
    #[inline]
    pub fn release<M: Machine>(self, m: &M) {
        touch(m, self.word, true);
        self.word.store(self.state, Release);
    }

    /// Gives the lock back, and closes the block if it is empty and nobody claims it.
    #[inline]
    pub fn leave<M: Machine>(self, m: &M, held: Option<&Held>) {
        if !self.is_claimed() && self.is_empty() { self.close(m, held) } else { self.release(m) }
    }

    /// Makes an empty block that nobody claims free.
    pub fn close<M: Machine>(mut self, m: &M, held: Option<&Held>) {
        self.count_back(held);
        touch(m, self.word, true);
        self.word.store(FREE, Release);
        self.node.clear_hint(m, self.block, NumaNode::hint_bit(self.block));
        if let Some(held) = held {
            held.note_free(self.block);
        }
    }

    /// Gives up the claim and the lock.
    pub fn unclaim<M: Machine>(mut self, m: &M, held: Option<&Held>) {
        debug_assert!(self.is_claimed(), "block {}: claim given up that nobody had", self.block);
        self.state &= !CLAIMED;
        if self.is_empty() {
            return self.close(m, held);
        }
        for row in 0..ROWS {
            if self.says(row) {
                self.node.index_run(m, self.block, row);
            }
        }
        self.release(m);
    }

    /// Replaces the rows of a claimed block, which are its own business.
    pub fn set_rows(&mut self, rows: u32) {
        self.state = self.state & !(ALL_ROWS << ORDER_SHIFT) | rows << ORDER_SHIFT;
    }
}
