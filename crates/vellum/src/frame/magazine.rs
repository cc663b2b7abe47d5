//! A CPU's own stack of free frames of one node, and its other notes about that node.
//!
//! Taking a frame from it or giving one back is an exchange to lock, an index, and a store to unlock. Nobody waits for the
//! lock: a CPU that finds it taken (another CPU is emptying it because memory ran out; an interrupt came in between) goes to the
//! blocks instead, and an emptier that finds it taken leaves it alone. So preemption may stay on, and nothing here can block.
//!
//! Batches of 128 amortise the way to the blocks: frames taken at once lie together, mostly in two words. There is a magazine for
//! each pair of CPU and node, since frames of a far node come back too, and a CPU whose own node is exhausted lives on another
//! for good; a magazine never used is never touched.
//!
//! Rejected: working without a locked instruction (one writer, preemption off). An emptier would have to stop the owner, by an
//! interrupt or a barrier on the other CPU, which the machine does not offer; and a fault executes one such exchange, not thirty.

use super::kept::Kept;
use super::node::{Node, WORDS};
use crate::addr::Order;
use crate::machine::Machine;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::touch;

/// Frames a magazine holds.
pub(super) const DEPTH: usize = 256;
/// Frames moved at once.
pub(super) const BATCH: usize = 128;

/// What one CPU keeps of one node. All fields but `lock` are written by its holder only; sums over CPUs are read by anyone.
#[repr(C, align(64))]
pub(super) struct Magazine {
    lock: AtomicU32,
    len: AtomicU32,
    /// Base frames allocated and freed through the stack.
    pub(super) popped: AtomicU64,
    pub(super) pushed: AtomicU64,
    /// Base frames by which the node's count is off: to be added to it.
    pub(super) delta: AtomicI64,
    /// Allocations of other orders, the base frames in them, and base frames freed of other orders.
    pub(super) blocks: AtomicU64,
    pub(super) block_frames: AtomicU64,
    pub(super) block_freed: AtomicU64,
    /// Allocations that wanted another node.
    pub(super) missed: AtomicU64,
    /// The claimed block, + 1, and which rows (`rooms`) it is to be looked for in, as bits.
    pub(super) current: AtomicU32,
    pub(super) current_rows: AtomicU32,
    /// The group where the search for whole blocks goes on, + 1.
    pub(super) whole_cursor: AtomicU32,
    pub(super) kept: Kept,
    /// Frames, as indices of the node.
    stack: [AtomicU32; DEPTH],
}

/// A locked magazine.
pub(super) struct Held<'a> {
    pub(super) magazine: &'a Magazine,
}

/// Adds to a field that only the holder writes.
#[inline]
pub(super) fn bump(field: &AtomicU64, n: u64) {
    field.store(field.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Magazine {
    /// Takes the magazine if nobody has it.
    #[inline]
    pub(super) fn hold<M: Machine>(&self, m: &M) -> Option<Held<'_>> {
        touch(m, &self.lock, true);
        // Not `then_some`: a guard made in vain would unlock what another holds.
        (self.lock.swap(1, Ordering::Acquire) == 0).then(|| Held { magazine: self })
    }

    /// Frames in the stack.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Base frames in the stack and in kept blocks.
    pub(super) fn free_frames(&self) -> u64 {
        self.len() as u64 + self.kept.frames()
    }

    /// What is kept, single frames first; for audits.
    pub(super) fn peek(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let singles = self.stack[..self.len()].iter().map(|i| (i.load(Ordering::Relaxed), Order::BASE));
        singles.chain(self.kept.each())
    }

    /// Whether emptying it would give the node anything.
    pub(super) fn keeps_anything(&self) -> bool {
        self.free_frames() != 0 || self.current.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.magazine.lock.store(0, Ordering::Release);
    }
}

impl Held<'_> {
    #[inline]
    pub(super) fn pop(&self) -> Option<u32> {
        let len = self.magazine.len().min(DEPTH);
        if len == 0 {
            return None;
        }
        self.magazine.len.store(len as u32 - 1, Ordering::Relaxed);
        Some(self.magazine.stack[len - 1].load(Ordering::Relaxed))
    }

    /// Puts a frame on the stack; `false` if it is full.
    #[inline]
    pub(super) fn push(&self, index: u32) -> bool {
        let len = self.magazine.len();
        if len >= DEPTH {
            return false;
        }
        self.magazine.stack[len].store(index, Ordering::Relaxed);
        self.magazine.len.store(len as u32 + 1, Ordering::Relaxed);
        true
    }

    /// Turns the newest `n` frames round, so that a batch put on in ascending order comes off in ascending order.
    pub(super) fn reverse(&self, n: usize) {
        let len = self.magazine.len();
        let batch = &self.magazine.stack[len - n..len];
        for i in 0..n / 2 {
            let (low, high) = (batch[i].load(Ordering::Relaxed), batch[n - 1 - i].load(Ordering::Relaxed));
            batch[i].store(high, Ordering::Relaxed);
            batch[n - 1 - i].store(low, Ordering::Relaxed);
        }
    }

    /// Gives the oldest `n` frames back to their blocks, frames of one word together. Says nothing about counts.
    pub(super) fn spill<M: Machine>(&self, m: &M, node: &Node, n: usize) {
        let stack = &self.magazine.stack;
        let len = self.magazine.len();
        let (mut word, mut mask) = (stack[0].load(Ordering::Relaxed) / 64, 0u64);
        for index in stack[..n].iter().map(|i| i.load(Ordering::Relaxed)) {
            let bit = 1 << (index % 64);
            if index / 64 != word || mask & bit != 0 {
                give(m, node, word, mask);
                (word, mask) = (index / 64, 0);
            }
            mask |= bit;
        }
        give(m, node, word, mask);
        for i in n..len {
            stack[i - n].store(stack[i].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.magazine.len.store((len - n) as u32, Ordering::Relaxed);
    }

    /// Gives everything back: frames, kept blocks and claimed blocks.
    pub(super) fn empty<M: Machine>(&self, m: &M, node: &Node) {
        let frames = self.magazine.free_frames();
        if self.magazine.len() != 0 {
            self.spill(m, node, self.magazine.len());
        }
        self.release_kept(|index, order| node.give_block(m, index, order));
        node.count(Some(self), frames as i64);
        self.drop_current(m, node);
    }

    /// The block this CPU claims.
    #[inline]
    pub(super) fn current(&self) -> Option<usize> {
        (self.magazine.current.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    pub(super) fn set_current(&self, block: usize, rows: u32) {
        self.magazine.current.store(block as u32 + 1, Ordering::Relaxed);
        self.magazine.current_rows.store(rows, Ordering::Relaxed);
    }

    pub(super) fn drop_current<M: Machine>(&self, m: &M, node: &Node) {
        if let Some(block) = self.current() {
            self.magazine.current.store(0, Ordering::Relaxed);
            let rows = self.magazine.current_rows.load(Ordering::Relaxed);
            node.note_rooms(m, block, rows);
            node.unclaim(m, block);
        }
    }
}

fn give<M: Machine>(m: &M, node: &Node, word: u32, mask: u64) {
    if mask != 0 {
        node.give(m, word as usize / WORDS, word as usize % WORDS, mask);
    }
}
