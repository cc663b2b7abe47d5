//! Taking runs out of a locked block, and noting the runs that are left.
//!
//! A run is *exactly* of an order if it is aligned to it, free, and its buddy is not free. A
//! sub-block comes out of the first run of exactly the row that was asked for, so nothing larger is
//! split while that fits; the rest of the run becomes runs of the orders between. A block that is
//! all free has two runs of order 8: there is no row for order 9.

use crate::frame::block::bits::{self, ROWS, WORDS};
use crate::frame::block::lock::Locked;
use crate::frame::cpu::magazine::Held;
use crate::machine::Machine;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::touch;

/// Single frames of a block, as bits of its words.
pub type Singles = [u64; WORDS];

impl Locked<'_> {
    /// Takes 2^order frames out of a run of exactly 2^row; gives the offset in the block. Without
    /// such a run the block's bit in that row is cleared.
    pub fn take<M: Machine>(
        &mut self,
        m: &M,
        held: Option<&Held>,
        order: u32,
        row: usize,
    ) -> Option<u32> {
        self.count_freed(held);
        let words = self.words();
        let Some((at, more)) = find(words, row) else {
            self.forget(m, row);
            return None;
        };
        let first = at as usize / 64;
        touch(m, &words[first], true);
        if order < 6 {
            words[first]
                .store(words[first].load(Relaxed) | bits::mask(order) << (at % 64), Relaxed);
        } else {
            words[first..first + (1 << (order - 6))].iter().for_each(|w| w.store(!0, Relaxed));
        }
        for left in order as usize..row {
            self.note(m, left);
        }
        // So that nobody looks for a run that is no longer there.
        if self.is_claimed() {
            self.set_rows(exact_rows(words));
        } else if !more {
            self.forget(m, row);
        }
        Some(at)
    }

    /// Takes up to `max` single frames out of runs of at most 2^row, the first ones. Says how many,
    /// and which.
    pub fn take_many<M: Machine>(
        &mut self,
        m: &M,
        held: &Held,
        max: u32,
        row: usize,
    ) -> (u32, Singles) {
        self.count_freed(Some(held));
        let (mut got, mut which, mut all) = (0, [0; WORDS], true);
        for (i, (word, which)) in self.words().iter().zip(&mut which).enumerate() {
            let free = !word.load(Relaxed);
            let fits = match row {
                _ if free == 0 => continue,
                0..5 => free & !bits::within(free, row as u32 + 1),
                _ if free == !0 && grown_words(self.words(), i) > row => continue,
                _ => free,
            };
            if fits == 0 {
                continue;
            }
            let mut n = fits.count_ones();
            let mut mask = fits;
            if n > max - got {
                n = max - got;
                mask = bits::lowest(fits, n);
                all = false;
            }
            touch(m, word, true);
            word.store(!free | mask, Relaxed);
            *which = mask;
            got += n;
            if got == max {
                break;
            }
        }
        // When all up to a row are taken, larger runs are as they were.
        if got == 0 || all && got < max && row < 5 || self.note_rows(m) >> row & 1 == 0 {
            self.forget(m, row);
        }
        (got, which)
    }

    /// Notes all runs, and says in which rows they are.
    pub fn note_rows<M: Machine>(&mut self, m: &M) -> u32 {
        let rows = exact_rows(self.words());
        if self.is_claimed() {
            self.set_rows(rows);
            return rows;
        }
        let mut left = rows;
        while left != 0 {
            self.note(m, left.trailing_zeros() as usize);
            left &= left - 1;
        }
        rows
    }

    /// Notes the run that a freed one has become part of.
    #[inline]
    pub fn note_run<M: Machine>(&mut self, m: &M, at: u32, order: u32) {
        let word = at as usize / 64;
        let row = match bits::grown(!self.words()[word].load(Relaxed), at % 64, order.min(6)).0 {
            6 => grown_words(self.words(), word),
            grown => grown as usize,
        };
        self.note(m, row);
    }

    /// Notes every run that clearing `mask` in a word has made.
    pub fn note_runs<M: Machine>(&mut self, m: &M, word: usize, mask: u64) {
        let free = !self.words()[word].load(Relaxed);
        let mut rest = mask;
        while rest != 0 {
            let at = rest.trailing_zeros();
            rest &= !bits::grown(free, at, 0).1;
            self.note_run(m, word as u32 * 64 + at, 0);
        }
    }
}

/// Where the first run of exactly 2^row frames starts, and whether there is another.
#[inline]
fn find(words: &[AtomicU64; WORDS], row: usize) -> Option<(u32, bool)> {
    // Each order by itself, so that its shifts are constants.
    match row {
        0 => find_in_words::<0>(words),
        1 => find_in_words::<1>(words),
        2 => find_in_words::<2>(words),
        3 => find_in_words::<3>(words),
        4 => find_in_words::<4>(words),
        5 => find_in_words::<5>(words),
        _ => {
            let mut starts =
                (0..WORDS).step_by(1 << (row - 6)).filter(|&i| starts_exactly(words, i, row));
            starts.next().map(|i| (i as u32 * 64, starts.next().is_some()))
        }
    }
}

fn find_in_words<const ROW: u32>(words: &[AtomicU64; WORDS]) -> Option<(u32, bool)> {
    let mut left = words.iter().enumerate();
    let starts = |(_, word): &(usize, &AtomicU64)| bits::exact(!word.load(Relaxed), ROW);
    let (first, found) = left.by_ref().map(|at| (at.0, starts(&at))).find(|found| found.1 != 0)?;
    let more = found & (found - 1) != 0 || left.any(|at| starts(&at) != 0);
    Some((first as u32 * 64 + found.trailing_zeros(), more))
}

/// The orders of all runs a block has, as bits.
pub fn exact_rows(words: &[AtomicU64; WORDS]) -> u32 {
    let (mut rows, mut free_words) = (0, 0);
    for (i, word) in words.iter().enumerate() {
        match !word.load(Relaxed) {
            0 => {}
            u64::MAX => free_words |= 1 << i,
            free => rows |= bits::exact_orders(free, 6),
        }
    }
    if free_words != 0 {
        // A word is a run of order 6; bit 9, of a block that is all free, is two runs of order 8.
        let found = bits::exact_orders(free_words, 4) << 6;
        rows |= found & ((1 << ROWS) - 1) | found >> 1 & 1 << (ROWS - 1);
    }
    rows
}

/// Whether a run of exactly `row`, 6 or more, starts at a word.
#[inline]
fn starts_exactly(words: &[AtomicU64; WORDS], at: usize, row: usize) -> bool {
    let n = 1 << (row - 6);
    let free = |at: usize| words[at..at + n].iter().all(|w| w.load(Relaxed) == 0);
    free(at) && (row == ROWS - 1 || !free(at ^ n))
}

/// The order of the run that a wholly free word is part of.
fn grown_words(words: &[AtomicU64; WORDS], at: usize) -> usize {
    let free = |from: usize, n: usize| words[from..from + n].iter().all(|w| w.load(Relaxed) == 0);
    match at {
        _ if !free(at ^ 1, 1) => 6,
        _ if !free((at & !1) ^ 2, 2) => 7,
        _ => 8,
    }
}
