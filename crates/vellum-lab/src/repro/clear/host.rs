//! The experiment on this computer.

use vellum_host::bench::Row as Native;
use vellum_host::bench::clear as native;
use vellum_host::bench::measure::Effort;

use super::measured;
use crate::error::LabError;
use crate::interrupt;
use crate::repro::page::{Page, Row, Table};

/// On this computer: every way to clear that the processor has, beside the library's choice.
pub fn run() -> Result<Page, LabError> {
    let effort = Effort { stop: interrupt::requested, ..Effort::SHORT };
    let found = native::calibrate(effort).map_err(LabError::failed)?;
    let report = native::beside(effort, found.choice).map_err(LabError::failed)?;
    let name = |r: &Native| {
        let unit = if r.unit == "ns" { "ns a page" } else { "times as fast" };
        format!("{}, {unit}", r.name.trim_start_matches("clear/"))
    };
    let rows: Vec<_> = report.benchmarks.iter().map(|r| row(name(r), r)).collect();
    let mut limits =
        vec!["The faults of this computer's own kernel are not in these figures.".to_owned()];
    limits.extend(slower(&rows));
    Ok(Page {
        name: "clear",
        title: "Clearing, on this computer".into(),
        on: "this computer".into(),
        asked: vec![
            "How fast does the library clear here, beside strings of stores, which kernels use?"
                .into(),
            "What is it worth to clear a large page as a few long runs instead of 4 KiB at a \
             time?"
                .into(),
        ],
        run: vec![
            "Every kind of stores is measured by length, the fastest are chosen, the library is \
             measured with them."
                .into(),
            "Then the first touch of 512 MiB in pages of 2 MiB: the library as the kernel of the \
             posting does it, page by page with string stores, the same stores in extents, and \
             extents around the caches. Medians of nine turns."
                .into(),
        ],
        tables: vec![
            Table {
                title: "Nanoseconds for 4 KiB".into(),
                columns: ["rep stos".into(), "the library".into()],
                rows,
            },
            measured::table(found.choice)?,
        ],
        out: found.to_string().lines().map(str::to_owned).collect(),
        means: native::explain(&report),
        limits,
        ..Page::default()
    })
}

/// Where the library takes longer than strings of stores by more than the row's spread, and than a
/// tenth.
fn slower(rows: &[Row]) -> Option<String> {
    let lost: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row, Row::ratio(row.ours)?)))
        .filter(|(row, ratio)| *ratio > 1.1 + row.spread.unwrap_or(0.0))
        .map(|(row, ratio)| {
            format!("{} ({ratio:.2} times)", row.name.trim_end_matches(", ns a page"))
        })
        .collect();
    (!lost.is_empty()).then(|| {
        format!("In this run the library was slower than rep stos in: {}.", lost.join(", "))
    })
}

fn row(name: String, measured: &Native) -> Row {
    Row {
        name,
        published: [None, None],
        ours: [measured.peers.get("strings").copied(), Some(measured.ours)],
        spread: Some(measured.spread),
        provenance: None,
    }
}

/// Lines of the first screen, in a second or two.
pub fn here() -> Result<Vec<Row>, String> {
    let effort = Effort { repetitions: 3, shrink: 8, lives: 1, stop: interrupt::requested };
    let report = native::run(effort).map_err(|e| e.to_string())?;
    let names = [
        ("clear/page-hot", "clearing one page again and again, ns: rep stos -> library"),
        ("clear/run-2M", "clearing 2 MiB, ns a page: rep stos -> library"),
    ];
    let found = names.iter().filter_map(|(name, says)| {
        report.benchmarks.iter().find(|r| r.name == *name).map(|r| row((*says).to_owned(), r))
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, ours: [f64; 2], spread: f64) -> Row {
        Row {
            name: name.into(),
            published: [None, None],
            ours: ours.map(Some),
            spread: Some(spread),
            provenance: None,
        }
    }

    #[test]
    fn what_was_lost_is_named_unless_its_spread_covers_it() {
        let rows = [
            case("run-16K, ns a page", [106.0, 222.0], 0.05),
            case("run-64K, ns a page", [100.0, 124.0], 0.30),
            case("run-2M, ns a page", [100.0, 50.0], 0.01),
        ];
        let said = slower(&rows).expect("one was lost");
        assert_eq!(
            said,
            "In this run the library was slower than rep stos in: run-16K (2.09 times)."
        );
        assert_eq!(slower(&rows[1..]), None);
    }
}
