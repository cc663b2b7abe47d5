//! A few larger blocks that a CPU keeps for itself: a small buddy allocator without anything
//! shared.
//!
//! What is freed is kept, since the next allocation of that order is likely to be this CPU's own.
//! What is not there is split off a larger kept block, or a run is taken out of a block whole and
//! its rest kept. Orders 1 to 9 only, at most [`MOST_OF_ORDER`] blocks of each: 3.5 MiB for a CPU and node
//! together, besides 2 MiB, or on nodes of 256 MiB a CPU and more 8 MiB, of whole blocks, which are
//! taken and given back several at once. A kept block stays taken as far as its 2 MiB block knows,
//! so it comes and goes without touching anything shared; it goes back with everything else the CPU
//! keeps when memory, or a larger block, is wanted.
//!
//! Fit comes first all the same: something larger is split only after the blocks were asked for a
//! run between, a 2 MiB block only if they have nothing at all, and what makes a larger run with
//! its free buddy is not kept but given back (`free`): without that rule 69 % of free memory are
//! whole after long churn at 90 % live, not 74 %.
//!
//! How many: with 2 of each, every third allocation of mixed orders found none, and a step of them
//! cost 61 ns; with 4 it costs 52, and after long churn just as much is whole (50 % live: 97.3
//! against 97.2; 90 %: 74.4 against 73.8); with 8, 49 ns, 97.2 and 74.2.
//!
//! Rejected: merging a kept block with its kept buddy. It looks for the buddy at every free, for a
//! larger run that the next allocations split again: 6 ns a step of mixed orders, and no more is
//! whole after churn (97.4 and 74.0 without).

use crate::addr::Order;
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::{BLOCK, NumaNode};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Most blocks kept of orders 1 to 8; of order 9 as many as the node says.
const MOST_OF_ORDER: [u32; BLOCK as usize] = [4, 4, 4, 4, 4, 2, 2, 1, HUGE_BATCH];
/// Most blocks of 2 MiB kept, and taken or given back at once.
pub const HUGE_BATCH: u32 = 4;
/// Room for blocks of one order.
const MOST: usize = 4;
/// A nibble counts those of one order.
const NIBBLE: u32 = 4;

/// The blocks, as indices of the node. Written by the holder of the magazine.
#[repr(C)]
pub struct CpuBuddy {
    /// How many there are of each order, a nibble each from order 1 on: at most [`MOST_OF_ORDER`].
    pub lens: AtomicU64,
    index: [[AtomicU32; MOST]; MOST_OF_ORDER.len()],
}

impl CpuBuddy {
    #[inline]
    fn len(&self, order: u32) -> u32 {
        (self.lens.load(Relaxed) >> ((order - 1) * NIBBLE)) as u32 % (1 << NIBBLE)
    }

    /// Every block kept, and its order.
    pub fn each(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let orders = (1..).map_while(Order::new).zip(&self.index);
        orders.flat_map(|(order, index)| {
            index[..self.len(order.get() as u32) as usize]
                .iter()
                .map(move |i| (i.load(Relaxed), order))
        })
    }

    /// Whether no more are said to be kept of any order than are kept at most; `whole` of 2 MiB.
    pub fn is_in_bounds(&self, whole: u32) -> bool {
        let most =
            |order: u32| if order == BLOCK { whole } else { MOST_OF_ORDER[order as usize - 1] };
        self.lens.load(Relaxed) >> (BLOCK * NIBBLE) == 0
            && (1..=BLOCK).all(|order| self.len(order) <= most(order))
    }

    /// Base frames in them.
    pub fn frames(&self) -> u64 {
        (1..=BLOCK).map(|order| (self.len(order) as u64) << order).sum()
    }

    /// The smallest order above that one, and below 2 MiB, of which there is something.
    #[inline]
    fn above(&self, order: u32) -> Option<u32> {
        let below_whole = self.lens.load(Relaxed) % (1 << ((BLOCK - 1) * NIBBLE));
        let larger = below_whole >> (order * NIBBLE);
        (larger != 0).then(|| order + 1 + larger.trailing_zeros() / NIBBLE)
    }

    #[inline]
    fn pop(&self, order: u32) -> Option<u32> {
        let len = self.len(order).checked_sub(1)?;
        self.lens.store(self.lens.load(Relaxed) - (1 << ((order - 1) * NIBBLE)), Relaxed);
        self.index[order as usize - 1].get(len as usize).map(|i| i.load(Relaxed))
    }

    #[inline]
    fn push(&self, index: u32, order: u32, most: u32) -> bool {
        let len = self.len(order);
        if len >= most {
            return false;
        }
        self.index[order as usize - 1][len as usize].store(index, Relaxed);
        self.lens.store(self.lens.load(Relaxed) + (1 << ((order - 1) * NIBBLE)), Relaxed);
        true
    }
}

impl Held<'_> {
    /// A kept block of that order, 1 to 9, if there is one.
    #[inline]
    pub fn take_buddy(&self, order: u32) -> Option<u32> {
        self.magazine.buddy.pop(order)
    }

    /// The smallest order above that one, which is 9 at most, and below 2 MiB, of which something
    /// is kept.
    #[inline]
    pub fn buddy_above(&self, order: u32) -> Option<u32> {
        self.magazine.buddy.above(order)
    }

    /// Whether a block of 2 MiB is kept.
    #[inline]
    pub fn has_huge(&self) -> bool {
        self.magazine.buddy.len(BLOCK) != 0
    }

    /// Splits a kept block of order `from`, nothing of the orders between being kept.
    #[inline]
    pub fn split_buddy(&self, from: u32, to: u32) -> Option<u32> {
        let index = self.magazine.buddy.pop(from)?;
        self.keep_rest_of(index, from, to);
        Some(index)
    }

    /// Keeps all of a block of order `from` but its first 2^to frames, nothing of the orders
    /// between being kept.
    #[inline]
    pub fn keep_rest_of(&self, index: u32, from: u32, to: u32) {
        let kept = &self.magazine.buddy;
        for order in to..from {
            kept.index[order as usize - 1][0].store(index + (1 << order), Relaxed);
        }
        // One more of each of them.
        let ones = (1u64 << ((from - 1) * NIBBLE)) / 15 - (1u64 << ((to - 1) * NIBBLE)) / 15;
        debug_assert_eq!(
            kept.lens.load(Relaxed) & (ones * 15),
            0,
            "something was kept of the orders between"
        );
        kept.lens.store(kept.lens.load(Relaxed) + ones, Relaxed);
    }

    /// Keeps a block below 2 MiB, if there are not so many.
    #[inline]
    pub fn keep(&self, index: u32, order: u32) -> bool {
        let kept = &self.magazine.buddy;
        debug_assert!(
            kept.each().all(|(i, o)| (i, o.get() as u32) != (index, order)),
            "block {index:#x} freed twice"
        );
        kept.push(index, order, MOST_OF_ORDER[order as usize - 1])
    }

    /// Keeps a block of 2 MiB, if there are not so many.
    #[inline]
    pub fn keep_huge(&self, node: &NumaNode, index: u32) -> bool {
        let kept = &self.magazine.buddy;
        debug_assert!(
            kept.each().all(|(i, o)| (i, o) != (index, Order::HUGE)),
            "block {index:#x} freed twice"
        );
        kept.push(index, BLOCK, node.cpu_huge)
    }

    /// Forgets every kept block, after telling of each.
    pub fn drain_buddy(&self, mut each: impl FnMut(u32, Order)) {
        for (index, order) in self.magazine.buddy.each() {
            each(index, order);
        }
        self.magazine.buddy.lens.store(0, Relaxed);
    }
}

// What is kept of every order is taken and split in halves, so there is room for one at least.
const _: () = assert!(
    MOST_OF_ORDER.len() * NIBBLE as usize <= 64 && MOST < 1 << NIBBLE && HUGE_BATCH <= MOST as u32
);
