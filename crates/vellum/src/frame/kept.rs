//! A few larger blocks that a CPU keeps when they are freed, since the next allocation of that order is likely to be its own.
//!
//! Orders 1 to 9 only, at most [`KEPT`] blocks of each: some 5 MiB for a CPU and node together. A kept block stays taken as far as its
//! 2 MiB block knows, so it comes and goes without touching anything shared; it goes back with everything else the CPU keeps
//! when memory, or a larger block, is wanted. An alternation of free and allocate would otherwise clear and set the same shared bits
//! each time, and open and close a block whose last piece it is.

use super::magazine::Held;
use crate::addr::Order;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Blocks kept of orders 1 to 9.
const KEPT: [u32; 9] = [2, 2, 2, 2, 2, 1, 1, 1, 1];
const SLOTS: usize = 4;

/// The blocks, as indices of the node. Written by the holder of the magazine.
#[repr(C)]
pub(super) struct Kept {
    len: [AtomicU32; KEPT.len()],
    index: [[AtomicU32; SLOTS]; KEPT.len()],
}

impl Kept {
    /// Every block kept, and its order.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        let orders = (1..).map_while(Order::new).zip(&self.len).zip(&self.index);
        orders.flat_map(|((order, len), index)| {
            index[..len.load(Relaxed) as usize].iter().map(move |i| (i.load(Relaxed), order))
        })
    }

    /// Base frames in them.
    pub(super) fn frames(&self) -> u64 {
        self.len.iter().zip(1..).map(|(len, order)| (len.load(Relaxed) as u64) << order).sum()
    }
}

impl Held<'_> {
    /// A kept block of that order, if there is one.
    #[inline]
    pub(super) fn take_kept(&self, order: Order) -> Option<u32> {
        let kept = &self.magazine.kept;
        let row = (order.get() as usize).wrapping_sub(1);
        let len = kept.len.get(row)?.load(Relaxed).checked_sub(1)?;
        kept.len[row].store(len, Relaxed);
        kept.index[row].get(len as usize).map(|i| i.load(Relaxed))
    }

    /// Keeps a block; `false` if it has to go back.
    #[inline]
    pub(super) fn keep(&self, index: u32, order: Order) -> bool {
        let kept = &self.magazine.kept;
        let row = (order.get() as usize).wrapping_sub(1);
        let Some(most) = KEPT.get(row) else {
            return false;
        };
        let len = kept.len[row].load(Relaxed);
        debug_assert!(kept.each().all(|k| k != (index, order)), "block {index:#x} of {order:?} freed twice");
        if len >= *most {
            return false;
        }
        kept.index[row][len as usize].store(index, Relaxed);
        kept.len[row].store(len + 1, Relaxed);
        true
    }

    /// Forgets every kept block, after telling of each.
    pub(super) fn release_kept(&self, mut each: impl FnMut(u32, Order)) {
        for (index, order) in self.magazine.kept.each() {
            each(index, order);
        }
        for len in &self.magazine.kept.len {
            len.store(0, Relaxed);
        }
    }
}
