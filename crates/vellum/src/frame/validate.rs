//! Validation: everything recounted from the bits up.
//!
//! Every frame is in exactly one state: reserved, free in a block, free in a magazine, pending, or
//! allocated. Busy bits, counts and states must say the same. The bits of frames in magazines and
//! queues say *taken*. Validation counts those frames by clearing their bits until it ends: a frame
//! met twice, in two magazines or in a magazine and the queue, is found clear the second time.

use crate::addr::Order;
use crate::addr::Pfn;
use crate::error::{Invalid, ensure};
use crate::frame::block::free_index::ALL;
use crate::frame::cpu::magazine::{BATCH, Magazine};
use crate::frame::frames::Frames;
use crate::frame::node::counters::MOST_DEFER_SHIFT;
use crate::frame::node::numa_node::NumaNode;
use crate::frame::record::PENDING_NEXT;
use crate::frame::view::NodeView;
use crate::machine::{Machine, Use};
use crate::stats::{Counter, Stats};
use crate::sync::atomic::Ordering::Relaxed;

/// Where the frames of a machine are, in base frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// All of them; the sum of the others.
    pub total: u64,
    /// Reserved before first use.
    pub reserved: u64,
    /// Free in blocks.
    pub free: u64,
    /// Free in magazines.
    pub cached: u64,
    /// Waiting for a flush.
    pub pending: u64,
    /// Allocated.
    pub used: u64,
}

impl Frames {
    /// Recounts every frame; afterwards everything is as before.
    ///
    /// # Errors
    /// The first sentence that does not hold.
    ///
    /// # Safety
    /// No other call on these frames runs meanwhile, on any CPU: it might be given a frame that
    /// somebody has.
    pub unsafe fn validate<M: Machine>(&self, m: &M) -> Result<FrameCounts, Invalid> {
        let _ = m;
        let mut sum = FrameCounts::default();
        for at in 0..self.nodes {
            let node = self.view(at).validate()?;
            sum.total += node.total;
            sum.reserved += node.reserved;
            sum.free += node.free;
            sum.cached += node.cached;
            sum.pending += node.pending;
            sum.used += node.used;
        }
        Ok(sum)
    }
}

impl NodeView<'_> {
    fn validate(self) -> Result<FrameCounts, Invalid> {
        let (node, at) = (self.node(), self.at as u64);
        self.check_counters()?;
        let claims = |block| self.claimed().filter(|&claimed| claimed == block).count() as u64;
        let free = node.check_blocks(claims)?;
        let counted = self.block_free();
        ensure(counted == free as i64, "free frames of a node", at, counted as u64, free)?;
        let mut met = 0;
        let counts = self.count_outside(&mut met);
        // Whatever was found, the bits go back.
        let mut left = met;
        self.each_outside(&mut |index, order| {
            if left != 0 {
                left -= 1;
                node.mark(index, order, true);
            }
            Ok(())
        })?;
        let (cached, pending) = counts?;
        let queued = node.pending().frames.load(Relaxed);
        ensure(queued == pending, "pending frames of a node", at, queued, pending)?;
        let (total, reserved) = (node.frames, node.counters().reserved.load(Relaxed));
        let unused = reserved + free + cached + pending;
        ensure(unused <= total, "frames of a node in more than one state", at, total, unused)?;
        let used = total - unused;
        let mut stats = Stats::sum(&[]);
        self.stats(&mut stats);
        let taken = stats.get(Counter::Alloc) - stats.get(Counter::Free);
        ensure(
            taken == (used + pending) as i64,
            "frames taken of a node less those freed",
            at,
            taken as u64,
            used + pending,
        )?;
        Ok(FrameCounts { total, reserved, free, cached, pending, used })
    }

    /// Every counter of the node and its magazines has a value that it can have.
    fn check_counters(self) -> Result<(), Invalid> {
        let (node, at) = (self.node(), self.at as u64);
        for magazine in self.magazines() {
            magazine.check(node, at)?;
        }
        let counters = node.counters();
        let (left, shift) = (counters.defer.load(Relaxed), counters.defer_shift.load(Relaxed));
        ensure(
            shift <= MOST_DEFER_SHIFT && left < 1 << MOST_DEFER_SHIFT,
            "huge allocations that fail at once",
            at,
            MOST_DEFER_SHIFT as u64,
            left.max(shift) as u64,
        )
    }

    /// Counts the frames in magazines and in the queue, clearing their bits; `met` says how many
    /// blocks were cleared.
    fn count_outside(self, met: &mut u64) -> Result<(u64, u64), Invalid> {
        let node = self.node();
        let mut all = 0;
        self.each_outside(&mut |index, order| {
            ensure(
                node.mark(index, order, false),
                "a frame is free twice, or pending and free",
                node.pfn(index).0,
                1,
                2,
            )?;
            *met += 1;
            all += order.frames();
            Ok(())
        })?;
        let cached = self.magazines().map(Magazine::free_frames).sum();
        Ok((cached, all - cached))
    }

    /// Every block in a magazine or the queue of the node.
    fn each_outside(
        self,
        each: &mut dyn FnMut(u32, Order) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let node = self.node();
        for magazine in self.magazines() {
            for (index, order) in magazine.each() {
                each(index, order)?;
            }
        }
        let mut next = node.pending().head.load(Relaxed);
        while let Some(pfn) = next.checked_sub(1).map(Pfn) {
            let record = node.record(pfn);
            ensure(
                record.use_() == Use::Pending,
                "a frame in the pending queue is of another use",
                pfn.0,
                1,
                record.use_() as u64,
            )?;
            each(node.index(pfn), record.order())?;
            next = record.word(PENDING_NEXT).load(Relaxed);
        }
        Ok(())
    }
}

impl Magazine {
    /// Whether nobody holds it, and every field has a value that it can have.
    fn check(&self, node: &NumaNode, at: u64) -> Result<(), Invalid> {
        let no_more = |what, most: u64, found: u64| ensure(found <= most, what, at, most, found);
        no_more("a magazine is locked at rest", 0, self.is_held() as u64)?;
        no_more("frames in a magazine", BATCH as u64, self.stack_counts().len)?;
        ensure(
            self.buddy.is_in_bounds(node.cpu_huge),
            "blocks in a cpu buddy",
            at,
            node.cpu_huge as u64,
            self.buddy.frames(),
        )?;
        let delta = self.delta.load(Relaxed).unsigned_abs();
        no_more("uncounted frames of a magazine", node.slack as u64, delta)?;
        let current = self.current.load(Relaxed) as u64;
        no_more("the block that a magazine claims", node.blocks.end as u64, current)?;
        let cursor = self.huge_cursor.load(Relaxed) as u64;
        no_more("a magazine's search cursor", node.blocks.groups() as u64, cursor)?;
        let rows = self.rows.load(Relaxed);
        no_more("rows that a magazine knows", 0, if rows == !0 { 0 } else { rows as u64 >> ALL })?;
        match self.each().find(|&(index, order)| !node.has_block(node.pfn(index), order)) {
            Some((index, _)) => {
                Err(Invalid::new("a frame in a magazine is one of its node", at, 0, index as u64))
            }
            None => Ok(()),
        }
    }
}
