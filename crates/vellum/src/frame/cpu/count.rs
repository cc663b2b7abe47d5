//! Counting free frames, allocations and frees of a memory node: in the magazine if the CPU holds
//! it, and otherwise in the node's counters.

use crate::frame::cpu::magazine::{Held, bump};
use crate::frame::node::numa_node::NumaNode;
use crate::sync::atomic::Ordering::Relaxed;

impl NumaNode {
    /// Changes the count of free base frames. What gathers in a magazine goes to the node when it
    /// is more than the slack.
    pub fn count(&self, held: Option<&Held>, frames: i64) {
        let free = &self.counters().free;
        let Some(held) = held else {
            free.fetch_add(frames, Relaxed);
            return;
        };
        let delta = &held.magazine.delta;
        let sum = delta.load(Relaxed) + frames;
        if sum.abs() > self.slack {
            delta.store(0, Relaxed);
            free.fetch_add(sum, Relaxed);
        } else {
            delta.store(sum, Relaxed);
        }
    }

    /// Counts an allocation past the stack. `missed`: another node was wanted.
    #[inline]
    pub fn count_alloc(&self, held: Option<&Held>, frames: u64, missed: bool) {
        match held {
            Some(Held { magazine, .. }) => {
                bump(&magazine.blocks, 1);
                bump(&magazine.block_frames, frames);
                if missed {
                    bump(&magazine.missed, 1);
                }
            }
            None => {
                let unheld = &self.counters().unheld;
                unheld.blocks.fetch_add(1, Relaxed);
                unheld.block_frames.fetch_add(frames, Relaxed);
                unheld.missed.fetch_add(missed as u64, Relaxed);
            }
        }
    }

    /// Counts base frames freed past the stack.
    pub fn count_free(&self, held: Option<&Held>, frames: u64) {
        match held {
            Some(held) => bump(&held.magazine.block_freed, frames),
            None => {
                self.counters().unheld.block_freed.fetch_add(frames, Relaxed);
            }
        }
    }

    /// Counts frames that were freed to a block some time ago, both as free and as freed.
    pub fn count_late(&self, held: Option<&Held>, frames: u64) {
        if frames != 0 {
            self.count(held, frames as i64);
            self.count_free(held, frames);
        }
    }
}
