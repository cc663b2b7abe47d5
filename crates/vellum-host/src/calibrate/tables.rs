//! Whether the tables that walks read are fetched ahead.
//!
//! A page that nobody wrote shows zeros, and all such pages show the same frame, which the first
//! level has: a load takes what its walk takes. Each load needs the one before, and each walk reads
//! a line of a table that is in no cache. In the order of their addresses these lines cost little
//! where something fetches ahead for walks, too; in another order they cost a read of memory.

use std::hint::black_box;
use std::io;

use super::chase::{LINE, PAGE};
use super::figure::{Figure, fastest};
use crate::bench::linux::Area;
use crate::rng::Rng;

/// Bytes that a line of a table covers, and those that a table does.
const COVERED: usize = LINE / size_of::<u64>() * PAGE;
const TABLE: usize = PAGE / size_of::<u64>() * PAGE;
/// What is walked for.
const BYTES: usize = 256 << 20;
/// Runs of one figure, the fastest of which counts.
const RUNS: u32 = 3;

/// Times of a load whose walk reads a line of a table from memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TableTimes {
    /// Each line follows the one before.
    pub in_a_row: Figure,
    /// The lines of each table in an order that nobody foresees.
    pub shuffled: Figure,
}

impl TableTimes {
    /// Whether lines of tables that follow one another are fetched ahead of walks.
    pub fn are_fetched_ahead(&self) -> bool {
        self.in_a_row.ns * 2.0 < self.shuffled.ns
    }
}

/// Measures in memory of its own. `others`: touched memory that takes all places of the caches.
pub(super) fn measure(others: &Area) -> io::Result<TableTimes> {
    let zeros = Area::new(BYTES as u64, false)?;
    zeros.advise(false);
    zeros.touch(PAGE as u64, false);
    let in_a_row: Vec<usize> = (0..TABLE).step_by(COVERED).collect();
    let mut shuffled = in_a_row.clone();
    Rng::new(4).shuffle(&mut shuffled);
    let walks = |lines: &[usize]| {
        let run = || {
            let mut before = 0;
            for (table, line) in
                (0..BYTES).step_by(TABLE).flat_map(|t| lines.iter().map(move |l| (t, l)))
            {
                // SAFETY: a byte of the area, all of which are zero.
                before = usize::from(unsafe { zeros.at(table + line + before).read_volatile() });
            }
            black_box(before);
        };
        let once = |_| {
            others.touch(LINE as u64, false);
            fastest(1, BYTES / COVERED, run)
        };
        Figure::settle(|| (0..RUNS).map(once).fold(f64::INFINITY, f64::min))
    };
    Ok(TableTimes { in_a_row: walks(&in_a_row), shuffled: walks(&shuffled) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_fetched_ahead_where_a_row_of_them_takes_less_than_half_of_the_time() {
        let figure = |ns| Figure { ns, spread: 0.01 };
        let ahead = |in_a_row, shuffled| {
            let (in_a_row, shuffled) = (figure(in_a_row), figure(shuffled));
            TableTimes { in_a_row, shuffled }.are_fetched_ahead()
        };
        assert!(ahead(14.0, 130.0), "as on a Zen 4 guest");
        assert!(!ahead(120.0, 130.0) && !ahead(17.0, 28.0), "another level has them");
    }
}
