//! What the allocator counts, in lines it writes anyway: each CPU in its magazine, and in the
//! node's shared line what happened while the magazine was not to be had.

use crate::frame::cpu::magazine::Magazine;
use crate::frame::cpu::magazine::{Held, bump};
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::{Mark, NumaNode, Watermarks};
use crate::machine::Machine;
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU64, Ordering};

/// A node's counts of what passed_over the magazines by.
#[repr(C, align(64))]
pub(super) struct SharedCounts {
    pub(super) blocks: AtomicU64,
    pub(super) block_frames: AtomicU64,
    pub(super) block_freed: AtomicU64,
    pub(super) missed: AtomicU64,
}

/// How often the counts are read to find them the same twice. Basis: a guess; who finds frames come
/// and go so often has his answer, and a reading goes by all CPUs.
const READS: u32 = 8;

/// Sums of what the counts of frames are made of. The first four only grow; `stacked` grows only
/// with `pushed` or `filled`, and `uncounted` falls only where `blocks` grows. So where two
/// readings agree, the counts of each CPU and block were the same from the first to the second.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Turnover {
    pushed: u64,
    filled: u64,
    emptied: u64,
    blocks: u64,
    stacked: u64,
    uncounted: u64,
}

impl Turnover {
    /// Adds a magazine; `false` if somebody is at it, whose counts are not of one moment.
    fn add_magazine(&mut self, magazine: &Magazine) -> bool {
        let read = |n: &AtomicU64| n.load(Ordering::Acquire);
        let (pushed, stacked, still) = magazine.stacked();
        self.pushed += pushed;
        self.stacked += stacked;
        self.filled += read(&magazine.filled);
        self.emptied += read(&magazine.emptied);
        self.blocks += read(&magazine.pool_ops);
        self.blocks += read(&magazine.block_frames) + read(&magazine.block_freed);
        still
    }

    /// Adds what passed_over a node's magazines by; `false` if somebody is at a block it is counted in.
    fn add_past(&mut self, node: &NumaNode) -> bool {
        let (mut still, counts) = (true, &node.shared().counts);
        let read = |n: &AtomicU64| n.load(Ordering::Acquire);
        self.blocks += read(&counts.block_frames) + read(&counts.block_freed);
        self.uncounted += node.uncounted(|| still = false);
        still
    }

    /// Frames taken from stacks.
    fn popped(self) -> u64 {
        (self.pushed + self.filled).wrapping_sub(self.emptied + self.stacked)
    }

    /// Frames taken and frames given back.
    fn sum(self) -> u64 {
        self.popped().wrapping_add(self.pushed + self.blocks + self.uncounted)
    }
}

impl NumaNode {
    pub(super) fn count_alloc(&self, held: Option<&Held>, frames: u64, missed: bool) {
        match held {
            Some(Held { magazine, .. }) => {
                bump(&magazine.blocks, 1);
                bump(&magazine.block_frames, frames);
                if missed {
                    bump(&magazine.missed, 1);
                }
            }
            None => {
                let counts = &self.shared().counts;
                counts.blocks.fetch_add(1, Ordering::Relaxed);
                counts.block_frames.fetch_add(frames, Ordering::Relaxed);
                counts.missed.fetch_add(missed as u64, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn count_free(&self, held: Option<&Held>, frames: u64) {
        match held {
            Some(held) => bump(&held.magazine.block_freed, frames),
            None => {
                self.shared().counts.block_freed.fetch_add(frames, Ordering::Relaxed);
            }
        }
    }
}

impl NumaNode {
    /// Counts frames that came back to a block some time ago, both as free and as freed.
    pub(super) fn count_late(&self, held: Option<&Held>, frames: u64) {
        if frames != 0 {
            self.count(held, frames as i64);
            self.count_free(held, frames);
        }
    }
}

impl Frames {
    /// Adds `pgalloc`, `pgfree`, `numa_hit` and `numa_miss`.
    pub fn stats(&self, stats: &mut Stats) {
        (0..self.nodes).for_each(|at| self.node_stats(at, stats));
    }

    /// Those of one node.
    pub(super) fn node_stats(&self, at: usize, stats: &mut Stats) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed) as i64;
        let mut add =
            |popped: i64, pushed: i64, blocks: i64, frames: i64, freed: i64, missed: i64| {
                stats.add(Counter::Alloc, popped + frames);
                stats.add(Counter::Free, pushed + freed);
                stats.add(Counter::NumaHit, popped + blocks - missed);
                stats.add(Counter::NumaMiss, missed);
            };
        let b = &self.node(at).shared().counts;
        let uncounted = self.node(at).uncounted(|| {}) as i64;
        add(
            0,
            uncounted,
            read(&b.blocks),
            read(&b.block_frames),
            read(&b.block_freed),
            read(&b.missed),
        );
        for cpu in 0..self.cpus {
            let m: &Magazine = self.magazine(cpu, at);
            let mut passed_over = Turnover::default();
            passed_over.add_magazine(m);
            let (popped, pushed) = (passed_over.popped() as i64, passed_over.pushed as i64);
            add(
                popped,
                pushed,
                read(&m.blocks),
                read(&m.block_frames),
                read(&m.block_freed),
                read(&m.missed),
            );
        }
    }

    /// A slab gave or took an object, or a pool a block. The caller is not preempted.
    #[inline]
    pub(crate) fn pool_ops<M: Machine>(&self, m: &M) {
        bump(&self.magazine(m.cpu(), 0).pool_ops, 1);
    }

    /// Base frames ever taken and ever given back, and what passed_over them by, in one sum over CPUs,
    /// as it was at one moment of this call: who is at a magazine or a block is waited for. `None`
    /// if frames came and went whenever it was read.
    pub(crate) fn turnover<M: Machine>(&self, m: &M) -> Option<u64> {
        let mut before = None;
        for _ in 0..READS {
            let now = self.passage();
            if now.is_some() && now == before {
                return now.map(Turnover::sum);
            }
            before = now;
            if before.is_none() {
                m.relax();
            }
        }
        None
    }

    /// The same of one CPU, and of what any other took or gave back while its own magazine was not
    /// to be had.
    pub(crate) fn turnover_of(&self, cpu: usize) -> u64 {
        let mut here = Turnover::default();
        for at in 0..self.nodes {
            here.add_magazine(self.magazine(cpu, at));
            here.add_past(self.node(at));
        }
        here.sum()
    }

    /// What came and went, if nobody is at what it is read from.
    fn passage(&self) -> Option<Turnover> {
        let (mut all, mut still) = (Turnover::default(), true);
        for at in 0..self.nodes {
            (0..self.cpus).for_each(|cpu| still &= all.add_magazine(self.magazine(cpu, at)));
            still &= all.add_past(self.node(at));
        }
        still.then_some(all)
    }

    /// Base frames of a node nobody has, those in magazines included and pending ones not. A sum
    /// over CPUs: exact when none of them is at work.
    ///
    /// # Panics
    /// If there is no such node; so do the contention that take one.
    pub fn free_frames(&self, node: usize) -> u64 {
        let kept: u64 = (0..self.cpus).map(|cpu| self.magazine(cpu, node).free_frames()).sum();
        (self.block_free(node) + kept as i64).max(0) as u64
    }

    /// Base frames of a node that wait for a flush.
    pub fn pending_frames(&self, node: usize) -> u64 {
        self.node(node).pending().frames.load(Ordering::Relaxed)
    }

    /// A node's marks.
    pub fn watermarks(&self, node: usize) -> Watermarks {
        self.node(node).marks
    }

    /// Where a node stands against its marks.
    pub fn mark(&self, node: usize) -> Mark {
        let (free, marks) = (self.free_frames(node), self.watermarks(node));
        match free {
            _ if free <= marks.min => Mark::Min,
            _ if free <= marks.low => Mark::Low,
            _ if free <= marks.high => Mark::High,
            _ => Mark::Plenty,
        }
    }
}
