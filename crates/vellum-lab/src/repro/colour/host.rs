//! The experiment on this computer.

use vellum_host::bench::sets::{self, Figure, Sets};

use crate::error::LabError;
use crate::repro::page::{Page, Row, Table};
use crate::repro::text::figure;

/// The page; where the host cannot show anything, it says why.
pub fn run() -> Result<Page, LabError> {
    let mut page = Page {
        name: "colour",
        title: "Coloured zero pages".to_owned(),
        on: "this computer, real time".to_owned(),
        asked: vec![
            "Does this computer show what several zero pages are meant to mend: lines that \
             compete for one set of a cache?"
                .to_owned(),
        ],
        run: vec![
            "Test 1 reads offset 0 of each of N frames in a row, N = 4 to 16, in a 2 MiB page; \
             independent reads, then reads that each wait for the last; then the same in an order \
             without a stride. Test 2 reads one line in \
             every way of one set of L2, then a frame that stands for a zero page: always the \
             same one, or one of each colour in turn; over all alignments. Medians of nine \
             repetitions on one core."
                .to_owned(),
        ],
        ..Page::default()
    };
    match sets::run(1) {
        Ok(sets) => fill(&mut page, &sets),
        Err(why) => page.skipped.push(format!("all of it: {why}.")),
    }
    Ok(page)
}

/// Lines of the first screen, in a second.
pub fn here() -> Result<Vec<Row>, String> {
    let sets = sets::run(8).map_err(|e| e.to_string())?;
    let [one, many] = sets.advancing;
    Ok(vec![row(
        "one zero read a turn, worst alignment, ns: one page -> coloured".to_owned(),
        [one[1], many[1]],
    )])
}

fn row(name: String, [before, after]: [Figure; 2]) -> Row {
    Row {
        name,
        published: [None, None],
        ours: [Some(before.median), Some(after.median)],
        spread: Some(before.spread.max(after.spread)),
        provenance: None,
    }
}

/// What alignments come to.
pub(super) const OVER: [&str; 2] = ["mean", "worst alignment"];

/// The row of test 1 with so many frames.
pub(super) fn frames(n: u64) -> String {
    format!("{n} frames in a row")
}

/// The same row where they are read in an order that no prefetcher knows.
pub(super) fn shuffled(n: u64) -> String {
    format!("{n} frames, shuffled")
}

/// What a turn of test 2 reads.
pub(super) fn reads(ways: u64, zeros: u64) -> String {
    match zeros {
        1 => format!("{ways} strided reads, one zero read"),
        _ => format!("{ways} strided reads, {zeros} zero reads"),
    }
}

fn fill(page: &mut Page, sets: &Sets) {
    let [l2_sets, ways] = sets.l2;
    let colours = (l2_sets * 64 / 4096).max(1);
    page.tables.push(Table {
        title: "Test 1: ns a read".to_owned(),
        columns: ["apart".to_owned(), "chained".to_owned()],
        rows: sets.in_a_row.iter().map(|(n, figures)| row(frames(*n), *figures)).collect(),
    });
    page.tables.push(Table {
        title: "Test 1 in an order without a stride: ns a read".to_owned(),
        columns: ["apart".to_owned(), "chained".to_owned()],
        rows: sets.shuffled.iter().map(|(n, figures)| row(shuffled(*n), *figures)).collect(),
    });
    let beside = |name: &str, pair: [[Figure; 2]; 2]| {
        let [one, many] = pair;
        [0, 1].map(|n| row(format!("{name}, {}", OVER[n]), [one[n], many[n]]))
    };
    let advancing = beside(&reads(ways, 1), sets.advancing);
    let whole = beside(&reads(ways, ways), sets.whole);
    page.tables.push(Table {
        title: format!("Test 2: ns a turn; L2 has {ways} ways and {colours} colours"),
        columns: ["one page".to_owned(), "coloured".to_owned()],
        rows: advancing.into_iter().chain(whole).collect(),
    });

    let step = sets.in_a_row.windows(2).max_by(|a, b| {
        let rise = |w: &[(u64, [Figure; 2])]| w[1].1[1].median / w[0].1[1].median;
        rise(a).total_cmp(&rise(b))
    });
    if let Some([(few, before), (many, after)]) = step {
        page.out.push(format!(
            "The steepest step of chained reads is from {few} to {many} frames: {} to {} ns, \
             where apart reads go from {} to {}.",
            figure(before[1].median),
            figure(after[1].median),
            figure(before[0].median),
            figure(after[0].median)
        ));
    }
    let gain = |[one, many]: [[Figure; 2]; 2], i: usize| many[i].median / one[i].median;
    page.out.push(format!(
        "Coloured against one page: {:.2} of the time in the mean and {:.2} in the worst \
         alignment with one zero read a turn, {:.2} and {:.2} with {ways}.",
        gain(sets.advancing, 0),
        gain(sets.advancing, 1),
        gain(sets.whole, 0),
        gain(sets.whole, 1)
    ));
    let noise = [sets.advancing, sets.whole]
        .iter()
        .flatten()
        .flatten()
        .map(|f| f.spread)
        .fold(0.0, f64::max);
    page.means.push(format!(
        "Differences below the spread, {:.0} % at most here, are none. {}",
        noise * 100.0,
        if (gain(sets.advancing, 1) - 1.0).abs() <= noise.max(0.05) {
            "In the case colours are made for, one zero read a turn in the worst alignment, this \
             computer shows nothing."
        } else if gain(sets.advancing, 1) < 1.0 {
            "In the case colours are made for, one zero read a turn in the worst alignment, they \
             gain."
        } else {
            "Even in the case colours are made for, one zero read a turn in the worst alignment, \
             they lose."
        }
    ));
    page.limits.push(
        "The host's own zero page has no colours, so frames of a 2 MiB page stand for zero pages. \
         In a guest the frames behind a 2 MiB page may lie anywhere, and the sets of L2 with \
         them. Hardware prefetchers see strides and hide what they can."
            .to_owned(),
    );
}
