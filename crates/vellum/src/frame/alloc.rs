//! The door frames leave by.
//!
//! Every allocation passes [`Frames::alloc`], every frame told to the machine there. The short way
//! is the magazine of this CPU for the node wanted. The long way tries the nodes in order of
//! distance (or the one node of `bind`), filling the magazine on the way, and when all fail empties
//! the magazines of every CPU and tries once more: no frame is out of reach because another CPU
//! once freed it.
//!
//! Data allocations leave each node its minimum, which table nodes and slabs may take: a verb that
//! has to split a large page to give memory back must not fail for want of a table. What lies in
//! magazines is not part of that reserve.

use crate::addr::{Order, Pfn};
use crate::config::NumaPolicy;
use crate::error::NoMemory;
use crate::frame::block::free_index::ROWS;
use crate::frame::block::search::{Contention, Search};
use crate::frame::cpu::magazine::{BATCH, Held, bump};
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::{BLOCK, MOST_DEFER_SHIFT, NumaNode};
use crate::machine::{Act, Event, Machine, Use, Work};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::touch;

/// How often an allocation is tried again, pending for whoever is at what is left, before it is
/// refused. Once is enough unless contention give back just then.
const ROUNDS: u32 = 64;

/// What an allocation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocRequest {
    /// Which node. [`NumaPolicy::Bind`] to a node that does not exist is never served,
    /// [`NumaPolicy::Prefer`] then means `Local`.
    pub policy: NumaPolicy,
    /// The page's index, by which [`NumaPolicy::Interleave`] takes turns.
    pub index: u64,
    /// What the frame becomes.
    pub use_: Use,
}

impl AllocRequest {
    /// A frame for the library's own needs, near this CPU.
    pub const fn kernel(use_: Use) -> AllocRequest {
        AllocRequest { policy: NumaPolicy::Local, index: 0, use_ }
    }
}

impl Frames {
    /// Takes a naturally aligned block. Its contents and its record are whatever its last user
    /// left. Any CPU, any lock held. It waits for nobody while it finds something else; before a
    /// block below 2 MiB is refused it waits, by [`Machine::relax`], for the CPUs that are at what
    /// is left. They do so with preemption off and wait for nothing meanwhile.
    ///
    /// # Errors
    /// [`NoMemory`] if no node the policy allows has such a block, magazines included. Data
    /// allocations of 2 MiB and up, for which their callers have another way, may fail without the
    /// magazines having been emptied.
    #[inline]
    pub fn alloc<M: Machine>(
        &self,
        m: &M,
        order: Order,
        want: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        m.preempt_off();
        let cpu = m.cpu();
        let node = self.wanted(cpu, want);
        let got = if order == Order::BASE
            && node < self.nodes
            && let Some(index) = self.magazine(cpu, node).pop(m)
        {
            m.hook(Event::Work(Work::Magazine, 1));
            let pfn = self.node(node).pfn(index);
            m.hook(Event::Frame { first: pfn, order, to: want.use_ });
            Ok(pfn)
        } else {
            self.alloc_past(m, cpu, node, order, *want)
        };
        m.allow_preemption();
        got
    }

    #[inline]
    fn wanted(&self, cpu: usize, want: &AllocRequest) -> usize {
        match want.policy {
            NumaPolicy::Local => self.home(cpu),
            NumaPolicy::Interleave => (want.index % self.nodes as u64) as usize,
            NumaPolicy::Bind(node) => node as usize,
            NumaPolicy::Prefer(node) if (node as usize) < self.nodes => node as usize,
            NumaPolicy::Prefer(_) => self.home(cpu),
        }
    }

    /// Whatever is not on the stack: first what this CPU keeps, which is most of the rest.
    #[inline(never)]
    fn alloc_past<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        at: usize,
        order: Order,
        want: AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        if at >= self.nodes {
            return Err(NoMemory);
        }
        let (held, contention) = (self.magazine(cpu, at).hold(m), Contention::default());
        let pfn = self.alloc_at(m, held.as_ref(), cpu, at, order, want.use_, false, &contention);
        drop(held);
        let Some(pfn) = pfn else {
            return self.alloc_slowly(m, cpu, at, order, want, contention);
        };
        m.hook(Event::Frame { first: pfn, order, to: want.use_ });
        Ok(pfn)
    }

    /// One node's answer.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn alloc_at<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        cpu: usize,
        at: usize,
        order: Order,
        use_: Use,
        missed: bool,
        contention: &Contention,
    ) -> Option<Pfn> {
        if let Some(held) = held
            && let Some(index) = self.keeps(held, cpu, at, order.get() as u32)
        {
            let node = self.node(at);
            node.count_alloc(Some(held), order.frames(), missed);
            m.hook(Event::Work(Work::Block, 1));
            return Some(node.pfn(index));
        }
        self.alloc_from(m, held, cpu, at, order, use_, missed, contention)
    }

    /// A larger block that this CPU keeps, or part of one if nothing fits better.
    #[inline(always)]
    fn keeps(&self, held: &Held, cpu: usize, at: usize, order: u32) -> Option<u32> {
        if order == 0 || order > BLOCK {
            return None;
        }
        if let Some(index) = held.take_buddy(order) {
            return Some(index);
        }
        let larger = held.buddy_above(order)?;
        if self.node(at).fits_better(held, cpu, order as usize..larger as usize) {
            return None;
        }
        held.split_buddy(larger, order)
    }

    /// What the node wanted, asked once, has not.
    #[cold]
    #[inline(never)]
    fn alloc_slowly<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        wanted: usize,
        order: Order,
        want: AllocRequest,
        contention: Contention,
    ) -> Result<Pfn, NoMemory> {
        let nodes = match want.policy {
            NumaPolicy::Bind(_) => &self.order[wanted][..1],
            _ => &self.order[wanted][..self.nodes],
        };
        let (mut asked, mut emptied, mut alone, mut rounds) = (1, false, false, 0);
        loop {
            for &node in &nodes[asked..] {
                let node = node as usize;
                let held = self.magazine(cpu, node).hold(m);
                let missed = node != wanted;
                if let Some(pfn) = self.alloc_at(
                    m,
                    held.as_ref(),
                    cpu,
                    node,
                    order,
                    want.use_,
                    missed,
                    &contention,
                ) {
                    if emptied {
                        self.node(node).shared().defer_shift.store(0, Ordering::Relaxed);
                    }
                    m.hook(Event::Frame { first: pfn, order, to: want.use_ });
                    return Ok(pfn);
                }
            }
            asked = 0;
            if order >= Order::HUGE {
                if emptied || !self.empty_magazines(m, nodes, order, want.use_, &contention) {
                    return Err(NoMemory);
                }
                emptied = true;
                continue;
            }
            // Refused is what was not found while nobody else was at what is left: neither before
            // the look nor after it.
            let found = self.empty_magazines(m, nodes, order, want.use_, &contention)
                | contention.passed_over.take();
            if alone && !found || rounds == ROUNDS {
                return Err(NoMemory);
            }
            (emptied, alone, rounds) = (emptied || found, !found, rounds + 1);
            // From here on contention are waited for.
            contention.wait.set(true);
        }
    }

    /// The same, nothing fitting being kept.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn alloc_from<M: Machine>(
        &self,
        m: &M,
        held: Option<&Held>,
        cpu: usize,
        at: usize,
        order: Order,
        use_: Use,
        missed: bool,
        contention: &Contention,
    ) -> Option<Pfn> {
        let node = self.node(at);
        let by = Search { m, held, area: node.area(cpu), contention };
        if let (Some(held), Order::BASE) = (held, order) {
            let magazine = held.magazine;
            if magazine.len() == 0
                && !self.refill(&by, held, at, use_)
                && magazine.free_frames() != 0
            {
                // Rather break up what this CPU keeps of larger blocks than go to another node.
                held.empty(m, node);
                self.refill(&by, held, at, use_);
            }
            let index = held.pop()?;
            bump(&magazine.missed, missed as u64);
            m.hook(Event::Work(Work::Magazine, 1));
            return Some(node.pfn(index));
        }
        let index = match order {
            _ if order < Order::HUGE => self.sub_block(&by, at, order.get() as u32, use_)?,
            _ if self.available(at, order.frames(), use_) < order.frames() => return None,
            _ => self.take_huge(&by, at, order)?,
        };
        m.hook(Event::Work(Work::Block, 1));
        node.count_alloc(held, order.frames(), missed);
        Some(node.pfn(index))
    }

    /// A block of 2 MiB or more that is not kept; a batch of them while there are plenty.
    fn take_huge<M: Machine>(&self, by: &Search<M>, at: usize, order: Order) -> Option<u32> {
        if let Some(held) = by.held
            && order == Order::HUGE
            && self.may_batch(at)
            && let Some(index) = self.batch(by, held, at)
        {
            return Some(index);
        }
        let node = self.node(at);
        let index = node.take_huge(by, order)?;
        node.count(by.held, -(order.frames() as i64));
        Some(index)
    }

    /// Whether a node has 2 MiB blocks in such plenty that CPUs take several at once.
    fn may_batch(&self, at: usize) -> bool {
        let keep = self.node(at).cpu_huge as u64;
        keep > 1 && self.available(at, keep << BLOCK, Use::Data) >= keep << BLOCK
    }

    /// One block of 2 MiB of several, the rest of which is kept. None may be kept already.
    fn batch<M: Machine>(&self, by: &Search<M>, held: &Held, at: usize) -> Option<u32> {
        let (index, n) = self.node(at).take_huge_batch(by, held)?;
        self.node(at).count(Some(held), -((n << BLOCK) as i64));
        Some(index)
    }

    /// A piece of order 0 to 8 that is not kept.
    fn sub_block<M: Machine>(
        &self,
        by: &Search<M>,
        at: usize,
        order: u32,
        use_: Use,
    ) -> Option<u32> {
        let node = self.node(at);
        if let Some(held) = by.held {
            if let Some(larger) = held.buddy_above(order) {
                let run = self.run(by, held, at, order, larger, false);
                return run.or_else(|| held.split_buddy(larger, order));
            }
            // A whole block of one's own is opened without anyone else's noticing.
            let has_whole = held.has_huge() || self.may_batch(at);
            let rows = ROWS as u32;
            if let Some(index) = self.run(by, held, at, order, rows, !has_whole) {
                return Some(index);
            }
            if has_whole {
                if let Some(index) = held.take_buddy(BLOCK).or_else(|| self.batch(by, held, at)) {
                    node.split_huge(by.m, (index >> BLOCK) as usize);
                    held.keep_rest_of(index, BLOCK, order);
                    return Some(index);
                }
                if let Some(index) = self.run(by, held, at, order, rows, true) {
                    return Some(index);
                }
            }
        }
        if self.available(at, 1 << order, use_) < 1 << order {
            return None;
        }
        let claimed = || self.claimed(at).find_map(|block| node.sub_block_of(by, block, order));
        let index = node.sub_block(by, order).or_else(claimed)?;
        node.count(by.held, -(1 << order));
        Some(index)
    }

    /// A run of an order from `order` on and below `end`, nothing of which is kept; what is left of
    /// it is.
    fn run<M: Machine>(
        &self,
        by: &Search<M>,
        held: &Held,
        at: usize,
        order: u32,
        end: u32,
        anywhere: bool,
    ) -> Option<u32> {
        // What is kept beyond the piece is anyone's, so nothing of the reserve may come along.
        let half = 1 << (ROWS - 1);
        if self.available(at, half, Use::Data) < half {
            return None;
        }
        let node = self.node(at);
        held.forget_rows();
        let (index, row) = node.run(by, order as usize..end as usize, anywhere)?;
        node.count(Some(held), -(1 << row));
        held.keep_rest_of(index, row, order);
        Some(index)
    }

    /// Fills an empty magazine with a batch, or with what the node can spare; `false` if that is
    /// nothing.
    fn refill<M: Machine>(&self, by: &Search<M>, held: &Held, at: usize, use_: Use) -> bool {
        let node = self.node(at);
        let mut max = self.available(at, BATCH as u64, Use::Data).min(BATCH as u64);
        if max == 0 {
            // SweepGuard of the reserve one at a time: in a magazine it would be anyone's.
            max = self.available(at, 1, use_).min(1);
        }
        if max == 0 {
            return false;
        }
        held.forget_rows();
        let mut got = node.singles(by, held, max as u32);
        if got == 0 {
            got = self
                .claimed(at)
                .find_map(|block| node.singles_of(by, held, block, max as u32))
                .unwrap_or(0);
        }
        node.count(Some(held), -(got as i64));
        by.m.hook(Event::Work(Work::Refill, 1));
        got != 0
    }

    /// Blocks of a node that CPUs claim just now.
    fn claimed(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.cpus).filter_map(move |cpu| self.magazine(cpu, at).current())
    }

    /// Base frames of a node's blocks that an allocation may use. Exact when it is less than
    /// `enough`; otherwise at least that.
    fn available(&self, at: usize, enough: u64, use_: Use) -> u64 {
        let node = self.node(at);
        let keep = if use_ == Use::Data { node.marks.min as i64 } else { 0 };
        let sure =
            node.shared().free.load(Ordering::Relaxed) - node.slack * self.cpus as i64 - keep;
        if sure >= enough as i64 {
            return sure as u64;
        }
        (self.block_free(at) - keep).max(0) as u64
    }

    /// Base frames free in a node's blocks.
    pub(super) fn block_free(&self, at: usize) -> i64 {
        let kept: i64 =
            (0..self.cpus).map(|cpu| self.magazine(cpu, at).delta.load(Ordering::Relaxed)).sum();
        let node = self.node(at);
        node.shared().free.load(Ordering::Relaxed) + kept + node.uncounted(|| {}) as i64
    }

    /// Empties the magazines of some nodes if that may help an allocation that just failed.
    fn empty_magazines<M: Machine>(
        &self,
        m: &M,
        nodes: &[u8],
        order: Order,
        use_: Use,
        contention: &Contention,
    ) -> bool {
        let mut any = false;
        for &at in nodes {
            if order >= Order::HUGE && use_ == Use::Data && self.node(at as usize).defers() {
                continue;
            }
            any |= self.drain_node(m, at as usize, contention);
        }
        any
    }

    /// Tells contention that this CPU sweeps the blocks with no magazine in its hands, until the guard
    /// is dropped. Preemption is off, and it waits for nobody but who has locked a block.
    #[cold]
    fn enter_sweep<'a, M: Machine>(&'a self, m: &'a M) -> SweepGuard<'a, M> {
        touch(m, &self.out, true);
        self.out.fetch_add(1, Ordering::AcqRel);
        SweepGuard { out: &self.out, m }
    }

    /// Empties every CPU's magazine of a node; whether there was anything in them, or anybody was
    /// waited for.
    fn drain_node<M: Machine>(&self, m: &M, at: usize, contention: &Contention) -> bool {
        let mut any = false;
        touch(m, &self.out, false);
        while self.out.load(Ordering::Acquire) != 0 {
            if !contention.wait.get() {
                contention.passed_over.set(true);
                break;
            }
            any = true;
            m.relax();
        }
        for cpu in 0..self.cpus {
            let magazine = self.magazine(cpu, at);
            if !magazine.is_used() && !magazine.is_held() {
                continue;
            }
            let held = if contention.wait.get() {
                Some(magazine.hold_waiting(m))
            } else {
                magazine.hold(m)
            };
            match held {
                Some(held) => {
                    held.empty(m, self.node(at));
                    any = true;
                }
                None => contention.passed_over.set(true),
            }
        }
        if any {
            m.hook(Event::Work(Work::Refill, 1));
        }
        any
    }

    /// Gives back to the blocks what CPUs keep for themselves, so that it can be had as large
    /// blocks, or counted. A magazine in use at that moment is left alone.
    pub fn drain<M: Machine>(&self, m: &M) {
        self.drain_all(m, false);
    }

    /// The same; if it is to `wait`, for whoever has a magazine or a block just now.
    pub(crate) fn drain_all<M: Machine>(&self, m: &M, wait: bool) {
        let contention = Contention::default();
        contention.wait.set(wait);
        m.preempt_off();
        for at in 0..self.nodes {
            self.drain_node(m, at, &contention);
            let _out = self.enter_sweep(m);
            let node = self.node(at);
            node.sweep(m, None, node.lead..node.blocks, usize::MAX, wait);
        }
        m.allow_preemption();
    }
}

/// A CPU sweeps the blocks with no magazine in its hands.
struct SweepGuard<'a, M: Machine> {
    out: &'a AtomicU32,
    m: &'a M,
}

impl<M: Machine> Drop for SweepGuard<'_, M> {
    fn drop(&mut self) {
        touch(self.m, self.out, true);
        self.out.fetch_sub(1, Ordering::Release);
    }
}

impl NumaNode {
    /// Changes the count of free base frames: in the magazine if it is held, and in the node when
    /// too much has gathered there.
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

    /// Whether a huge allocation should fail at once, since emptying the magazines did not help the
    /// last ones: after each such failure twice as many, up to 64, do without.
    fn defers(&self) -> bool {
        let shared = self.shared();
        let left = shared.defer.load(Ordering::Relaxed);
        if left != 0 {
            shared.defer.store(left - 1, Ordering::Relaxed);
            return true;
        }
        let shift = shared.defer_shift.load(Ordering::Relaxed);
        shared.defer_shift.store((shift + 1).min(MOST_DEFER_SHIFT), Ordering::Relaxed);
        shared.defer.store((1 << shift) - 1, Ordering::Relaxed);
        false
    }
}
