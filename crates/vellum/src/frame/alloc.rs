//! The door frames leave by.
//!
//! Every allocation passes [`Frames::alloc`], every frame told to the machine there. The short way is the magazine of this CPU for
//! the node wanted. The long way tries the nodes in order of distance (or the one node of `bind`), filling the magazine on the
//! way, and when all fail empties the magazines of every CPU and tries once more: no frame is out of reach because another
//! CPU once freed it.
//!
//! Data allocations leave each node its minimum, which table nodes and slabs may take: a verb that has to split a large page to
//! give memory back must not fail for want of a table. What lies in magazines is not part of that reserve.

use super::Frames;
use super::magazine::{BATCH, Held, bump};
use super::node::Node;
use crate::addr::{Order, Pfn};
use crate::config::NumaPolicy;
use crate::error::NoMemory;
use crate::machine::{Event, Machine, Use, Work};
use crate::sync::atomic::Ordering;

/// What an allocation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Which node. [`NumaPolicy::Bind`] to a node that does not exist is never served, [`NumaPolicy::Prefer`] then means `Local`.
    pub policy: NumaPolicy,
    /// The page's index, by which [`NumaPolicy::Interleave`] takes turns.
    pub index: u64,
    /// What the frame becomes.
    pub use_: Use,
}

impl Want {
    /// A frame for the library's own needs, near this CPU.
    pub const fn kernel(use_: Use) -> Want {
        Want { policy: NumaPolicy::Local, index: 0, use_ }
    }
}

impl Frames {
    /// Takes a naturally aligned block. Its contents and its record are whatever its last user left. Any CPU, any lock held;
    /// never waits.
    ///
    /// # Errors
    /// [`NoMemory`] if no node the policy allows has such a block, magazines included. Data allocations of 2 MiB and up, for which
    /// their callers have another way, may fail without the magazines having been emptied.
    #[inline]
    pub fn alloc<M: Machine>(&self, m: &M, order: Order, want: &Want) -> Result<Pfn, NoMemory> {
        let cpu = m.cpu();
        let node = self.wanted(cpu, want);
        if order == Order::BASE && node < self.nodes {
            let magazine = self.magazine(cpu, node);
            if let Some(held) = magazine.hold(m)
                && let Some(index) = held.pop()
            {
                bump(&magazine.popped, 1);
                drop(held);
                m.hook(Event::Work(Work::Magazine, 1));
                let pfn = self.node(node).pfn(index);
                m.hook(Event::Frame { first: pfn, order, to: want.use_ });
                return Ok(pfn);
            }
        }
        self.alloc_slowly(m, cpu, node, order, want)
    }

    #[inline]
    fn wanted(&self, cpu: usize, want: &Want) -> usize {
        match want.policy {
            NumaPolicy::Local => self.home[cpu] as usize,
            NumaPolicy::Interleave => (want.index % self.nodes as u64) as usize,
            NumaPolicy::Bind(node) => node as usize,
            NumaPolicy::Prefer(node) if (node as usize) < self.nodes => node as usize,
            NumaPolicy::Prefer(_) => self.home[cpu] as usize,
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        wanted: usize,
        order: Order,
        want: &Want,
    ) -> Result<Pfn, NoMemory> {
        if wanted >= self.nodes {
            return Err(NoMemory);
        }
        let nodes = match want.policy {
            NumaPolicy::Bind(_) => &self.order[wanted][..1],
            _ => &self.order[wanted][..self.nodes],
        };
        let mut emptied = false;
        loop {
            for &node in nodes {
                let node = node as usize;
                if let Some(pfn) = self.alloc_from(m, cpu, node, order, want.use_, node != wanted) {
                    if emptied {
                        self.node(node).shared().defer_shift.store(0, Ordering::Relaxed);
                    }
                    m.hook(Event::Frame { first: pfn, order, to: want.use_ });
                    return Ok(pfn);
                }
            }
            if emptied || !self.empty_magazines(m, nodes, order, want.use_) {
                return Err(NoMemory);
            }
            emptied = true;
        }
    }

    /// One node's answer.
    fn alloc_from<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        at: usize,
        order: Order,
        use_: Use,
        missed: bool,
    ) -> Option<Pfn> {
        let node = self.node(at);
        let magazine = self.magazine(cpu, at);
        let held = magazine.hold(m);
        if let (Some(held), Order::BASE) = (&held, order) {
            if magazine.len() == 0 && !self.refill(m, held, at, use_) && magazine.free_frames() != 0 {
                // Rather break up what this CPU keeps of larger blocks than go to another node.
                held.empty(m, node);
                self.refill(m, held, at, use_);
            }
            let index = held.pop()?;
            bump(&magazine.popped, 1);
            bump(&magazine.missed, missed as u64);
            m.hook(Event::Work(Work::Magazine, 1));
            return Some(node.pfn(index));
        }
        let held = held.as_ref();
        if let Some(index) = held.and_then(|held| held.take_kept(order)) {
            m.hook(Event::Work(Work::Block, 1));
            node.count_alloc(held, order.frames(), missed);
            return Some(node.pfn(index));
        }
        if self.room(at, order.frames(), use_) < order.frames() {
            return None;
        }
        let index =
            if order >= Order::HUGE { node.whole(m, held, order)? } else { node.piece(m, held, order.get() as u32)? };
        m.hook(Event::Work(Work::Block, 1));
        node.count(held, -(order.frames() as i64));
        node.count_alloc(held, order.frames(), missed);
        Some(node.pfn(index))
    }

    /// Fills an empty magazine with a batch, or with what the node can spare; `false` if that is nothing.
    fn refill<M: Machine>(&self, m: &M, held: &Held, at: usize, use_: Use) -> bool {
        let node = self.node(at);
        let mut max = self.room(at, BATCH as u64, Use::Data).min(BATCH as u64);
        if max == 0 {
            // Out of the reserve one at a time: in a magazine it would be anyone's.
            max = self.room(at, 1, use_).min(1);
        }
        if max == 0 {
            return false;
        }
        let got = node.singles(m, Some(held), max as u32, |index| {
            let fits = held.push(index);
            debug_assert!(fits, "a batch did not fit an empty magazine");
        });
        held.reverse(got as usize);
        node.count(Some(held), -(got as i64));
        m.hook(Event::Work(Work::Refill, 1));
        got != 0
    }

    /// Base frames of a node's blocks that an allocation may use. Exact when it is less than `enough`; otherwise at least that.
    fn room(&self, at: usize, enough: u64, use_: Use) -> u64 {
        let node = self.node(at);
        let keep = if use_ == Use::Data { node.marks.min as i64 } else { 0 };
        let sure = node.shared().free.load(Ordering::Relaxed) - node.slack * self.cpus as i64 - keep;
        if sure >= enough as i64 {
            return sure as u64;
        }
        (self.block_free(at) - keep).max(0) as u64
    }

    /// Base frames free in a node's blocks.
    pub(super) fn block_free(&self, at: usize) -> i64 {
        let kept: i64 = (0..self.cpus).map(|cpu| self.magazine(cpu, at).delta.load(Ordering::Relaxed)).sum();
        self.node(at).shared().free.load(Ordering::Relaxed) + kept
    }

    /// Empties the magazines of some nodes if that may help an allocation that just failed.
    fn empty_magazines<M: Machine>(&self, m: &M, nodes: &[u8], order: Order, use_: Use) -> bool {
        let mut any = false;
        for &at in nodes {
            if order >= Order::HUGE && use_ == Use::Data && self.node(at as usize).defers() {
                continue;
            }
            any |= self.drain_node(m, at as usize);
        }
        any
    }

    /// Empties every CPU's magazine of a node; whether there was anything in them.
    pub(super) fn drain_node<M: Machine>(&self, m: &M, at: usize) -> bool {
        let mut any = false;
        for cpu in 0..self.cpus {
            let magazine = self.magazine(cpu, at);
            if magazine.keeps_anything()
                && let Some(held) = magazine.hold(m)
            {
                held.empty(m, self.node(at));
                any = true;
            }
        }
        if any {
            m.hook(Event::Work(Work::Refill, 1));
        }
        any
    }

    /// Gives back to the blocks what CPUs keep for themselves, so that it can be had as large blocks, or counted. A magazine in
    /// use at that moment is left alone.
    pub fn drain<M: Machine>(&self, m: &M) {
        for at in 0..self.nodes {
            self.drain_node(m, at);
        }
    }
}

impl Node {
    /// Changes the count of free base frames: in the magazine if it is held, and in the node when too much has gathered there.
    pub(super) fn count(&self, held: Option<&Held>, frames: i64) {
        let free = &self.shared().free;
        let Some(held) = held else {
            free.fetch_add(frames, Ordering::Relaxed);
            return;
        };
        let delta = &held.magazine.delta;
        let sum = delta.load(Ordering::Relaxed) + frames;
        if sum.abs() > self.slack {
            delta.store(0, Ordering::Relaxed);
            free.fetch_add(sum, Ordering::Relaxed);
        } else {
            delta.store(sum, Ordering::Relaxed);
        }
    }

    /// Whether a huge allocation should fail at once, since emptying the magazines did not help the last ones: after each such
    /// failure twice as many, up to 64, do without.
    fn defers(&self) -> bool {
        let shared = self.shared();
        let left = shared.defer.load(Ordering::Relaxed);
        if left != 0 {
            shared.defer.store(left - 1, Ordering::Relaxed);
            return true;
        }
        let shift = shared.defer_shift.load(Ordering::Relaxed);
        shared.defer_shift.store((shift + 1).min(6), Ordering::Relaxed);
        shared.defer.store((1 << shift) - 1, Ordering::Relaxed);
        false
    }
}
