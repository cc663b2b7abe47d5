//! The huge zero page: made at the first use, kept while any space has used it, given back when
//! memory is short.
//!
//! ```text
//!   word: | block number + 1 (0: there is none) | kept | references |
//!   first use   0 -> (block, 2)         the space that asks, and the shrinker
//!   next space  (block, n) -> (block, n + 1)
//!   space ends  (block, n) -> (block, n - 1)     after the flush that covers its last mapping
//!   shrink      (block, 1) -> 0                  then the frames are freed
//! ```
//! Frame and count are one word, so nobody sees one without the other, and "is this the huge zero
//! page" reads one word. Rejected: a pointer and a count apart, as Linux had from 2012 on
//! (preemption must be off between publishing and counting, or others allocate and free 2 MiB for
//! as long as the winner sleeps; and a late shrinker once overwrote the cached frame number).
//!
//! References are per *space*, as in Linux since 2016: one at its first use. One per mapping had 72
//! readers spend half of their time on one cache line. So the page stays until the last space that
//! read it ends; `Vm::keep_zeros` keeps it for ever and counts nothing.

use crate::addr::{Level, Order, PFN_END, Pfn, Va};
use crate::clear::Extent;
use crate::clear::fresh_block::NoBlock;
use crate::error::NoMemory;
use crate::frame::AllocRequest;
use crate::machine::{Machine, Use};
use crate::space::{MAX_SPACES, SpaceRecord};
use crate::stats::Counter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::touch;
use crate::tlb::Flushed;
use crate::zero::Zero;

const KEPT: u64 = 1 << 32;
const COUNT: u64 = KEPT - 1;
const BLOCK_SHIFT: u32 = 33;
/// Uses are refused from here on, and take base pages. What is left is for forks, which do not ask:
/// their children map the page already, and each space holds one reference at most. A thread that
/// comes second to its space's first use holds one more for a moment.
pub(crate) const MOST_USES: u64 = COUNT - MAX_SPACES;

const _: () = {
    assert!(MOST_USES > MAX_SPACES, "every space may hold one, and the shrinker");
    assert!(
        PFN_END >> Order::HUGE.get() <= u64::MAX >> BLOCK_SHIFT,
        "room for every block's number + 1"
    );
};

/// What a space's word says: it holds a reference, or it has used a page that is not counted.
const HOLDS: u64 = 1;
const UNCOUNTED: u64 = 2;

/// The word.
pub(crate) struct HugeZero(AtomicU64);

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HugeZeroWord(u64);

impl HugeZeroWord {
    fn of(first: Pfn, count: u64) -> HugeZeroWord {
        HugeZeroWord(((first.0 >> Order::HUGE.get()) + 1) << BLOCK_SHIFT | count)
    }
    /// First frame of the page, if there is one.
    #[inline]
    fn first(self) -> Option<Pfn> {
        (self.0 >> BLOCK_SHIFT).checked_sub(1).map(|block| Pfn(block << Order::HUGE.get()))
    }
    fn kept(self) -> bool {
        self.0 & KEPT != 0
    }
    fn count(self) -> u64 {
        self.0 & COUNT
    }
}

impl HugeZero {
    pub(super) const fn new() -> HugeZero {
        HugeZero(AtomicU64::new(0))
    }
    /// The word, for tests that make it wrong.
    #[cfg(test)]
    pub fn door(&self) -> &AtomicU64 {
        &self.0
    }
    #[inline]
    fn load(&self) -> HugeZeroWord {
        HugeZeroWord(self.0.load(Ordering::Acquire))
    }
    fn exchange<M: Machine>(&self, m: &M, old: HugeZeroWord, new: HugeZeroWord) -> bool {
        touch(m, &self.0, true);
        self.0.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl<M: Machine> Zero<M> {
    /// `Vm::huge_zero`.
    #[inline]
    pub fn huge_zero(&self) -> Option<Pfn> {
        self.huge_zero.load().first()
    }

    /// `Vm::is_huge_zero`.
    #[inline]
    pub fn is_huge_zero(&self, pfn: Pfn) -> bool {
        self.huge_zero().is_some_and(|first| pfn.0.wrapping_sub(first.0) < Order::HUGE.frames())
    }

    /// Whether what a leaf of that level maps is zeros: one question where the level is known. To
    /// be asked under the lock of the leaf's node, or of an entry read before: a huge page can stop
    /// being the zeros and become data, but not while it is mapped as either.
    #[inline]
    pub fn is_zero_leaf(&self, pfn: Pfn, level: Level) -> bool {
        if level == Level::ONE { self.is_base_zero(pfn) } else { self.is_huge_zero(pfn) }
    }

    /// `Vm::huge_zero_references`.
    pub fn huge_zero_references(&self) -> u64 {
        self.huge_zero.load().count()
    }

    /// The page for a space that may map it from here on; allocates and clears it if need be. No
    /// epoch, no lock; the caller has memory in hand.
    pub fn use_huge_zero(&self, space: &SpaceRecord) -> Result<(), NoBlock> {
        let m = &self.machine;
        let holds = loop {
            touch(m, &self.huge_zero.0, false);
            let seen = self.huge_zero.load();
            if seen.kept() {
                break UNCOUNTED;
            }
            if seen.first().is_none() {
                let want = AllocRequest { optional: true, ..AllocRequest::kernel(Use::Zero) };
                let page = self.frames.alloc(m, Order::HUGE, &want);
                let page = page.map_err(NoBlock::from).and_then(|page| self.clear_huge_zero(page));
                let page = page.inspect_err(|why| {
                    let failed = *why == NoBlock::Memory;
                    self.count(Counter::ThpZeroAllocFailed, i64::from(failed));
                })?;
                if self.huge_zero.exchange(m, seen, HugeZeroWord::of(page, 2)) {
                    self.count(Counter::ThpZeroAlloc, 1);
                    break HOLDS;
                }
                self.untake(page, Order::HUGE);
                continue;
            }
            if seen.count() >= MOST_USES {
                return Err(NoBlock::Memory);
            }
            if self.huge_zero.exchange(m, seen, HugeZeroWord(seen.0 + 1)) {
                break HOLDS;
            }
        };
        touch(m, &space.zeros, true);
        if space.zeros.compare_exchange(0, holds, Ordering::AcqRel, Ordering::Acquire).is_err()
            && holds == HOLDS
        {
            // Another thread of this space was faster; its reference is the space's.
            self.put_reference();
        }
        Ok(())
    }

    /// Makes the page of zeros out of a block, or gives the block back.
    fn clear_huge_zero(&self, page: Pfn) -> Result<Pfn, NoBlock> {
        let extent = Extent {
            first: page,
            frames: Order::HUGE.frames(),
            at: Va(page.addr()),
            fault: Some(0),
        };
        if self.clear_block(&extent).is_err() {
            self.untake(page, Order::HUGE);
            return Err(NoBlock::Stopped);
        }
        self.frames.record(page).set_head(Use::Zero, Order::HUGE);
        Ok(page)
    }

    /// Gives a child what its parent has, once every entry is copied: the parent's reference keeps
    /// the page until then.
    pub fn share_huge_zero(&self, from: &SpaceRecord, to: &SpaceRecord) {
        let holds = from.zeros.load(Ordering::Acquire);
        if holds == HOLDS {
            touch(&self.machine, &self.huge_zero.0, true);
            let old = self.huge_zero.0.fetch_add(1, Ordering::AcqRel);
            debug_assert!(
                HugeZeroWord(old).count() > 1,
                "a space maps a huge page of zeros that it does not hold"
            );
        }
        to.zeros.store(holds, Ordering::Release);
    }

    /// A space is at its end; `flushed` shows that no CPU can reach the page through it.
    pub fn leave_huge_zero(&self, space: &SpaceRecord, flushed: &Flushed) {
        let _ = flushed;
        if space.zeros.swap(0, Ordering::AcqRel) == HOLDS {
            self.put_reference();
        }
    }

    fn put_reference(&self) {
        touch(&self.machine, &self.huge_zero.0, true);
        let old = HugeZeroWord(self.huge_zero.0.fetch_sub(1, Ordering::AcqRel));
        debug_assert!(old.count() > 1, "the last reference is the shrinker's");
    }

    /// `Vm::shrinkable_zeros`.
    pub fn shrinkable_zeros(&self) -> u64 {
        let seen = self.huge_zero.load();
        if seen.count() == 1 && !seen.kept() { Order::HUGE.frames() } else { 0 }
    }

    /// `Vm::shrink_zeros`.
    pub fn shrink_zeros(&self) -> u64 {
        let m = &self.machine;
        let _in_hand = self.hands.begin(m);
        touch(m, &self.huge_zero.0, false);
        let seen = self.huge_zero.load();
        let Some(page) = seen.first() else { return 0 };
        // Every reference given back came with the proof of its flush, so at one no CPU has a
        // translation.
        if seen.kept() || seen.count() != 1 || !self.huge_zero.exchange(m, seen, HugeZeroWord(0)) {
            return 0;
        }
        self.untake(page, Order::HUGE);
        self.count(Counter::ThpZeroRelease, 1);
        Order::HUGE.frames()
    }

    /// `Vm::keep_zeros`.
    pub fn keep_zeros(&self) -> Result<(), NoMemory> {
        self.with_memory(|| self.in_hand(|| self.try_to_keep_zeros())).map_err(|_| {
            self.count(Counter::ThpZeroAllocFailed, 1);
            NoMemory
        })
    }

    fn try_to_keep_zeros(&self) -> Result<(), NoBlock> {
        let m = &self.machine;
        loop {
            touch(m, &self.huge_zero.0, false);
            let seen = self.huge_zero.load();
            if seen.kept() {
                return Ok(());
            }
            if seen.first().is_some() {
                // Spaces that hold a reference give it back when they end; what is left of the
                // count says nothing any more.
                if self.huge_zero.exchange(m, seen, HugeZeroWord(seen.0 | KEPT)) {
                    return Ok(());
                }
                continue;
            }
            let page = self.alloc_exactly(Order::HUGE, &AllocRequest::kernel(Use::Zero))?;
            let page = self.clear_huge_zero(page)?;
            if self.huge_zero.exchange(m, seen, HugeZeroWord(HugeZeroWord::of(page, 1).0 | KEPT)) {
                self.count(Counter::ThpZeroAlloc, 1);
                return Ok(());
            }
            self.untake(page, Order::HUGE);
        }
    }

    /// Whether a space holds a reference that counts, for `validate`.
    pub fn holds_huge_zero(&self, space: &SpaceRecord) -> bool {
        space.zeros.load(Ordering::Acquire) == HOLDS
    }

    /// Whether a space may map the page.
    #[inline]
    pub fn uses_huge_zero(&self, space: &SpaceRecord) -> bool {
        space.zeros.load(Ordering::Acquire) != 0
    }
}
