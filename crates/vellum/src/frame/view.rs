//! A memory node together with the magazines that CPUs have for it.

use crate::frame::cpu::magazine::Magazine;
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Use;
use crate::sync::atomic::Ordering::Relaxed;

/// A memory node and its magazines.
#[derive(Clone, Copy)]
pub(super) struct NodeView<'f> {
    pub frames: &'f Frames,
    pub at: usize,
}

impl Frames {
    /// A node by its number.
    #[inline]
    pub(super) fn view(&self, at: usize) -> NodeView<'_> {
        NodeView { frames: self, at }
    }
}

impl<'f> NodeView<'f> {
    #[inline]
    pub fn node(self) -> &'f NumaNode {
        self.frames.node(self.at)
    }

    /// The magazine of a CPU.
    #[inline]
    pub fn magazine(self, cpu: usize) -> &'f Magazine {
        self.frames.magazine(cpu, self.at)
    }

    /// The magazines of all CPUs.
    #[inline]
    pub fn magazines(self) -> impl Iterator<Item = &'f Magazine> {
        (0..self.frames.cpus).map(move |cpu| self.magazine(cpu))
    }

    /// The blocks that CPUs claim just now.
    pub fn claimed(self) -> impl Iterator<Item = usize> {
        self.magazines().filter_map(Magazine::current)
    }

    /// Base frames of the node's blocks that an allocation may use. Exact when it is less than
    /// `enough`; otherwise at least that.
    pub fn available(self, enough: u64, use_: Use) -> u64 {
        let node = self.node();
        let keep = if use_.leaves_minimum() { node.marks.min as i64 } else { 0 };
        let sure = node.counters().free.load(Relaxed) - node.slack * self.frames.cpus as i64 - keep;
        if sure >= enough as i64 {
            return sure as u64;
        }
        (self.block_free() - keep).max(0) as u64
    }

    /// Base frames free in the node's blocks.
    pub fn block_free(self) -> i64 {
        let deltas: i64 = self.magazines().map(|magazine| magazine.delta.load(Relaxed)).sum();
        let node = self.node();
        node.counters().free.load(Relaxed) + deltas + node.uncounted(|| {}) as i64
    }

    /// Base frames of the node that nobody has, those in magazines included and pending ones not.
    pub fn free_frames(self) -> u64 {
        let cached: u64 = self.magazines().map(Magazine::free_frames).sum();
        (self.block_free() + cached as i64).max(0) as u64
    }
}
