//! The frames of a machine: its memory nodes, and each CPU's magazine for each of them.

use core::ptr::NonNull;

use crate::addr::Pfn;
use crate::frame::cpu::magazine::Magazine;
use crate::frame::node::numa_node::NumaNode;
use crate::frame::record::Record;
use crate::machine::{MAX_CPUS, MAX_NODES};
use crate::sync::atomic::AtomicU32;

/// The frames of a machine. Everything that changes lives in the memory handed to [`Frames::new`];
/// every method may be called from any CPU at any time unless it says otherwise, and none waits for
/// another CPU (but see [`Frames::split`]).
pub struct Frames {
    pub(super) nodes: usize,
    pub(super) cpus: usize,
    pub(super) node: [NumaNode; MAX_NODES],
    pub(super) home: [u8; MAX_CPUS],
    /// For each node, all nodes by distance, itself first.
    pub(super) order: [[u8; MAX_NODES]; MAX_NODES],
    pub(super) magazines: NonNull<Magazine>,
    /// CPUs at work on blocks without holding a magazine that would show it.
    pub(super) unheld: AtomicU32,
}

// SAFETY: what is behind the pointers is made of atomics, and belongs to this value by the contract
// of `new`.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// The node of a frame; `None` if no node has it.
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> Option<usize> {
        // Most machines have one node.
        if self.node[0].has(pfn) { Some(0) } else { self.node_past_first(pfn) }
    }

    #[cold]
    fn node_past_first(&self, pfn: Pfn) -> Option<usize> {
        self.node[..self.nodes].iter().position(|n| n.has(pfn))
    }

    /// A frame's record.
    ///
    /// # Panics
    /// If no node has the frame: a frame number that came from nowhere.
    #[inline]
    pub fn record(&self, pfn: Pfn) -> &Record {
        if self.node[0].has(pfn) { self.node[0].record(pfn) } else { self.record_past_first(pfn) }
    }

    #[cold]
    #[inline(never)]
    fn record_past_first(&self, pfn: Pfn) -> &Record {
        match self.node_past_first(pfn) {
            Some(at) => self.node(at).record(pfn),
            None => panic!("{pfn:?} is a frame of no node"),
        }
    }

    #[inline]
    pub(super) fn node(&self, index: usize) -> &NumaNode {
        assert!(index < self.nodes);
        // SAFETY: `nodes` is at most the length, which `init` checked.
        unsafe { self.node.get_unchecked(index) }
    }

    /// The node of a CPU.
    #[inline]
    pub(crate) fn home(&self, cpu: usize) -> usize {
        assert!(cpu < self.cpus);
        // SAFETY: `cpus` is at most the length, which `init` checked.
        unsafe { *self.home.get_unchecked(cpu) as usize }
    }

    #[inline(always)]
    pub(super) fn magazine(&self, cpu: usize, node: usize) -> &Magazine {
        assert!(cpu < self.cpus && node < self.nodes);
        // SAFETY: `init` laid out `cpus * nodes` magazines, and both are in range.
        unsafe { self.magazines.add(cpu * self.nodes + node).as_ref() }
    }
}

impl Record {
    /// The records of frames that follow each other, if all of them are of the first node.
    #[inline]
    pub fn run_of<const N: usize>(frames: &Frames, first: Pfn) -> Option<&[Record; N]> {
        frames.node[0].records(first)
    }
}
