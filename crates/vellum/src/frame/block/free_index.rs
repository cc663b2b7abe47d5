//! The free index: which open blocks may have a free run of which order.
//!
//! It has a row for each order from 0 to 8, with a bit for each 2 MiB block: the block may have a
//! free run of exactly that order, one whose buddy is not free. An allocation asks the row of its
//! order first, then the next larger one, and takes the first block from where its CPU's area
//! begins: best fit, then address order, like a buddy allocator with sorted lists. One more row has
//! the dirty blocks, which wait to be swept.
//!
//! A superfluous bit costs one look; a missing bit would lose memory. The bits of an open block are
//! set and cleared under its lock. A bit that is left when a block closes is *stale*: whoever meets
//! it clears it without a lock ([`FreeIndex::clear_stale`]).
//!
//! A summary word covers up to 64 words of a row. The summaries of all rows lie together, so that
//! empty rows cost one load each of the same two lines for every 8 GiB. A summary covers no more
//! than one CPU's area: with summaries of 8 GiB two CPUs wrote the same two lines in turn.
//!
//! Rejected: the fullest of 8 candidates (keeps no more huge blocks free, takes longer); a
//! beginning for each order (keeps less); blocks for classes of orders (after long churn at 90 %
//! live no huge block was free).

use core::ops::Range;
use core::ptr::NonNull;

use crate::frame::block::array::Blocks;
use crate::frame::block::bits::ROWS;
use crate::frame::block::state::{KIND, OPEN};
use crate::machine::Machine;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::touch;

/// The row of blocks to be swept.
pub const DIRTY_ROW: usize = ROWS;
/// All rows.
pub const ALL: usize = ROWS + 1;
/// Summary words that lie together, one for each row; the rest of the two lines is unused.
const SUMMARIES: usize = 16;
/// Words of a line.
const LINE: usize = 8;

/// The free index of a memory node.
pub struct FreeIndex {
    /// Words from one row to the next, and words left out before the first.
    length: usize,
    lead: usize,
    /// log2 of the words that a summary covers.
    span: u32,
    rows: NonNull<AtomicU64>,
    summaries: NonNull<AtomicU64>,
}

impl FreeIndex {
    /// That of no node.
    pub const NONE: FreeIndex = FreeIndex {
        length: 0,
        lead: 0,
        span: 0,
        rows: NonNull::dangling(),
        summaries: NonNull::dangling(),
    };

    /// An index for some blocks, where CPUs begin their searches `apart` blocks from each other.
    /// Its words are not placed yet.
    pub fn measure(blocks: &Blocks, apart: usize) -> FreeIndex {
        FreeIndex {
            // Whole lines, so that no two rows share one.
            length: (blocks.end.div_ceil(64) - blocks.first / 64).next_multiple_of(LINE),
            lead: blocks.first / 64,
            span: (apart / 64).max(1).ilog2().min(6),
            ..FreeIndex::NONE
        }
    }

    /// Words of all rows.
    pub fn row_words(&self) -> usize {
        ALL * self.length
    }

    /// Words of all summaries.
    pub fn summary_words(&self) -> usize {
        SUMMARIES * self.summaries()
    }

    /// Says where the words are: [`row_words`](FreeIndex::row_words) and
    /// [`summary_words`](FreeIndex::summary_words).
    ///
    /// # Safety
    /// They are zeroed and live as long as the value, or are never read.
    pub unsafe fn place(&mut self, rows: NonNull<AtomicU64>, summaries: NonNull<AtomicU64>) {
        (self.rows, self.summaries) = (rows, summaries);
    }

    /// Sets a block's bit in a row.
    #[inline]
    pub fn set<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (word, bit) = (self.word(row, block / 64), 1 << (block % 64));
        if word.load(SeqCst) & bit == 0 {
            self.set_unlocked(m, block, row);
        }
    }

    /// As [`set`](FreeIndex::set), for a caller that does not hold the block's lock.
    pub fn set_unlocked<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (word, bit) = (self.word(row, block / 64), 1 << (block % 64));
        touch(m, word, true);
        word.fetch_or(bit, SeqCst);
        let (sum, bit) = self.summary_of(row, block / 64);
        touch(m, sum, false);
        if sum.load(SeqCst) & bit == 0 {
            touch(m, sum, true);
            sum.fetch_or(bit, SeqCst);
        }
    }

    /// The same before any CPU runs.
    pub fn set_at_boot(&self, block: usize, row: usize) {
        self.word(row, block / 64).fetch_or(1 << (block % 64), Relaxed);
        let (sum, bit) = self.summary_of(row, block / 64);
        sum.fetch_or(bit, Relaxed);
    }

    /// Whether a search of a row finds a block: its bit is set, and that of its word.
    pub fn has(&self, block: usize, row: usize) -> bool {
        self.next(row, block, block + 1).is_some()
    }

    /// Clears the bit of a block that the caller has locked.
    pub fn clear<M: Machine>(&self, m: &M, block: usize, row: usize) {
        if self.word(row, block / 64).load(SeqCst) >> (block % 64) & 1 == 1 {
            self.clear_bits(m, block / 64, row, 1 << (block % 64));
        }
    }

    fn clear_bits<M: Machine>(&self, m: &M, at: usize, row: usize, gone: u64) {
        let word = self.word(row, at);
        touch(m, word, true);
        if word.fetch_and(!gone, SeqCst) & !gone == 0 {
            let (sum, bit) = self.summary_of(row, at);
            touch(m, sum, true);
            sum.fetch_and(!bit, SeqCst);
            touch(m, word, false);
            if word.load(SeqCst) != 0 {
                touch(m, sum, true);
                sum.fetch_or(bit, SeqCst);
            }
        }
    }

    /// Clears the bit of a block that is not open, and with it those of its neighbours that are not
    /// open: blocks that empty out leave their bits behind, and mostly not alone.
    ///
    /// The block may be opened meanwhile. All operations are sequentially consistent, so either the
    /// opener sees that its bit is clear and sets it, or this call sees the open block:
    ///
    /// ```text
    ///   this call, having found the block free   opener
    ///                                            sets the busy bit; state: open
    ///                                            bit: still set, nothing to do
    ///   clears the bit
    ///   reads busy bit and state: open;
    ///   sets the bit again
    /// ```
    #[cold]
    pub fn clear_stale<M: Machine>(&self, m: &M, blocks: &Blocks, block: usize, row: usize) {
        let (at, busy_word) = (block / 64, blocks.busy_word(block));
        let set = self.word(row, at).load(SeqCst);
        let mut gone = set & !busy_word.load(Relaxed) | 1 << (block % 64);
        let mut busy = set & !gone;
        while busy != 0 {
            let bit = busy & busy.wrapping_neg();
            busy &= !bit;
            let state = blocks.state(at * 64 + bit.trailing_zeros() as usize);
            if state.load(Relaxed) & KIND != OPEN {
                gone |= bit;
            }
        }
        self.clear_bits(m, at, row, gone);
        // Only what is busy can have been opened.
        touch(m, busy_word, false);
        gone &= busy_word.load(SeqCst);
        while gone != 0 {
            let block = at * 64 + gone.trailing_zeros() as usize;
            gone &= gone - 1;
            touch(m, blocks.state(block), false);
            if blocks.state(block).load(SeqCst) & KIND == OPEN {
                self.set_unlocked(m, block, row);
            }
        }
    }

    /// The first block from `from` on, below `to`, that has its bit in a row.
    #[inline]
    pub fn next(&self, row: usize, from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        while at < to {
            let word = at / 64 - self.lead;
            let sums =
                self.summary(word >> self.span)[row].load(Relaxed) >> (word % (1 << self.span));
            if sums == 0 {
                at = (at / 64 + (1 << self.span) - word % (1 << self.span)) * 64;
                continue;
            }
            let skip = sums.trailing_zeros() as usize;
            if skip != 0 {
                at = (at / 64 + skip) * 64;
                if at >= to {
                    return None;
                }
            }
            let word = self.word(row, at / 64).load(Relaxed) >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros() as usize;
                return (at < to).then_some(at);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Whether some block of a range, or near it, may have its bit in a row.
    #[inline]
    pub fn any(&self, row: usize, part: &Range<usize>) -> bool {
        self.summed(part).any(|(at, covered)| self.summary(at)[row].load(Relaxed) & covered != 0)
    }

    /// The rows in which some block of a range, or near it, may have its bit, as bits.
    #[inline]
    pub fn rows_of(&self, part: &Range<usize>) -> u32 {
        let mut rows = 0;
        for (at, covered) in self.summed(part) {
            // Without a branch for each row: which of them are empty is as good as random.
            for (row, sum) in self.summary(at)[..ALL].iter().enumerate() {
                rows |= ((sum.load(Relaxed) & covered != 0) as u32) << row;
            }
        }
        rows
    }

    /// The summary words for a range of blocks, and the bits of each that are for it.
    #[inline]
    fn summed(&self, part: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let (mut at, end) = (part.start / 64 - self.lead, part.end.div_ceil(64) - self.lead);
        let span = self.span;
        core::iter::from_fn(move || {
            let next = (((at >> span) + 1) << span).min(end);
            let found =
                (at < end).then(|| (at >> span, !0 >> (64 - (next - at)) << (at % (1 << span))));
            at = next;
            found
        })
    }

    /// The word of a row for blocks 64 * `word` and the 63 after it.
    #[inline]
    fn word(&self, row: usize, word: usize) -> &AtomicU64 {
        let word = word - self.lead;
        assert!(row < ALL && word < self.length);
        // SAFETY: `place` was given `row_words` words.
        unsafe { self.rows.add(row * self.length + word).as_ref() }
    }

    /// The summary words of all rows for the same blocks.
    #[inline]
    fn summary(&self, at: usize) -> &[AtomicU64; SUMMARIES] {
        assert!(at < self.summaries());
        // SAFETY: `place` was given `summary_words` words.
        unsafe { self.summaries.add(at * SUMMARIES).cast().as_ref() }
    }

    /// The summary of a word of a row, and that word's bit.
    #[inline]
    fn summary_of(&self, row: usize, word: usize) -> (&AtomicU64, u64) {
        let word = word - self.lead;
        (&self.summary(word >> self.span)[row], 1 << (word % (1 << self.span)))
    }

    /// Summary words of a row.
    #[inline]
    fn summaries(&self) -> usize {
        ((self.length - 1) >> self.span) + 1
    }
}
