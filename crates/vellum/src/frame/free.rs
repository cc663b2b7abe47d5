//! The door frames come back by.
//!
//! A single frame goes on this CPU's magazine for its node; a full magazine first gives its oldest half back to the blocks, frames
//! of one word by one atomic. Of larger blocks up to 2 MiB a few are kept (`kept`); everything else goes to its block at once.
//!
//! A frame freed twice, or by a wrong order, is a bug of the caller that no return value would mend. Debug builds stop where they
//! see it; release builds refuse what would corrupt a large block, and [`Frames::validate`] finds the rest.

use super::Frames;
use super::block::{KIND, OPEN};
use super::magazine::{BATCH, bump};
use super::node::{BLOCK, Node, WORDS};
use crate::addr::{Order, Pfn};
use crate::machine::{Event, Machine, Use, Work};
use crate::sync::atomic::Ordering;

impl Frames {
    /// Gives a block back. What was had as 2 MiB and more comes back as it was had, or as [`Frames::split`] made it; what
    /// was had smaller may come back in any naturally aligned pieces. The record is left as it is. Any CPU, any lock held; never
    /// waits. No translation to the block may be left anywhere: frames whose flush is not complete go to [`Frames::retire`].
    #[inline]
    pub fn free<M: Machine>(&self, m: &M, pfn: Pfn, order: Order) {
        let Some(at) = self.node_of(pfn) else {
            debug_assert!(false, "{pfn:?} freed, which is a frame of no node");
            return;
        };
        m.hook(Event::Frame { first: pfn, order, to: Use::Free });
        let node = self.node(at);
        if order == Order::BASE {
            debug_assert!(node.looks_taken(node.index(pfn)), "{pfn:?} freed, which is free, or part of a large block");
            let magazine = self.magazine(m.cpu(), at);
            if let Some(held) = magazine.hold(m) {
                let index = node.index(pfn);
                if !held.push(index) {
                    held.spill(m, node, BATCH);
                    node.count(Some(&held), BATCH as i64);
                    held.push(index);
                    m.hook(Event::Work(Work::Refill, 1));
                }
                bump(&magazine.pushed, 1);
                drop(held);
                m.hook(Event::Work(Work::Magazine, 1));
                return;
            }
        }
        self.free_block(m, at, pfn, order);
    }

    #[inline(never)]
    fn free_block<M: Machine>(&self, m: &M, at: usize, pfn: Pfn, order: Order) {
        let node = self.node(at);
        if !node.has_block(pfn, order) || !pfn.is_aligned(order) {
            debug_assert!(false, "{pfn:?} freed with {order:?}: no such block");
            return;
        }
        let index = node.index(pfn);
        let known = if order >= Order::HUGE { node.is_whole(index, order) } else { node.looks_taken(index) };
        if !known {
            debug_assert!(false, "{pfn:?} freed with {order:?}, which is free, or was not had like that");
            return;
        }
        m.hook(Event::Work(Work::Block, 1));
        let held = self.magazine(m.cpu(), at).hold(m);
        node.count_free(held.as_ref(), order.frames());
        if !held.as_ref().is_some_and(|held| held.keep(index, order)) {
            node.give_block(m, index, order);
            node.count(held.as_ref(), order.frames() as i64);
        }
    }

    /// Lets a block that was had as `from`, 2 MiB or more, be freed in pieces of `to`; or, `to` being below 2 MiB, of any order below.
    /// The caller has the whole block. Needs no memory. May wait ([`Machine::relax`]) for a CPU that is about to take its
    /// hands off one of the block's words.
    pub fn split<M: Machine>(&self, m: &M, pfn: Pfn, from: Order, to: Order) {
        let Some(at) = self.node_of(pfn) else {
            debug_assert!(false, "{pfn:?} split, which is a frame of no node");
            return;
        };
        let node = self.node(at);
        if from < Order::HUGE || to >= from {
            debug_assert!(to <= from, "{pfn:?} split to something larger");
            return;
        }
        if !pfn.is_aligned(from) || !node.has_block(pfn, from) || !node.is_whole(node.index(pfn), from) {
            debug_assert!(false, "{pfn:?} split from {from:?}, which is not how it was had");
            return;
        }
        node.split(m, node.index(pfn), from, to);
    }
}

impl Node {
    /// Gives a block of any order back.
    pub(super) fn give_block<M: Machine>(&self, m: &M, index: u32, order: Order) {
        let (block, word) = ((index >> BLOCK) as usize, index as usize / 64 % WORDS);
        if order >= Order::HUGE {
            self.give_whole(m, index, order);
        } else if order.get() >= 6 {
            (word..word + (1 << (order.get() - 6))).for_each(|word| self.give(m, block, word, !0));
        } else {
            self.give(m, block, word, super::bits::mask(order.get() as u32) << (index % 64));
        }
    }

    /// Whether a frame is taken, and not part of a large block.
    #[inline]
    fn looks_taken(&self, index: u32) -> bool {
        let block = (index >> BLOCK) as usize;
        let bits = self.words(block)[index as usize / 64 % WORDS].load(Ordering::Relaxed);
        self.state(block).load(Ordering::Relaxed) & KIND == OPEN && bits >> (index % 64) & 1 == 1
    }
}
