//! 2 MiB and larger: free blocks, and runs of them up to 1 GiB.
//!
//! The busy bits decide: who sets a block's bit has the block, and writes its state at leisure;
//! whoever gives it back writes the state first. An aligned run inside a hint word, 128 MiB at
//! most, is found by the same shifts as in a word of frames and had by one exchange; a longer one
//! takes its words one by one, lowest first, and puts back what it has when one is not free.

use core::ops::Range;

use super::bits;
use crate::addr::Order;
use crate::frame::block::lock::{FREE, HUGE_HEAD, HUGE_TAIL, KIND, huge_order, huge_state};
use crate::frame::block::search::Search;
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::{BLOCK, GROUP, NumaNode};
use crate::machine::Machine;
use crate::sync::atomic::Ordering;
use crate::sync::touch;

/// log2 of [`GROUP`].
const GROUP_ORDER: u32 = GROUP.trailing_zeros();

impl NumaNode {
    /// Takes a naturally aligned run of free blocks; gives its index.
    pub fn take_huge<M: Machine>(&self, by: &Search<M>, order: Order) -> Option<u32> {
        let (blocks, m, held, area) = (order.get() as u32 - BLOCK, by.m, by.held, &by.area);
        let first = self.take_run(m, held, area.clone(), blocks).or_else(|| {
            // Blocks may have emptied out that nobody looked at since.
            self.sweep(m, held, self.lead..self.blocks, usize::MAX, false);
            let parts = [
                area.clone(),
                area.end..self.blocks,
                self.lead..area.start,
                self.lead..self.blocks,
            ];
            parts.into_iter().find_map(|part| self.take_run(m, held, part, blocks))
        })?;
        for i in 1..1 << blocks {
            self.state(first + i).store(HUGE_TAIL, Ordering::Relaxed);
        }
        touch(m, self.state(first), true);
        self.state(first).store(huge_state(order), Ordering::Release);
        Some((first << BLOCK) as u32)
    }

    /// Takes several free blocks of this CPU's area as blocks of 2 MiB, as many as are kept at once
    /// and there are in one group; keeps all but the first. Says how many.
    pub fn take_huge_batch<M: Machine>(&self, by: &Search<M>, held: &Held) -> Option<(u32, u64)> {
        let m = by.m;
        let first = self.take_run(m, Some(held), by.area.clone(), 0)?;
        let hint = self.hint(first);
        let ahead = (by.area.end - first).min(self.cpu_huge as usize) as u32;
        // Those right behind it, as a rule.
        let seen = hint.load(Ordering::Relaxed);
        let near = ((1u64 << ahead) - 1) << (first % GROUP) & !seen;
        let n = 1 + near.count_ones();
        touch(m, hint, true);
        if near == 0
            || hint
                .compare_exchange(seen, seen | near, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
        {
            self.state(first).store(huge_state(Order::HUGE), Ordering::Release);
            return Some(((first << BLOCK) as u32, 1));
        }
        self.state(first).store(huge_state(Order::HUGE), Ordering::Release);
        let mut left = near;
        while left != 0 {
            // The highest first, so that they are had in order.
            let at = 63 - left.leading_zeros();
            left &= !(1 << at);
            let block = first / GROUP * GROUP + at as usize;
            self.state(block).store(huge_state(Order::HUGE), Ordering::Release);
            let fits = held.keep_huge(self, (block << BLOCK) as u32);
            debug_assert!(fits, "more blocks were taken than are kept");
        }
        Some(((first << BLOCK) as u32, n as u64))
    }

    /// Takes a free block, which is then the caller's to open.
    pub fn take_free<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        part: Range<usize>,
    ) -> Option<usize> {
        self.take_run(m, held, part, 0)
    }

    /// Takes the busy bits of an aligned run of 2^blocks blocks that lies in a range.
    fn take_run<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
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
        // Below the cursor this CPU found nothing, and gave nothing back; contention may have.
        let cursor =
            held.map_or(0, |held| held.magazine.huge_cursor.load(Ordering::Relaxed) as usize);
        let start = if blocks == 0 && groups.contains(&cursor) { cursor } else { groups.start };
        for group in (start..groups.end).chain(groups.start..start) {
            let within = within(&part, group);
            let hint = self.hint(group * GROUP);
            let mut seen = hint.load(Ordering::Relaxed);
            loop {
                let starts = bits::runs(!seen & within, blocks);
                if starts == 0 {
                    break;
                }
                let at = starts.trailing_zeros();
                let run = bits::mask(blocks) << at;
                touch(m, hint, true);
                match hint.compare_exchange_weak(
                    seen,
                    seen | run,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Err(now) => seen = now,
                    Ok(_) => {
                        if let Some(held) = held
                            && blocks == 0
                        {
                            held.magazine.huge_cursor.store(group as u32, Ordering::Relaxed);
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
        if (first..first + n).any(|g| self.hint(g * GROUP).load(Ordering::Relaxed) != 0) {
            return false;
        }
        for group in first..first + n {
            let hint = self.hint(group * GROUP);
            touch(m, hint, true);
            if hint.compare_exchange(0, !0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                (first..group).for_each(|g| self.clear_hint(m, g * GROUP, !0));
                return false;
            }
        }
        true
    }

    /// Whether a run of `order` was allocated as such.
    pub fn is_huge(&self, index: u32, order: Order) -> bool {
        let state = self.state((index >> BLOCK) as usize).load(Ordering::Relaxed);
        state & KIND == HUGE_HEAD && huge_order(state) == order.get() as u32
    }

    /// Gives a run back.
    pub fn give_huge<M: Machine>(&self, m: &M, held: Option<&Held>, index: u32, order: Order) {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (order.get() as u32 - BLOCK));
        for block in first..first + n {
            self.state(block).store(FREE, Ordering::Relaxed);
        }
        let run = first..first + n;
        for group in first / GROUP..run.end.div_ceil(GROUP) {
            self.clear_hint(m, group * GROUP, within(&run, group));
        }
        if let Some(held) = held {
            held.note_free(first);
        }
    }

    /// Gives blocks of 2 MiB back, those of one group together.
    pub fn give_huge_batch<M: Machine>(
        &self,
        m: &M,
        held: &Held,
        indices: impl Iterator<Item = u32>,
    ) {
        let (mut group, mut mask) = (0, 0);
        for index in indices {
            let block = (index >> BLOCK) as usize;
            self.state(block).store(FREE, Ordering::Relaxed);
            if mask != 0 && block / GROUP != group {
                self.clear_hint(m, group * GROUP, mask);
                mask = 0;
            }
            group = block / GROUP;
            mask |= NumaNode::hint_bit(block);
            held.note_free(block);
        }
        if mask != 0 {
            self.clear_hint(m, group * GROUP, mask);
        }
    }

    /// Lets a run be given back in smaller pieces.
    pub fn split<M: Machine>(&self, m: &M, index: u32, from: Order, to: Order) {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (from.get() as u32 - BLOCK));
        if to < Order::HUGE {
            for i in 0..n {
                self.split_huge(m, first + i);
            }
        } else {
            for i in (0..n).step_by(1 << (to.get() as u32 - BLOCK)) {
                self.state(first + i).store(huge_state(to), Ordering::Release);
            }
        }
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
