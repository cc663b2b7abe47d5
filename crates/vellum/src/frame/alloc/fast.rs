//! Allocating a block.
//!
//! Every allocation passes [`Frames::alloc`], which tells the machine of every block. The short
//! path is this CPU's magazine for the node wanted, then its cpu buddy. The long path (`slow`)
//! tries the blocks of the nodes in order of distance, or of the one node of `bind`. When all fail
//! it drains the magazines of every CPU and tries again: no frame is out of reach because another
//! CPU freed it.
//!
//! Data allocations leave each node its minimum, which table nodes and slabs may take: a verb that
//! has to split a huge page to give memory back must not fail for want of a table. Frames in
//! magazines are not part of that reserve.

use crate::addr::{Order, Pfn};
use crate::config::NumaPolicy;
use crate::error::NoMemory;
use crate::frame::alloc::request::AllocRequest;
use crate::frame::alloc::slow::Alloc;
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::{Act, Machine, Work};
use crate::sync::EpochGuard;

impl Frames {
    /// Takes a naturally aligned block. Its contents and its record are whatever its last user
    /// left. Any CPU may call it with any lock held. It waits for nobody while it finds something
    /// else. Before it refuses a block below 2 MiB it waits, by [`Machine::relax`], for the CPUs
    /// that hold what is left; they run with preemption off and wait for nothing meanwhile.
    ///
    /// # Errors
    /// [`NoMemory`] if no node the policy allows has such a block, magazines included; but see
    /// [`AllocRequest::optional`].
    #[inline]
    pub fn alloc<M: Machine>(
        &self,
        m: &M,
        order: Order,
        request: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        m.preempt_off();
        let cpu = m.cpu();
        let got = match request.policy {
            NumaPolicy::Local => self.alloc_on(m, cpu, self.home(cpu), order, request),
            _ => self.alloc_by_policy(m, cpu, order, request),
        };
        m.allow_preemption();
        got
    }

    /// The same of a base frame, in line, for who is in an epoch and so is not preempted.
    ///
    /// # Errors
    /// As [`alloc`](Frames::alloc).
    #[inline(always)]
    pub fn alloc_base<M: Machine>(
        &self,
        epoch: &EpochGuard<'_, M>,
        request: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        let m = epoch.machine();
        let cpu = m.cpu();
        let node = self.home(cpu);
        if let NumaPolicy::Local = request.policy
            && node < self.nodes
            && let Some(index) = self.magazine(cpu, node).pop(m)
        {
            return Ok(popped(m, self.node(node), index, request));
        }
        self.alloc(m, Order::BASE, request)
    }

    /// A block of the node wanted, or else as [`alloc_past_stack`](Frames::alloc_past_stack).
    #[inline(always)]
    fn alloc_on<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        node: usize,
        order: Order,
        request: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        if order == Order::BASE
            && node < self.nodes
            && let Some(index) = self.magazine(cpu, node).pop(m)
        {
            Ok(popped(m, self.node(node), index, request))
        } else {
            self.alloc_past_stack(m, cpu, node, order, request)
        }
    }

    /// A block under a policy that names a node.
    #[inline(never)]
    fn alloc_by_policy<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        order: Order,
        request: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        self.alloc_on(m, cpu, self.wanted_node(cpu, order, request), order, request)
    }

    /// The node that a request is to be served from before all others, which may be none there is.
    #[inline]
    fn wanted_node(&self, cpu: usize, order: Order, request: &AllocRequest) -> usize {
        match request.policy {
            NumaPolicy::Local => self.home(cpu),
            // Blocks take turns, too: their first pages all have even indices.
            NumaPolicy::Interleave => (request.index / order.frames() % self.nodes as u64) as usize,
            NumaPolicy::Bind(node) => node as usize,
            NumaPolicy::Prefer(node) if (node as usize) < self.nodes => node as usize,
            NumaPolicy::Prefer(_) => self.home(cpu),
        }
    }

    /// The nodes that may serve a request of a CPU, in the order in which they are asked.
    pub(crate) fn nodes_for(&self, cpu: usize, order: Order, request: &AllocRequest) -> &[u8] {
        match self.wanted_node(cpu, order, request) {
            node if node < self.nodes => self.nodes_from(node, request.policy),
            _ => &[],
        }
    }

    /// The same where the first one is known.
    pub(super) fn nodes_from(&self, node: usize, policy: NumaPolicy) -> &[u8] {
        let nodes = if let NumaPolicy::Bind(_) = policy { 1 } else { self.nodes };
        &self.order[node][..nodes]
    }

    /// Whatever is not on the stack: first from the cpu buddy, which serves most of the rest.
    #[inline(never)]
    fn alloc_past_stack<M: Machine>(
        &self,
        m: &M,
        cpu: usize,
        at: usize,
        order: Order,
        request: &AllocRequest,
    ) -> Result<Pfn, NoMemory> {
        if at >= self.nodes {
            return Err(NoMemory);
        }
        let Some(held) = self.magazine(cpu, at).hold(m) else {
            return Alloc::new(self, m, cpu, order, *request).without_magazine(at);
        };
        let Some(pfn) = self.view(at).take_cached(m, &held, cpu, order, false) else {
            return Alloc::new(self, m, cpu, order, *request).past_buddy(at, held);
        };
        drop(held);
        m.becomes(pfn, order, request.use_);
        Ok(pfn)
    }
}

/// The frame that a magazine for a node gave.
#[inline(always)]
fn popped<M: Machine>(m: &M, node: &NumaNode, index: u32, request: &AllocRequest) -> Pfn {
    m.work(Work::Magazine, 1);
    let pfn = node.pfn(index);
    m.becomes(pfn, Order::BASE, request.use_);
    pfn
}
