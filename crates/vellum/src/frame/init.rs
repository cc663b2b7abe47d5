//! A topology becomes nodes over the memory handed in.
//!
//! The embedder asks for the size first, hands in zeroed memory, and may then reserve frames for
//! itself (its image, this very memory). Nothing is written at start but a few words per node, and
//! the blocks at its ends: all-zero metadata means free memory, so a hundred gigabytes cost as much
//! to boot as one.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::addr::{Order, PFN_END, Pfn};
use crate::error::{InitError, ReserveError};
use crate::frame::block::free_index::{ALL, SUMMARIES};
use crate::frame::cpu::magazine::Magazine;
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::{Bits, GROUP, NumaNode, PendingQueue, Shared};
use crate::frame::record::Record;
use crate::machine::{MAX_CPUS, MAX_NODES, Topology};
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most frames a node may have: indices fit 32 bits with the 1 GiB below its start.
pub(super) const MAX_FRAMES: u64 = 1 << 31;

// Magazines keep frames in 32 bits, as indices from the 1 GiB boundary below the node's first, and
// blocks as a number + 1.
const _: () = assert!(MAX_FRAMES + Order::GIANT.frames() <= 1 << 32);

/// Offsets of a node's arrays in the memory handed in.
struct Offsets {
    shared: usize,
    pending: usize,
    hints: usize,
    rows: usize,
    summaries: usize,
    states: usize,
    bits: usize,
    remote: usize,
    records: usize,
}

struct MetadataLayout(Layout);

impl MetadataLayout {
    fn take<T>(&mut self, n: usize) -> Result<usize, InitError> {
        let array = Layout::array::<T>(n).map_err(|_| InitError::TooLarge)?;
        // Every array starts a cache line, so that none shares one with another.
        let array = array.align_to(64).map_err(|_| InitError::TooLarge)?;
        let (whole, offset) = self.0.extend(array).map_err(|_| InitError::TooLarge)?;
        self.0 = whole;
        Ok(offset)
    }

    fn node(&mut self, node: &NumaNode) -> Result<Offsets, InitError> {
        Ok(Offsets {
            shared: self.take::<Shared>(1)?,
            pending: self.take::<PendingQueue>(1)?,
            hints: self.take::<AtomicU64>(node.groups())?,
            rows: self.take::<AtomicU64>(ALL * node.row_length)?,
            summaries: self.take::<AtomicU64>(SUMMARIES * node.summary_words())?,
            states: self.take::<AtomicU32>(node.blocks - node.lead)?,
            bits: self.take::<Bits>(node.blocks - node.lead)?,
            remote: self.take::<Bits>(node.blocks - node.lead)?,
            records: self.take::<Record>(node.frames as usize)?,
        })
    }
}

fn check(t: &Topology) -> Result<(), InitError> {
    match () {
        _ if t.cpus == 0 => return Err(InitError::NoCpu),
        _ if t.cpus > MAX_CPUS => return Err(InitError::TooManyCpus),
        _ if t.nodes == 0 => return Err(InitError::NoNode),
        _ if t.nodes > MAX_NODES => return Err(InitError::TooManyNodes),
        _ if t.cpu_node[..t.cpus].iter().any(|&n| n as usize >= t.nodes) => {
            return Err(InitError::CpuNode);
        }
        _ => {}
    }
    for (i, a) in t.node[..t.nodes].iter().enumerate() {
        if a.frames == 0 {
            return Err(InitError::EmptyNode);
        }
        if a.frames > MAX_FRAMES || a.first.0 >= PFN_END || a.first.0 + a.frames > PFN_END {
            return Err(InitError::TooLarge);
        }
        for b in &t.node[..i] {
            if a.first.0 < b.first.0 + b.frames && b.first.0 < a.first.0 + a.frames {
                return Err(InitError::NodesOverlap);
            }
        }
    }
    Ok(())
}

impl Frames {
    /// The memory the metadata needs: 64 bytes a frame for records, 2/7 of a byte for the
    /// allocator, 1.3 KiB for each pair of CPU and node.
    pub fn layout(topology: &Topology) -> Result<Layout, InitError> {
        check(topology)?;
        let mut layout = MetadataLayout(Layout::new::<()>());
        layout.take::<Magazine>(topology.cpus * topology.nodes)?;
        for n in &topology.node[..topology.nodes] {
            layout.node(&NumaNode::measure(n.first.0, n.frames, topology.cpus))?;
        }
        Ok(layout.0.pad_to_align())
    }

    /// The frames of a machine, all free.
    ///
    /// # Safety
    /// `memory` is all zero, of the size and alignment [`layout`](Frames::layout) says, and nobody
    /// else's as long as the value or a reference it gave lives. If it lies in the machine's own
    /// frames those are to be reserved before the first allocation.
    pub unsafe fn new(topology: &Topology, memory: NonNull<u8>) -> Result<Frames, InitError> {
        let layout = Frames::layout(topology)?;
        if !memory.addr().get().is_multiple_of(layout.align()) {
            return Err(InitError::Unaligned);
        }
        let mut layout = MetadataLayout(Layout::new::<()>());
        // SAFETY: every offset comes from a layout that takes the same arrays as `layout` did, so
        // it lies in the memory.
        let at = |offset: usize| unsafe { memory.add(offset) };
        let mut frames = Frames {
            nodes: topology.nodes,
            cpus: topology.cpus,
            node: [const { NumaNode::NONE }; MAX_NODES],
            home: topology.cpu_node,
            order: by_distance(topology),
            magazines: at(layout.take::<Magazine>(topology.cpus * topology.nodes)?).cast(),
            out: AtomicU32::new(0),
        };
        for (slot, n) in frames.node.iter_mut().zip(&topology.node[..topology.nodes]) {
            let mut node = NumaNode::measure(n.first.0, n.frames, topology.cpus);
            let offsets = layout.node(&node)?;
            node.shared = at(offsets.shared).cast();
            node.pending = at(offsets.pending).cast();
            node.hints = at(offsets.hints).cast();
            node.rows = at(offsets.rows).cast();
            node.summaries = at(offsets.summaries).cast();
            node.states = at(offsets.states).as_ptr().cast::<AtomicU32>().wrapping_sub(node.lead);
            node.bits = at(offsets.bits).as_ptr().cast::<Bits>().wrapping_sub(node.lead);
            node.remote = at(offsets.remote).as_ptr().cast::<Bits>().wrapping_sub(node.lead);
            node.records = at(offsets.records).cast();
            node.start();
            *slot = node;
        }
        Ok(frames)
    }

    /// Takes frames out of the allocator for good: the embedder's image, this library's metadata,
    /// broken memory. Frames of no node are passed_over over.
    ///
    /// # Errors
    /// A frame may belong to somebody as soon as anything was allocated, and a frame reserved twice
    /// would be counted twice: both are refused, and nothing changed.
    pub fn reserve(&mut self, first: Pfn, count: u64) -> Result<(), ReserveError> {
        let mut stats = Stats::sum(&[]);
        self.stats(&mut stats);
        if stats.get(Counter::Alloc) != 0 {
            return Err(ReserveError::InUse);
        }
        let part = |node: &NumaNode| {
            let to = first.0.saturating_add(count).min(node.first + node.frames);
            (first.0.max(node.first), to)
        };
        let nodes = || {
            self.node[..self.nodes]
                .iter()
                .map(|node| (node, part(node)))
                .filter(|(_, (from, to))| from < to)
        };
        if nodes().any(|(node, (from, to))| !node.is_untouched(from, to)) {
            return Err(ReserveError::Twice);
        }
        for (node, (from, to)) in nodes() {
            node.exclude_all(from, to);
            node.shared().free.fetch_sub((to - from) as i64, Ordering::Relaxed);
            node.shared().reserved.fetch_add(to - from, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl NumaNode {
    /// The first words written: what does not exist is not to be had.
    fn start(&mut self) {
        self.shared().free.store(self.frames as i64, Ordering::Relaxed);
        for block in (0..self.lead).chain(self.blocks..self.groups() * GROUP) {
            self.hint(block).fetch_or(NumaNode::hint_bit(block), Ordering::Relaxed);
        }
        let end = self.first + self.frames;
        self.exclude_all(Pfn(self.first).align_down(Order::HUGE).0, self.first);
        self.exclude_all(end, end.next_multiple_of(Order::HUGE.frames()));
    }

    fn exclude_all(&self, from: u64, to: u64) {
        each_block(from, to)
            .for_each(|(at, next)| self.exclude(self.block_of(at), Pfn(at), Pfn(next)));
    }

    /// Whether none of the frames was reserved. Nothing was allocated yet.
    fn is_untouched(&self, from: u64, to: u64) -> bool {
        each_block(from, to)
            .all(|(at, next)| self.is_whole_yet(self.block_of(at), Pfn(at), Pfn(next)))
    }

    fn block_of(&self, pfn: u64) -> usize {
        ((pfn - self.base) >> crate::frame::node::numa_node::BLOCK) as usize
    }
}

/// A range of frames, cut at the ends of blocks.
fn each_block(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = move |at| (Pfn(at).align_down(Order::HUGE).0 + Order::HUGE.frames()).min(to);
    core::iter::successors(Some(from), move |&at| Some(end(at)))
        .take_while(move |&at| at < to)
        .map(move |at| (at, end(at)))
}

fn by_distance(t: &Topology) -> [[u8; MAX_NODES]; MAX_NODES] {
    let mut order = [[0; MAX_NODES]; MAX_NODES];
    for (from, row) in order.iter_mut().enumerate().take(t.nodes) {
        for (slot, to) in row.iter_mut().zip(0..t.nodes as u8) {
            *slot = to;
        }
        // Ties go to the lower number; a node is nearest to itself whatever the table says.
        row[..t.nodes]
            .sort_unstable_by_key(|&to| (to as usize != from, t.distance[from][to as usize], to));
    }
    order
}
