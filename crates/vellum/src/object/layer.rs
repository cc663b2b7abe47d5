//! The layer that has the objects, and the memory of their tries.

use crate::frame::Slab;
use crate::machine::Machine;
use crate::object::record::ObjectRecord;
use crate::platform::above;
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Lock, Queue};
use crate::vma::Regions;

/// Bytes of a small node: a line of eight slots and a line for its header.
pub(super) const SMALL_BYTES: usize = 128;

/// The layer that knows what is at an index of an object. The layers below come first: a reference
/// to them is one to this.
#[repr(C)]
pub(crate) struct ObjectLayer<M: Machine> {
    regions: Regions<M>,
    /// Records of objects, and the list of all of them.
    pub(super) objects: Slab,
    pub(super) list: Lock<Queue>,
    /// Under the list's lock.
    pub(super) first: AtomicU64,
    /// Small nodes.
    pub(super) small: Slab,
    /// Frames that are large nodes. Written by anyone, atomically.
    pub(super) large: AtomicU64,
    /// The name of the next trie; 64 bits do not wrap.
    pub(super) next_name: AtomicU64,
}

above!(ObjectLayer, regions: Regions);

impl<M: Machine> ObjectLayer<M> {
    pub fn new(regions: Regions<M>) -> ObjectLayer<M> {
        ObjectLayer {
            regions,
            objects: Slab::new(size_of::<ObjectRecord>()),
            list: Lock::new(),
            first: AtomicU64::new(0),
            small: Slab::new(SMALL_BYTES),
            large: AtomicU64::new(0),
            next_name: AtomicU64::new(1),
        }
    }

    /// A reading of every counter, summed over the CPUs.
    pub fn stats(&self) -> Stats {
        let mut stats = self.regions.stats();
        let large = self.large_nodes() as i64;
        stats.add(Counter::SlabPages, (self.small.pages() + self.objects.pages()) as i64);
        stats.add(Counter::ObjectNodes, self.small.objects() as i64 + large);
        stats
    }

    /// Frames that are nodes of tries.
    pub fn large_nodes(&self) -> u64 {
        self.large.load(Ordering::Relaxed)
    }

    /// Every slab.
    pub fn slabs(&self) -> [&Slab; 8] {
        let [a, b, c, d, e, f] = self.regions.slabs();
        [a, b, c, d, e, f, &self.objects, &self.small]
    }
}
