//! Which open blocks have room of which size.
//!
//! A row for each order from 0 to 8, a bit a 2 MiB block: the block may have a free run of exactly that order, one whose buddy is not
//! free. Whoever wants a piece asks the row of its order first, then the next larger, and takes the first block from where its CPU begins:
//! best fit, then address order, as a buddy allocator with sorted lists does it. The two together keep memory whole: a
//! hole is filled by what fits it, large runs are broken up last, and blocks far from the beginning empty out.
//!
//! Bits are hints and nothing depends on them. They are set by whoever makes a run, tested first, so that an unchanged row is
//! only read; they are cleared by whoever came for a run and found none. A lost bit costs fit, not memory: an allocation that fails has
//! looked at every open block.
//!
//! A summary word covers 64 words of a row, and the summaries of all rows lie together, so that rows without anything cost
//! one load each of the same two lines for every 8 GiB.
//!
//! Rejected: the fullest of 8 candidates (measured: keeps no more whole, takes longer); a beginning for each order (keeps less);
//! blocks for classes of orders (each class keeps the room of its own worst moment: after long churn at 90 % nothing was whole).

use super::bits;
use super::block::{KIND, OPEN};
use super::node::{GROUP, Node, WORDS};
use crate::machine::Machine;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::touch;

/// Orders that have rows.
pub(super) const ROWS: usize = 9;
/// Summary words of the rows for 4096 blocks; the rest of the two lines is unused.
pub(super) const SUMMARIES: usize = 16;
/// Blocks a summary word covers.
pub(super) const SUMMED: usize = 64 * 64;

impl Node {
    /// Notes that a block has a run of exactly `row`.
    #[inline]
    pub(super) fn note_room<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (word, bit) = (self.row(row, block / 64), 1 << (block % 64));
        if word.load(Relaxed) & bit != 0 {
            return;
        }
        touch(m, word, true);
        word.fetch_or(bit, SeqCst);
        let (sum, bit) = (self.summary(row, block / SUMMED), 1 << (block / 64 % 64));
        if sum.load(SeqCst) & bit == 0 {
            touch(m, sum, true);
            sum.fetch_or(bit, SeqCst);
        }
    }

    /// Notes that a block has runs of several orders, given as bits.
    #[inline]
    pub(super) fn note_rooms<M: Machine>(&self, m: &M, block: usize, rows: u32) {
        (0..ROWS).filter(|row| rows >> row & 1 == 1).for_each(|row| self.note_room(m, block, row));
    }

    /// Notes that a block has no run of `row`, and looks again in case one was made meanwhile. If the block is free by now, the row
    /// forgets its free neighbours with it: blocks that empty out leave their bits behind, and mostly not alone.
    pub(super) fn forget_room<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let word = self.row(row, block / 64);
        let open = self.state(block).load(Relaxed) & KIND == OPEN;
        let keep = if open { !0 } else { self.busy(block / 64) } & !(1 << (block % 64));
        touch(m, word, true);
        if word.fetch_and(keep, SeqCst) & keep == 0 {
            let (sum, bit) = (self.summary(row, block / SUMMED), 1 << (block / 64 % 64));
            touch(m, sum, true);
            sum.fetch_and(!bit, SeqCst);
            if word.load(SeqCst) != 0 {
                sum.fetch_or(bit, SeqCst);
            }
        }
        if open && self.has_exactly(block, row) {
            self.note_room(m, block, row);
        }
    }

    /// Busy bits of 64 blocks.
    fn busy(&self, word: usize) -> u64 {
        let half = |group: usize| if group < self.groups() { self.hint(group).load(Relaxed) as u32 } else { 0 };
        half(word * 2) as u64 | (half(word * 2 + 1) as u64) << GROUP
    }

    /// The first block from `from` on, below `to`, of which a row says that it has room.
    #[inline]
    pub(super) fn next_room(&self, row: usize, from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        while at < to {
            let sums = self.summary(row, at / SUMMED).load(Relaxed) >> (at / 64 % 64);
            if sums == 0 {
                at = (at / SUMMED + 1) * SUMMED;
                continue;
            }
            let skip = sums.trailing_zeros() as usize;
            if skip != 0 {
                at = (at / 64 + skip) * 64;
                if at >= to {
                    return None;
                }
            }
            let word = self.row(row, at / 64).load(Relaxed) >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros() as usize;
                return (at < to).then_some(at);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Whether a block has a run of exactly `row`.
    pub(super) fn has_exactly(&self, block: usize, row: usize) -> bool {
        if row < 6 {
            return self.words(block).iter().any(|word| bits::exact(!word.load(Relaxed), row as u32) != 0);
        }
        (0..WORDS).any(|at| self.starts_exactly(block, at, row))
    }

    /// Whether a run of exactly `row`, 6 or more, starts at a word.
    #[inline]
    pub(super) fn starts_exactly(&self, block: usize, at: usize, row: usize) -> bool {
        let (n, words) = (1 << (row - 6), self.words(block));
        let free = |at: usize| words[at..at + n].iter().all(|w| w.load(Relaxed) == 0);
        // Half a block that is all free counts as a run of its own: there is no row for whole ones.
        at.is_multiple_of(n) && free(at) && (row == ROWS - 1 || !free(at ^ n))
    }

    /// Notes every run that has come to be by clearing `mask` in a word that is now `word`.
    #[inline]
    pub(super) fn note_runs<M: Machine>(&self, m: &M, block: usize, at: usize, word: u64, mask: u64) {
        let free = !word;
        let mut rest = mask;
        while rest != 0 {
            let (order, run) = bits::grown(free, rest.trailing_zeros());
            rest &= !run;
            let row = if order < 6 { order as usize } else { self.grown_words(block, at) };
            self.note_room(m, block, row);
        }
    }

    /// The order of the run that a wholly free word is part of.
    pub(super) fn grown_words(&self, block: usize, at: usize) -> usize {
        let words = self.words(block);
        let free = |from: usize, n: usize| words[from..from + n].iter().all(|w| w.load(Relaxed) == 0);
        match at {
            _ if !free(at ^ 1, 1) => 6,
            _ if !free((at & !1) ^ 2, 2) => 7,
            _ => 8,
        }
    }

    #[inline]
    fn row(&self, row: usize, word: usize) -> &AtomicU64 {
        assert!(row < ROWS && word < self.row_words());
        // SAFETY: `ROWS` rows of that many words, placed by `carve`.
        unsafe { self.rows.add(row * self.row_words() + word).as_ref() }
    }

    #[inline]
    fn summary(&self, row: usize, word: usize) -> &AtomicU64 {
        assert!(row < ROWS && word < self.blocks.div_ceil(SUMMED));
        // SAFETY: `SUMMARIES` words for each so many blocks, placed by `carve`.
        unsafe { self.summaries.add(word * SUMMARIES + row).as_ref() }
    }

    /// Words of a row.
    #[inline]
    pub(super) fn row_words(&self) -> usize {
        self.blocks.div_ceil(64)
    }
}
