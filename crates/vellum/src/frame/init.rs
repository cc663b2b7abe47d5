//! Boot: a topology becomes memory nodes over the memory handed in.
//!
//! The embedder asks for the size of the metadata, hands in zeroed memory, and may then reserve
//! frames for itself (its image, this very memory). Metadata that is all zero means free memory. So
//! the start writes only a few words per node and the blocks at its ends, and a hundred gigabytes
//! cost as much to boot as one.

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{Order, PFN_END, Pfn};
use crate::error::{InitError, ReserveError};
use crate::frame::block::array::{Blocks, GROUP};
use crate::frame::block::bits::BLOCK;
use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::state::{DIRTY, HOLE, KIND, OPEN};
use crate::frame::cpu::magazine::Magazine;
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::NumaNode;
use crate::frame::record::MAX_FRAMES;
use crate::machine::{MAX_CPUS, MAX_NODES, Topology};
use crate::stats::{Counter, Stats};
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::Relaxed;

// Magazines keep frames in 32 bits, as indices from the 1 GiB boundary below the node's first, and
// blocks as a number + 1.
const _: () = assert!(MAX_FRAMES + Order::GIANT.frames() <= 1 << 32);

/// The metadata: arrays one after the other, from `memory` on if there is any yet.
struct MetadataLayout {
    layout: Layout,
    memory: Option<NonNull<u8>>,
}

impl MetadataLayout {
    /// The place of the next array, of `n` items.
    fn take<T>(&mut self, n: usize) -> Result<NonNull<T>, InitError> {
        let array = Layout::array::<T>(n).map_err(|_| InitError::TooLarge)?;
        // Every array starts a cache line, so that none shares one with another.
        let array = array.align_to(64).map_err(|_| InitError::TooLarge)?;
        let (all, offset) = self.layout.extend(array).map_err(|_| InitError::TooLarge)?;
        self.layout = all;
        let Some(memory) = self.memory else { return Ok(NonNull::dangling()) };
        // SAFETY: the memory has the size that the same calls added up to before.
        Ok(unsafe { memory.add(offset) }.cast())
    }

    /// Lays out a topology's magazines and its nodes, of which `each` takes one after the other.
    fn take_all(
        &mut self,
        topology: &Topology,
        mut each: impl FnMut(usize, NumaNode),
    ) -> Result<NonNull<Magazine>, InitError> {
        let magazines = self.take::<Magazine>(topology.cpus * topology.nodes)?;
        for (at, n) in topology.node[..topology.nodes].iter().enumerate() {
            let mut node = NumaNode::measure(n.first, n.frames, topology.cpus);
            let (counters, pending) = (self.take(1)?, self.take(1)?);
            let busy = self.take(node.blocks.groups())?;
            let rows = self.take(node.free_index.row_words())?;
            let summaries = self.take(node.free_index.summary_words())?;
            let n = node.blocks.len();
            let (states, bits, remote) = (self.take(n)?, self.take(n)?, self.take(n)?);
            let records = self.take(node.frames as usize)?;
            // SAFETY: each has the length that `take` was told, in the zeroed memory that the
            // caller of `new` gave for as long as the value lives. Without memory nothing is read.
            unsafe {
                node.free_index.place(rows, summaries);
                node.blocks.place(busy, states, bits, remote);
                node.place(counters, pending, records);
            }
            each(at, node);
        }
        Ok(magazines)
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
    /// allocator, 0.8 KiB for each pair of CPU and node.
    ///
    /// # Errors
    /// What is wrong with the topology.
    pub fn layout(topology: &Topology) -> Result<Layout, InitError> {
        check(topology)?;
        let mut metadata = MetadataLayout { layout: Layout::new::<()>(), memory: None };
        metadata.take_all(topology, |_, _| {})?;
        Ok(metadata.layout.pad_to_align())
    }

    /// The frames of a machine, all free.
    ///
    /// # Errors
    /// What is wrong with the topology; memory that is not aligned.
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
        let mut metadata = MetadataLayout { layout: Layout::new::<()>(), memory: Some(memory) };
        let mut nodes = [const { NumaNode::NONE }; MAX_NODES];
        let magazines = metadata.take_all(topology, |at, node| {
            Untouched(&node).start();
            nodes[at] = node;
        })?;
        Ok(Frames {
            nodes: topology.nodes,
            cpus: topology.cpus,
            node: nodes,
            home: topology.cpu_node,
            order: by_distance(topology),
            magazines,
            unheld: AtomicU32::new(0),
        })
    }

    /// Takes frames out of the allocator for good: the embedder's image, this library's metadata,
    /// broken memory. Frames of no node are passed over.
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
        if nodes().any(|(node, (from, to))| !Untouched(node).is_unreserved(from, to)) {
            return Err(ReserveError::Twice);
        }
        for (node, (from, to)) in nodes() {
            Untouched(node).exclude(from, to);
            node.counters().free.fetch_sub((to - from) as i64, Relaxed);
            node.counters().reserved.fetch_add(to - from, Relaxed);
        }
        Ok(())
    }
}

/// A node that nothing was allocated of yet.
struct Untouched<'n>(&'n NumaNode);

impl Untouched<'_> {
    /// Writes the first words: frames that do not exist are excluded.
    fn start(&self) {
        let Untouched(node) = self;
        node.counters().free.store(node.frames as i64, Relaxed);
        let blocks = &node.blocks;
        for block in (0..blocks.first).chain(blocks.end..blocks.groups() * GROUP) {
            blocks.busy_word(block).fetch_or(Blocks::busy_bit(block), Relaxed);
        }
        let end = node.first + node.frames;
        self.exclude(Pfn(node.first).align_down(Order::HUGE).0, node.first);
        self.exclude(end, end.next_multiple_of(Order::HUGE.frames()));
    }

    /// Takes frames out of the allocator before first use.
    fn exclude(&self, from: u64, to: u64) {
        let blocks = &self.0.blocks;
        for (block, frames) in self.each_block(from, to) {
            blocks.busy_word(block).fetch_or(Blocks::busy_bit(block), Relaxed);
            let state = blocks.state(block);
            if frames.len() == 1 << BLOCK {
                state.store(HOLE, Relaxed);
                continue;
            }
            for at in frames {
                blocks.words(block)[at / 64].fetch_or(1 << (at % 64), Relaxed);
            }
            // The next sweep notes what is left.
            state.store(OPEN | DIRTY, Relaxed);
            self.0.free_index.set_at_boot(block, DIRTY_ROW);
        }
    }

    /// Whether none of the frames was excluded.
    fn is_unreserved(&self, from: u64, to: u64) -> bool {
        let blocks = &self.0.blocks;
        self.each_block(from, to).all(|(block, mut frames)| {
            let words = blocks.words(block);
            blocks.state(block).load(Relaxed) & KIND != HOLE
                && frames.all(|at| words[at / 64].load(Relaxed) >> (at % 64) & 1 == 0)
        })
    }

    /// The blocks of a range of frames, and which frames of each, counted from its first.
    fn each_block(&self, from: u64, to: u64) -> impl Iterator<Item = (usize, Range<usize>)> {
        let next =
            move |at: u64| (Pfn(at).align_down(Order::HUGE).0 + Order::HUGE.frames()).min(to);
        core::iter::successors(Some(from), move |&at| Some(next(at)))
            .take_while(move |&at| at < to)
            .map(move |at| {
                let block = self.0.index(Pfn(at)) >> BLOCK;
                let first = at % (1 << BLOCK);
                (block as usize, first as usize..(first + next(at) - at) as usize)
            })
    }
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
