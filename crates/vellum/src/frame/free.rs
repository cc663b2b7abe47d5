//! Freeing a block.
//!
//! A single frame goes on this CPU's magazine for its node, or if that is full to its block, at the
//! same price. A larger block up to 2 MiB goes to the cpu buddy while that has room; everything
//! else goes to the blocks at once.
//!
//! A frame freed twice, or by a wrong order, is a bug of the caller that no return value would
//! mend. Debug builds stop where they see it. Release builds refuse what would corrupt a huge
//! block, and [`Frames::validate`] finds the rest.

use crate::addr::{Order, Pfn};
use crate::frame::alloc::drain::Unheld;
use crate::frame::block::bits::BLOCK;
use crate::frame::cpu::magazine::bump;
use crate::frame::frames::Frames;
use crate::frame::view::NodeView;
use crate::machine::{Act, Machine, Use, Work};

/// Frames that are freed together: of 64 that follow each other from a multiple of 64 on, those
/// whose bits are set.
#[derive(Clone, Copy, Default)]
struct FreeWord {
    first: u64,
    mask: u64,
}

impl FreeWord {
    fn frames(self) -> impl Iterator<Item = Pfn> {
        let mut left = self.mask;
        core::iter::from_fn(move || {
            let bit = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (bit < 64).then_some(Pfn(self.first + bit as u64))
        })
    }
}

impl Frames {
    /// Frees a block. A block that was allocated as 2 MiB or more is freed as a whole, or in the
    /// blocks that [`Frames::split`] made of it; a smaller one may be freed in any naturally
    /// aligned blocks. The record is left as it is. Any CPU may call it with any lock held; it
    /// never waits.
    ///
    /// # Safety
    /// The caller has all of the block by [`Frames::alloc`] and gives it up: nobody uses its memory
    /// from here on, and no translation to it is left on any CPU. Frames whose flush is not
    /// complete go to [`Frames::retire`].
    #[inline(always)]
    pub unsafe fn free<M: Machine>(&self, m: &M, pfn: Pfn, order: Order) {
        self.give_back(m, pfn, order);
    }

    /// [`Frames::free`] for the library itself, whose receipts keep the contract: it frees what it
    /// has just allocated and shown to nobody, or what a [`Flushed`](crate::tlb::Flushed) speaks
    /// of.
    #[inline(always)]
    pub(crate) fn give_back<M: Machine>(&self, m: &M, pfn: Pfn, order: Order) {
        m.preempt_off();
        // Most machines have one node, and everything of the first one lies at a known place.
        if self.node[0].has(pfn) {
            self.free_at(m, 0, pfn, order);
        } else {
            self.free_past_first(m, pfn, order);
        }
        m.allow_preemption();
    }

    /// [`give_back`](Frames::give_back) of single frames. Those of one word of a block that follow
    /// each other go together, by one lock of the block.
    pub(crate) fn give_back_all<M: Machine>(&self, m: &M, frames: impl Iterator<Item = Pfn>) {
        m.preempt_off();
        let mut word = FreeWord::default();
        for Pfn(pfn) in frames {
            if pfn & !63 != word.first {
                self.free_word(m, word);
                word = FreeWord { first: pfn & !63, mask: 0 };
            }
            word.mask |= 1 << (pfn & 63);
        }
        self.free_word(m, word);
        m.allow_preemption();
    }

    /// A frame alone goes as it would without others.
    fn free_word<M: Machine>(&self, m: &M, word: FreeWord) {
        let (low, high) = (word.mask.trailing_zeros(), 63 - word.mask.leading_zeros().min(63));
        let node = (low < high).then(|| self.node_of(Pfn(word.first + low as u64))).flatten();
        match node.filter(|&at| self.node(at).has(Pfn(word.first + high as u64))) {
            Some(at) if self.view(at).free_word(m, word) => {}
            _ => word.frames().for_each(|pfn| self.give_back(m, pfn, Order::BASE)),
        }
    }

    #[inline(never)]
    fn free_past_first<M: Machine>(&self, m: &M, pfn: Pfn, order: Order) {
        match self.node_of(pfn) {
            Some(at) => self.free_at(m, at, pfn, order),
            None => debug_assert!(false, "{pfn:?} freed, which is a frame of no node"),
        }
    }

    #[inline(always)]
    fn free_at<M: Machine>(&self, m: &M, at: usize, pfn: Pfn, order: Order) {
        m.becomes(pfn, order, Use::Free);
        let node = &self.node[at];
        if order != Order::BASE {
            let view = self.view(at);
            return match order {
                Order::HUGE => view.free_2m(m, pfn),
                _ => view.free_block(m, pfn, order),
            };
        }
        let index = node.index(pfn);
        debug_assert!(
            node.blocks.looks_taken(index),
            "{pfn:?} freed, which is free, or part of a huge block"
        );
        m.work(Work::Magazine, 1);
        if self.magazine(m.cpu(), at).push(m, index) {
            return;
        }
        // The magazine is full, or somebody holds it.
        let Some(mut locked) = node.lock(m, (index >> BLOCK) as usize) else {
            return self.view(at).free_one_remote(m, index);
        };
        if locked.put_back_one(m, index) {
            locked.release(m);
        } else {
            let (block, state) = locked.suspend();
            self.view(at).free_last(m, block, state);
        }
    }

    /// Lets a block that was allocated as `from`, 2 MiB or more, be freed in blocks of `to`; or, if
    /// `to` is below 2 MiB, in blocks of any order below. Needs no memory, never waits.
    ///
    /// # Safety
    /// The caller has all of the block, and nobody frees any of it meanwhile.
    pub unsafe fn split<M: Machine>(&self, m: &M, pfn: Pfn, from: Order, to: Order) {
        let Some(at) = self.node_of(pfn) else {
            debug_assert!(false, "{pfn:?} split, which is a frame of no node");
            return;
        };
        let node = self.node(at);
        if from < Order::HUGE || to >= from {
            debug_assert!(to <= from, "{pfn:?} split to something larger");
            return;
        }
        if !pfn.is_aligned(from)
            || !node.has_block(pfn, from)
            || !node.blocks.is_huge(node.index(pfn), from)
        {
            debug_assert!(false, "{pfn:?} split from {from:?}, which is not how it was allocated");
            return;
        }
        node.blocks.split(m, node.index(pfn), from, to);
    }
}

impl NodeView<'_> {
    /// Frees a block to the blocks at once: somebody holds this CPU's magazine.
    #[cold]
    #[inline(never)]
    fn free_unheld<M: Machine>(self, m: &M, index: u32, order: Order) {
        let (node, _unheld) = (self.node(), Unheld::enter(self.frames, m));
        node.count_free(None, order.frames());
        node.free_block(m, None, index, order);
        node.count(None, order.frames() as i64);
    }

    /// Frees a single frame whose block somebody has locked.
    #[cold]
    #[inline(never)]
    fn free_one_remote<M: Machine>(self, m: &M, index: u32) {
        let node = self.node();
        if !node.blocks.looks_taken(index) {
            debug_assert!(
                false,
                "{:?} freed, which is free, or part of a huge block",
                node.pfn(index)
            );
            return;
        }
        let _unheld = Unheld::enter(self.frames, m);
        node.free_sub_block(m, None, index, 0);
        node.count_late(None, 1);
    }

    /// Frees frames of the node that lie in one word. `false`, and nothing was done: somebody has
    /// locked their block.
    fn free_word<M: Machine>(self, m: &M, free: FreeWord) -> bool {
        let index = self.node().index(Pfn(free.first));
        let block = (index >> BLOCK) as usize;
        let Some(mut locked) = self.node().lock(m, block) else { return false };
        // A plain loop of known length, which goes where nobody hears of the frames.
        for bit in 0..64 {
            if free.mask >> bit & 1 != 0 {
                m.becomes(Pfn(free.first + bit), Order::BASE, Use::Free);
            }
        }
        m.work(Work::Magazine, free.mask.count_ones() as u64);
        if locked.put_back_some(m, index, free.mask) {
            locked.release(m);
        } else {
            let (block, state) = locked.suspend();
            self.free_last(m, block, state);
        }
        true
    }

    /// Releases a block that was clean or nearly empty before a frame of it was freed. It comes as
    /// two words: with the lock by reference every free of a frame would have a stack frame.
    #[cold]
    #[inline(never)]
    fn free_last<M: Machine>(self, m: &M, block: usize, state: u32) {
        let mut locked = self.node().resume(block, state);
        if !locked.note_one(m) {
            return locked.release(m);
        }
        let held = self.magazine(m.cpu()).hold(m);
        let _unheld = held.is_none().then(|| Unheld::enter(self.frames, m));
        locked.close(m, held.as_ref());
    }

    /// Frees a block of 2 MiB: to the cpu buddy, which gives the blocks all it has if it is full.
    #[inline(never)]
    fn free_2m<M: Machine>(self, m: &M, pfn: Pfn) {
        let node = self.node();
        let index = node.index(pfn);
        if !pfn.is_aligned(Order::HUGE) || !node.blocks.is_huge(index, Order::HUGE) {
            debug_assert!(false, "{pfn:?} freed as 2 MiB, which is free, or no such block");
            return;
        }
        m.work(Work::Block, 1);
        let Some(held) = self.magazine(m.cpu()).hold(m) else {
            return self.free_unheld(m, index, Order::HUGE);
        };
        bump(&held.magazine.block_freed, Order::HUGE.frames());
        if !held.buddy().push_huge(node.cpu_huge, index) {
            // All that are kept go at once; the newest stays.
            node.free_huge_batch(m, &held);
            held.buddy().push_huge(node.cpu_huge, index);
        }
    }

    /// Frees a block of another order than a frame or 2 MiB.
    #[inline(never)]
    fn free_block<M: Machine>(self, m: &M, pfn: Pfn, order: Order) {
        let node = self.node();
        if !node.has_block(pfn, order) || !pfn.is_aligned(order) {
            debug_assert!(false, "{pfn:?} freed with {order:?}: no such block");
            return;
        }
        let index = node.index(pfn);
        let known = if order >= Order::HUGE {
            node.blocks.is_huge(index, order)
        } else {
            node.blocks.looks_taken(index)
        };
        if !known {
            debug_assert!(
                false,
                "{pfn:?} freed with {order:?}, which is free, or was not allocated like that"
            );
            return;
        }
        m.work(Work::Block, 1);
        let Some(held) = self.magazine(m.cpu()).hold(m) else {
            return self.free_unheld(m, index, order);
        };
        node.count_free(Some(&held), order.frames());
        if order < Order::HUGE {
            let order = order.get() as u32;
            // A block that makes a larger run with its buddy does so.
            let goes = if node.blocks.would_merge(index, order) {
                Some(index)
            } else {
                held.buddy().push(index, order)
            };
            if let Some(index) = goes {
                node.free_sub_block(m, Some(&held), index, order);
                node.count(Some(&held), 1 << order);
                held.forget_rows();
            }
        } else {
            node.free_huge(m, Some(&held), index, order);
            node.count(Some(&held), order.frames() as i64);
        }
    }
}
