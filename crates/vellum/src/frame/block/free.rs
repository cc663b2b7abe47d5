//! Freeing to blocks: single frames, sub-blocks, huge blocks, and all that a magazine has.

use core::ops::Range;

use crate::addr::Order;
use crate::frame::block::bits::{self, BLOCK, WORDS};
use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::state::CLAIMED;
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::touch;

impl NumaNode {
    /// Frees a block of any order, without counting it.
    pub fn free_block<M: Machine>(&self, m: &M, held: Option<&Held>, index: u32, order: Order) {
        if order >= Order::HUGE {
            self.free_huge(m, held, index, order);
        } else {
            self.free_sub_block(m, held, index, order.get() as u32);
        }
    }

    /// Frees a huge block, without counting it.
    pub fn free_huge<M: Machine>(&self, m: &M, held: Option<&Held>, index: u32, order: Order) {
        let first = self.blocks.free_huge(m, index, order);
        if let Some(held) = held {
            held.lower_cursor(first);
        }
    }

    /// Frees all blocks of 2 MiB of a cpu buddy, and counts them.
    #[inline(never)]
    pub fn free_huge_batch<M: Machine>(&self, m: &M, held: &Held) {
        let (mut lowest, mut n) = (usize::MAX, 0);
        let blocks = held.buddy().pop_all_huge().map(|index| (index >> BLOCK) as usize);
        self.blocks.free_huge_batch(
            m,
            blocks.inspect(|&block| {
                lowest = lowest.min(block);
                n += 1;
            }),
        );
        held.lower_cursor(lowest);
        self.count(Some(held), n << BLOCK);
    }

    /// Frees a sub-block, order 0 to 8, without counting it.
    pub fn free_sub_block<M: Machine>(&self, m: &M, held: Option<&Held>, index: u32, order: u32) {
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

    /// Frees single frames of one word, the 64 frames from index 64 * `word` on, without counting
    /// them.
    fn free_singles<M: Machine>(&self, m: &M, held: &Held, word: u32, mask: u64) {
        if mask == 0 {
            return;
        }
        let (block, word) = (word as usize / WORDS, word as usize % WORDS);
        let Some(mut locked) = self.lock(m, block) else {
            return self.free_remote(m, block, word..word + 1, mask);
        };
        locked.put_back(m, word, mask);
        locked.note_runs(m, word, mask);
        locked.leave(m, Some(held));
    }

    /// Sets the remote-free bits of frames whose block another CPU has locked.
    #[cold]
    fn free_remote<M: Machine>(&self, m: &M, block: usize, words: Range<usize>, mask: u64) {
        for word in &self.blocks.remote(block)[words] {
            touch(m, word, true);
            let old = word.fetch_or(mask, SeqCst);
            debug_assert_eq!(old & mask, 0, "freed twice: a frame of {:?}", self.block_pfn(block));
        }
        self.free_index.set_unlocked(m, block, DIRTY_ROW);
    }

    /// Gives back all that a magazine has: stack, cpu buddy and claimed block.
    pub fn drain_magazine<M: Machine>(&self, m: &M, held: &Held) {
        let frames = held.len() as u64 + held.buddy().frames();
        let (mut word, mut mask) = (0, 0u64);
        for index in held.stack() {
            let bit = 1 << (index % 64);
            if index / 64 != word || mask & bit != 0 {
                self.free_singles(m, held, word, mask);
                (word, mask) = (index / 64, 0);
            }
            mask |= bit;
        }
        self.free_singles(m, held, word, mask);
        held.clear_stack();
        for (index, order) in held.buddy().each() {
            self.free_block(m, Some(held), index, order);
        }
        held.buddy().clear();
        self.count(Some(held), frames as i64);
        self.drop_claim(m, held);
    }

    /// Gives up a CPU's claim; `false` if somebody has locked the block just now.
    pub fn drop_claim<M: Machine>(&self, m: &M, held: &Held) -> bool {
        if let Some(block) = held.current() {
            debug_assert!(
                self.blocks.state(block).load(Relaxed) & CLAIMED != 0,
                "a claim of nothing"
            );
            let Some(locked) = self.lock(m, block) else {
                return false;
            };
            held.set_current(None);
            locked.unclaim(m, Some(held));
        }
        true
    }
}
