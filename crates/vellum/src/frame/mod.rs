//! Physical memory: who has which frame.
//!
//! Two kinds of metadata, apart from each other. *Records* ([`Record`]) are 64 bytes a frame and
//! belong to whoever has the frame; the allocator never looks at them. *Allocator state* is dense:
//! two bits a frame, a word and eleven bits per 2 MiB block, a magazine per CPU and node. All of it
//! is zero for memory that is free and was never used, so booting a large machine touches next to
//! nothing.
//!
//! | file | what |
//! |---|---|
//! | `record`, `data` | a frame's 64 bytes, and their meaning for data frames |
//! | `carve` | a topology turned into nodes over the memory handed in |
//! | `node`, `bits` | a memory node's arrays, and searching 64 bits |
//! | `block`, `take` | 2 MiB blocks: opened for small frames, locked to be changed, closed when empty again |
//! | `large` | 2 MiB and larger: whole blocks and runs of them |
//! | `small`, `rooms`, `sweep` | orders 0 to 8: finding a block with room, noting what came back |
//! | `magazine`, `kept` | what each CPU has at hand: a stack of frames, a few larger blocks |
//! | `alloc`, `free` | the two doors |
//! | `pending` | frames that wait for a flush |
//! | `slab` | small objects |
//! | `validate` | everything recounted |

mod alloc;
mod bits;
mod block;
mod carve;
mod data;
#[cfg(test)]
mod doors;
mod free;
mod kept;
mod large;
mod magazine;
mod node;
mod pending;
mod record;
mod rooms;
pub(crate) mod slab;
mod small;
mod stats;
mod sweep;
mod take;
mod validate;

use core::ptr::NonNull;

pub use alloc::Want;
pub use node::{Mark, Watermarks};
pub use record::Record;
pub use validate::FrameCounts;

pub(crate) use data::{CUT, CUT_SHIFT, Data, Owner, REFERENCE, USES};
#[cfg(test)]
pub(crate) use doors::Doors;
pub(crate) use slab::{Slab, SlabRef};

use crate::addr::Pfn;
use crate::machine::{MAX_CPUS, MAX_NODES};
use crate::sync::atomic::AtomicU32;
use magazine::Magazine;
use node::Node;

/// The frames of a machine. Everything that changes lives in the memory handed to [`Frames::new`];
/// every method may be called from any CPU at any time unless it says otherwise, and none waits for
/// another CPU (but see [`Frames::split`]).
pub struct Frames {
    nodes: usize,
    cpus: usize,
    node: [Node; MAX_NODES],
    home: [u8; MAX_CPUS],
    /// For each node, all nodes by distance, itself first.
    order: [[u8; MAX_NODES]; MAX_NODES],
    magazines: NonNull<Magazine>,
    /// CPUs that sweep the blocks with no magazine in their hands, by which others would see it.
    out: AtomicU32,
}

// SAFETY: what is behind the pointers is made of atomics, and belongs to this value by the contract
// of `new`.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Number of memory nodes.
    #[inline]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

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
    fn node(&self, index: usize) -> &Node {
        assert!(index < self.nodes);
        // SAFETY: `nodes` is at most the length, which `carve` checked.
        unsafe { self.node.get_unchecked(index) }
    }

    /// The node of a CPU.
    #[inline]
    pub(crate) fn home(&self, cpu: usize) -> usize {
        assert!(cpu < self.cpus);
        // SAFETY: `cpus` is at most the length, which `carve` checked.
        unsafe { *self.home.get_unchecked(cpu) as usize }
    }

    #[inline]
    fn magazine(&self, cpu: usize, node: usize) -> &Magazine {
        assert!(cpu < self.cpus && node < self.nodes);
        // SAFETY: `carve` laid out `cpus * nodes` magazines, and both are in range.
        unsafe { self.magazines.add(cpu * self.nodes + node).as_ref() }
    }
}
