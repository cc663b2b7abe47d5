//! Sweeping dirty blocks: noting and counting what was freed to them.
//!
//! A single frame that does not fit its CPU's magazine is freed to its block by a few plain
//! instructions (`Locked::put_back_one`), which note neither the run that it became part of nor one
//! more free frame: the block counts such frames in its state and is dirty. The next search works
//! that out for all of them at once: a few blocks before it splits something larger, and all blocks
//! before it fails. Frames that were freed while another CPU had the block locked are found by the
//! same sweep.
//!
//! A sweep costs one look at eight words. At least one freed frame pays for it, and mostly many: a
//! process that exits leaves hundreds in each block, or closes it.

use core::ops::Range;

use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::lock::Locked;
use crate::frame::block::state::{KIND, LOCKED, OPEN, uncounted};
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::touch;

/// Which dirty blocks are swept.
pub struct Dirty {
    pub range: Range<usize>,
    /// How many at most.
    pub most: usize,
    /// Whether to wait for the holders of their locks.
    pub wait: bool,
}

impl NumaNode {
    /// All dirty blocks.
    pub fn all_dirty(&self, wait: bool) -> Dirty {
        Dirty { range: self.blocks.all(), most: usize::MAX, wait }
    }

    /// Sweeps dirty blocks, those that somebody has locked only if it waits for them. Says how many
    /// were swept.
    pub fn sweep<M: Machine>(&self, m: &M, held: Option<&Held>, dirty: Dirty) -> usize {
        let (mut from, mut swept) = (dirty.range.start, 0);
        for _ in 0..dirty.most {
            let Some(block) = self.free_index.next(DIRTY_ROW, from, dirty.range.end) else {
                break;
            };
            from = block + 1;
            match if dirty.wait { self.lock_waiting(m, block) } else { self.lock(m, block) } {
                Some(mut locked) => {
                    locked.sweep(m, held);
                    locked.leave(m, held);
                    swept += 1;
                }
                None if self.blocks.state(block).load(Relaxed) & LOCKED != 0 => {}
                None => self.free_index.clear_stale(m, &self.blocks, block, DIRTY_ROW),
            }
        }
        swept
    }

    /// Base frames that were freed to blocks and are not counted yet. Calls `busy` for each block
    /// that somebody has locked.
    pub fn uncounted(&self, mut busy: impl FnMut()) -> u64 {
        let (mut sum, mut from) = (0, self.blocks.first);
        while let Some(block) = self.free_index.next(DIRTY_ROW, from, self.blocks.end) {
            let state = self.blocks.state(block).load(Acquire);
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
    /// Frees the remote-free frames, and notes and counts what was freed.
    pub fn sweep<M: Machine>(&mut self, m: &M, held: Option<&Held>) {
        // Before the remote-free bits are read: whoever sets more after that sets this bit again.
        self.node.free_index.clear(m, self.block, DIRTY_ROW);
        for (word, remote) in self.words().iter().zip(self.node.blocks.remote(self.block)) {
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
