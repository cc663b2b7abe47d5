//! A memory node: where its arrays are, and what is counted for all of it.
//!
//! Arrays are indexed by block (2 MiB), and block 0 starts at the 1 GiB boundary at or below the
//! node's first frame, so that alignment of an index is alignment of the address. Blocks below the
//! node's own have no memory behind them: the array pointers are biased, and hint bits keep
//! everyone out.
//!
//! A hint word covers 64 blocks, a bit each: *busy*, not to be had whole. These bits are no mere
//! hints: whoever sets one has the block.

use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{Order, Pfn};
use crate::frame::block::free_index::row_length;
use crate::frame::cpu::buddy::HUGE_BATCH;
use crate::frame::record::Record;
use crate::frame::stats::SharedCounts;
use crate::machine::Machine;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Lock, Queue, touch};

/// Words of 64 frames in a block.
pub const WORDS: usize = 8;
/// Blocks a hint word covers.
pub const GROUP: usize = 64;
/// log2 of frames in a block.
pub const BLOCK: u32 = 9;

/// The bits of one block: a cache line.
#[repr(C, align(64))]
pub struct Bits(pub [AtomicU64; WORDS]);

/// How much of a node is free, against its marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// At most the minimum: what is left is for table nodes and slabs.
    Min,
    /// At most the low mark: time to reclaim.
    Low,
    /// At most the high mark: reclaim that runs goes on.
    High,
    /// Above all marks.
    Plenty,
}

/// Marks of a node, in base frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Frames that data allocations leave: 1/512 of the node, at most 16 MiB, none in nodes below
    /// 64 MiB.
    pub min: u64,
    /// Twice that.
    pub low: u64,
    /// Three times that.
    pub high: u64,
}

impl Watermarks {
    fn of(frames: u64) -> Watermarks {
        let min = if frames < 1 << 14 { 0 } else { (frames / 512).min(4096) };
        Watermarks { min, low: 2 * min, high: 3 * min }
    }
}

/// See [`Shared::defer`].
pub const MOST_DEFER_SHIFT: u32 = 6;

/// What all CPUs write of a node. All of it is written in batches only.
#[repr(C, align(64))]
pub struct Shared {
    /// Base frames free in blocks, less what CPUs keep in `Magazine::delta`.
    pub free: AtomicI64,
    /// Base frames taken out before first use.
    pub reserved: AtomicU64,
    /// Huge allocations that may fail without emptying the magazines first, and log2 of how many
    /// the next time: at most [`MOST_DEFER_SHIFT`], and the contention less than 2 to the power of
    /// that.
    pub defer: AtomicU32,
    pub defer_shift: AtomicU32,
    pub counts: SharedCounts,
}

/// The node's frames that wait for a flush.
#[repr(C, align(64))]
pub struct PendingQueue {
    pub lock: Lock<Queue>,
    /// Frame numbers + 1; 0 for none. Guarded by `lock`.
    pub head: AtomicU64,
    pub tail: AtomicU64,
    /// Base frames in the queue. Written under `lock`, read by anyone.
    pub frames: AtomicU64,
}

pub struct NumaNode {
    pub first: u64,
    pub frames: u64,
    /// Frame number of block 0's first frame, a multiple of 1 GiB.
    pub base: u64,
    /// First block with a frame of the node, and the first past the last such.
    pub lead: usize,
    pub blocks: usize,
    /// How many that are.
    own: usize,
    pub marks: Watermarks,
    /// What a CPU may keep uncounted.
    pub slack: i64,
    /// 2 MiB blocks a CPU keeps.
    pub cpu_huge: u32,
    /// How far apart CPUs begin their searches, in blocks.
    pub apart: usize,
    /// See `rooms`: words from one row to the next, words left out before the first, and log2 of
    /// the words a summary covers.
    pub row_length: usize,
    pub row_lead: usize,
    pub span: u32,
    pub shared: NonNull<Shared>,
    pub pending: NonNull<PendingQueue>,
    pub hints: NonNull<AtomicU64>,
    /// See `rooms`.
    pub rows: NonNull<AtomicU64>,
    pub summaries: NonNull<AtomicU64>,
    /// Biased: indexed from block `lead`.
    pub states: *const AtomicU32,
    /// Biased: indexed from block `lead`.
    pub bits: *const Bits,
    /// Frames put remote, as bits; biased in the same way.
    pub remote: *const Bits,
    pub records: NonNull<Record>,
}

impl NumaNode {
    pub const NONE: NumaNode = NumaNode {
        first: 0,
        frames: 0,
        base: 0,
        lead: 0,
        blocks: 0,
        own: 0,
        marks: Watermarks { min: 0, low: 0, high: 0 },
        slack: 0,
        cpu_huge: 0,
        apart: 0,
        row_length: 0,
        row_lead: 0,
        span: 0,
        shared: NonNull::dangling(),
        pending: NonNull::dangling(),
        hints: NonNull::dangling(),
        rows: NonNull::dangling(),
        summaries: NonNull::dangling(),
        states: core::ptr::null(),
        bits: core::ptr::null(),
        remote: core::ptr::null(),
        records: NonNull::dangling(),
    };

    /// The numbers of a node, its arrays not yet placed.
    pub fn measure(first: u64, frames: u64, cpus: usize) -> NumaNode {
        let base = Pfn(first).align_down(Order::GIANT).0;
        // Enough that batches of whole blocks seldom write the node's line: with 1024 each of them
        // did, and two CPUs that took 2 MiB blocks paid for it twice the price of one.
        let slack = (frames / (32 * cpus as u64)).min(1 << 14) as i64;
        let lead = ((first - base) >> BLOCK) as usize;
        let blocks = (first + frames - base).div_ceil(1 << BLOCK) as usize;
        NumaNode {
            first,
            frames,
            base,
            lead,
            blocks,
            own: blocks - lead,
            marks: Watermarks::of(frames),
            slack,
            cpu_huge: if frames / cpus as u64 >= 128 << BLOCK { HUGE_BATCH } else { 1 },
            row_length: row_length(lead, blocks),
            row_lead: lead / 64,
            ..NumaNode::NONE
        }
        .set_apart(cpus)
    }

    /// Each CPU its part of the node, but at most 2 GiB: enough to keep CPUs off each other's
    /// blocks while memory is plenty, and not so far that on large nodes small pieces of every CPU
    /// leave no run of 1 GiB. Where it is worth it parts meet between words of 64 blocks.
    fn set_apart(mut self, cpus: usize) -> NumaNode {
        let part = (self.blocks - self.lead) / cpus;
        self.apart = match part.min(1024) {
            _ if cpus == 1 => part,
            small @ 0..128 => small,
            large => large & !63,
        };
        self.span = (self.apart / 64).max(1).ilog2().min(6);
        self
    }

    /// The blocks where a CPU searches first. Nodes with fewer blocks than CPUs are everyone's.
    #[inline]
    pub fn area(&self, cpu: usize) -> Range<usize> {
        if self.apart == 0 {
            return self.lead..self.blocks;
        }
        let meet = |cpu: usize| match self.lead + cpu * self.apart {
            at if cpu == 0 || self.apart < 128 => at,
            at => at & !63,
        };
        let (start, end) = (meet(cpu), meet(cpu + 1));
        // The last part has the remainder.
        start..if end + self.apart > self.blocks { self.blocks } else { end }
    }

    #[inline]
    pub fn has(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.first) < self.frames
    }

    /// Whether the whole block of `order` at `pfn` lies in the node.
    #[inline]
    pub fn has_block(&self, pfn: Pfn, order: Order) -> bool {
        self.has(pfn) && pfn.0 - self.first + order.frames() <= self.frames
    }

    /// The frame's number from `base`.
    #[inline]
    pub fn index(&self, pfn: Pfn) -> u32 {
        (pfn.0 - self.base) as u32
    }

    #[inline]
    pub fn pfn(&self, index: u32) -> Pfn {
        Pfn(self.base + index as u64)
    }

    /// Groups of blocks, each with a hint word.
    #[inline]
    pub fn groups(&self) -> usize {
        self.blocks.div_ceil(GROUP)
    }

    #[inline]
    pub fn record(&self, pfn: Pfn) -> &Record {
        assert!(self.has(pfn));
        // SAFETY: one record for each of `frames` frames from `first` on.
        unsafe { self.records.add((pfn.0 - self.first) as usize).as_ref() }
    }

    #[inline]
    pub fn shared(&self) -> &Shared {
        // SAFETY: placed by `carve`, made of atomics.
        unsafe { self.shared.as_ref() }
    }

    #[inline]
    pub fn pending(&self) -> &PendingQueue {
        // SAFETY: placed by `carve`, made of atomics.
        unsafe { self.pending.as_ref() }
    }

    /// The hint word a block has its bit in.
    #[inline]
    pub fn hint(&self, block: usize) -> &AtomicU64 {
        assert!(block / GROUP < self.groups());
        // SAFETY: as many hint words as groups.
        unsafe { self.hints.add(block / GROUP).as_ref() }
    }

    /// Whether there is such a block.
    #[inline]
    fn has_number(&self, block: usize) -> bool {
        block.wrapping_sub(self.lead) < self.own
    }

    #[inline]
    pub fn state(&self, block: usize) -> &AtomicU32 {
        assert!(self.has_number(block));
        // SAFETY: an array for the blocks from `lead` to `blocks`, its pointer biased by `lead`.
        unsafe { &*self.states.wrapping_add(block) }
    }

    #[inline]
    pub fn words(&self, block: usize) -> &[AtomicU64; WORDS] {
        assert!(self.has_number(block));
        // SAFETY: as for `state`.
        unsafe { &(*self.bits.wrapping_add(block)).0 }
    }

    /// As [`words`](NumaNode::words), of frames put remote. All but changes by atomics is forbidden.
    #[inline]
    pub fn remote(&self, block: usize) -> &[AtomicU64; WORDS] {
        assert!(self.has_number(block));
        // SAFETY: as for `state`.
        unsafe { &(*self.remote.wrapping_add(block)).0 }
    }

    /// The busy bit of a block in its hint word.
    #[inline]
    pub const fn hint_bit(block: usize) -> u64 {
        1 << (block % GROUP)
    }

    #[inline]
    pub fn clear_hint<M: Machine>(&self, m: &M, block: usize, bits: u64) {
        let hint = self.hint(block);
        touch(m, hint, true);
        hint.fetch_and(!bits, Ordering::SeqCst);
    }
}
