//! An allocation from one memory node.

use crate::addr::{Order, Pfn};
use crate::frame::alloc::search::Search;
use crate::frame::block::bits::{BLOCK, ROWS};
use crate::frame::cpu::magazine::{BATCH, Held, bump};
use crate::frame::view::NodeView;
use crate::machine::{Machine, Use, Work};

/// The allocation.
pub struct NodeAlloc<'a, M: Machine> {
    pub view: NodeView<'a>,
    pub search: Search<'a, M>,
    pub order: Order,
    pub use_: Use,
    /// Another node was wanted.
    pub missed: bool,
}

impl NodeView<'_> {
    /// [`take_from_buddy`](NodeView::take_from_buddy), counted. `missed`: another node was wanted.
    #[inline(always)]
    pub fn take_cached<M: Machine>(
        self,
        m: &M,
        held: &Held,
        cpu: usize,
        order: Order,
        missed: bool,
    ) -> Option<Pfn> {
        let index = self.take_from_buddy(held, cpu, order.get() as u32)?;
        let node = self.node();
        node.count_alloc(Some(held), order.frames(), missed);
        m.work(Work::Block, 1);
        Some(node.pfn(index))
    }

    /// A sub-block or huge block of 2 MiB from the cpu buddy; a part of a larger one if the blocks
    /// have no run that fits better.
    #[inline(always)]
    pub fn take_from_buddy(self, held: &Held, cpu: usize, order: u32) -> Option<u32> {
        if order == 0 || order > BLOCK {
            return None;
        }
        let buddy = held.buddy();
        if let Some(index) = buddy.pop(order) {
            return Some(index);
        }
        let larger = buddy.above(order)?;
        if self.node().fits_better(held, cpu, order as usize..larger as usize) {
            return None;
        }
        buddy.split(larger, order)
    }
}

impl<M: Machine> NodeAlloc<'_, M> {
    /// Takes a block that the cpu buddy does not have.
    #[inline(always)]
    pub fn take(&self) -> Option<Pfn> {
        let (order, held, node) = (self.order, self.search.held, self.search.node);
        if let (Some(held), Order::BASE) = (held, order) {
            return self.single(held);
        }
        let index = match order {
            _ if order < Order::HUGE => self.sub_block()?,
            _ if self.view.available(order.frames(), self.use_) < order.frames() => return None,
            _ => self.huge()?,
        };
        self.search.m.work(Work::Block, 1);
        node.count_alloc(held, order.frames(), self.missed);
        Some(node.pfn(index))
    }

    /// A single frame, after the stack was filled.
    #[inline(always)]
    fn single(&self, held: &Held) -> Option<Pfn> {
        let (magazine, node, m) = (held.magazine, self.search.node, self.search.m);
        if magazine.len() == 0 && !self.refill(held) && magazine.free_frames() != 0 {
            // Rather give up what the cpu buddy has than go to another node.
            node.drain_magazine(m, held);
            self.refill(held);
        }
        let index = held.pop()?;
        bump(&magazine.missed, self.missed as u64);
        m.work(Work::Magazine, 1);
        Some(node.pfn(index))
    }

    /// A huge block; a batch of them while there are plenty.
    #[inline(always)]
    fn huge(&self) -> Option<u32> {
        if let Some(held) = self.search.held
            && self.order == Order::HUGE
            && self.has_plenty()
            && let Some(index) = self.huge_batch(held)
        {
            return Some(index);
        }
        let index = self.search.take_huge(self.order)?;
        self.search.node.count(self.search.held, -(self.order.frames() as i64));
        Some(index)
    }

    /// Whether the node has so many 2 MiB blocks that a CPU takes several at once.
    fn has_plenty(&self) -> bool {
        let blocks = self.search.node.cpu_huge as u64;
        blocks > 1 && self.view.available(blocks << BLOCK, Use::Data) >= blocks << BLOCK
    }

    /// One block of 2 MiB of several; the cpu buddy, which has none, keeps the others.
    #[inline(always)]
    fn huge_batch(&self, held: &Held) -> Option<u32> {
        let (index, n) = self.search.take_huge_batch(held)?;
        self.search.node.count(Some(held), -((n << BLOCK) as i64));
        Some(index)
    }

    /// A sub-block, order 0 to 8.
    fn sub_block(&self) -> Option<u32> {
        let (search, node, order) = (&self.search, self.search.node, self.order.get() as u32);
        if let Some(held) = search.held {
            let buddy = held.buddy();
            if let Some(larger) = buddy.above(order) {
                return self.run(held, larger, false).or_else(|| buddy.split(larger, order));
            }
            // A block of 2 MiB of its own is split unseen by other CPUs.
            let has_huge = buddy.has_huge() || self.has_plenty();
            if let Some(index) = self.run(held, ROWS as u32, !has_huge) {
                return Some(index);
            }
            if has_huge {
                if let Some(index) = buddy.pop(BLOCK).or_else(|| self.huge_batch(held)) {
                    node.blocks.split_huge(search.m, (index >> BLOCK) as usize);
                    buddy.push_rest(index, BLOCK, order);
                    return Some(index);
                }
                if let Some(index) = self.run(held, ROWS as u32, true) {
                    return Some(index);
                }
            }
        }
        if self.view.available(1 << order, self.use_) < 1 << order {
            return None;
        }
        let claimed = || self.view.claimed().find_map(|block| search.sub_block_of(block, order));
        let index = search.sub_block(order).or_else(claimed)?;
        node.count(search.held, -(1 << order));
        Some(index)
    }

    /// A sub-block out of a run of an order below `end`. The cpu buddy, which has no blocks of
    /// these orders, keeps the rest of the run. `anywhere`: see [`Search::run`].
    fn run(&self, held: &Held, end: u32, anywhere: bool) -> Option<u32> {
        // Any allocation may take what the cpu buddy keeps, so it must not be of the reserve.
        let half = 1 << (ROWS - 1);
        if self.view.available(half, Use::Data) < half {
            return None;
        }
        let order = self.order.get() as u32;
        held.forget_rows();
        let (index, row) = self.search.run(order as usize..end as usize, anywhere)?;
        self.search.node.count(Some(held), -(1 << row));
        held.buddy().push_rest(index, row, order);
        Some(index)
    }

    /// Fills an empty stack with a batch, or with what the node can spare; `false` if that is
    /// nothing.
    fn refill(&self, held: &Held) -> bool {
        let search = &self.search;
        let mut max = self.view.available(BATCH as u64, Use::Data).min(BATCH as u64);
        if max == 0 {
            // Out of the reserve one at a time: any allocation may take what is in a magazine.
            max = self.view.available(1, self.use_).min(1);
        }
        if max == 0 {
            return false;
        }
        held.forget_rows();
        let mut got = search.singles(held, max as u32);
        if got == 0 {
            let mut claimed = self.view.claimed();
            got = claimed.find_map(|block| search.singles_of(held, block, max as u32)).unwrap_or(0);
        }
        search.node.count(Some(held), -(got as i64));
        search.m.work(Work::Refill, 1);
        got != 0
    }
}
