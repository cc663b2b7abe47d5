//! An allocation that the stack of this CPU's magazine could not serve.

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::alloc::drain::Unheld;
use crate::frame::alloc::on_node::NodeAlloc;
use crate::frame::alloc::request::{AllocRequest, Contention};
use crate::frame::alloc::search::Search;
use crate::frame::cpu::magazine::Held;
use crate::frame::frames::Frames;
use crate::machine::{Act, Machine};
use crate::sync::atomic::Ordering;

/// How often an allocation tries again, waiting for the CPUs that hold what is left, before it is
/// refused. Once is enough unless others free memory just then.
const ROUNDS: u32 = 64;

/// The allocation.
pub struct Alloc<'f, M: Machine> {
    frames: &'f Frames,
    m: &'f M,
    cpu: usize,
    order: Order,
    request: AllocRequest,
    contention: Contention,
}

impl<'f, M: Machine> Alloc<'f, M> {
    #[inline(always)]
    pub fn new(
        frames: &'f Frames,
        m: &'f M,
        cpu: usize,
        order: Order,
        request: AllocRequest,
    ) -> Alloc<'f, M> {
        Alloc { frames, m, cpu, order, request, contention: Contention::default() }
    }

    /// A block from the cpu buddy or the blocks of one node. `missed`: another node was wanted.
    fn try_node(&self, at: usize, missed: bool) -> Option<Pfn> {
        let Some(held) = self.frames.magazine(self.cpu, at).hold(self.m) else {
            return self.take_unheld(at, missed);
        };
        let cached = self.frames.view(at).take_cached(self.m, &held, self.cpu, self.order, missed);
        cached.or_else(|| self.take_from_blocks(at, Some(&held), missed))
    }

    /// What neither the stack nor the cpu buddy of the CPU has, whose magazine it holds.
    #[inline(never)]
    pub fn past_buddy(&self, at: usize, held: Held) -> Result<Pfn, NoMemory> {
        let pfn = self.take_from_blocks(at, Some(&held), false);
        drop(held);
        let Some(pfn) = pfn else { return self.try_all_nodes(at) };
        self.m.becomes(pfn, self.order, self.request.use_);
        Ok(pfn)
    }

    /// The same while somebody else holds its magazine.
    #[cold]
    #[inline(never)]
    pub fn without_magazine(&self, at: usize) -> Result<Pfn, NoMemory> {
        let Some(pfn) = self.take_unheld(at, false) else { return self.try_all_nodes(at) };
        self.m.becomes(pfn, self.order, self.request.use_);
        Ok(pfn)
    }

    #[cold]
    #[inline(never)]
    fn take_unheld(&self, at: usize, missed: bool) -> Option<Pfn> {
        let _unheld = Unheld::enter(self.frames, self.m);
        self.take_from_blocks(at, None, missed)
    }

    #[inline(never)]
    fn take_from_blocks(&self, at: usize, held: Option<&Held>, missed: bool) -> Option<Pfn> {
        let view = self.frames.view(at);
        let (node, m, contention) = (view.node(), self.m, &self.contention);
        let search = Search { m, node, held, area: node.area(self.cpu), contention };
        NodeAlloc { view, search, order: self.order, use_: self.request.use_, missed }.take()
    }

    /// A block from any node the policy allows, after the wanted one was asked once.
    #[cold]
    #[inline(never)]
    fn try_all_nodes(&self, wanted: usize) -> Result<Pfn, NoMemory> {
        let (m, order, contention) = (self.m, self.order, &self.contention);
        let nodes = self.frames.nodes_from(wanted, self.request.policy);
        let (mut asked, mut drained, mut alone, mut rounds) = (1, false, false, 0);
        loop {
            for &node in &nodes[asked..] {
                let node = node as usize;
                if let Some(pfn) = self.try_node(node, node != wanted) {
                    if drained {
                        let counters = self.frames.node(node).counters();
                        counters.defer_shift.store(0, Ordering::Relaxed);
                    }
                    m.becomes(pfn, order, self.request.use_);
                    return Ok(pfn);
                }
            }
            asked = 0;
            if order >= Order::HUGE {
                if drained || !self.drain(nodes) {
                    return Err(NoMemory);
                }
                drained = true;
                continue;
            }
            // An allocation is refused when it found nothing while no other CPU held what is left,
            // neither before the look nor after it.
            let found = self.drain(nodes) | contention.passed_over.take();
            if alone && !found || rounds == ROUNDS {
                return Err(NoMemory);
            }
            (drained, alone, rounds) = (drained || found, !found, rounds + 1);
            // From here on it waits for other CPUs.
            contention.wait.set(true);
        }
    }

    /// Drains the magazines of some nodes if that may help this allocation, which has just failed.
    fn drain(&self, nodes: &[u8]) -> bool {
        let mut any = false;
        for &at in nodes {
            let view = self.frames.view(at as usize);
            let defers = self.order >= Order::HUGE && self.request.optional;
            if defers && view.node().counters().defers() {
                continue;
            }
            any |= view.drain(self.m, &self.contention);
        }
        any
    }
}
