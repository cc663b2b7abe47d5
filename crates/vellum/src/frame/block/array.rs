//! The blocks of a memory node: a state, the frame bits, the remote-free bits and a busy bit each.
//!
//! The arrays are indexed by block (2 MiB). Block 0 starts at the 1 GiB boundary at or below the
//! node's first frame, so an index is aligned as its address is. No memory lies behind the blocks
//! below the node's first one: the array pointers are biased, and busy bits keep everyone out.
//!
//! A busy word covers a group of 64 blocks. Whoever sets the busy bit of a free block owns it.

use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{Order, Pfn};
use crate::frame::block::bits::{self, BLOCK, Bits, WORDS};
use crate::frame::block::state::{KIND, OPEN, huge_state};
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::touch;

/// Blocks that a busy word covers.
pub const GROUP: usize = 64;

/// The blocks of a memory node.
pub struct Blocks {
    /// First block with a frame of the node, and the first past the last such.
    pub first: usize,
    pub end: usize,
    /// The number of those blocks.
    count: usize,
    busy: NonNull<AtomicU64>,
    /// Biased: indexed from block `first`; so are the next two.
    states: *const AtomicU32,
    bits: *const Bits,
    remote: *const Bits,
}

impl Blocks {
    /// Those of no node.
    pub const NONE: Blocks = Blocks {
        first: 0,
        end: 0,
        count: 0,
        busy: NonNull::dangling(),
        states: core::ptr::null(),
        bits: core::ptr::null(),
        remote: core::ptr::null(),
    };

    /// The blocks that have one of `frames` frames from `first` on; `base` is the first frame of
    /// block 0. Their arrays are not placed yet.
    pub fn measure(base: Pfn, first: Pfn, frames: u64) -> Blocks {
        let end = (first.0 + frames - base.0).div_ceil(1 << BLOCK) as usize;
        let first = ((first.0 - base.0) >> BLOCK) as usize;
        Blocks { first, end, count: end - first, ..Blocks::NONE }
    }

    /// Says where the arrays are: [`groups`](Blocks::groups) busy words, and of the others one item
    /// for each of [`len`](Blocks::len) blocks.
    ///
    /// # Safety
    /// They are zeroed and live as long as the value, or its words are never read.
    pub unsafe fn place(
        &mut self,
        busy: NonNull<AtomicU64>,
        states: NonNull<AtomicU32>,
        bits: NonNull<Bits>,
        remote: NonNull<Bits>,
    ) {
        self.busy = busy;
        self.states = states.as_ptr().wrapping_sub(self.first);
        self.bits = bits.as_ptr().wrapping_sub(self.first);
        self.remote = remote.as_ptr().wrapping_sub(self.first);
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> Range<usize> {
        self.first..self.end
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Groups of blocks, each with a busy word.
    #[inline]
    pub fn groups(&self) -> usize {
        self.end.div_ceil(GROUP)
    }

    /// Whether there is such a block.
    #[inline]
    fn has(&self, block: usize) -> bool {
        block.wrapping_sub(self.first) < self.count
    }

    /// The busy word that has the bit of a block.
    #[inline]
    pub fn busy_word(&self, block: usize) -> &AtomicU64 {
        assert!(block / GROUP < self.groups());
        // SAFETY: `place` was given as many busy words as groups.
        unsafe { self.busy.add(block / GROUP).as_ref() }
    }

    /// The busy bit of a block in its word.
    #[inline]
    pub const fn busy_bit(block: usize) -> u64 {
        1 << (block % GROUP)
    }

    /// Clears bits of the busy word of a block.
    #[inline]
    pub fn clear_busy<M: Machine>(&self, m: &M, block: usize, bits: u64) {
        let word = self.busy_word(block);
        touch(m, word, true);
        word.fetch_and(!bits, SeqCst);
    }

    /// The state of a block.
    #[inline]
    pub fn state(&self, block: usize) -> &AtomicU32 {
        assert!(self.has(block));
        // SAFETY: an array for the blocks from `first` to `end`, its pointer biased by `first`.
        unsafe { &*self.states.wrapping_add(block) }
    }

    /// The frame bits of a block: set means taken.
    #[inline]
    pub fn words(&self, block: usize) -> &[AtomicU64; WORDS] {
        assert!(self.has(block));
        // SAFETY: as for `state`.
        unsafe { &(*self.bits.wrapping_add(block)).0 }
    }

    /// The remote-free bits of a block: frames that were freed while another CPU had it locked.
    /// They are changed by atomic operations only.
    #[inline]
    pub fn remote(&self, block: usize) -> &[AtomicU64; WORDS] {
        assert!(self.has(block));
        // SAFETY: as for `state`.
        unsafe { &(*self.remote.wrapping_add(block)).0 }
    }

    /// Whether a frame is taken, and not part of a huge block.
    #[inline]
    pub fn looks_taken(&self, index: u32) -> bool {
        let block = (index >> BLOCK) as usize;
        let bits = self.words(block)[index as usize / 64 % WORDS].load(Relaxed);
        self.state(block).load(Relaxed) & KIND == OPEN && bits >> (index % 64) & 1 == 1
    }

    /// Whether a huge block of `order` was allocated there.
    #[inline]
    pub fn is_huge(&self, index: u32, order: Order) -> bool {
        self.state((index >> BLOCK) as usize).load(Relaxed) == huge_state(order)
    }

    /// Whether the buddy of a sub-block is free in their block. The answer may be out of date.
    #[inline]
    pub fn would_merge(&self, index: u32, order: u32) -> bool {
        let (buddy, words) = (index ^ 1 << order, self.words((index >> BLOCK) as usize));
        let (first, n) =
            (buddy as usize / 64 % WORDS, if order > 6 { 1 << (order - 6) } else { 1 });
        let mask = bits::mask(order.min(6)) << (buddy % 64);
        words[first..first + n].iter().all(|w| w.load(Relaxed) & mask == 0)
    }
}
