//! The layer that has the memory of tries.

use crate::frame::Slab;
use crate::machine::Machine;
use crate::platform::above;
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::vma::Regions;

/// Bytes of a small node: a line of eight slots and a line for its header.
pub(super) const SMALL_BYTES: usize = 128;

/// The layer that knows what is at an index of an object. The layers below come first: a reference
/// to them is one to this.
#[repr(C)]
pub(crate) struct Objects<M: Machine> {
    regions: Regions<M>,
    /// Small nodes.
    pub(super) small: Slab,
    /// Frames that are large nodes. Written by anyone, atomically.
    pub(super) large: AtomicU64,
    /// The name of the next trie; 64 bits do not wrap.
    pub(super) next_name: AtomicU64,
}

above!(Objects, regions: Regions);

impl<M: Machine> Objects<M> {
    pub fn new(regions: Regions<M>) -> Objects<M> {
        Objects {
            regions,
            small: Slab::new(SMALL_BYTES),
            large: AtomicU64::new(0),
            next_name: AtomicU64::new(1),
        }
    }

    /// A reading of every counter, summed over the CPUs.
    pub fn stats(&self) -> Stats {
        let mut stats = self.regions.stats();
        let large = self.large_nodes() as i64;
        stats.add(Counter::SlabPages, self.small.pages() as i64);
        stats.add(Counter::ObjectNodes, self.small.objects() as i64 + large);
        stats
    }

    /// Frames that are nodes of tries.
    pub fn large_nodes(&self) -> u64 {
        self.large.load(Ordering::Relaxed)
    }

    /// Every slab.
    pub fn slabs(&self) -> [&Slab; 7] {
        let [a, b, c, d, e, f] = self.regions.slabs();
        [a, b, c, d, e, f, &self.small]
    }
}
