//! An experiment run once for all tests of a file, and its page in `docs/` held against it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;

use vellum_lab::repro::page::{Page, Row};
use vellum_lab::repro::{Context, PublishedExperiment, text};
use vellum_sim::file::{Machine, preset};

/// The pages of an experiment on its own machines.
pub fn pages(experiment: &PublishedExperiment) -> Vec<Page> {
    let on = |name: &&str| {
        (experiment.sim)(&Context { machine: &machine(name), seed: 1 }).expect("it runs")
    };
    experiment.machines.iter().map(on).collect()
}

/// A preset.
pub fn machine(name: &str) -> Machine {
    preset(name).expect("a preset")
}

/// A row by parts of its table's title and of its name.
pub fn row<'p>(page: &'p Page, table: &str, name: &str) -> &'p Row {
    let table = page
        .tables
        .iter()
        .find(|t| t.title.contains(table))
        .unwrap_or_else(|| panic!("no table {table}"));
    table.rows.iter().find(|r| r.name.contains(name)).unwrap_or_else(|| panic!("no row {name}"))
}

/// Our figures of a row.
pub fn ours(page: &Page, table: &str, name: &str) -> [f64; 2] {
    row(page, table, name).ours.map(|v| v.unwrap_or(f64::NAN))
}

/// A word as a number, whatever stands around it.
fn number(word: &str) -> Option<f64> {
    word.trim_matches(|c: char| !c.is_ascii_digit()).replace(',', "").parse().ok()
}

/// `docs/NAME.md` says what the command would say now: every word, figures to a tenth, since a
/// change of the library's moves them a little.
pub fn holds_document(experiment: &PublishedExperiment, pages: &[Page]) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{}.md", experiment.name));
    let written =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let now = text::markdown(experiment, &pages.iter().collect::<Vec<_>>());
    let again =
        format!("run `./run repro {} --markdown > docs/{}.md`", experiment.name, experiment.name);
    assert_eq!(written.split_whitespace().count(), now.split_whitespace().count(), "{again}");
    for (then, now) in written.split_whitespace().zip(now.split_whitespace()) {
        let alike = match (number(then), number(now)) {
            (Some(a), Some(b)) => (a - b).abs() <= a.abs().max(b.abs()) * 0.1,
            _ => then == now,
        };
        assert!(alike, "`{then}` is now `{now}`; {again}");
    }
}

/// A page fits the terminal and has its parts.
pub fn is_readable(page: &Page) {
    let said = text::page(page);
    assert!(said.lines().all(|l| l.chars().count() <= 100), "{said}");
    for part in ["Asked", "Run", "Came out", "Means", "Where it does not help", "Statements"] {
        assert!(said.contains(part), "`{part}` in:\n{said}");
    }
}
