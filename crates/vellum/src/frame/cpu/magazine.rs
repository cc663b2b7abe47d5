//! A CPU's own stack of free frames of one node, and its other notes about that node.
//!
//! Taking a frame from it or giving one back is an exchange to lock, an index, and a store to
//! unlock. Lock, length and the count of what was given back are one word: the exchange that locks
//! has read the length, the store that unlocks writes it, and counting is part of an addition that
//! is due anyway. Who has it is not preempted. A CPU that finds its own taken (another is emptying
//! it because memory ran out) goes to the blocks instead. An emptier that finds one taken leaves it
//! alone, until nothing is left but to refuse: then it waits.
//!
//! An empty magazine takes 128 frames at once that lie together, mostly in two words. Freed ones go
//! on top, newest first out, but only while there are less than 64: further ones go to their blocks
//! one by one, which costs no more (`block`). What lies in a magazine pins the blocks it came from,
//! each maybe another, for as long as newer frames lie above it; 256 KiB are enough to find a frame
//! that is still in the cache. There is a magazine for each pair of CPU and node, since frames of a
//! far node come back too, and a CPU whose own node is exhausted lives on another for good; a
//! magazine never used is never touched.
//!
//! Rejected: working without a locked instruction (one writer, preemption off). An emptier would
//! have to stop the owner, by an interrupt or a barrier on the other CPU, which the machine does
//! not offer; and a fault executes one such exchange, not thirty. Giving half of a full magazine
//! back: 128 frames freed at random go to as many words, and the newest half is all that is won.

use core::cell::Cell;

use crate::addr::Order;
use crate::error::Invalid;
use crate::frame::block::free_index::ALL;
use crate::frame::block::lock::CLAIMED;
use crate::frame::cpu::buddy::CpuBuddy;
use crate::frame::node::numa_node::{GROUP, NumaNode, WORDS};
use crate::machine::Machine;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::touch;

/// Frames a magazine holds, which are taken at once.
pub const BATCH: usize = 128;
/// Frames up to which it takes freed ones.
const KEEP: usize = 64;

/// Of the word: whoever has it locks contention out.
const LOCKED: u64 = 1 << 63;
/// The count of frames given back is about to run into the lock.
const HIGH: u64 = 1 << 62;
/// That count, above the length.
const PUSHED_SHIFT: u32 = 8;
const LEN: u64 = (1 << PUSHED_SHIFT) - 1;
/// Any of these bits of the length: [`KEEP`] or more.
const FULL: u64 = LEN & !(KEEP as u64 - 1);
const ONE_PUSHED: u64 = (1 << PUSHED_SHIFT) + 1;

/// What one CPU keeps of one node. All fields but `word` are written by its holder only; sums over
/// CPUs are read by anyone.
#[repr(C, align(64))]
pub struct Magazine {
    /// Lock, frames given back (less than 2^54 + 1: then whoever locks it next takes them out) and
    /// length ([`BATCH`] at most).
    pub word: AtomicU64,
    /// Base frames given back that the word no longer counts.
    pushed: AtomicU64,
    /// Base frames that came from blocks, and that went back to them when it was emptied.
    pub filled: AtomicU64,
    pub emptied: AtomicU64,
    /// Base frames by which the node's count is off: to be added to it. At most the node's slack,
    /// either way.
    pub delta: AtomicI64,
    /// Allocations of other orders, the base frames in them, and base frames freed past the stack.
    pub blocks: AtomicU64,
    pub block_frames: AtomicU64,
    pub block_freed: AtomicU64,
    /// Allocations that wanted another node.
    pub missed: AtomicU64,
    /// Objects and blocks that slabs and pools gave and took. In the magazine of node 0.
    pub pool_ops: AtomicU64,
    /// The claimed block, + 1.
    pub current: AtomicU32,
    /// Rows of the CPU's area that may have something; those left out had nothing when last looked
    /// at. What other CPUs give back there it does not know of until something is next wanted that
    /// is not kept.
    pub rows: AtomicU32,
    /// The group where the search for free blocks begins.
    pub huge_cursor: AtomicU32,
    pub buddy: CpuBuddy,
    /// Frames, as indices of the node.
    pub stack: [AtomicU32; BATCH],
}

/// A locked magazine.
pub struct Held<'a> {
    pub magazine: &'a Magazine,
    /// What the word becomes when it is unlocked.
    word: Cell<u64>,
}

/// Adds to a field that only the holder writes.
#[inline]
pub fn bump(field: &AtomicU64, n: u64) {
    field.store(field.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Magazine {
    /// Takes the magazine if nobody has it.
    #[inline]
    pub fn hold<M: Machine>(&self, m: &M) -> Option<Held<'_>> {
        touch(m, &self.word, true);
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCKED != 0 || !self.lock(word) {
            return None;
        }
        let counted = if word & HIGH != 0 { word & !LEN } else { 0 };
        bump(&self.pushed, counted >> PUSHED_SHIFT);
        Some(Held { magazine: self, word: Cell::new(word - counted) })
    }

    /// Takes the magazine, pending for who has it. Who has one waits for blocks at most, and is not
    /// preempted.
    #[cold]
    pub fn hold_waiting<M: Machine>(&self, m: &M) -> Held<'_> {
        loop {
            if let Some(held) = self.hold(m) {
                return held;
            }
            if self.is_held() {
                m.relax();
            }
        }
    }

    #[inline]
    fn lock(&self, word: u64) -> bool {
        self.word
            .compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the newest frame, if there is one and nobody has the magazine.
    #[inline]
    pub fn pop<M: Machine>(&self, m: &M) -> Option<u32> {
        touch(m, &self.word, true);
        let word = self.word.load(Ordering::Relaxed);
        let len = (word & LEN) as usize;
        if len == 0 || word & LOCKED != 0 || !self.lock(word) {
            return None;
        }
        let index = self.stack[(len - 1) % BATCH].load(Ordering::Relaxed);
        self.word.store(word - 1, Ordering::Release);
        Some(index)
    }

    /// Puts a frame that was freed on the stack; `false` if it is full or someone has it.
    #[inline]
    pub fn push<M: Machine>(&self, m: &M, index: u32) -> bool {
        touch(m, &self.word, true);
        let word = self.word.load(Ordering::Relaxed);
        if word & (LOCKED | HIGH | FULL) != 0 || !self.lock(word) {
            return false;
        }
        self.stack[(word & LEN) as usize % BATCH].store(index, Ordering::Relaxed);
        self.word.store(word + ONE_PUSHED, Ordering::Release);
        true
    }

    /// Frames in the stack.
    #[inline]
    pub fn len(&self) -> usize {
        (self.word.load(Ordering::Relaxed) & LEN) as usize
    }

    /// Base frames ever given back through the stack, those in it, and whether nobody is at it.
    pub fn stacked(&self) -> (u64, u64, bool) {
        let word = self.word.load(Ordering::Acquire);
        let pushed = ((word & !LOCKED) >> PUSHED_SHIFT) + self.pushed.load(Ordering::Acquire);
        (pushed, word & LEN, word & LOCKED == 0)
    }

    /// Base frames in the stack and in kept blocks.
    pub fn free_frames(&self) -> u64 {
        self.len() as u64 + self.buddy.frames()
    }

    /// What is kept, single frames first; for audits.
    pub fn peek(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let singles =
            self.stack[..self.len()].iter().map(|i| (i.load(Ordering::Relaxed), Order::BASE));
        singles.chain(self.buddy.each())
    }

    /// Whether nobody has it, and every field is one that it can have; nobody is at work.
    pub fn check(&self, node: &NumaNode, at: u64) -> Result<(), Invalid> {
        let word = self.word.load(Ordering::Relaxed);
        let no_more = |what, most: u64, found: u64| {
            if found <= most { Ok(()) } else { Err(Invalid::new(what, at, most, found)) }
        };
        no_more("a magazine is locked by nobody", 0, word >> 63)?;
        no_more("frames in a magazine", BATCH as u64, word & LEN)?;
        if !self.buddy.is_in_bounds(node.cpu_huge) {
            return Err(Invalid::new(
                "blocks that a magazine keeps",
                at,
                node.cpu_huge as u64,
                self.buddy.frames(),
            ));
        }
        let delta = self.delta.load(Ordering::Relaxed);
        no_more("frames that a magazine keeps uncounted", node.slack as u64, delta.unsigned_abs())?;
        let current = self.current.load(Ordering::Relaxed) as u64;
        no_more("the block that a magazine claims", node.blocks as u64, current)?;
        let cursor = self.huge_cursor.load(Ordering::Relaxed) as u64;
        no_more("where a magazine searches", node.groups() as u64, cursor)?;
        let rows = self.rows.load(Ordering::Relaxed);
        no_more("rows that a magazine knows", 0, if rows == !0 { 0 } else { rows as u64 >> ALL })?;
        match self.peek().find(|&(index, order)| !node.has_block(node.pfn(index), order)) {
            Some((index, _)) => {
                Err(Invalid::new("a frame in a magazine is one of its node", at, 0, index as u64))
            }
            None => Ok(()),
        }
    }

    /// The block this CPU claims.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        (self.current.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Whether somebody is at it.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Whether emptying it would give the node anything.
    pub fn is_used(&self) -> bool {
        self.free_frames() != 0 || self.current().is_some()
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.magazine.word.store(self.word.get(), Ordering::Release);
    }
}

impl Held<'_> {
    #[inline]
    fn len(&self) -> usize {
        (self.word.get() & LEN) as usize
    }

    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let slot = self.magazine.stack.get(self.len().wrapping_sub(1))?;
        self.word.set(self.word.get() - 1);
        Some(slot.load(Ordering::Relaxed))
    }

    /// Puts frames that come from a block on the stack, which has room for them: bits of a word,
    /// the highest first.
    pub fn fill(&self, base: u32, mask: u64) {
        let len = self.len();
        let mut slots = self.magazine.stack[len..].iter();
        if mask == !0 {
            slots
                .by_ref()
                .zip((base..base + 64).rev())
                .for_each(|(slot, index)| slot.store(index, Ordering::Relaxed));
        } else {
            let mut left = mask;
            while left != 0
                && let Some(slot) = slots.next()
            {
                let at = 63 - left.leading_zeros();
                slot.store(base + at, Ordering::Relaxed);
                left ^= 1 << at;
            }
            debug_assert_eq!(left, 0, "a batch did not fit an empty magazine");
        }
        let n = (BATCH - len - slots.len()) as u64;
        self.word.set(self.word.get() + n);
        bump(&self.magazine.filled, n);
    }

    /// Gives everything back: frames, kept blocks and the claimed block.
    pub fn empty<M: Machine>(&self, m: &M, node: &NumaNode) {
        let frames = self.len() as u64 + self.magazine.buddy.frames();
        let (mut word, mut mask) = (0, 0u64);
        for index in self.magazine.stack[..self.len()].iter().map(|i| i.load(Ordering::Relaxed)) {
            let bit = 1 << (index % 64);
            if index / 64 != word || mask & bit != 0 {
                self.give_singles(m, node, word, mask);
                (word, mask) = (index / 64, 0);
            }
            mask |= bit;
        }
        self.give_singles(m, node, word, mask);
        bump(&self.magazine.emptied, self.len() as u64);
        self.word.set(self.word.get() & !LEN);
        self.drain_buddy(|index, order| node.give_block(m, Some(self), index, order));
        node.count(Some(self), frames as i64);
        self.drop_current(m, node);
    }

    fn give_singles<M: Machine>(&self, m: &M, node: &NumaNode, word: u32, mask: u64) {
        if mask != 0 {
            node.give_singles(m, Some(self), word as usize / WORDS, word as usize % WORDS, mask);
        }
    }

    /// The block this CPU claims.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        self.magazine.current()
    }

    pub fn set_current(&self, block: usize) {
        self.magazine.current.store(block as u32 + 1, Ordering::Relaxed);
    }

    /// Gives up the claim; `false` if that cannot be, since someone is at the block just now.
    pub fn drop_current<M: Machine>(&self, m: &M, node: &NumaNode) -> bool {
        if let Some(block) = self.current() {
            debug_assert!(
                node.state(block).load(Ordering::Relaxed) & CLAIMED != 0,
                "a claim of nothing"
            );
            let Some(locked) = node.lock(m, block) else {
                return false;
            };
            self.magazine.current.store(0, Ordering::Relaxed);
            locked.unclaim(m, Some(self));
        }
        true
    }

    /// Notes that the rows of the area have changed.
    #[inline]
    pub fn forget_rows(&self) {
        self.magazine.rows.store(!0, Ordering::Relaxed);
    }

    /// Notes that a block became free: the search for free ones begins there at the latest.
    #[inline]
    pub fn note_free(&self, block: usize) {
        let cursor = &self.magazine.huge_cursor;
        cursor.store(cursor.load(Ordering::Relaxed).min((block / GROUP) as u32), Ordering::Relaxed);
    }
}

const _: () = assert!(
    KEEP.is_power_of_two() && BATCH.is_power_of_two() && KEEP < BATCH && BATCH <= LEN as usize
);
