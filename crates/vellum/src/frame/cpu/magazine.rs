//! The magazine: a CPU's own stack of free frames of one memory node, and its notes about it.
//!
//! Taking a frame or giving one back is an exchange to lock, an index, and a store to unlock. Lock,
//! length and the count of freed frames are one word: the exchange that locks has read the length,
//! the store that unlocks writes it. The holder is not preempted. A CPU that finds its own magazine
//! locked (another CPU drains it because memory ran out) uses the blocks instead. A CPU that drains
//! skips a locked magazine, and waits for it only before memory is refused.
//!
//! An empty magazine takes 128 frames at once that lie together, mostly in two words. Freed frames
//! are pushed on top while there are less than 64; further ones go to their blocks one by one,
//! which costs no more (`block`). A frame in a magazine keeps its block open; 256 KiB are enough to
//! find a frame that is still in the cache. There is a magazine for each pair of CPU and node,
//! since frames of other nodes are freed, too. A magazine that was never used is never touched.
//!
//! Rejected: no locked instruction (one writer, preemption off). A drain would have to stop the
//! owner by an interrupt or a barrier on its CPU, which the machine does not offer. Giving half of
//! a full magazine back: 128 frames freed at random belong to as many words.

use core::cell::Cell;

use crate::addr::Order;
use crate::frame::block::array::GROUP;
use crate::frame::cpu::buddy::CpuBuddy;
use crate::machine::Machine;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::touch;

/// Frames a magazine holds, which are taken at once.
pub const BATCH: usize = 128;
/// Frames up to which it takes freed ones.
const KEEP: usize = 64;

/// Of the word: the holder keeps others out.
const LOCKED: u64 = 1 << 63;
/// The count of freed frames is about to run into the lock.
const HIGH: u64 = 1 << 62;
/// That count, above the length.
const PUSHED_SHIFT: u32 = 8;
/// The length.
const LEN: u64 = (1 << PUSHED_SHIFT) - 1;
/// Any of these bits of the length: [`KEEP`] or more.
const FULL: u64 = LEN & !(KEEP as u64 - 1);
const ONE_PUSHED: u64 = (1 << PUSHED_SHIFT) + 1;

/// What one CPU keeps of one node. Only the holder writes the fields other than `word`; any CPU
/// reads them for sums.
#[repr(C, align(64))]
pub struct Magazine {
    /// Lock, freed frames (less than 2^54 + 1: then the next holder moves them to `pushed`) and
    /// length ([`BATCH`] at most).
    pub word: AtomicU64,
    /// Base frames freed to the stack that the word no longer counts.
    pushed: AtomicU64,
    /// Base frames that came from blocks, and that went back to them when it was drained.
    pub filled: AtomicU64,
    pub emptied: AtomicU64,
    /// Base frames to be added to the node's count. At most the node's slack, either way.
    pub delta: AtomicI64,
    /// Allocations past the stack, the base frames in them, and base frames freed past the stack.
    pub blocks: AtomicU64,
    pub block_frames: AtomicU64,
    pub block_freed: AtomicU64,
    /// Allocations that wanted another node.
    pub missed: AtomicU64,
    /// Objects and blocks that slabs and pools gave and took. In the magazine of node 0.
    pub pool_ops: AtomicU64,
    /// The claimed block, + 1.
    pub current: AtomicU32,
    /// Rows of the free index that may have a block of the CPU's area; the others had none when
    /// they were last read. Frees by other CPUs are noticed when an allocation finds nothing here.
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

/// What has passed through a stack.
pub struct StackCounts {
    /// Base frames ever freed to it.
    pub pushed: u64,
    /// Base frames in it.
    pub len: u64,
    /// Whether nobody holds the magazine.
    pub idle: bool,
}

/// Adds to a field that only the holder writes.
#[inline]
pub fn bump(field: &AtomicU64, n: u64) {
    field.store(field.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Magazine {
    /// Locks the magazine if nobody holds it.
    #[inline]
    pub fn hold<M: Machine>(&self, m: &M) -> Option<Held<'_>> {
        touch(m, &self.word, true);
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCKED != 0 || !self.lock(word) {
            return None;
        }
        let word = if word & HIGH == 0 { word } else { self.empty_count(word) };
        Some(Held { magazine: self, word: Cell::new(word) })
    }

    /// Moves the count of freed frames from the word to its own field. Gives what is left of the
    /// word. The caller holds the magazine.
    #[cold]
    fn empty_count(&self, word: u64) -> u64 {
        bump(&self.pushed, word >> PUSHED_SHIFT);
        word & LEN
    }

    /// Locks the magazine, waiting for its holder. A holder waits for blocks at most, and is not
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

    /// Takes the newest frame, if there is one and nobody holds the magazine.
    #[inline]
    pub fn pop<M: Machine>(&self, m: &M) -> Option<u32> {
        touch(m, &self.word, true);
        let word = self.word.load(Ordering::Relaxed);
        // One comparison: the lock is above the length, and a length of 0 wraps around.
        let top = (word & (LOCKED | LEN)).wrapping_sub(1);
        if top >= LEN || !self.lock(word) {
            return None;
        }
        let index = self.stack[top as usize % BATCH].load(Ordering::Relaxed);
        self.word.store(word - 1, Ordering::Release);
        Some(index)
    }

    /// Pushes a frame that was freed; `false` if the stack is full or somebody holds the magazine.
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

    /// What has passed through the stack.
    pub fn stack_counts(&self) -> StackCounts {
        let word = self.word.load(Ordering::Acquire);
        let pushed = ((word & !LOCKED) >> PUSHED_SHIFT) + self.pushed.load(Ordering::Acquire);
        StackCounts { pushed, len: word & LEN, idle: word & LOCKED == 0 }
    }

    /// Base frames in the stack and in the cpu buddy.
    pub fn free_frames(&self) -> u64 {
        self.len() as u64 + self.buddy.frames()
    }

    /// The stack and the cpu buddy, single frames first.
    pub fn each(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let singles =
            self.stack[..self.len()].iter().map(|i| (i.load(Ordering::Relaxed), Order::BASE));
        singles.chain(self.buddy.each())
    }

    /// The block this CPU claims.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        (self.current.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Whether draining it would give the node anything.
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
    /// The cpu buddy.
    #[inline]
    pub fn buddy(&self) -> &CpuBuddy {
        &self.magazine.buddy
    }

    /// Frames in the stack.
    #[inline]
    pub fn len(&self) -> usize {
        (self.word.get() & LEN) as usize
    }

    /// Takes the newest frame.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let slot = self.magazine.stack.get(self.len().wrapping_sub(1))?;
        self.word.set(self.word.get() - 1);
        Some(slot.load(Ordering::Relaxed))
    }

    /// Pushes frames that come from a block, the bits of a word, the highest first. There is room
    /// for them.
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

    /// The frames of the stack.
    pub fn stack(&self) -> impl Iterator<Item = u32> + '_ {
        self.magazine.stack[..self.len()].iter().map(|i| i.load(Ordering::Relaxed))
    }

    /// Forgets the stack, whose frames are back in their blocks.
    pub fn clear_stack(&self) {
        bump(&self.magazine.emptied, self.len() as u64);
        self.word.set(self.word.get() & !LEN);
    }

    /// The block this CPU claims.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        self.magazine.current()
    }

    /// Notes which block this CPU claims.
    pub fn set_current(&self, block: Option<usize>) {
        let current = block.map_or(0, |block| block as u32 + 1);
        self.magazine.current.store(current, Ordering::Relaxed);
    }

    /// Notes that the rows of the area may have changed.
    #[inline]
    pub fn forget_rows(&self) {
        self.magazine.rows.store(!0, Ordering::Relaxed);
    }

    /// Notes that a block became free: the search for free ones begins there at the latest.
    #[inline]
    pub fn lower_cursor(&self, block: usize) {
        let cursor = &self.magazine.huge_cursor;
        cursor.store(cursor.load(Ordering::Relaxed).min((block / GROUP) as u32), Ordering::Relaxed);
    }
}

const _: () = assert!(
    KEEP.is_power_of_two() && BATCH.is_power_of_two() && KEEP < BATCH && BATCH <= LEN as usize
);
