//! `vellum bench instructions`: instructions of the hot paths, counted exactly.
//!
//! On a shared machine, nanoseconds show a change of ten percent only after many runs. A count
//! shows it at once, and is the same everywhere. So the ceilings are on counts: [`rows`] has them,
//! `./test` fails above one, and `docs/instructions.md` keeps the history. [`count`] counts,
//! [`flat`] is the machine.

pub mod count;
pub mod flat;
pub mod rows;

use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::measure::conditions::cores;
use super::measure::{Effort, threads};
use super::{Report, Row};
use count::CountMethod;
use rows::{Ceiling, Counted, ROWS};

/// The compiler the ceilings were set with. Another may exceed them by [`SLACK`].
pub const PINNED: &str = "1.95";
/// What other compilers are granted.
pub const SLACK: f64 = 1.1;

/// The compiler that built this.
pub fn compiler() -> &'static str {
    env!("VELLUM_RUSTC")
}

/// What a row may take at most in this build, if it has a ceiling; `first` is what the first row
/// came to. A build with debug assertions has no ceilings: it counts the assertions, too.
pub fn ceiling(row: &Counted, first: Option<f64>) -> Option<f64> {
    let slack = if compiler().starts_with(&format!("rustc {PINNED}.")) { 1.0 } else { SLACK };
    let most = match row.ceiling {
        Ceiling::None => return None,
        Ceiling::At(most) => most as f64 * slack,
        Ceiling::AsFirst(more) => first? + more as f64,
    };
    (!cfg!(debug_assertions)).then_some(most)
}

/// Counts every row. `again(row)` is the command that makes this program run one row and print
/// `operations: N`: what callgrind watches has to be a program of its own. Without any way to count
/// there are no rows, and a note says why.
///
/// # Errors
/// Counting failed although it seemed possible.
pub fn run(
    effort: Effort,
    again: &(dyn Fn(usize) -> io::Result<Command> + Sync),
) -> io::Result<Report> {
    let Some(way) = CountMethod::best() else {
        let notes = vec![
            "skipped: no valgrind here (package valgrind), and no hardware counter".to_owned(),
        ];
        return Ok(Report { notes, ..Report::default() });
    };
    let shown = |row: usize| way == CountMethod::Callgrind || !ROWS[row].clears;
    let rows: Vec<usize> =
        (0..if effort.shrink > 1 { 3 } else { ROWS.len() }).filter(|&row| shown(row)).collect();
    let next = AtomicUsize::new(0);
    // A count is the same however busy the computer is, so rows are counted side by side.
    let found = threads(cores(), |_| -> io::Result<Vec<(usize, u64)>> {
        let mut found = Vec::new();
        while let Some(&row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            if (effort.stop)() {
                break;
            }
            found.push((row, count::count(way, row, again)?));
        }
        Ok(found)
    });
    let mut found: Vec<(usize, u64)> =
        found.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect();
    found.sort_unstable();
    let rows = found.into_iter().map(|(row, n)| Row {
        name: format!("instructions/{}", ROWS[row].name),
        threads: 1,
        unit: "instructions",
        ours: n as f64,
        floor: None,
        peers: BTreeMap::new(),
        spread: 0.0,
    });
    let mut notes = vec![format!("counted by {}; compiled by {}", way.name(), compiler())];
    if cfg!(debug_assertions) {
        notes.push("built with debug assertions, which count, too: no ceiling applies".to_owned());
    }
    Ok(Report { benchmarks: rows.collect(), notes })
}
