//! Published runs that no machine file was made from.
//!
//! Which of them lie within their limit is asserted, and so is that the others are shown as they
//! are: a change that moves one has to say by which source.

use std::sync::OnceLock;

use crate::experiment::{holds_document, is_readable, machine, ours, pages, row};
use vellum_lab::repro::heldout::EXPERIMENT;
use vellum_lab::repro::page::{Page, Row, Statement};
use vellum_lab::repro::{Context, text};
use vellum_sim::file::Basis;

/// The pages on `milan`, `westmere-ex` and `thunderx2`, run once for all tests.
fn all() -> &'static [Page] {
    static PAGES: OnceLock<Vec<Page>> = OnceLock::new();
    PAGES.get_or_init(|| pages(&EXPERIMENT))
}

fn stated(id: &str) -> &'static Statement {
    let mut all = all().iter().flat_map(|page| &page.statements);
    all.find(|s| s.id == id).unwrap_or_else(|| panic!("no statement {id}"))
}

#[test]
fn a_15_new_figures_of_clearing_are_within_12_percent() {
    let page = &all()[0];
    assert_eq!((page.statements.len(), page.tables[0].rows.len()), (9, 9));
    for (statement, row) in page.statements.iter().zip(&page.tables[0].rows) {
        let ([old, new], [published_old, published_new]) =
            (row.ours.map(Option::unwrap), row.published.map(Option::unwrap));
        assert_eq!(statement.band, [-12.0, 12.0]);
        assert!((statement.value - (new / published_new - 1.0) * 100.0).abs() < 1e-9);
        assert!((old / published_old - 1.0).abs() < 0.01, "the old one: {old} {published_old}");
        assert!(statement.ok(), "{statement:?}");
    }
    assert!(page.out[0].starts_with("9 of 9 figures"), "{:?}", page.out);
    assert!(page.means[0].starts_with("Errors have both signs"), "{:?}", page.means);
    assert!(page.limits.iter().any(|s| s.starts_with("Genoa, 1 GiB: what decides")));
}

#[test]
fn d_17_a_second_machine_takes_its_multiple_by_tables_only_if_walks_fetch_ahead() {
    let statement = stated("D-17");
    assert!(statement.ok() && statement.band == [1.0 / 1.5, 1.5], "{statement:?}");
    let page = &all()[1];
    let ratio = |name| Row::ratio(row(page, "Huge zeros", name).ours).expect("measured");
    let published = Row::ratio(row(page, "Huge zeros", "cycles").published).expect("published");
    assert!((ratio("cycles") / published - statement.value).abs() < 1e-9);
    assert!(ratio("if walks train nothing") > 1.5 * published, "tables come from memory then");
    let [page_reads, tables] = ours(page, "Huge zeros", "reads of the LLC");
    assert!((0.98..1.02).contains(&page_reads) && tables < 0.02, "{page_reads} {tables}");
}

#[test]
fn b_13_not_recently_used_bits_miss_as_often_as_the_first_edition_did_and_no_other_policy_does() {
    assert!(stated("B-13").ok(), "{:?}", stated("B-13"));
    let rows = &all()[2].tables[0].rows;
    let after = |row: &Row| row.ours[1].expect("measured") / row.published[1].expect("published");
    let near: Vec<&str> = rows
        .iter()
        .filter(|row| (0.75..1.25).contains(&after(row)))
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!((rows.len(), near), (5, vec!["L1 misses a read, nru"]));
}

/// The rule of the page: before, outside or a guess, and never a new figure.
#[test]
fn no_machine_of_a_held_out_run_has_a_fitted_constant_and_each_change_says_where_it_is_from() {
    for page in all() {
        let rests = page.tables.iter().flat_map(|t| &t.rows).filter_map(|r| r.provenance.as_ref());
        for constant in rests.flat_map(|provenance| &provenance.constants) {
            assert!(constant.basis != Basis::Fitted && !constant.source.is_empty(), "{constant:?}");
        }
        for said in page.run.iter().filter(|said| said.contains(" with: ")) {
            let bases = [" (before: ", " (outside: ", " (guess: "];
            let said_from: usize = bases.iter().map(|basis| said.matches(basis).count()).sum();
            let changes = said.matches(" = ").count();
            assert!(changes > 0 && changes == said_from, "{said}");
        }
    }
}

#[test]
fn another_machine_has_no_held_out_run_and_says_so() {
    for machine in [machine("tiny"), machine("milan").with("llc.ways", "8").expect("a machine")] {
        let page = (EXPERIMENT.sim)(&Context { machine: &machine, seed: 1 }).expect("it runs");
        assert!(page.tables.is_empty() && page.statements.is_empty());
        let said = text::page(&page);
        assert!(said.contains("no run was made from") && said.lines().all(|l| l.len() <= 100));
    }
    let here = (EXPERIMENT.host)().expect("it ends");
    assert!(here.tables.is_empty() && here.skipped[0].contains("other computers"), "{here:?}");
}

#[test]
fn the_first_screen_shows_the_runs_that_it_replays() {
    let milan = machine("milan");
    let said = (EXPERIMENT.summary)(&Context { machine: &milan, seed: 1 }).expect("it runs");
    assert_eq!((said.gains.len(), said.losses.len()), (6, 0));
}

#[test]
fn the_pages_are_readable_and_docs_heldout_md_says_the_same() {
    all().iter().for_each(is_readable);
    holds_document(&EXPERIMENT, all());
}
