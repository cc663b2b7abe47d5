//! Which open blocks have room of which size.
//!
//! A row for each order from 0 to 8, a bit a 2 MiB block: the block may have a free run of exactly
//! that order, one whose buddy is not free. Whoever wants a piece asks the row of its order first,
//! then the next larger, and takes the first block from where its CPU begins: best fit, then
//! address order, as a buddy allocator with sorted lists does it. The two together keep memory
//! whole: a hole is filled by what fits it, large runs are broken up last, and blocks far from the
//! beginning empty out. One more row has the blocks that are dirty.
//!
//! A bit too many costs a look; a bit too few would lose memory. Bits of an open block are set and
//! cleared under its lock, and it knows which of its own are set. What is left behind when it
//! closes is cleared by whoever comes upon it, without a lock:
//!
//! ```text
//!   clears, finding the block free        opens it, much later notes a room
//!                                         busy bit, state: open
//!                                         bit: still set, nothing to do
//!   bit: cleared
//!   reads busy bit, state: open;
//!   sets the bit again
//! ```
//! All of these are sequentially consistent: who sees the old bit has made the block open before,
//! and who cleared it sees that.
//!
//! A summary word covers up to 64 words of a row, and the summaries of all rows lie together, so
//! that rows without anything cost one load each of the same two lines for every 8 GiB. They are
//! written whenever a word of a row gets its first bit or loses its last, which low in memory,
//! where everything goes first, is often; so none covers more than the area of one CPU, and no line
//! of a row lies in two. With summaries of 8 GiB two CPUs that took mixed orders passed_over the same
//! two lines to and fro.
//!
//! Rejected: the fullest of 8 candidates (measured: keeps no more whole, takes longer); a beginning
//! for each order (keeps less); blocks for classes of orders (each class keeps the room of its own
//! worst moment: after long churn at 90 % nothing was whole).

use core::ops::Range;

use crate::frame::block::lock::{KIND, OPEN};
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::touch;

/// Orders that have rows.
pub const ROWS: usize = 9;
/// The row of blocks to be swept.
pub const DIRTY_ROW: usize = ROWS;
/// All rows.
pub const ALL: usize = ROWS + 1;
/// Summary words that lie together, one for each row; the rest of the two lines is unused.
pub const SUMMARIES: usize = 16;
/// Words of a line.
const LINE: usize = 8;

impl NumaNode {
    /// Sets a block's bit in a row.
    #[inline]
    pub fn index_run<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (word, bit) = (self.row(row, block / 64), 1 << (block % 64));
        if word.load(SeqCst) & bit == 0 {
            self.set_indexed(m, block, row);
        }
    }

    /// As [`index_run`](NumaNode::index_run), for whoever has not locked the block.
    pub fn set_indexed<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (word, bit) = (self.row(row, block / 64), 1 << (block % 64));
        touch(m, word, true);
        word.fetch_or(bit, SeqCst);
        let (sum, bit) = self.summary_of(row, block / 64);
        touch(m, sum, false);
        if sum.load(SeqCst) & bit == 0 {
            touch(m, sum, true);
            sum.fetch_or(bit, SeqCst);
        }
    }

    /// As that, before anyone is at work.
    pub fn note_at_boot(&self, block: usize, row: usize) {
        self.row(row, block / 64).fetch_or(1 << (block % 64), Relaxed);
        let (sum, bit) = self.summary_of(row, block / 64);
        sum.fetch_or(bit, Relaxed);
    }

    /// Whether who searches a row finds a block: its bit is set, and that of its word.
    pub fn is_indexed(&self, block: usize, row: usize) -> bool {
        self.next_indexed(row, block, block + 1).is_some()
    }

    /// Clears the bit of a block that the caller has locked.
    pub fn clear_indexed<M: Machine>(&self, m: &M, block: usize, row: usize) {
        if self.row(row, block / 64).load(SeqCst) >> (block % 64) & 1 == 1 {
            self.clear_words(m, block / 64, row, 1 << (block % 64));
        }
    }

    fn clear_words<M: Machine>(&self, m: &M, at: usize, row: usize, gone: u64) {
        let word = self.row(row, at);
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

    /// Clears the bit of a block that is not open, and with it those of its neighbours that are
    /// not: blocks that empty out leave their bits behind, and mostly not alone.
    #[cold]
    pub fn clear_stale<M: Machine>(&self, m: &M, block: usize, row: usize) {
        let (at, hint) = (block / 64, self.hint(block));
        let set = self.row(row, at).load(SeqCst);
        let mut gone = set & !hint.load(Relaxed) | 1 << (block % 64);
        let mut busy = set & !gone;
        while busy != 0 {
            let bit = busy & busy.wrapping_neg();
            busy &= !bit;
            if self.state(at * 64 + bit.trailing_zeros() as usize).load(Relaxed) & KIND != OPEN {
                gone |= bit;
            }
        }
        self.clear_words(m, at, row, gone);
        // Only what is busy can have been opened.
        touch(m, hint, false);
        gone &= hint.load(SeqCst);
        while gone != 0 {
            let block = at * 64 + gone.trailing_zeros() as usize;
            gone &= gone - 1;
            touch(m, self.state(block), false);
            if self.state(block).load(SeqCst) & KIND == OPEN {
                self.set_indexed(m, block, row);
            }
        }
    }

    /// The first block from `from` on, below `to`, of which a row says that it has room.
    #[inline]
    pub fn next_indexed(&self, row: usize, from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        while at < to {
            let word = self.row_word(at / 64);
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
            let word = self.row(row, at / 64).load(Relaxed) >> (at % 64);
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
    pub fn any_indexed(&self, row: usize, part: &Range<usize>) -> bool {
        self.summed(part).any(|(at, covered)| self.summary(at)[row].load(Relaxed) & covered != 0)
    }

    /// The rows in which some block of a range, or near it, may have its bit, as bits.
    #[inline]
    pub fn rows_of(&self, part: &Range<usize>) -> u32 {
        let mut rows = 0;
        for (at, covered) in self.summed(part) {
            // Without a branch for each row: which of them have something is as good as random.
            for (row, sum) in self.summary(at)[..ALL].iter().enumerate() {
                rows |= ((sum.load(Relaxed) & covered != 0) as u32) << row;
            }
        }
        rows
    }

    /// The summary words for a range of blocks, and the bits of each that are for it.
    #[inline]
    fn summed(&self, part: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let (mut at, end) = (self.row_word(part.start / 64), self.row_word(part.end.div_ceil(64)));
        let span = self.span;
        core::iter::from_fn(move || {
            let next = (((at >> span) + 1) << span).min(end);
            let found =
                (at < end).then(|| (at >> span, !0 >> (64 - (next - at)) << (at % (1 << span))));
            at = next;
            found
        })
    }

    /// The word for 64 blocks, counted from the node's own first.
    #[inline]
    fn row_word(&self, word: usize) -> usize {
        word - self.row_lead
    }

    #[inline]
    fn row(&self, row: usize, word: usize) -> &AtomicU64 {
        let word = self.row_word(word);
        assert!(row < ALL && word < self.row_length);
        // SAFETY: `ALL` rows of that length, placed by `carve`.
        unsafe { self.rows.add(row * self.row_length + word).as_ref() }
    }

    /// The summary words of all rows for the same blocks.
    #[inline]
    fn summary(&self, at: usize) -> &[AtomicU64; SUMMARIES] {
        assert!(at < self.summary_words());
        // SAFETY: `SUMMARIES` words for each of so many summaries, placed by `carve`.
        unsafe { self.summaries.add(at * SUMMARIES).cast().as_ref() }
    }

    /// The summary of a word of a row, and that word's bit.
    #[inline]
    fn summary_of(&self, row: usize, word: usize) -> (&AtomicU64, u64) {
        let word = self.row_word(word);
        (&self.summary(word >> self.span)[row], 1 << (word % (1 << self.span)))
    }

    /// Summary words of a row.
    #[inline]
    pub fn summary_words(&self) -> usize {
        ((self.row_length - 1) >> self.span) + 1
    }
}

/// Words from one row to the next, for blocks from `lead` to `blocks`: whole lines.
pub fn row_length(lead: usize, blocks: usize) -> usize {
    (blocks.div_ceil(64) - lead / 64).next_multiple_of(LINE)
}
