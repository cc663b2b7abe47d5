//! Finding out what came back to dirty blocks.
//!
//! A single frame that does not fit its CPU's magazine is given to its block by a few plain
//! instructions (`block`), which say neither what run it has become part of nor that there is one
//! more: the block remembers how many there were, and that it is dirty. What they come to is worked
//! out once for all of them by the next who looks for room, a few blocks at a time before a search,
//! all of them before a search fails. Frames put remote because the block was locked are found the
//! same way.
//!
//! A sweep costs one look at eight words. Each sweep is paid for by at least one frame that came
//! back, and mostly by many: a process that exits leaves hundreds in each block, or closes it.

use core::ops::Range;

use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::lock::{KIND, LOCKED, Locked, OPEN, uncounted};
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::touch;

/// Blocks swept before a search.
pub const SOME: usize = 8;

impl NumaNode {
    /// Looks at up to `most` dirty blocks of a range, sweeping those nobody has locked, or all if
    /// it is to `wait`; says how many.
    pub fn sweep<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        range: Range<usize>,
        most: usize,
        wait: bool,
    ) -> usize {
        let (mut from, mut swept) = (range.start, 0);
        for _ in 0..most {
            let Some(block) = self.next_indexed(DIRTY_ROW, from, range.end) else {
                break;
            };
            from = block + 1;
            match if wait { self.lock_waiting(m, block) } else { self.lock(m, block) } {
                Some(mut locked) => {
                    locked.sweep(m, held);
                    locked.leave(m, held);
                    swept += 1;
                }
                None if self.state(block).load(Relaxed) & LOCKED != 0 => {}
                None => self.clear_stale(m, block, DIRTY_ROW),
            }
        }
        swept
    }

    /// Base frames that came back to blocks and are not counted yet. Calls `busy` for each block
    /// that somebody is at.
    pub fn uncounted(&self, mut busy: impl FnMut()) -> u64 {
        let (mut sum, mut from) = (0, self.lead);
        while let Some(block) = self.next_indexed(DIRTY_ROW, from, self.blocks) {
            let state = self.state(block).load(Acquire);
            if state & LOCKED != 0 {
                busy();
            }
            if state & KIND == OPEN {
                sum += uncounted(state) as u64;
            }
            from = block + 1;
        }
        sum
    }
}

impl Locked<'_> {
    /// Looks at every word: what was put remote comes back, what came back is noted and counted.
    pub fn sweep<M: Machine>(&mut self, m: &M, held: Option<&Held>) {
        // Before `remote` is looked at: who puts more remote after that sets the bit again.
        self.node.clear_indexed(m, self.block, DIRTY_ROW);
        for (word, remote) in self.words().iter().zip(self.node.remote(self.block)) {
            touch(m, remote, false);
            if remote.load(SeqCst) != 0 {
                touch(m, remote, true);
                word.store(word.load(Relaxed) & !remote.swap(0, SeqCst), Relaxed);
            }
        }
        self.note_rows(m);
        self.swept(held);
    }
}
