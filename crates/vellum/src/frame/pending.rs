//! Pending frames: unmapped, but not free until a flush is complete.
//!
//! Each node has a queue of them, in the order they came, linked through the frames' own records. A
//! completed flush generation frees from the head on as long as generations allow. A block that
//! came early and carries a later generation holds back those behind it, which delays a free and
//! never does one too soon. Pending frames are in no magazine and in no free block, so nothing can
//! merge, split or allocate them.
//!
//! A caller whose flush is complete already uses [`Frames::free`].

use crate::addr::{Order, Pfn};
use crate::frame::frames::Frames;
use crate::frame::record::{PENDING_GENERATION, PENDING_NEXT};
use crate::frame::view::NodeView;
use crate::machine::{Act, Machine, Use};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, Queue, Token};

impl Frames {
    /// Puts a block in its node's queue until generation `generation` completes. Its record is
    /// overwritten.
    ///
    /// # Safety
    /// As for [`Frames::free`], but for translations: those that are left are gone when
    /// `generation` completes.
    pub unsafe fn retire<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        above: &mut Token<H>,
        pfn: Pfn,
        order: Order,
        generation: u64,
    ) {
        let Some(at) = self.node_of(pfn) else {
            debug_assert!(false, "{pfn:?} retired, which is a frame of no node");
            return;
        };
        let node = self.node(at);
        let record = node.record(pfn);
        record.init(Use::Pending, order);
        record.word(PENDING_GENERATION).store(generation, Relaxed);
        m.becomes(pfn, order, Use::Pending);
        let queue = node.pending();
        let _guard = queue.lock.lock(m, above, at as u64);
        match queue.tail.load(Relaxed).checked_sub(1) {
            None => queue.head.store(pfn.0 + 1, Relaxed),
            Some(tail) => node.record(Pfn(tail)).word(PENDING_NEXT).store(pfn.0 + 1, Relaxed),
        }
        queue.tail.store(pfn.0 + 1, Relaxed);
        queue.frames.store(queue.frames.load(Relaxed) + order.frames(), Relaxed);
    }

    /// Frees what is pending, as far as generation `done`; says how many base frames.
    ///
    /// # Safety
    /// The flushes of every generation up to `done` are complete.
    pub unsafe fn complete<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        above: &mut Token<H>,
        done: u64,
    ) -> u64 {
        (0..self.nodes).map(|at| self.view(at).complete(m, above, done)).sum()
    }
}

impl NodeView<'_> {
    fn complete<M: Machine, H: Above<Queue>>(self, m: &M, above: &mut Token<H>, done: u64) -> u64 {
        let node = self.node();
        let queue = node.pending();
        if queue.frames.load(Relaxed) == 0 {
            return 0;
        }
        // Unlinked under the lock, freed after it.
        let (first, frames) = {
            let _guard = queue.lock.lock(m, above, self.at as u64);
            let first = queue.head.load(Relaxed);
            let (mut last, mut next, mut frames) = (0, first, 0);
            while let Some(pfn) = next.checked_sub(1) {
                let record = node.record(Pfn(pfn));
                if record.word(PENDING_GENERATION).load(Relaxed) > done {
                    break;
                }
                frames += record.order().frames();
                (last, next) = (next, record.word(PENDING_NEXT).load(Relaxed));
            }
            if last == 0 {
                return 0;
            }
            node.record(Pfn(last - 1)).word(PENDING_NEXT).store(0, Relaxed);
            queue.head.store(next, Relaxed);
            if next == 0 {
                queue.tail.store(0, Relaxed);
            }
            queue.frames.store(queue.frames.load(Relaxed) - frames, Relaxed);
            (first, frames)
        };
        let mut next = first;
        while let Some(pfn) = next.checked_sub(1) {
            let record = node.record(Pfn(pfn));
            next = record.word(PENDING_NEXT).load(Relaxed);
            self.frames.give_back(m, Pfn(pfn), record.order());
        }
        frames
    }
}
