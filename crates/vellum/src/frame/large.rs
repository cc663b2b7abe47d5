//! 2 MiB and larger: free blocks, and runs of them up to 1 GiB.
//!
//! A block is had by one exchange of its state, its bits are not looked at. A run takes its blocks one by one, lowest first,
//! and puts back what it has when one is not free. The hints say where to look: an aligned run inside a hint word by the same
//! shifts as in a word of frames, a longer one as words with no busy bit.

use super::bits;
use super::block::{FREE, KIND, LARGE, TAIL, large, large_order};
use super::magazine::Held;
use super::node::{BLOCK, GROUP, Node};
use super::small::around;
use crate::addr::Order;
use crate::machine::Machine;
use crate::sync::atomic::Ordering;
use crate::sync::touch;

/// log2 of [`GROUP`].
const GROUP_ORDER: u32 = GROUP.trailing_zeros();
const LOW: u64 = (1 << GROUP) - 1;

impl Node {
    /// Takes a naturally aligned run of free blocks; gives its index.
    pub(super) fn whole<M: Machine>(&self, m: &M, held: Option<&Held>, order: Order) -> Option<u32> {
        let blocks = order.get() as u32 - BLOCK;
        if blocks > GROUP_ORDER {
            // Aligned to several words: every candidate starts at a multiple of that many.
            let span = 1 << (blocks - GROUP_ORDER);
            return (0..self.groups() / span)
                .map(|i| i * span)
                .filter(|&g| (g..g + span).all(|g| self.hint(g).load(Ordering::Relaxed) & LOW == 0))
                .find(|&g| self.claim_run(m, g * GROUP, order))
                .map(|g| ((g * GROUP) << BLOCK) as u32);
        }
        for group in around(self.whole_start(m.cpu(), held), self.groups()) {
            let free = !self.hint(group).load(Ordering::Relaxed) & LOW;
            let mut starts = bits::runs(free, blocks);
            while starts != 0 {
                let block = group * GROUP + starts.trailing_zeros() as usize;
                starts &= starts - 1;
                if self.claim_run(m, block, order) {
                    if let Some(held) = held {
                        held.magazine.whole_cursor.store(group as u32 + 1, Ordering::Relaxed);
                    }
                    return Some((block << BLOCK) as u32);
                }
            }
        }
        None
    }

    fn claim_run<M: Machine>(&self, m: &M, first: usize, order: Order) -> bool {
        let n = 1 << (order.get() as u32 - BLOCK);
        for i in 0..n {
            let state = self.state(first + i);
            let to = if i == 0 { large(order) } else { TAIL };
            touch(m, state, true);
            if state.compare_exchange(FREE, to, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                for j in 0..i {
                    self.state(first + j).store(FREE, Ordering::Release);
                }
                return false;
            }
        }
        self.each_hint(first, n, |node, group, mask| node.set_hints(m, group * GROUP, mask));
        true
    }

    /// Calls with every hint word the run has a part in, and its busy and full bits there.
    fn each_hint(&self, first: usize, n: usize, mut each: impl FnMut(&Node, usize, u64)) {
        let mut at = first;
        while at < first + n {
            let next = ((at / GROUP + 1) * GROUP).min(first + n);
            let busy = (((1u128 << (next - at)) - 1) as u64) << (at % GROUP);
            each(self, at / GROUP, busy | busy << GROUP);
            at = next;
        }
    }

    /// Whether a run of `order` was allocated as such.
    pub(super) fn is_whole(&self, index: u32, order: Order) -> bool {
        let state = self.state((index >> BLOCK) as usize).load(Ordering::Relaxed);
        state & KIND == LARGE && large_order(state) == order.get() as u32
    }

    /// Gives a run back. The hints go first: once the state says free, the next owner may set them.
    pub(super) fn give_whole<M: Machine>(&self, m: &M, index: u32, order: Order) {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (order.get() as u32 - BLOCK));
        self.each_hint(first, n, |node, group, mask| node.clear_hints(m, group * GROUP, mask));
        for i in 0..n {
            touch(m, self.state(first + i), true);
            self.state(first + i).store(FREE, Ordering::Release);
        }
    }

    /// Lets a run be given back in smaller pieces.
    pub(super) fn split<M: Machine>(&self, m: &M, index: u32, from: Order, to: Order) {
        let (first, n) = ((index >> BLOCK) as usize, 1 << (from.get() as u32 - BLOCK));
        if to < Order::HUGE {
            for i in 0..n {
                self.shatter(m, first + i);
            }
        } else {
            for i in (0..n).step_by(1 << (to.get() as u32 - BLOCK)) {
                self.state(first + i).store(large(to), Ordering::Release);
            }
        }
    }
}
