//! Zero pages in several colours.
//!
//! A page that was read and never written maps a zero frame. With one such frame, the bytes of all
//! those pages at one offset compete for one cache set of each level. With as many frames as the
//! level has *colours* (bytes of a way / bytes of a page), in one aligned block, they spread over
//! the way as any other contiguous memory would. The address alone decides which frame it gets.
//!
//! On average over where other data lies that is no gain (`docs/colour.md`): it takes the worst
//! case away and costs cache for zeros. So the default, [`Colours::L1d`], counts colours of the
//! first level, which is one on every CPU whose way is a page. Rejected: the usual formula, *size*
//! of the level / page, which is too high by the number of ways.
//!
//! Each node with CPUs has a block of its own; with one colour there is one frame for the machine.
//! Small nodes give no more than 1 frame in 1024, but at least 4 if asked (the rule of s390).
//!
//! "Is this a zero frame" is asked for every page that goes. So the span from the lowest zero frame
//! to the highest is kept beside the blocks: outside it the answer takes three instructions.
//! Rejected: a mark in the frame's record, one cache miss for each page that `unmap` meets.

use crate::addr::{Order, Pfn, Va};
use crate::config::{Colours, MAX_COLOURS};
use crate::error::{Invalid, ensure};
use crate::machine::{CacheLevel, Caches, MAX_NODES, Machine, Use};
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::zero::Zero;

/// log2 of the colours of a cache level: pages in a way, rounded down to a power of two, from 1 to
/// [`MAX_COLOURS`]. A level of which nothing is known has one.
pub fn colours_of(level: CacheLevel) -> Order {
    let pages = (level.way_bytes() / Order::BASE.bytes()).clamp(1, MAX_COLOURS);
    Order::new(pages.ilog2() as u8).unwrap_or(Order::BASE)
}

/// log2 of the colours wanted on a node of that many frames.
pub(super) fn wanted(colours: Colours, caches: &Caches, frames: u64) -> Order {
    let order = match colours {
        Colours::L1d => colours_of(caches.l1d),
        Colours::L2 => colours_of(caches.l2),
        Colours::Exactly(order) => {
            return order.min(Order::new(MAX_COLOURS.ilog2() as u8).unwrap_or(Order::BASE));
        }
    };
    let mut order = order.get();
    while order > 2 && frames >> 10 < 1 << order {
        order -= 1;
    }
    Order::new(order).unwrap_or(Order::BASE)
}

/// A naturally aligned block of zero frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(super) first: Pfn,
    /// Frames - 1.
    pub(super) mask: u64,
}

impl Block {
    /// No frame is in it: no frame has that number.
    const NONE: Block = Block { first: Pfn(u64::MAX), mask: 0 };

    /// The frame for an address.
    #[inline]
    pub fn frame(self, va: Va) -> Pfn {
        Pfn(self.first.0 + (va.page() & self.mask))
    }
    #[inline]
    fn has(self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.first.0) <= self.mask
    }
    /// First frame, and how many.
    pub(super) fn range(self) -> (Pfn, u64) {
        if self == Block::NONE { (Pfn(0), 0) } else { (self.first, self.mask + 1) }
    }
}

/// No space was made yet.
pub(super) const UNMADE: u64 = 0;
/// Someone makes the first one; others wait.
pub(super) const MAKING: u64 = 1;
/// All nodes share the block of node 0.
pub(super) const SHARED: u64 = 2;
/// Every node with CPUs has a block of its own.
pub(super) const OWN: u64 = 3;

/// The blocks of all nodes. Written by whoever took `state` from `UNMADE` to `MAKING`, never again
/// once it is more; so whoever has a space may read them without order.
pub(super) struct Zeros {
    pub(super) state: AtomicU64,
    /// The zero frame + 1 if there is one only, else 0: what most machines ask for on each zero
    /// fault.
    pub(super) only: AtomicU64,
    /// The lowest zero frame, and how far it is from there past the highest.
    low: AtomicU64,
    span: AtomicU64,
    first: [AtomicU64; MAX_NODES],
    mask: [AtomicU64; MAX_NODES],
}

impl Zeros {
    pub const fn new() -> Zeros {
        Zeros {
            state: AtomicU64::new(UNMADE),
            only: AtomicU64::new(0),
            low: AtomicU64::new(0),
            span: AtomicU64::new(0),
            first: [const { AtomicU64::new(Block::NONE.first.0) }; MAX_NODES],
            mask: [const { AtomicU64::new(Block::NONE.mask) }; MAX_NODES],
        }
    }
    #[inline]
    pub fn block(&self, slot: usize) -> Block {
        Block {
            first: Pfn(self.first[slot].load(Ordering::Relaxed)),
            mask: self.mask[slot].load(Ordering::Relaxed),
        }
    }
    #[inline]
    fn own(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OWN
    }
    /// Every block once.
    fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        (0..MAX_NODES).map(|slot| self.block(slot)).filter(|&block| block != Block::NONE)
    }
    #[inline]
    fn has(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.low.load(Ordering::Relaxed)) < self.span.load(Ordering::Relaxed)
            && (!self.own() || self.has_exactly(pfn))
    }
    #[cold]
    fn has_exactly(&self, pfn: Pfn) -> bool {
        self.blocks().any(|block| block.has(pfn))
    }
    pub fn set(&self, slot: usize, block: Block) {
        self.first[slot].store(block.first.0, Ordering::Relaxed);
        self.mask[slot].store(block.mask, Ordering::Relaxed);
        let low = self.blocks().map(|block| block.first.0).min().unwrap_or(0);
        let end = self.blocks().map(|block| block.first.0 + block.mask + 1).max().unwrap_or(0);
        self.low.store(low, Ordering::Relaxed);
        self.span.store(end - low, Ordering::Relaxed);
    }
}

/// One CPU's zero faults by colour.
#[repr(C, align(64))]
pub(crate) struct ByColour([AtomicI64; MAX_COLOURS as usize]);

impl ByColour {
    /// By the CPU that owns it, preemption off.
    #[inline]
    fn count(&self, colour: u64) {
        let cell = &self.0[colour as usize % MAX_COLOURS as usize];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
    fn get(&self, colour: usize) -> i64 {
        self.0[colour].load(Ordering::Relaxed)
    }
}

impl<M: Machine> Zero<M> {
    /// `Vm::zeros`.
    pub fn zeros(&self, node: usize) -> (Pfn, u64) {
        let slot = if self.zeros.own() { node } else { 0 };
        if slot < MAX_NODES { self.zeros.block(slot).range() } else { Block::NONE.range() }
    }

    /// `Vm::is_zero`.
    #[inline]
    pub fn is_zero(&self, pfn: Pfn) -> bool {
        self.is_base_zero(pfn) || self.is_huge_zero(pfn)
    }

    /// Whether a frame is zeros that base leaves map.
    #[inline]
    pub fn is_base_zero(&self, pfn: Pfn) -> bool {
        self.zeros.has(pfn)
    }

    /// A span of frames outside of which none is zeros of base leaves: for loops that ask for each
    /// of many pages, and ask [`is_zero`](Zero::is_zero) for those inside. While a space lives it
    /// does not change.
    #[inline]
    pub fn zero_span(&self) -> (Pfn, u64) {
        (Pfn(self.zeros.low.load(Ordering::Relaxed)), self.zeros.span.load(Ordering::Relaxed))
    }

    /// `Vm::zero_frame`.
    pub fn zero_frame(&self, va: Va) -> Option<Pfn> {
        let block = self.zero_block_here();
        (block != Block::NONE).then(|| block.frame(va))
    }

    /// The zero frame, if there is one only.
    #[inline]
    pub fn only_zeros(&self) -> Option<Pfn> {
        self.zeros.only.load(Ordering::Relaxed).checked_sub(1).map(Pfn)
    }

    /// The zeros of this CPU's node.
    pub fn zero_block_here(&self) -> Block {
        self.zeros.block(if self.zeros.own() { self.frames.home(self.machine.cpu()) } else { 0 })
    }

    /// The number of the block that a base zero is of, and the zero for an address in one.
    pub fn zero_slot(&self, pfn: Pfn) -> usize {
        (0..MAX_NODES).find(|&slot| self.zeros.block(slot).has(pfn)).unwrap_or(0)
    }
    pub fn zero_in(&self, slot: usize, va: Va) -> Pfn {
        self.zeros.block(slot).frame(va)
    }

    /// Whether a zero frame has the colour of an address.
    pub fn is_coloured(&self, pfn: Pfn, va: Va) -> bool {
        self.zeros.blocks().any(|block| block.frame(va) == pfn)
    }

    /// `Vm::zero_faults`.
    pub fn zero_faults(&self, colour: usize) -> u64 {
        if colour >= MAX_COLOURS as usize {
            return 0;
        }
        self.by_colour().iter().map(|cpu| cpu.get(colour)).sum::<i64>() as u64
    }

    /// Counts a zero fault at `va`; preemption is off already.
    pub fn count_colour(&self, block: Block, va: Va) {
        if block.mask != 0 {
            self.by_colour()[self.machine.cpu()].count(va.page() & block.mask);
        }
    }

    /// Frames of shared zeros: blocks are aligned to their length and apart from each other, and
    /// every frame says that it is zeros.
    pub fn check_zeros(&self) -> Result<u64, Invalid> {
        let mut sum = 0;
        for (i, block) in self.zeros.blocks().enumerate() {
            let (first, frames) = block.range();
            let low = first.0 & block.mask;
            let right = frames.is_power_of_two() && low == 0;
            ensure(right, "alignment of a block of zeros", first.0, frames, low)?;
            for pfn in (0..frames).map(|i| first.add(i)) {
                let known = self.frames.node_of(pfn).is_some() && self.is_zero(pfn);
                ensure(known, "zeros known as such", pfn.0, 1, 0)?;
                let (zero, used) = (Use::Zero, self.frames.record(pfn).use_());
                ensure(used == zero, "a zero frame's use", pfn.0, zero as u64, used as u64)?;
                let other = self.zeros.blocks().take(i).any(|other| other.has(pfn));
                ensure(!other, "blocks of zeros apart", pfn.0, 1, 2)?;
            }
            sum += frames;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn level(sets: u64, line: u64) -> CacheLevel {
        CacheLevel { sets, ways: 8, line }
    }

    #[test]
    fn colours_are_pages_in_a_way_whatever_the_level_holds() {
        for (sets, colours) in
            [(64, 1), (256, 4), (512, 8), (1024, 16), (2048, 32), (768, 8), (63, 1), (8192, 128)]
        {
            assert_eq!(colours_of(level(sets, 64)).frames(), colours, "{sets} sets");
        }
    }

    #[test]
    fn b_04_what_is_unknown_or_absurd_gives_one_colour_or_the_most_there_are() {
        for unknown in [CacheLevel::UNKNOWN, level(0, 64), level(512, 0)] {
            assert_eq!(colours_of(unknown), Order::BASE, "{unknown:?}");
        }
        for absurd in
            [level(u64::MAX, 64), level(u64::MAX, u64::MAX), level(1 << 40, 64), level(1, u64::MAX)]
        {
            assert_eq!(colours_of(absurd).frames(), MAX_COLOURS, "{absurd:?}");
        }
    }

    #[test]
    fn small_nodes_give_one_frame_in_a_thousand_or_four() {
        let caches = Caches { l2: level(8192, 64), ..Caches::UNKNOWN };
        let on = |frames| wanted(Colours::L2, &caches, frames).frames();
        assert_eq!(
            [on(0), on(4096), on(8192), on(1 << 16), on(1 << 17), on(1 << 30)],
            [4, 4, 8, 64, 128, 128]
        );
        assert_eq!(
            wanted(Colours::Exactly(Order::new(5).unwrap()), &caches, 64).frames(),
            32,
            "said is said"
        );
        assert_eq!(wanted(Colours::L1d, &caches, 1 << 30), Order::BASE);
    }

    #[test]
    fn a_block_has_its_frames_and_no_others() {
        for order in 0..=7 {
            let frames = 1u64 << order;
            for first in [0, frames, 5 << 7, (1 << 36) - frames] {
                let zeros = Zeros::new();
                zeros.set(3, Block { first: Pfn(first), mask: frames - 1 });
                let block = zeros.block(3);
                let end = first + frames;
                assert_eq!(block.range(), (Pfn(first), frames));
                for state in [SHARED, OWN] {
                    zeros.state.store(state, Ordering::Relaxed);
                    assert!((first..end).all(|pfn| zeros.has(Pfn(pfn))));
                    assert!(!zeros.has(Pfn(end)) && !zeros.has(Pfn(first.wrapping_sub(1))));
                    assert!(!zeros.has(Pfn((1 << 52) - 1)) && (first == 0 || !zeros.has(Pfn(0))));
                }
                for page in 0..300 {
                    assert_eq!(block.frame(Va(page << 12 | 0xabc)).0, first + page % frames);
                }
            }
        }
    }

    #[test]
    fn between_the_blocks_of_two_nodes_nothing_is_zeros() {
        let zeros = Zeros::new();
        assert!([0, 1, 512, 1 << 36].iter().all(|&pfn| !zeros.has(Pfn(pfn))));
        zeros.set(0, Block { first: Pfn(64), mask: 7 });
        zeros.set(2, Block { first: Pfn(1 << 20), mask: 3 });
        zeros.state.store(OWN, Ordering::Relaxed);
        let found: std::vec::Vec<u64> = (0..1 << 21).filter(|&pfn| zeros.has(Pfn(pfn))).collect();
        let expected: std::vec::Vec<u64> = (64..72).chain(1 << 20..(1 << 20) + 4).collect();
        assert_eq!(found, expected);
    }
}
