//! A 2 MiB block, and who may take what of it.
//!
//! Its state says which of two ways it is used. *Free* and *large* blocks are had whole, by one exchange of the state, and
//! their bits are all clear. An *open* block is had in pieces: there the bits are the truth, and nothing counts them. Freeing
//! a frame is then one atomic, and a block of 512 frames costs its opening and closing once.
//!
//! ```text
//!   Free --open--> Open --close--> Closing --all words locked--> Sealed --words cleared--> Free
//!    |  ^                 ^            | a word was not zero
//!    v  | free            +------------+
//!   Large, Tail --split--> Open
//! ```
//!
//! Closing takes the words one by one from 0 to all ones, so that it cannot miss a frame being taken, and gives them back
//! only when the state no longer lets anyone in. Whoever takes bits looks at the state *after* that:
//!
//! ```text
//!   taker                                 closer
//!   reads state: Open                     Open -> Closing
//!   (delayed)                             locks 8 words, -> Sealed, clears them, -> Free
//!   word 0 -> bit
//!   reads state: not Open: undoes
//! ```
//! If it reads Open or Closing, its bit was there before any closer came to that word, and the closer gives up. A taker's bit may
//! therefore stand for a moment in a block that is not open; only `split` minds, and waits.
//!
//! A CPU *claims* the open block it takes small frames from: others keep off it as long as there is another, and it is not
//! closed when it is empty for a moment. Which blocks have room of which size is noted elsewhere (`rooms`), as a hint.
//!
//! Rejected: a count per block that is reserved before bits are taken (LLFree's way): one more locked instruction for each frame
//! that comes back, and a search that may have to chase the bit it was promised.

use super::bits;
use super::node::{BLOCK, GROUP, Node, WORDS};
use crate::addr::{Order, Pfn};
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::touch;

pub(super) const KIND: u32 = 7;
/// All 512 frames free, bits clear.
pub(super) const FREE: u32 = 0;
/// Had in pieces; the bits say which are taken.
pub(super) const OPEN: u32 = 1;
/// First block of an allocation of 2 MiB or more; its order is in the state.
pub(super) const LARGE: u32 = 2;
/// A further block of one.
pub(super) const TAIL: u32 = 3;
/// On its way from open to free: words are being locked.
pub(super) const CLOSING: u32 = 4;
/// As that, words locked and being cleared.
pub(super) const SEALED: u32 = 5;
/// Taken out before first use.
pub(super) const HOLE: u32 = 6;

/// Added to an open state: a CPU's own.
pub(super) const CLAIMED: u32 = 1 << 3;
const ORDER_SHIFT: u32 = 8;

#[inline]
pub(super) const fn large(order: Order) -> u32 {
    LARGE | (order.get() as u32) << ORDER_SHIFT
}

#[inline]
pub(super) const fn large_order(state: u32) -> u32 {
    state >> ORDER_SHIFT
}

impl Node {
    /// Opens a free block, claimed.
    pub(super) fn open<M: Machine>(&self, m: &M, block: usize) -> bool {
        let state = self.state(block);
        touch(m, state, true);
        let open = OPEN | CLAIMED;
        if state.load(Relaxed) != FREE || state.compare_exchange(FREE, open, SeqCst, Relaxed).is_err() {
            return false;
        }
        // While it is claimed nobody closes it, so the hint cannot come after its own clearing.
        self.set_hints(m, block, Node::hint_bits(block).0);
        true
    }

    /// Gives up the claim, and closes the block if it is empty.
    pub(super) fn unclaim<M: Machine>(&self, m: &M, block: usize) {
        let state = self.state(block);
        touch(m, state, true);
        let old = state.fetch_and(!CLAIMED, SeqCst);
        debug_assert_eq!(old & (KIND | CLAIMED), OPEN | CLAIMED, "block {block}: claim given up that nobody had");
        self.close(m, block);
    }

    /// Whether takers may keep what they took: see the head of the file.
    #[inline]
    fn is_open<M: Machine>(&self, m: &M, block: usize) -> bool {
        touch(m, self.state(block), false);
        matches!(self.state(block).load(SeqCst) & KIND, OPEN | CLOSING)
    }

    /// Takes 2^order frames out of the first run of exactly 2^row, or if `row` is none out of the first large enough; gives the
    /// offset in the block.
    pub(super) fn take<M: Machine>(&self, m: &M, block: usize, order: u32, row: Option<usize>) -> Option<u32> {
        if order >= 6 {
            return self.take_words(m, block, 1 << (order - 6), row);
        }
        let words = self.words(block);
        for (i, word) in words.iter().enumerate() {
            let mut seen = word.load(Relaxed);
            loop {
                let starts = match row {
                    _ if seen == !0 => 0,
                    Some(row) if row < 6 => bits::exact(!seen, row as u32),
                    Some(_) if seen != 0 => 0,
                    Some(row) if !self.starts_exactly(block, i, row) => 0,
                    _ => bits::runs(!seen, order),
                };
                if starts == 0 {
                    break;
                }
                let at = starts.trailing_zeros();
                let mask = bits::mask(order) << at;
                touch(m, word, true);
                match word.compare_exchange_weak(seen, seen | mask, SeqCst, Relaxed) {
                    Err(now) => seen = now,
                    Ok(_) if self.is_open(m, block) => return Some(i as u32 * 64 + at),
                    Ok(_) => {
                        self.give(m, block, i, mask);
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Takes `n` aligned words: 1, 2 or 4.
    fn take_words<M: Machine>(&self, m: &M, block: usize, n: usize, row: Option<usize>) -> Option<u32> {
        let words = self.words(block);
        for start in (0..WORDS).step_by(n) {
            if words[start..start + n].iter().any(|w| w.load(Relaxed) != 0) {
                continue;
            }
            if row.is_some_and(|row| !self.starts_exactly(block, start, row)) {
                continue;
            }
            let mut taken = 0;
            while taken < n {
                touch(m, &words[start + taken], true);
                if words[start + taken].compare_exchange(0, !0, SeqCst, Relaxed).is_err() {
                    break;
                }
                taken += 1;
            }
            if taken == n && self.is_open(m, block) {
                return Some(start as u32 * 64);
            }
            let closed = taken == n;
            for i in start..start + taken {
                self.give(m, block, i, !0);
            }
            if closed {
                return None;
            }
        }
        None
    }

    /// Takes up to `max` single frames out of runs of at most 2^row, whichever come first, and hands their offsets over one by
    /// one, ascending. Says how many, and of which orders runs are left of those it broke, as bits.
    pub(super) fn take_many<M: Machine>(
        &self,
        m: &M,
        block: usize,
        max: u32,
        row: usize,
        mut each: impl FnMut(u32),
    ) -> (u32, u32) {
        let (mut got, mut rows) = (0, 0);
        for (i, word) in self.words(block).iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != !0 && got < max {
                let free = match row {
                    0..5 => !seen & !bits::within(!seen, row as u32 + 1),
                    _ if seen == 0 && self.grown_words(block, i) > row => 0,
                    _ => !seen,
                };
                if free == 0 {
                    break;
                }
                let mut mask = if free.count_ones() <= max - got { free } else { bits::lowest(free, max - got) };
                touch(m, word, true);
                match word.compare_exchange_weak(seen, seen | mask, SeqCst, Relaxed) {
                    Err(now) => seen = now,
                    Ok(_) if self.is_open(m, block) => {
                        got += mask.count_ones();
                        let mut left = if mask != free { free & !mask } else { 0 };
                        while left != 0 {
                            let (order, run) = bits::grown(!seen & !mask, left.trailing_zeros());
                            left &= !run;
                            rows |= 1 << order;
                        }
                        while mask != 0 {
                            each(i as u32 * 64 + mask.trailing_zeros());
                            mask &= mask - 1;
                        }
                        break;
                    }
                    Ok(_) => {
                        self.give(m, block, i, mask);
                        return (got, rows);
                    }
                }
            }
        }
        if got != 0 && row >= 6 {
            (6..row).filter(|&left| self.has_exactly(block, left)).for_each(|left| rows |= 1 << left);
        }
        (got, rows)
    }

    /// Gives bits of one word back.
    pub(super) fn give<M: Machine>(&self, m: &M, block: usize, word: usize, mask: u64) {
        let words = self.words(block);
        touch(m, &words[word], true);
        let old = words[word].fetch_and(!mask, SeqCst);
        debug_assert_eq!(
            old & mask,
            mask,
            "freed twice: frame {:?}",
            self.pfn((block << BLOCK) as u32 + word as u32 * 64)
        );
        if old == !0 {
            let (_, full) = Node::hint_bits(block);
            if self.hint(block / GROUP).load(SeqCst) & full != 0 {
                self.clear_hints(m, block, full);
            }
        }
        self.note_runs(m, block, word, old & !mask, mask);
        if old == mask {
            self.close(m, block);
        }
    }

    /// Notes that nothing is left in an open block, and looks again in case something just came back.
    pub(super) fn mark_full<M: Machine>(&self, m: &M, block: usize) {
        let (_, full) = Node::hint_bits(block);
        self.set_hints(m, block, full);
        if self.words(block).iter().any(|w| w.load(SeqCst) != !0) {
            self.clear_hints(m, block, full);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self, block: usize) -> bool {
        self.words(block).iter().all(|w| w.load(SeqCst) == 0)
    }

    /// Makes an open block free if it is empty and nobody claims it.
    pub(super) fn close<M: Machine>(&self, m: &M, block: usize) {
        let state = self.state(block);
        loop {
            let open = state.load(SeqCst);
            if open & (KIND | CLAIMED) != OPEN || !self.is_empty(block) {
                return;
            }
            touch(m, state, true);
            if state.compare_exchange(open, CLOSING, SeqCst, Relaxed).is_err() {
                return;
            }
            let words = self.words(block);
            let mut locked = 0;
            while locked < WORDS {
                touch(m, &words[locked], true);
                if words[locked].compare_exchange(0, !0, SeqCst, Relaxed).is_err() {
                    break;
                }
                locked += 1;
            }
            if locked == WORDS {
                state.store(SEALED, Release);
            }
            // Locked words are ours alone: nothing in them is free, and nothing allocated that could be freed.
            for word in &words[..locked] {
                touch(m, word, true);
                word.store(0, SeqCst);
            }
            touch(m, state, true);
            if locked == WORDS {
                let (busy, full) = Node::hint_bits(block);
                self.clear_hints(m, block, busy | full);
                state.store(FREE, Release);
                return;
            }
            state.store(open, SeqCst);
            // What stopped us may have gone meanwhile, and found the block closing: look again.
        }
    }

    /// Turns a large block of 2 MiB into an open one all of whose frames are taken.
    pub(super) fn shatter<M: Machine>(&self, m: &M, block: usize) {
        for word in self.words(block) {
            touch(m, word, true);
            while word.compare_exchange(0, !0, SeqCst, Acquire).is_err() {
                // A taker that is about to see that the block is not open, and to undo.
                m.relax();
            }
        }
        self.state(block).store(OPEN, SeqCst);
    }

    /// Takes the whole block out of the allocator, or the part of it between two frames of the node, before first use.
    pub(super) fn exclude(&self, block: usize, from: Pfn, to: Pfn) {
        let start = self.base + ((block as u64) << BLOCK);
        let (from, to) = (from.0.max(start) - start, to.0.min(start + (1 << BLOCK)) - start);
        let (busy, full) = Node::hint_bits(block);
        let hint = self.hint(block / GROUP);
        if from == 0 && to == 1 << BLOCK {
            debug_assert_eq!(self.state(block).load(Relaxed), FREE, "reserved twice, or after first use");
            self.state(block).store(HOLE, Relaxed);
            hint.fetch_or(busy | full, Relaxed);
            return;
        }
        self.state(block).store(OPEN, Relaxed);
        hint.fetch_or(busy, Relaxed);
        for at in from..to {
            let word = &self.words(block)[at as usize / 64];
            debug_assert_eq!(word.load(Relaxed) >> (at % 64) & 1, 0, "reserved twice, or after first use");
            word.fetch_or(1 << (at % 64), Relaxed);
        }
        if self.words(block).iter().all(|w| w.load(Relaxed) == !0) {
            hint.fetch_or(full, Relaxed);
        }
    }
}
