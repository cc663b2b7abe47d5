//! Validation of a node's blocks: states, bits, busy bits and the free index agree.

use crate::addr::Order;
use crate::error::{Invalid, ensure};
use crate::frame::block::array::Blocks;
use crate::frame::block::bits::{self, BLOCK, ROWS, WORDS};
use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::state::{
    CLAIMED, DIRTY, FREE, HUGE_HEAD, HUGE_TAIL, KIND, LOCKED, OPEN, huge_order, is_in_bounds, rows,
    uncounted,
};
use crate::frame::block::take::exact_rows;
use crate::frame::node::numa_node::NumaNode;
use crate::sync::atomic::Ordering::Relaxed;

impl NumaNode {
    /// Sets or clears the bits of a block that is taken; `false`, and nothing changed, if they were
    /// not the other way. Huge blocks have no bits: there the state is read, and the first bit,
    /// which is clear otherwise, is set for "met".
    pub fn mark(&self, index: u32, order: Order, taken: bool) -> bool {
        let (block, word) = ((index >> BLOCK) as usize, index as usize / 64 % WORDS);
        if order >= Order::HUGE {
            let first = &self.blocks.words(block)[0];
            let (from, to) = if taken { (1, 0) } else { (0, 1) };
            return self.blocks.is_huge(index, order)
                && first.compare_exchange(from, to, Relaxed, Relaxed).is_ok();
        }
        if self.blocks.state(block).load(Relaxed) & KIND != OPEN {
            return false;
        }
        let n = if order.get() > 6 { 1 << (order.get() - 6) } else { 1 };
        let mask = bits::mask(order.get().min(6) as u32) << (index % 64);
        let words = &self.blocks.words(block)[word..word + n];
        let before = if taken { 0 } else { mask };
        let remote = &self.blocks.remote(block)[word..word + n];
        if words.iter().any(|w| w.load(Relaxed) & mask != before)
            || remote.iter().any(|w| w.load(Relaxed) & mask != 0)
        {
            return false;
        }
        for w in words {
            w.store(if taken { w.load(Relaxed) | mask } else { w.load(Relaxed) & !mask }, Relaxed);
        }
        true
    }

    /// Free frames in the node's blocks, after checking every block; `claims` says how many CPUs
    /// claim one.
    pub fn check_blocks(&self, claims: impl Fn(usize) -> u64) -> Result<u64, Invalid> {
        let (mut free, mut huge_until) = (0, 0);
        for block in self.blocks.all() {
            let pfn = self.block_pfn(block).0;
            let state = self.blocks.state(block).load(Relaxed);
            let kind = state & KIND;
            let words = self.blocks.words(block);
            let taken: u64 = words.iter().map(|w| w.load(Relaxed).count_ones() as u64).sum();
            ensure(is_in_bounds(state), "a block's state", pfn, kind as u64, state as u64)?;
            ensure(
                (block < huge_until) == (kind == HUGE_TAIL),
                "a huge block's length",
                pfn,
                huge_until as u64,
                block as u64,
            )?;
            let mut remote = 0;
            for (word, freed) in words.iter().zip(self.blocks.remote(block)) {
                let freed = freed.load(Relaxed);
                let is_taken = freed & !word.load(Relaxed) == 0;
                ensure(is_taken, "a remote-free frame is free already", pfn, 0, freed)?;
                remote += freed.count_ones() as u64;
            }
            match kind {
                FREE => free += 1 << BLOCK,
                OPEN => free += (1 << BLOCK) - taken + remote,
                HUGE_HEAD => {
                    let n = 1 << (huge_order(state) - BLOCK);
                    huge_until = block + n;
                    ensure(
                        block.is_multiple_of(n) && huge_until <= self.blocks.end,
                        "the place of a huge block",
                        pfn,
                        self.blocks.end as u64,
                        huge_until as u64,
                    )?;
                }
                _ => {}
            }
            let open = kind == OPEN;
            ensure(open || taken == 0, "a block that is not open has frames taken", pfn, 0, taken)?;
            let busy = self.blocks.busy_word(block).load(Relaxed) & Blocks::busy_bit(block) != 0;
            let expected = kind != FREE;
            ensure(busy == expected, "a block's busy bit", pfn, expected as u64, busy as u64)?;
            let (claimed, found) = ((open && state & CLAIMED != 0) as u64, claims(block));
            ensure(found == claimed, "a block's claim", pfn, claimed, found)?;
            if open {
                self.check_open(block, state, remote)?;
                let kept = claimed != 0 || taken != 0;
                ensure(kept, "an open block is empty and nobody claims it", pfn, 1, 0)?;
            }
        }
        Ok(free)
    }

    /// Whether the free index or the state says all that an open block has.
    fn check_open(&self, block: usize, state: u32, remote: u64) -> Result<(), Invalid> {
        let (pfn, words) = (self.block_pfn(block).0, self.blocks.words(block));
        ensure(state & LOCKED == 0, "a block is locked at rest", pfn, 0, 1)?;
        // Each of the uncounted frames is free: it was freed after the last one was taken.
        let free: u32 = words.iter().map(|w| w.load(Relaxed).count_zeros()).sum();
        let late = uncounted(state);
        ensure(
            late <= free,
            "more uncounted frames than free ones in a block",
            pfn,
            late as u64,
            free as u64,
        )?;
        let is_found = |row| self.free_index.has(block, row);
        ensure(
            is_found(DIRTY_ROW) || remote == 0 && state & DIRTY == 0,
            "a dirty block that the free index does not have",
            pfn,
            remote,
            0,
        )?;
        if state & DIRTY == 0 {
            ensure(
                late == 0,
                "uncounted frames of a block that is not dirty",
                pfn,
                0,
                late as u64,
            )?;
            ensure(
                exact_rows(words) & !rows(state) == 0,
                "a free run of a block that its rows do not say",
                pfn,
                0,
                rows(state) as u64,
            )?;
        }
        if state & CLAIMED == 0 {
            for row in (0..ROWS).filter(|row| rows(state) >> row & 1 == 1) {
                ensure(
                    is_found(row),
                    "a row of a block that the free index does not have",
                    pfn,
                    1,
                    row as u64,
                )?;
            }
        }
        Ok(())
    }
}
