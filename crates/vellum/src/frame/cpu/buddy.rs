//! The cpu buddy: a few blocks of orders 1 to 9 that a CPU keeps for itself.
//!
//! A freed block is cached, since the next allocation of that order is likely to be this CPU's own.
//! A missing order is split off a larger cached block, or off a run taken out of a block, and the
//! rest is cached. A cached block stays taken as far as its 2 MiB block knows, so nothing shared is
//! touched. There are at most 3.5 MiB of orders 1 to 8 for a CPU and node, besides 2 MiB (on nodes
//! of 256 MiB a CPU and more, 8 MiB) of order 9. All of it goes back when memory or a larger block
//! is wanted.
//!
//! Best fit comes first all the same. A larger block is split only after the 2 MiB blocks were
//! asked for a run of an order between, and a block of order 9 only if they have nothing at all. A
//! freed block whose buddy is free is not cached (`free`): without that rule 69 % of free memory is
//! in huge blocks after long churn at 90 % live, not 74 %.
//!
//! With 2 blocks of each order a step of mixed orders cost 61 ns; with 4 it costs 52, and just as
//! much stays in huge blocks (50 % live: 97.3 against 97.2 %); with 8, 49 ns. Of more blocks than
//! there is room for the lowest are kept (docs/rows.md).
//!
//! Rejected: merging a cached block with its cached buddy. That costs 6 ns a step of mixed orders,
//! and no more huge blocks are free after churn (97.4 and 74.0 without).

use crate::addr::Order;
use crate::frame::block::bits::BLOCK;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Most blocks cached of orders 1 to 8; of order 9 as many as the node says, up to [`HUGE_BATCH`].
const MOST_OF_ORDER: [u32; BLOCK as usize] = [4, 4, 4, 4, 4, 2, 2, 1, HUGE_BATCH];
/// Most blocks of 2 MiB cached, and taken or freed at once.
pub const HUGE_BATCH: u32 = 4;
/// Room for blocks of one order.
const SLOTS: usize = 4;
/// A nibble counts those of one order.
const NIBBLE: u32 = 4;

/// The blocks, as indices of the node. Written by the holder of the magazine only.
#[repr(C)]
pub struct CpuBuddy {
    /// How many there are of each order, a nibble each from order 1 on.
    pub lens: AtomicU64,
    index: [[AtomicU32; SLOTS]; MOST_OF_ORDER.len()],
}

impl CpuBuddy {
    #[inline]
    fn len(&self, order: u32) -> u32 {
        (self.lens.load(Relaxed) >> ((order - 1) * NIBBLE)) as u32 % (1 << NIBBLE)
    }

    /// Every block, and its order.
    pub fn each(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let orders = (1..).map_while(Order::new).zip(&self.index);
        orders.flat_map(|(order, index)| {
            index[..self.len(order.get() as u32) as usize]
                .iter()
                .map(move |i| (i.load(Relaxed), order))
        })
    }

    /// Whether no order has more blocks than it may; `huge`: how many of 2 MiB.
    pub fn is_in_bounds(&self, huge: u32) -> bool {
        let most =
            |order: u32| if order == BLOCK { huge } else { MOST_OF_ORDER[order as usize - 1] };
        self.lens.load(Relaxed) >> (BLOCK * NIBBLE) == 0
            && (1..=BLOCK).all(|order| self.len(order) <= most(order))
    }

    /// Base frames in them.
    pub fn frames(&self) -> u64 {
        (1..=BLOCK).map(|order| (self.len(order) as u64) << order).sum()
    }

    /// The smallest order above that one, 9 at most, and below 2 MiB, of which there is a block.
    #[inline]
    pub fn above(&self, order: u32) -> Option<u32> {
        let below_huge = self.lens.load(Relaxed) % (1 << ((BLOCK - 1) * NIBBLE));
        let larger = below_huge >> (order * NIBBLE);
        (larger != 0).then(|| order + 1 + larger.trailing_zeros() / NIBBLE)
    }

    /// Whether there is a block of 2 MiB.
    #[inline]
    pub fn has_huge(&self) -> bool {
        self.len(BLOCK) != 0
    }

    /// Takes a block of that order, 1 to 9, if there is one.
    #[inline]
    pub fn pop(&self, order: u32) -> Option<u32> {
        let len = self.len(order).checked_sub(1)?;
        self.lens.store(self.lens.load(Relaxed) - (1 << ((order - 1) * NIBBLE)), Relaxed);
        self.index[order as usize - 1].get(len as usize).map(|i| i.load(Relaxed))
    }

    /// Takes all blocks of 2 MiB.
    #[inline]
    pub fn pop_all_huge(&self) -> impl Iterator<Item = u32> {
        let len = self.len(BLOCK) as usize;
        let all = ((1 << NIBBLE) - 1) << ((BLOCK - 1) * NIBBLE);
        self.lens.store(self.lens.load(Relaxed) & !all, Relaxed);
        self.index[BLOCK as usize - 1][..len].iter().map(|i| i.load(Relaxed))
    }

    /// Keeps a block below 2 MiB. If as many of its order are kept as may be, the highest of them
    /// goes, which can be the block itself: the caller frees what this gives.
    #[inline]
    pub fn push(&self, index: u32, order: u32) -> Option<u32> {
        if self.push_up_to(MOST_OF_ORDER[order as usize - 1], index, order) {
            return None;
        }
        let slots = &self.index[order as usize - 1];
        // Without a branch for each slot: which is the highest is as good as random. A slot that is
        // never used has 0.
        let key = |at: usize| (slots[at].load(Relaxed) as u64) << 32 | at as u64;
        let highest = (1..SLOTS).fold(key(0), |highest, at| highest.max(key(at)));
        let goes = (highest >> 32) as u32;
        if goes < index {
            return Some(index);
        }
        slots[highest as usize % SLOTS].store(index, Relaxed);
        Some(goes)
    }

    /// Keeps a block of 2 MiB, if there are less than `most`.
    #[inline]
    pub fn push_huge(&self, most: u32, index: u32) -> bool {
        self.push_up_to(most, index, BLOCK)
    }

    #[inline]
    fn push_up_to(&self, most: u32, index: u32, order: u32) -> bool {
        debug_assert!(
            self.each().all(|(i, o)| (i, o.get() as u32) != (index, order)),
            "block {index:#x} freed twice"
        );
        let len = self.len(order);
        if len >= most {
            return false;
        }
        self.index[order as usize - 1][len as usize].store(index, Relaxed);
        self.lens.store(self.lens.load(Relaxed) + (1 << ((order - 1) * NIBBLE)), Relaxed);
        true
    }

    /// Takes a block of order `from` and keeps all but its first 2^to frames. No block is cached of
    /// the orders `to` up to `from`, without `from`.
    #[inline]
    pub fn split(&self, from: u32, to: u32) -> Option<u32> {
        let index = self.pop(from)?;
        self.push_rest(index, from, to);
        Some(index)
    }

    /// Keeps all of a block of order `from` but its first 2^to frames, under the same condition.
    #[inline]
    pub fn push_rest(&self, index: u32, from: u32, to: u32) {
        for order in to..from {
            self.index[order as usize - 1][0].store(index + (1 << order), Relaxed);
        }
        // One more of each of them.
        let ones = (1u64 << ((from - 1) * NIBBLE)) / 15 - (1u64 << ((to - 1) * NIBBLE)) / 15;
        debug_assert_eq!(
            self.lens.load(Relaxed) & (ones * 15),
            0,
            "a block was cached of the orders between"
        );
        self.lens.store(self.lens.load(Relaxed) + ones, Relaxed);
    }

    /// Forgets all blocks.
    pub fn clear(&self) {
        self.lens.store(0, Relaxed);
    }
}

// A block of each order is taken and split in halves, so there is room for one at least.
const _: () = assert!(
    MOST_OF_ORDER.len() * NIBBLE as usize <= 64
        && SLOTS < 1 << NIBBLE
        && HUGE_BATCH <= SLOTS as u32
);
