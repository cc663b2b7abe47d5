//! 2 MiB and more: finding free blocks and runs of them.

use crate::addr::Order;
use crate::frame::alloc::search::Search;
use crate::frame::block::array::GROUP;
use crate::frame::block::bits::BLOCK;
use crate::frame::block::state::{HUGE_TAIL, huge_state};
use crate::frame::cpu::magazine::Held;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use crate::sync::touch;

impl<M: Machine> Search<'_, M> {
    /// Takes a huge block; gives its index.
    pub fn take_huge(&self, order: Order) -> Option<u32> {
        let (node, blocks) = (self.node, &self.node.blocks);
        let (n, area) = (order.get() as u32 - BLOCK, &self.area);
        let first = self.take_run(area.clone(), n).or_else(|| {
            // Blocks may have become empty that nobody has swept since.
            node.sweep(self.m, self.held, node.all_dirty(false));
            let parts =
                [area.clone(), area.end..blocks.end, blocks.first..area.start, blocks.all()];
            parts.into_iter().find_map(|part| self.take_run(part, n))
        })?;
        for i in 1..1 << n {
            blocks.state(first + i).store(HUGE_TAIL, Relaxed);
        }
        touch(self.m, blocks.state(first), true);
        blocks.state(first).store(huge_state(order), Release);
        Some((first << BLOCK) as u32)
    }

    /// Takes several free blocks of the CPU's area as blocks of 2 MiB: as many of one group as a
    /// cpu buddy holds, which keeps all but the first. Gives the first one's index, and how many
    /// they are.
    pub fn take_huge_batch(&self, held: &Held) -> Option<(u32, u64)> {
        let blocks = &self.node.blocks;
        let first = self.take_run(self.area.clone(), 0)?;
        let busy = blocks.busy_word(first);
        let ahead = (self.area.end - first).min(self.node.cpu_huge as usize) as u32;
        // Those right behind it, as a rule.
        let seen = busy.load(Relaxed);
        let near = ((1u64 << ahead) - 1) << (first % GROUP) & !seen;
        touch(self.m, busy, true);
        let more = near != 0 && busy.compare_exchange(seen, seen | near, SeqCst, Relaxed).is_ok();
        blocks.state(first).store(huge_state(Order::HUGE), Release);
        let index = (first << BLOCK) as u32;
        if !more {
            return Some((index, 1));
        }
        let mut left = near;
        while left != 0 {
            // The highest first, so that they are taken in order.
            let at = 63 - left.leading_zeros();
            left &= !(1 << at);
            let block = first / GROUP * GROUP + at as usize;
            blocks.state(block).store(huge_state(Order::HUGE), Release);
            let fits = held.buddy().push_huge(self.node.cpu_huge, (block << BLOCK) as u32);
            debug_assert!(fits, "more blocks were taken than are cached");
        }
        Some((index, 1 + near.count_ones() as u64))
    }
}
