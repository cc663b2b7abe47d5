//! What the allocator counts: each CPU in its magazine, in lines it writes anyway, and in the
//! node's counters while it does not hold the magazine.

use crate::frame::cpu::magazine::{Magazine, bump};
use crate::frame::frames::Frames;
use crate::frame::node::marks::{Mark, Watermarks};
use crate::frame::node::numa_node::NumaNode;
use crate::frame::view::NodeView;
use crate::machine::Machine;
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU64, Ordering};

/// How often the counts are read to find them the same twice. Basis: a guess. If frames come and go
/// that often, that is the answer, and each reading visits all CPUs.
const READS: u32 = 8;

/// Sums of the counts of frames. The first four only grow; `stacked` grows only with `pushed` or
/// `filled`, and `uncounted` falls only where `blocks` grows. So where two readings agree, the
/// counts of each CPU and block were the same from the first to the second.
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
    /// Adds a magazine; `false` if somebody holds it, whose counts are not of one moment.
    fn add_magazine(&mut self, magazine: &Magazine) -> bool {
        let read = |n: &AtomicU64| n.load(Ordering::Acquire);
        let stack = magazine.stack_counts();
        self.pushed += stack.pushed;
        self.stacked += stack.len;
        self.filled += read(&magazine.filled);
        self.emptied += read(&magazine.emptied);
        self.blocks += read(&magazine.pool_ops);
        self.blocks += read(&magazine.block_frames) + read(&magazine.block_freed);
        stack.idle
    }

    /// Adds what a node counts outside of magazines; `false` if somebody has locked a block that
    /// has uncounted frames.
    fn add_unheld(&mut self, node: &NumaNode) -> bool {
        let (mut idle, unheld) = (true, &node.counters().unheld);
        let read = |n: &AtomicU64| n.load(Ordering::Acquire);
        self.blocks += read(&unheld.block_frames) + read(&unheld.block_freed);
        self.uncounted += node.uncounted(|| idle = false);
        idle
    }

    /// Frames taken from stacks.
    fn popped(self) -> u64 {
        (self.pushed + self.filled).wrapping_sub(self.emptied + self.stacked)
    }

    /// Frames taken and frames freed.
    fn sum(self) -> u64 {
        self.popped().wrapping_add(self.pushed + self.blocks + self.uncounted)
    }
}

impl NodeView<'_> {
    /// Adds the node's `pgalloc`, `pgfree`, `numa_hit` and `numa_miss`.
    pub fn stats(self, stats: &mut Stats) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed) as i64;
        let unheld = &self.node().counters().unheld;
        let (mut allocs, mut missed) = (read(&unheld.blocks), read(&unheld.missed));
        let mut frames = read(&unheld.block_frames);
        let mut freed = read(&unheld.block_freed) + self.node().uncounted(|| {}) as i64;
        for magazine in self.magazines() {
            let mut stack = Turnover::default();
            stack.add_magazine(magazine);
            allocs += stack.popped() as i64 + read(&magazine.blocks);
            frames += stack.popped() as i64 + read(&magazine.block_frames);
            freed += stack.pushed as i64 + read(&magazine.block_freed);
            missed += read(&magazine.missed);
        }
        stats.add(Counter::Alloc, frames);
        stats.add(Counter::Free, freed);
        stats.add(Counter::NumaHit, allocs - missed);
        stats.add(Counter::NumaMiss, missed);
    }
}

impl Frames {
    /// Adds `pgalloc`, `pgfree`, `numa_hit` and `numa_miss`.
    pub fn stats(&self, stats: &mut Stats) {
        (0..self.nodes).for_each(|at| self.view(at).stats(stats));
    }

    /// Counts that a slab gave or took an object, or a pool a block. The caller is not preempted.
    #[inline]
    pub(crate) fn count_pool_op<M: Machine>(&self, m: &M) {
        bump(&self.magazine(m.cpu(), 0).pool_ops, 1);
    }

    /// Base frames ever taken and ever freed, and the operations of slabs and pools, in one sum
    /// over CPUs, as it was at one moment of this call: it waits for the holders of magazines and
    /// blocks. `None` if frames came and went whenever it was read.
    pub(crate) fn turnover<M: Machine>(&self, m: &M) -> Option<u64> {
        let mut before = None;
        for _ in 0..READS {
            let now = self.turnover_now();
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

    /// The same of one CPU, and of what any other took or freed without holding its magazine.
    pub(crate) fn turnover_of(&self, cpu: usize) -> u64 {
        let mut here = Turnover::default();
        for at in 0..self.nodes {
            here.add_magazine(self.magazine(cpu, at));
            here.add_unheld(self.node(at));
        }
        here.sum()
    }

    /// The turnover, if nobody holds what it is read from.
    fn turnover_now(&self) -> Option<Turnover> {
        let (mut all, mut idle) = (Turnover::default(), true);
        for view in (0..self.nodes).map(|at| self.view(at)) {
            view.magazines().for_each(|magazine| idle &= all.add_magazine(magazine));
            idle &= all.add_unheld(view.node());
        }
        idle.then_some(all)
    }

    /// Base frames of a node nobody has, those in magazines included and pending ones not. A sum
    /// over CPUs: exact when none of them is at work.
    ///
    /// # Panics
    /// If there is no such node; so do the others that take one.
    pub fn free_frames(&self, node: usize) -> u64 {
        self.view(node).free_frames()
    }

    /// Base frames of a node that wait for a flush.
    pub fn pending_frames(&self, node: usize) -> u64 {
        self.node(node).pending().frames.load(Ordering::Relaxed)
    }

    /// A node's marks, in base frames.
    pub fn watermarks(&self, node: usize) -> Watermarks {
        self.node(node).marks
    }

    /// Where a node stands against its marks.
    pub fn mark(&self, node: usize) -> Mark {
        self.watermarks(node).mark(self.free_frames(node))
    }
}
