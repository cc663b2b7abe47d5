//! Everything recounted from the bits up.
//!
//! Every frame is in exactly one state: reserved, free in a block, free in a magazine, pending, or
//! had by someone; hints, counts and states must say the same. Magazines and queues hold frames
//! whose bits say *taken*. Those are counted by clearing the bits for the time of the audit: a
//! frame met twice, in two magazines or in a magazine and the queue, is found clear the second
//! time.

use crate::addr::{Order, Pfn};
use crate::error::Invalid;
use crate::frame::block::free_index::{DIRTY_ROW, ROWS};
use crate::frame::block::lock::{
    CLAIMED, DIRTY, FREE, HUGE_HEAD, HUGE_TAIL, KIND, LOCKED, OPEN, huge_order, is_in_bounds, rows,
    uncounted,
};
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::{BLOCK, MOST_DEFER_SHIFT, NumaNode, WORDS};
use crate::machine::{Machine, Use};
use crate::stats::{Counter, Stats};
use crate::sync::atomic::Ordering::Relaxed;

/// Where the frames of a machine are, in base frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// All of them; the sum of the contention.
    pub total: u64,
    /// Taken out before first use.
    pub reserved: u64,
    /// Free in blocks.
    pub free: u64,
    /// Free in magazines.
    pub cached: u64,
    /// PendingQueue for a flush.
    pub pending: u64,
    /// Had by someone.
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
            let node = self.node(at);
            self.audit_counters(at)?;
            let free = node.audit_blocks(|block| self.claims(at, block))?;
            let kept = self.block_free(at);
            if kept != free as i64 {
                return Err(Invalid::new("free frames of a node", at as u64, kept as u64, free));
            }
            let mut met = 0;
            let counts = self.audit_outside(at, &mut met);
            // Whatever was found, the bits go back.
            let mut left = met;
            self.each_outside(at, &mut |index, order| {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                node.mark(index, order, true);
                Ok(())
            })?;
            let (cached, pending) = counts?;
            let queued = node.pending().frames.load(Relaxed);
            if queued != pending {
                return Err(Invalid::new("pending frames of a node", at as u64, queued, pending));
            }
            let reserved = node.shared().reserved.load(Relaxed);
            let used =
                node.frames.checked_sub(reserved + free + cached + pending).ok_or(Invalid::new(
                    "frames of a node in more than one state",
                    at as u64,
                    node.frames,
                    reserved + free + cached + pending,
                ))?;
            // What was ever taken, less what ever came back.
            let mut stats = Stats::sum(&[]);
            self.node_stats(at, &mut stats);
            let had = stats.get(Counter::Alloc) - stats.get(Counter::Free);
            if had != (used + pending) as i64 {
                let at = at as u64;
                return Err(Invalid::new(
                    "frames taken of a node less those that came back",
                    at,
                    had as u64,
                    used + pending,
                ));
            }
            sum.total += node.frames;
            sum.reserved += reserved;
            sum.free += free;
            sum.cached += cached;
            sum.pending += pending;
            sum.used += used;
        }
        Ok(sum)
    }

    /// Every counter of a node and its magazines is one that it can be.
    fn audit_counters(&self, at: usize) -> Result<(), Invalid> {
        let node = self.node(at);
        for cpu in 0..self.cpus {
            self.magazine(cpu, at).check(node, at as u64)?;
        }
        let (left, shift) =
            (node.shared().defer.load(Relaxed), node.shared().defer_shift.load(Relaxed));
        if shift > MOST_DEFER_SHIFT || left >= 1 << MOST_DEFER_SHIFT {
            let most = MOST_DEFER_SHIFT as u64;
            return Err(Invalid::new(
                "huge allocations that fail at once",
                at as u64,
                most,
                left.max(shift) as u64,
            ));
        }
        Ok(())
    }

    fn claims(&self, at: usize, block: usize) -> u64 {
        (0..self.cpus).filter(|&cpu| self.magazine(cpu, at).current() == Some(block)).count() as u64
    }

    /// Counts what is in magazines and in the queue, clearing bits; `met` says how many blocks were
    /// cleared.
    fn audit_outside(&self, at: usize, met: &mut u64) -> Result<(u64, u64), Invalid> {
        let node = self.node(at);
        let (mut all, mut cached) = (0, 0);
        self.each_outside(at, &mut |index, order| {
            if !node.mark(index, order, false) {
                let pfn = node.pfn(index);
                return Err(Invalid::new(
                    "a frame is free twice, or pending and free",
                    pfn.0,
                    1,
                    2,
                ));
            }
            *met += 1;
            all += order.frames();
            Ok(())
        })?;
        for cpu in 0..self.cpus {
            cached += self.magazine(cpu, at).free_frames();
        }
        Ok((cached, all - cached))
    }

    /// Every block in a magazine or the queue of a node.
    fn each_outside(
        &self,
        at: usize,
        each: &mut dyn FnMut(u32, Order) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let node = self.node(at);
        for cpu in 0..self.cpus {
            for (index, order) in self.magazine(cpu, at).peek() {
                each(index, order)?;
            }
        }
        let mut next = node.pending().head.load(Relaxed);
        while let Some(pfn) = next.checked_sub(1).map(Pfn) {
            let record = node.record(pfn);
            if record.use_() != Use::Pending {
                return Err(Invalid::new(
                    "a frame in the pending queue is of another use",
                    pfn.0,
                    1,
                    record.use_() as u64,
                ));
            }
            each(node.index(pfn), record.order())?;
            next = record.word(1).load(Relaxed);
        }
        Ok(())
    }
}

impl NumaNode {
    /// Sets or clears the bits of a block that is taken; `false`, and nothing changed, if they were
    /// not the other way. Large blocks keep no bits: there the state is looked at, and the first
    /// bit, which is clear otherwise, set for "met".
    fn mark(&self, index: u32, order: Order, taken: bool) -> bool {
        let (block, word) = ((index >> BLOCK) as usize, index as usize / 64 % WORDS);
        if order >= Order::HUGE {
            let first = &self.words(block)[0];
            let (from, to) = if taken { (1, 0) } else { (0, 1) };
            return self.is_huge(index, order)
                && first.compare_exchange(from, to, Relaxed, Relaxed).is_ok();
        }
        if self.state(block).load(Relaxed) & KIND != OPEN {
            return false;
        }
        let n = if order.get() > 6 { 1 << (order.get() - 6) } else { 1 };
        let mask = crate::frame::block::bits::mask(order.get().min(6) as u32) << (index % 64);
        let words = &self.words(block)[word..word + n];
        let want = if taken { 0 } else { mask };
        let remote = &self.remote(block)[word..word + n];
        if words.iter().any(|w| w.load(Relaxed) & mask != want)
            || remote.iter().any(|w| w.load(Relaxed) & mask != 0)
        {
            return false;
        }
        for w in words {
            w.store(if taken { w.load(Relaxed) | mask } else { w.load(Relaxed) & !mask }, Relaxed);
        }
        true
    }

    /// Free frames in the node's blocks, after checking that states, bits and hints agree.
    fn audit_blocks(&self, claims: impl Fn(usize) -> u64) -> Result<u64, Invalid> {
        let mut free = 0;
        let mut tail_until = 0;
        for block in self.lead..self.blocks {
            let pfn = self.pfn((block << BLOCK) as u32).0;
            let state = self.state(block).load(Relaxed);
            let taken: u64 =
                self.words(block).iter().map(|w| w.load(Relaxed).count_ones() as u64).sum();
            let is_busy = (self.hint(block).load(Relaxed) & NumaNode::hint_bit(block) != 0) as u64;
            let kind = state & KIND;
            if !is_in_bounds(state) {
                return Err(Invalid::new("a block's state", pfn, kind as u64, state as u64));
            }
            if (block < tail_until) != (kind == HUGE_TAIL) {
                return Err(Invalid::new(
                    "a large block's length",
                    pfn,
                    tail_until as u64,
                    block as u64,
                ));
            }
            let remote = self.words(block).iter().zip(self.remote(block)).try_fold(
                0,
                |sum, (word, remote)| {
                    let remote = remote.load(Relaxed);
                    if remote & !word.load(Relaxed) != 0 {
                        return Err(Invalid::new(
                            "a frame put remote is free already",
                            pfn,
                            0,
                            remote,
                        ));
                    }
                    Ok(sum + remote.count_ones() as u64)
                },
            )?;
            match kind {
                FREE => free += 1 << BLOCK,
                OPEN => free += (1 << BLOCK) - taken + remote,
                HUGE_HEAD => {
                    let n = 1 << (huge_order(state) - BLOCK);
                    tail_until = block + n;
                    if !block.is_multiple_of(n) || tail_until > self.blocks {
                        return Err(Invalid::new(
                            "where a large block lies",
                            pfn,
                            self.blocks as u64,
                            tail_until as u64,
                        ));
                    }
                }
                _ => {}
            }
            if kind != OPEN && taken != 0 {
                return Err(Invalid::new(
                    "a block that is not open has frames taken",
                    pfn,
                    0,
                    taken,
                ));
            }
            if (kind == FREE) == (is_busy == 1) {
                return Err(Invalid::new(
                    "a block's busy hint",
                    pfn,
                    (kind != FREE) as u64,
                    is_busy,
                ));
            }
            let claimed = (kind == OPEN && state & CLAIMED != 0) as u64;
            if claims(block) != claimed {
                return Err(Invalid::new("a block's claim", pfn, claimed, claims(block)));
            }
            if kind == OPEN {
                self.audit_open(block, state, remote)?;
            }
            if kind == OPEN && claimed == 0 && taken == 0 {
                return Err(Invalid::new("an open block is empty and nobody claims it", pfn, 1, 0));
            }
        }
        Ok(free)
    }

    /// Whether everyone can find what an open block has.
    fn audit_open(&self, block: usize, state: u32, remote: u64) -> Result<(), Invalid> {
        let pfn = self.pfn((block << BLOCK) as u32).0;
        if state & LOCKED != 0 {
            return Err(Invalid::new("a block is locked by nobody", pfn, 0, 1));
        }
        // Each of them is free: it came back after anything was last taken.
        let free = self.words(block).iter().map(|w| w.load(Relaxed).count_zeros()).sum();
        if uncounted(state) > free {
            let (kept, found) = (uncounted(state) as u64, free as u64);
            return Err(Invalid::new(
                "frames that came back uncounted and are taken",
                pfn,
                kept,
                found,
            ));
        }
        let dirty = self.is_indexed(block, DIRTY_ROW);
        if !dirty && (remote != 0 || state & DIRTY != 0) {
            return Err(Invalid::new("a block to be swept that nobody would find", pfn, remote, 0));
        }
        if state & DIRTY == 0 {
            if uncounted(state) != 0 {
                return Err(Invalid::new(
                    "frames that came back and would not be counted",
                    pfn,
                    0,
                    uncounted(state) as u64,
                ));
            }
            if !self.rows_are_known(block, rows(state)) {
                return Err(Invalid::new(
                    "room of a block that its rows do not say",
                    pfn,
                    0,
                    rows(state) as u64,
                ));
            }
        }
        let lost =
            (0..ROWS).find(|&row| rows(state) >> row & 1 == 1 && !self.is_indexed(block, row));
        match lost {
            Some(row) if state & CLAIMED == 0 => {
                Err(Invalid::new("a row that nobody would find", pfn, 1, row as u64))
            }
            _ => Ok(()),
        }
    }
}
