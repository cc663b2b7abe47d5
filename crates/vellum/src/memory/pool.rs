//! Blocks reserved for mappings that want one size of leaf and no other.
//!
//! Memory fragments; whoever needs 1 GiB pages reserves them early and keeps them. A pool holds up
//! to the number of blocks asked for. Mappings of that exact leaf size take from it first, and what
//! is freed of that size refills it. The blocks come back as their last owner left them: nothing
//! that leaves a pool is known to be zero, whatever the allocator does (`alloc.zero`).
//!
//! A stack a size and memory node, linked through a word of the blocks' own records, under a lock a
//! size: a block of 2 MiB is taken some thousand times a second at most. A mapping takes from the
//! nodes that its policy allows, the nearest first. Rejected: a list without locks (nothing to win
//! at that rate), and clearing on the way in (whoever frees would pay for it).

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::AllocRequest;
use crate::machine::{Act, MAX_NODES, Machine, Use};
use crate::memory::Memory;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Inner, Lock};

/// The word of a block's record that names the next block + 1.
const NEXT: usize = 7;

/// Both sizes' stacks.
pub(crate) struct Pools([Stacks; 2]);

struct Stacks {
    lock: Lock<Inner>,
    /// Blocks to hold at most.
    wanted: AtomicU64,
    /// Blocks held. Changed under the lock.
    kept: AtomicU64,
    /// First frame of the uppermost block of each memory node + 1. Under the lock.
    tops: [AtomicU64; MAX_NODES],
}

impl Pools {
    pub const fn new() -> Pools {
        Pools(
            [const {
                Stacks {
                    lock: Lock::new(),
                    wanted: AtomicU64::new(0),
                    kept: AtomicU64::new(0),
                    tops: [const { AtomicU64::new(0) }; MAX_NODES],
                }
            }; 2],
        )
    }

    fn of(&self, order: Order) -> Option<&Stacks> {
        [Order::HUGE, Order::GIANT].iter().position(|&o| o == order).map(|i| &self.0[i])
    }
}

impl<M: Machine> Memory<M> {
    /// `Vm::pool`.
    pub fn pool(&self, order: Order, blocks: u64) -> Result<(), NoMemory> {
        let stack = self.pools.of(order).ok_or(NoMemory)?;
        stack.wanted.store(blocks, Ordering::Relaxed);
        self.with_memory(|| self.in_hand(|| self.fill_pool(stack, order, blocks)))
    }

    fn fill_pool(&self, stack: &Stacks, order: Order, blocks: u64) -> Result<(), NoMemory> {
        // Under the lock, so that who keeps a block for what was wanted before has kept it.
        while let Some(pfn) = self.pop(stack, order, None) {
            self.frames.give_back(&self.machine, pfn, order);
        }
        let wanted = || stack.wanted.load(Ordering::Relaxed).min(blocks);
        while stack.kept.load(Ordering::Relaxed) < wanted() {
            let pfn = self.alloc_exactly(order, &AllocRequest::kernel(Use::Data))?;
            if !self.give_to_pool(pfn, order) {
                self.untake(pfn, order);
            }
        }
        Ok(())
    }

    /// Keeps a block nobody uses any more, its flush over; `false` if the pool wants none.
    #[inline]
    pub(crate) fn give_to_pool(&self, pfn: Pfn, order: Order) -> bool {
        let Some(stack) = self.pools.of(order) else { return false };
        stack.wanted.load(Ordering::Relaxed) != 0 && self.keep(stack, pfn, order)
    }

    #[cold]
    fn keep(&self, stack: &Stacks, pfn: Pfn, order: Order) -> bool {
        let m = &self.machine;
        stack.lock.lock_raw(m);
        let kept = stack.kept.load(Ordering::Relaxed);
        let wants = kept < stack.wanted.load(Ordering::Relaxed);
        if wants {
            m.becomes(pfn, order, Use::Free);
            let top = &stack.tops[self.frames.node_of(pfn).unwrap_or(0)];
            let next = top.swap(pfn.0 + 1, Ordering::Relaxed);
            self.frames.record(pfn).word(NEXT).store(next, Ordering::Relaxed);
            self.holds(stack, kept + 1);
        }
        // SAFETY: taken above, on this CPU; the chain is whole.
        unsafe { stack.lock.unlock_raw(m) };
        wants
    }

    /// Under the pool's lock.
    fn holds(&self, stack: &Stacks, blocks: u64) {
        stack.kept.store(blocks, Ordering::Relaxed);
        self.frames.count_pool_op(&self.machine);
    }

    fn take_from_pool(&self, order: Order, want: &AllocRequest) -> Option<Pfn> {
        let stack = self.pools.of(order)?;
        if stack.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.pop(stack, order, Some(want))
    }

    /// The uppermost block of the nearest node that the request allows; without one of any node,
    /// and only if there are more than the pool is to hold.
    fn pop(&self, stack: &Stacks, order: Order, want: Option<&AllocRequest>) -> Option<Pfn> {
        let m = &self.machine;
        stack.lock.lock_raw(m);
        let kept = stack.kept.load(Ordering::Relaxed);
        let least = if want.is_none() { stack.wanted.load(Ordering::Relaxed) } else { 0 };
        let local = AllocRequest::kernel(Use::Data);
        let nodes = self.frames.nodes_for(m.cpu(), order, want.unwrap_or(&local));
        let mut tops = nodes.iter().map(|&node| &stack.tops[usize::from(node)]);
        let found = tops.find_map(|top| {
            let first = top.load(Ordering::Relaxed).checked_sub(1).map(Pfn)?;
            (kept > least).then_some((top, first))
        });
        if let Some((top, pfn)) = found {
            let next = self.frames.record(pfn).word(NEXT).load(Ordering::Relaxed);
            top.store(next, Ordering::Relaxed);
            self.holds(stack, kept - 1);
            m.becomes(pfn, order, Use::Data);
        }
        // SAFETY: taken above, on this CPU; the chain is whole.
        unsafe { stack.lock.unlock_raw(m) };
        found.map(|(_, pfn)| pfn)
    }

    /// A block where nothing smaller will do. What CPUs keep is given back for it, however often
    /// that was in vain (`NodeCounters::defers`), and who is just doing the same is waited for.
    pub(crate) fn alloc_exactly(&self, order: Order, want: &AllocRequest) -> Result<Pfn, NoMemory> {
        let m = &self.machine;
        let easily = AllocRequest { optional: true, ..*want };
        self.frames.alloc(m, order, &easily).or_else(|NoMemory| {
            self.frames.drain_all(m, true);
            self.frames.alloc(m, order, want)
        })
    }

    /// A block for a leaf of `order`, from the pool if the mapping wants `exactly` that size.
    pub(crate) fn alloc_block(
        &self,
        order: Order,
        want: &AllocRequest,
        exactly: bool,
    ) -> Result<Pfn, NoMemory> {
        if !exactly {
            let want = AllocRequest { optional: true, ..*want };
            return self.frames.alloc(&self.machine, order, &want);
        }
        self.take_from_pool(order, want).map_or_else(|| self.alloc_exactly(order, want), Ok)
    }

    /// Gives back a block that [`alloc_block`](Self::alloc_block) took and that nobody saw. Only
    /// one for a mapping that wants `exactly` that size can have come from a pool.
    pub(crate) fn untake_block(&self, pfn: Pfn, order: Order, exactly: bool) {
        if exactly && self.give_to_pool(pfn, order) {
            // Out of its pool and back, which is what one frame adds.
            self.hands.untook(&self.machine, 1);
        } else {
            self.untake(pfn, order);
        }
    }

    /// Base frames in pools, recounted; `None` if a chain is not as long as it should be.
    pub(crate) fn pooled_frames(&self) -> Option<u64> {
        let mut frames = 0;
        for (stack, order) in self.pools.0.iter().zip([Order::HUGE, Order::GIANT]) {
            let (mut found, kept) = (0, stack.kept.load(Ordering::Relaxed));
            for (node, top) in stack.tops.iter().enumerate() {
                let mut next = top.load(Ordering::Relaxed);
                while let Some(pfn) = next.checked_sub(1).map(Pfn) {
                    if found == kept || self.frames.node_of(pfn) != Some(node) {
                        return None;
                    }
                    found += 1;
                    next = self.frames.record(pfn).word(NEXT).load(Ordering::Relaxed);
                }
            }
            if found != kept {
                return None;
            }
            frames += kept * order.frames();
        }
        Some(frames)
    }
}
