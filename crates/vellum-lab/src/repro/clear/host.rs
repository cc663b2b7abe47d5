//! The experiment on this computer.

use vellum_host::bench::Row as Native;
use vellum_host::bench::clear as native;
use vellum_host::bench::measure::Effort;

use crate::error::LabError;
use crate::interrupt;
use crate::repro::page::{Page, Row, Table};

/// On this computer: every way to clear that the processor has, beside the library's choice.
pub fn run() -> Result<Page, LabError> {
    let effort = Effort { stop: interrupt::requested, ..Effort::SHORT };
    let report = native::run(effort).map_err(LabError::failed)?;
    let rows = report.benchmarks.iter().map(|r| row(format!("{}, ns a page", r.name.trim_start_matches("clear/")), r));
    Ok(Page {
        name: "clear",
        title: "Clearing, on this computer".into(),
        on: "this computer".into(),
        asked: vec!["How fast does the library clear here, beside strings of stores, which kernels use?".into()],
        run: vec![
            "Every kind of stores is measured by length, the fastest are chosen, the library is measured with them."
                .into(),
        ],
        tables: vec![Table {
            title: "Nanoseconds for 4 KiB".into(),
            columns: ["rep stos".into(), "the library".into()],
            rows: rows.collect(),
        }],
        out: report.notes.clone(),
        means: native::explain(&report),
        limits: vec!["The faults of this computer's own kernel are not in these figures.".into()],
        ..Page::default()
    })
}

fn row(name: String, measured: &Native) -> Row {
    Row {
        name,
        published: [None, None],
        ours: [measured.peers.get("strings").copied(), Some(measured.ours)],
        spread: Some(measured.spread),
        rest: None,
    }
}

/// Lines of the first screen, in a second or two.
pub fn here() -> Result<Vec<Row>, String> {
    let effort = Effort { repetitions: 3, shrink: 8, lives: 1, stop: interrupt::requested };
    let report = native::run(effort).map_err(|e| e.to_string())?;
    let names = [
        ("clear/page-hot", "clearing one page again and again, ns: rep stos > library"),
        ("clear/run-2M", "clearing 2 MiB, ns a page: rep stos > library"),
    ];
    let found = names.iter().filter_map(|(name, says)| {
        report.benchmarks.iter().find(|r| r.name == *name).map(|r| row((*says).to_owned(), r))
    });
    Ok(found.collect())
}
