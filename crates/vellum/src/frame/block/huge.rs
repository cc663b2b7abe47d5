//! Huge blocks: 2 MiB and more, up to 1 GiB.
//!
//! The busy bits decide. Whoever sets a block's busy bit owns the block and writes its state after
//! that; whoever frees it writes the state first. One exchange takes an aligned run inside a busy
//! word, 128 MiB at most. A longer run takes its words one by one, lowest first, and clears those
//! it has taken when one of them is not free.

use core::ops::Range;

use crate::addr::Order;
use crate::frame::block::array::{Blocks, GROUP};
use crate::frame::block::bits::{self, BLOCK};
use crate::frame::block::state::{FREE, OPEN, huge_state};
use crate::machine::Machine;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use crate::sync::touch;

/// log2 of [`GROUP`].
const GROUP_ORDER: u32 = GROUP.trailing_zeros();

impl Blocks {
    /// Takes the busy bits of an aligned run of 2^blocks free blocks that lies in `part`. `cursor`:
    /// the group where the search for a single block begins, which is moved to where one is found.
    pub fn take_run<M: Machine>(
        &self,
        m: &M,
        cursor: Option<&AtomicU32>,
        part: Range<usize>,
        blocks: u32,
    ) -> Option<usize> {
        if part.is_empty() {
            return None;
        }
        if blocks > GROUP_ORDER {
            let span = 1 << (blocks - GROUP_ORDER);
            let first = (part.start / GROUP).next_multiple_of(span);
            return (first..(part.end / GROUP).saturating_sub(span - 1))
                .step_by(span)
                .find(|&group| self.take_groups(m, group, span))
                .map(|group| group * GROUP);
        }
        let groups = part.start / GROUP..part.end.div_ceil(GROUP);
        // Below the cursor this CPU found nothing, and freed nothing; others may have.
        let at = cursor.map_or(0, |cursor| cursor.load(Relaxed) as usize);
        let start = if blocks == 0 && groups.contains(&at) { at } else { groups.start };
        for group in (start..groups.end).chain(groups.start..start) {
            let within = within(&part, group);
            let busy = self.busy_word(group * GROUP);
            let mut seen = busy.load(Relaxed);
            loop {
                let starts = bits::runs(!seen & within, blocks);
                if starts == 0 {
                    break;
                }
                let at = starts.trailing_zeros();
                let run = bits::mask(blocks) << at;
                touch(m, busy, true);
                match busy.compare_exchange_weak(seen, seen | run, SeqCst, Relaxed) {
                    Err(now) => seen = now,
                    Ok(_) => {
                        if let Some(cursor) = cursor
                            && blocks == 0
                        {
                            cursor.store(group as u32, Relaxed);
                        }
                        return Some(group * GROUP + at as usize);
                    }
                }
            }
        }
        None
    }

    /// Takes all blocks of some groups.
    fn take_groups<M: Machine>(&self, m: &M, first: usize, n: usize) -> bool {
        if (first..first + n).any(|g| self.busy_word(g * GROUP).load(Relaxed) != 0) {
            return false;
        }
        for group in first..first + n {
            let busy = self.busy_word(group * GROUP);
            touch(m, busy, true);
            if busy.compare_exchange(0, !0, SeqCst, Relaxed).is_err() {
                (first..group).for_each(|g| self.clear_busy(m, g * GROUP, !0));
                return false;
            }
        }
        true
    }

    /// Frees a huge block. Says which block it starts with.
    pub fn free_huge<M: Machine>(&self, m: &M, index: u32, order: Order) -> usize {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (order.get() as u32 - BLOCK));
        let run = first..first + n;
        for block in run.clone() {
            self.state(block).store(FREE, Relaxed);
        }
        for group in first / GROUP..run.end.div_ceil(GROUP) {
            self.clear_busy(m, group * GROUP, within(&run, group));
        }
        first
    }

    /// Frees blocks of 2 MiB, those of one group with one exchange.
    pub fn free_huge_batch<M: Machine>(&self, m: &M, blocks: impl Iterator<Item = usize>) {
        let (mut group, mut mask) = (0, 0);
        for block in blocks {
            self.state(block).store(FREE, Relaxed);
            if mask != 0 && block / GROUP != group {
                self.clear_busy(m, group * GROUP, mask);
                mask = 0;
            }
            group = block / GROUP;
            mask |= Blocks::busy_bit(block);
        }
        if mask != 0 {
            self.clear_busy(m, group * GROUP, mask);
        }
    }

    /// Lets a huge block be freed in smaller blocks.
    pub fn split<M: Machine>(&self, m: &M, index: u32, from: Order, to: Order) {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (from.get() as u32 - BLOCK));
        if to < Order::HUGE {
            for i in 0..n {
                self.split_huge(m, first + i);
            }
        } else {
            for i in (0..n).step_by(1 << (to.get() as u32 - BLOCK)) {
                self.state(first + i).store(huge_state(to), Release);
            }
        }
    }

    /// Turns a huge block of 2 MiB into an open one all of whose frames are taken.
    pub fn split_huge<M: Machine>(&self, m: &M, block: usize) {
        self.words(block).iter().for_each(|word| word.store(!0, Relaxed));
        touch(m, self.state(block), true);
        self.state(block).store(OPEN, SeqCst);
    }
}

/// The bits of a group's blocks that lie in a range.
#[inline]
fn within(part: &Range<usize>, group: usize) -> u64 {
    let (start, end) = (group * GROUP, (group + 1) * GROUP);
    let above = if part.start > start { !0 << (part.start - start) } else { !0 };
    let below = if part.end < end { (1 << (part.end - start)) - 1 } else { !0 };
    above & below
}
