//! The door frames come back by.
//!
//! A single frame goes on this CPU's magazine for its node, or if that is full straight to its
//! block, at the same price. Of larger blocks up to 2 MiB a few are kept (`kept`); everything else
//! goes to its block at once.
//!
//! A frame freed twice, or by a wrong order, is a bug of the caller that no return value would
//! mend. Debug builds stop where they see it; release builds refuse what would corrupt a large
//! block, and [`Frames::validate`] finds the rest.

use crate::addr::{Order, Pfn};
use crate::frame::block::lock::{KIND, Locked, OPEN};
use crate::frame::cpu::magazine::Held;
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::{BLOCK, NumaNode, WORDS};
use crate::machine::{Act, Event, Machine, Use, Work};
use crate::sync::atomic::Ordering;

impl Frames {
    /// Gives a block back. What was had as 2 MiB and more comes back as it was had, or as
    /// [`Frames::split`] made it; what was had smaller may come back in any naturally aligned
    /// pieces. The record is left as it is. Any CPU, any lock held; never waits.
    ///
    /// # Safety
    /// The caller has the block by [`Frames::alloc`], with every piece of what is named here, and
    /// gives it up: nobody uses its memory from here on, and no translation to it is left on any
    /// CPU. Frames whose flush is not complete go to [`Frames::retire`].
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
        // Most machines have one node, and of the first one everything lies at a known place.
        if self.node[0].has(pfn) {
            self.free_at(m, 0, pfn, order);
        } else {
            match self.node_of(pfn) {
                Some(at) => self.free_beyond(m, at, pfn, order),
                None => debug_assert!(false, "{pfn:?} freed, which is a frame of no node"),
            }
        }
        m.allow_preemption();
    }

    #[inline(never)]
    fn free_beyond<M: Machine>(&self, m: &M, at: usize, pfn: Pfn, order: Order) {
        self.free_at(m, at, pfn, order);
    }

    #[inline(always)]
    fn free_at<M: Machine>(&self, m: &M, at: usize, pfn: Pfn, order: Order) {
        m.hook(Event::Frame { first: pfn, order, to: Use::Free });
        let node = &self.node[at];
        if order != Order::BASE {
            return self.free_block(m, at, pfn, order);
        }
        let index = node.index(pfn);
        debug_assert!(
            node.looks_taken(index),
            "{pfn:?} freed, which is free, or part of a large block"
        );
        m.hook(Event::Work(Work::Magazine, 1));
        if self.magazine(m.cpu(), at).push(m, index) {
            return;
        }
        // The magazine is full, or taken.
        let Some(mut locked) = node.lock(m, (index >> BLOCK) as usize) else {
            return self.free_to_block(m, node, index);
        };
        if locked.put_back_one(m, index) {
            locked.release(m);
        } else {
            self.free_more(m, locked);
        }
    }

    /// A single frame came back to a block that was clean, or nearly empty.
    #[cold]
    #[inline(never)]
    fn free_more<M: Machine>(&self, m: &M, mut locked: Locked) {
        if !locked.note_one(m) {
            return locked.release(m);
        }
        let held = self.node_of(locked.first()).and_then(|at| self.magazine(m.cpu(), at).hold(m));
        locked.close(m, held.as_ref());
    }

    /// Someone is at the block, too.
    #[cold]
    #[inline(never)]
    fn free_to_block<M: Machine>(&self, m: &M, node: &NumaNode, index: u32) {
        if !node.looks_taken(index) {
            debug_assert!(
                false,
                "{:?} freed, which is free, or part of a large block",
                node.pfn(index)
            );
            return;
        }
        node.give_run(m, None, index, 0);
        node.count_late(None, 1);
    }

    #[inline(never)]
    fn free_block<M: Machine>(&self, m: &M, at: usize, pfn: Pfn, order: Order) {
        let node = self.node(at);
        if !node.has_block(pfn, order) || !pfn.is_aligned(order) {
            debug_assert!(false, "{pfn:?} freed with {order:?}: no such block");
            return;
        }
        let index = node.index(pfn);
        let known =
            if order >= Order::HUGE { node.is_huge(index, order) } else { node.looks_taken(index) };
        if !known {
            debug_assert!(
                false,
                "{pfn:?} freed with {order:?}, which is free, or was not had like that"
            );
            return;
        }
        m.hook(Event::Work(Work::Block, 1));
        let Some(held) = self.magazine(m.cpu(), at).hold(m) else {
            node.count_free(None, order.frames());
            node.give_block(m, None, index, order);
            node.count(None, order.frames() as i64);
            return;
        };
        node.count_free(Some(&held), order.frames());
        if order < Order::HUGE {
            let order = order.get() as u32;
            // What makes a larger run with its neighbour does so.
            if node.would_merge(index, order) || !held.keep(index, order) {
                node.give_run(m, Some(&held), index, order);
                node.count(Some(&held), 1 << order);
                held.forget_rows();
            }
        } else if order > Order::HUGE {
            node.give_huge(m, Some(&held), index, order);
            node.count(Some(&held), order.frames() as i64);
        } else if !held.keep_huge(node, index) {
            // All that are kept go at once; the newest stays.
            let mut n = 0;
            node.give_huge_batch(
                m,
                &held,
                core::iter::from_fn(|| held.take_buddy(BLOCK)).inspect(|_| n += 1),
            );
            node.count(Some(&held), n << BLOCK);
            held.keep_huge(node, index);
        }
    }

    /// Lets a block that was had as `from`, 2 MiB or more, be freed in pieces of `to`; or, `to`
    /// being below 2 MiB, of any order below. Needs no memory, never waits.
    ///
    /// # Safety
    /// The caller has the whole block, and nobody frees any of it meanwhile.
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
            || !node.is_huge(node.index(pfn), from)
        {
            debug_assert!(false, "{pfn:?} split from {from:?}, which is not how it was had");
            return;
        }
        node.split(m, node.index(pfn), from, to);
    }
}

impl NumaNode {
    /// Gives a block of any order back, without counting it.
    pub(super) fn give_block<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        index: u32,
        order: Order,
    ) {
        if order >= Order::HUGE {
            self.give_huge(m, held, index, order);
        } else {
            self.give_run(m, held, index, order.get() as u32);
        }
    }

    /// Whether the buddy of a run below 2 MiB is free in their block. It may be wrong by the time
    /// it is told.
    #[inline]
    fn would_merge(&self, index: u32, order: u32) -> bool {
        let (buddy, words) = (index ^ 1 << order, self.words((index >> BLOCK) as usize));
        let (first, n) =
            (buddy as usize / 64 % WORDS, if order > 6 { 1 << (order - 6) } else { 1 });
        let mask = crate::frame::block::bits::mask(order.min(6)) << (buddy % 64);
        words[first..first + n].iter().all(|w| w.load(Ordering::Relaxed) & mask == 0)
    }

    /// Whether a frame is taken, and not part of a large block.
    #[inline]
    fn looks_taken(&self, index: u32) -> bool {
        let block = (index >> BLOCK) as usize;
        let bits = self.words(block)[index as usize / 64 % WORDS].load(Ordering::Relaxed);
        self.state(block).load(Ordering::Relaxed) & KIND == OPEN && bits >> (index % 64) & 1 == 1
    }
}
