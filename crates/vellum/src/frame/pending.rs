//! Frames whose flush is not complete: unmapped, and not free.
//!
//! Each node has a queue of them, in the order they came, linked through the frames' own records,
//! which mean nothing else meanwhile. A generation's completion frees from the head on as long as
//! generations allow; one that came early and carries a later generation holds back those behind
//! it, which delays a free and never does one too soon. Pending frames are in no magazine and in no
//! free block, so nothing can merge, split or hand them out.
//!
//! A caller whose flush is done already uses [`Frames::free`].

use crate::addr::{Order, Pfn};
use crate::frame::frames::Frames;
use crate::machine::{Event, Machine, Use};
use crate::sync::atomic::Ordering;
use crate::sync::{Above, Queue, Token};

const NEXT: usize = 1;
const GENERATION: usize = 2;

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
        record.word(GENERATION).store(generation, Ordering::Relaxed);
        m.hook(Event::Frame { first: pfn, order, to: Use::Pending });
        let pending = node.pending();
        let _guard = pending.lock.lock(m, above, at as u64);
        match pending.tail.load(Ordering::Relaxed).checked_sub(1) {
            None => pending.head.store(pfn.0 + 1, Ordering::Relaxed),
            Some(tail) => node.record(Pfn(tail)).word(NEXT).store(pfn.0 + 1, Ordering::Relaxed),
        }
        pending.tail.store(pfn.0 + 1, Ordering::Relaxed);
        let frames = pending.frames.load(Ordering::Relaxed);
        pending.frames.store(frames + order.frames(), Ordering::Relaxed);
    }

    /// Frees what waits, as far as generation `done`; says how many base frames.
    ///
    /// # Safety
    /// The flushes of every generation up to `done` are complete.
    pub unsafe fn complete<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        above: &mut Token<H>,
        done: u64,
    ) -> u64 {
        (0..self.nodes).map(|at| self.complete_node(m, above, at, done)).sum()
    }

    fn complete_node<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        above: &mut Token<H>,
        at: usize,
        done: u64,
    ) -> u64 {
        let node = self.node(at);
        let pending = node.pending();
        if pending.frames.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // Cut off under the lock, freed after it.
        let (first, frames) = {
            let _guard = pending.lock.lock(m, above, at as u64);
            let first = pending.head.load(Ordering::Relaxed);
            let (mut last, mut next, mut frames) = (0, first, 0);
            while let Some(pfn) = next.checked_sub(1) {
                let record = node.record(Pfn(pfn));
                if record.word(GENERATION).load(Ordering::Relaxed) > done {
                    break;
                }
                frames += record.order().frames();
                (last, next) = (next, record.word(NEXT).load(Ordering::Relaxed));
            }
            if last == 0 {
                return 0;
            }
            node.record(Pfn(last - 1)).word(NEXT).store(0, Ordering::Relaxed);
            pending.head.store(next, Ordering::Relaxed);
            if next == 0 {
                pending.tail.store(0, Ordering::Relaxed);
            }
            pending
                .frames
                .store(pending.frames.load(Ordering::Relaxed) - frames, Ordering::Relaxed);
            (first, frames)
        };
        let mut next = first;
        while let Some(pfn) = next.checked_sub(1) {
            let record = node.record(Pfn(pfn));
            next = record.word(NEXT).load(Ordering::Relaxed);
            self.give_back(m, Pfn(pfn), record.order());
        }
        frames
    }
}
