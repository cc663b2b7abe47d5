//! A memory node: its frames, its blocks, and where each CPU searches.

use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{Order, Pfn};
use crate::frame::block::array::Blocks;
use crate::frame::block::bits::BLOCK;
use crate::frame::block::free_index::FreeIndex;
use crate::frame::cpu::buddy::HUGE_BATCH;
use crate::frame::node::counters::NodeCounters;
use crate::frame::node::marks::Watermarks;
use crate::frame::node::pending_queue::PendingQueue;
use crate::frame::record::Record;

/// A memory node. Its frames are also named by an *index*, counted from the 1 GiB boundary at or
/// below the first of them.
pub struct NumaNode {
    /// First frame, and how many there are.
    pub first: u64,
    pub frames: u64,
    /// The frame with index 0, a multiple of 1 GiB.
    base: u64,
    pub blocks: Blocks,
    pub free_index: FreeIndex,
    pub marks: Watermarks,
    /// The most by which a magazine's count of free frames may be off.
    pub slack: i64,
    /// 2 MiB blocks that a cpu buddy holds.
    pub cpu_huge: u32,
    /// How far apart CPUs begin their searches, in blocks.
    apart: u32,
    counters: NonNull<NodeCounters>,
    pending: NonNull<PendingQueue>,
    records: NonNull<Record>,
}

impl NumaNode {
    /// No node.
    pub const NONE: NumaNode = NumaNode {
        first: 0,
        frames: 0,
        base: 0,
        blocks: Blocks::NONE,
        free_index: FreeIndex::NONE,
        marks: Watermarks::NONE,
        slack: 0,
        cpu_huge: 0,
        apart: 0,
        counters: NonNull::dangling(),
        pending: NonNull::dangling(),
        records: NonNull::dangling(),
    };

    /// The numbers of a node, its arrays not yet placed.
    pub fn measure(first: Pfn, frames: u64, cpus: usize) -> NumaNode {
        let base = first.align_down(Order::GIANT);
        let blocks = Blocks::measure(base, first, frames);
        let apart = apart(blocks.len(), cpus);
        NumaNode {
            first: first.0,
            frames,
            base: base.0,
            free_index: FreeIndex::measure(&blocks, apart),
            blocks,
            marks: Watermarks::of(frames),
            // Large enough that batches of 2 MiB blocks seldom write the node's line. With 1024
            // each of them did, and two CPUs that took such blocks paid twice the price of one.
            slack: (frames / (32 * cpus as u64)).min(1 << 14) as i64,
            cpu_huge: if frames / cpus as u64 >= 128 << BLOCK { HUGE_BATCH } else { 1 },
            apart: apart as u32,
            ..NumaNode::NONE
        }
    }

    /// Says where the node's counters, its queue, and the records of its frames are.
    ///
    /// # Safety
    /// They are zeroed and live as long as the value, or are never read.
    pub unsafe fn place(
        &mut self,
        counters: NonNull<NodeCounters>,
        pending: NonNull<PendingQueue>,
        records: NonNull<Record>,
    ) {
        (self.counters, self.pending, self.records) = (counters, pending, records);
    }

    /// The blocks where a CPU searches first. Nodes with fewer blocks than CPUs are everyone's.
    #[inline]
    pub fn area(&self, cpu: usize) -> Range<usize> {
        let apart = self.apart as usize;
        if apart == 0 {
            return self.blocks.all();
        }
        let meet = |cpu: usize| match self.blocks.first + cpu * apart {
            at if cpu == 0 || apart < 128 => at,
            at => at & !63,
        };
        let (start, end) = (meet(cpu), meet(cpu + 1));
        // The last area has the remainder.
        start..if end + apart > self.blocks.end { self.blocks.end } else { end }
    }

    #[inline]
    pub fn has(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.first) < self.frames
    }

    /// Whether all of the block of `order` at `pfn` lies in the node.
    #[inline]
    pub fn has_block(&self, pfn: Pfn, order: Order) -> bool {
        self.has(pfn) && pfn.0 - self.first + order.frames() <= self.frames
    }

    /// The frame's index.
    #[inline]
    pub fn index(&self, pfn: Pfn) -> u32 {
        (pfn.0 - self.base) as u32
    }

    /// The frame with that index.
    #[inline]
    pub fn pfn(&self, index: u32) -> Pfn {
        Pfn(self.base + index as u64)
    }

    /// The first frame of a block.
    #[inline]
    pub fn block_pfn(&self, block: usize) -> Pfn {
        self.pfn((block << BLOCK) as u32)
    }

    #[inline]
    pub fn record(&self, pfn: Pfn) -> &Record {
        assert!(self.has(pfn));
        // SAFETY: `place` was given a record for each of `frames` frames from `first` on.
        unsafe { self.records.add((pfn.0 - self.first) as usize).as_ref() }
    }

    /// The records of frames that follow each other, if all of them are of the node.
    #[inline]
    pub fn records<const N: usize>(&self, first: Pfn) -> Option<&[Record; N]> {
        if !self.has(first) || !self.has(first.add(N as u64 - 1)) {
            return None;
        }
        // SAFETY: as in `record`, of all of them.
        Some(unsafe { self.records.add((first.0 - self.first) as usize).cast().as_ref() })
    }

    #[inline]
    pub fn counters(&self) -> &NodeCounters {
        // SAFETY: given to `place`, made of atomics.
        unsafe { self.counters.as_ref() }
    }

    #[inline]
    pub fn pending(&self) -> &PendingQueue {
        // SAFETY: given to `place`, made of atomics.
        unsafe { self.pending.as_ref() }
    }
}

/// How far apart CPUs begin their searches. Each has its part of the node, but at most 2 GiB:
/// enough to keep CPUs off each other's blocks while memory is plenty, and not so far that on large
/// nodes small blocks of every CPU leave no run of 1 GiB. Large parts meet at a multiple of 64
/// blocks.
fn apart(blocks: usize, cpus: usize) -> usize {
    let part = blocks / cpus;
    match part.min(1024) {
        _ if cpus == 1 => part,
        small @ 0..128 => small,
        large => large & !63,
    }
}
