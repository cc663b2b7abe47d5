//! The published figures of clearing in extents: 64 GiB touched on the machines of the posting.
//!
//! Statements that came out are asserted by their bands. Those that did not are asserted to be
//! *shown* as such: a change of a constant that moves one into its band has to say by which source.

use std::sync::OnceLock;

use crate::experiment::{holds_document, is_readable, machine, pages};
use vellum::addr::Order;
use vellum_lab::repro::Context;
use vellum_lab::repro::clear::{self, EXPERIMENT, TouchedByte};
use vellum_lab::repro::page::{Page, Row, Statement, Table};
use vellum_sim::file::Machine;

/// The experiment on both machines, run once for all tests.
fn both() -> &'static [Page] {
    static PAGES: OnceLock<Vec<Page>> = OnceLock::new();
    PAGES.get_or_init(|| pages(&EXPERIMENT))
}

#[test]
fn a_07_a_08_milan_gains_at_2_mib_not_at_1_gib_in_8_mib_batches_and_doubles_with_32_mib() {
    let page = &both()[0];
    let ours = |row: usize| page.tables[0].rows[row].ours.map(|v| v.expect("measured"));
    assert!(
        (ours(0)[0] / 11.82 - 1.0).abs() < 0.01,
        "the old row is the published one: {:?}",
        ours(0)
    );
    assert!((ours(2)[0] / 17.51 - 1.0).abs() < 0.02, "{:?}", ours(2));
    let [whole, batches, preemptible, long] = &page.statements[..] else {
        panic!("{:?}", page.statements)
    };
    for statement in [whole, batches, long] {
        assert!(statement.ok(), "{statement:?}");
    }
    // What a huge fault takes beside zeroing, and where elision begins on this processor, are
    // guesses.
    assert!(
        page.statements.iter().all(|s| s.provenance.mark.word() == "guess"),
        "{:?}",
        page.statements
    );
    let varied = |s: &Statement, key: &str| {
        s.provenance.sensitivities.iter().find(|w| w.key == key).expect("a guess").clone()
    };
    let elision = varied(long, "costs.elision_threshold");
    assert!(
        elision.doubled.is_some_and(|r| r < 1.05),
        "batches of 32 MiB are too short then: {elision:?}"
    );
    assert!(varied(preemptible, "costs.elision_threshold").moves(preemptible.value) < 0.01);
    let fault = varied(whole, "costs.work.large");
    assert!(fault.halved > Some(whole.value) && fault.doubled < Some(whole.value), "{fault:?}");
    // Published 2.47, band 2.20 to 2.60; the bare string stores published for this machine carry it
    // to just below.
    assert!(!preemptible.ok() && (2.1..2.2).contains(&preemptible.value), "{preemptible:?}");
    let [before, after] = page.tables[1].rows[2].ours.map(|v| v.expect("measured"));
    assert!(before > 0.99 && after < 0.05, "misses a line: {before} > {after}");
    assert!(page.out[0].starts_with("1 of 4 statements did not"), "{:?}", page.out);
    assert!(
        page.limits.iter().any(|s| s.contains("it is slower by a seventh at what both do")),
        "{:?}",
        page.limits
    );
}

#[test]
fn a_14_ice_lake_gains_a_third_or_more_and_a_figure_beside_its_band_is_explained() {
    let page = &both()[1];
    let ours = |row: usize| page.tables[0].rows[row].ours.map(|v| v.expect("measured"));
    assert!(
        (ours(0)[0] / 7.95 - 1.0).abs() < 0.01,
        "the old row is the published one: {:?}",
        ours(0)
    );
    assert!((ours(1)[0] / 8.01 - 1.0).abs() < 0.01, "{:?}", ours(1));
    let [huge, giant] = &page.statements[..] else { panic!("{:?}", page.statements) };
    assert!(huge.ok(), "{huge:?}");
    // Published 1.41; stores in user space carry it past the band.
    assert!(!giant.ok() && (1.45..1.55).contains(&giant.value), "{giant:?}");
    assert!(
        page.limits
            .iter()
            .any(|s| s.contains("In the posting's kernel the same stores came to 11.3"))
    );
    assert!(Row::ratio(page.tables[0].rows[2].ours) > Some(2.0));
}

#[test]
fn each_statement_has_an_id_of_its_own_and_the_plain_number_is_the_ratio_at_2_mib() {
    let ids: Vec<_> = both().iter().flat_map(|page| &page.statements).map(|s| s.id).collect();
    assert_eq!(ids, ["A-7", "A-7-8m", "A-7-preemptible", "A-8", "A-14", "A-14-1g"]);
    for (page, id) in both().iter().zip(["A-7", "A-14"]) {
        let stated = page.statements.iter().find(|s| s.id == id).expect("stated");
        assert_eq!(Some(stated.value), Row::ratio(page.tables[0].rows[0].ours), "{id}");
    }
}

fn cycles(machine: &Machine, leaf: Order, switches: &[(&str, &str)], bytes: u64) -> f64 {
    clear::touch(machine, leaf, switches, bytes, TouchedByte::First)
        .expect("it runs")
        .cycles_per_line
}

#[test]
fn the_footprint_is_that_of_the_posting_and_the_figure_does_not_hang_on_it() {
    let milan = machine("milan");
    let run = |bytes| cycles(&milan, Order::HUGE, &[("clear.stores", "cached")], bytes);
    assert_eq!(clear::FOOTPRINT, 64 << 30);
    assert!((run(4 << 30) / run(8 << 30) - 1.0).abs() < 0.02);
}

#[test]
fn another_last_level_moves_what_elides_from_its_size_on_and_nothing_else() {
    let milan = machine("milan");
    let wide = milan.scaled("llc.size", 2, 1).expect("a machine");
    let batches = |machine: &Machine, size| {
        cycles(machine, Order::GIANT, &[("clear.batch", size), ("clear.stores", "cached")], 4 << 30)
    };
    assert!(
        batches(&wide, "32M") > 1.5 * batches(&milan, "32M"),
        "batches of 32 MiB are too short then"
    );
    assert_eq!(batches(&wide, "8M"), batches(&milan, "8M"), "they were before");
}

#[test]
fn another_seed_moves_what_is_drawn_and_no_verdict() {
    let milan = machine("milan");
    let other = (EXPERIMENT.sim)(&Context { machine: &milan, seed: 99 }).expect("it runs");
    let [first, other] = [&both()[0], &other];
    let ours = |page: &Page, table: usize| {
        page.tables[table].rows.iter().map(|r| r.ours).collect::<Vec<_>>()
    };
    assert_eq!(ours(first, 0), ours(other, 0), "the published workload draws nothing");
    let drawn =
        |page: &Page| page.tables[2].rows.iter().map(|r| Row::ratio(r.ours)).collect::<Vec<_>>();
    assert_ne!(
        drawn(first)[0],
        drawn(other)[0],
        "how far the old way goes up to the fault is drawn"
    );
    for (a, b) in drawn(first).iter().zip(drawn(other)) {
        assert!(
            (a.expect("measured") / b.expect("measured") - 1.0).abs() < 0.02,
            "{a:?} {b:?}: but not by much"
        );
    }
    assert!(first.tables[2].rows.iter().all(|r| r.spread.is_some_and(|s| s < 0.02)));
    assert!(first.tables[2].rows[0].spread > Some(0.0));
    let verdicts = |page: &Page| {
        page.statements.iter().map(|s| (s.id, s.value.to_bits(), s.ok())).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(first), verdicts(other));
}

#[test]
fn the_pages_are_readable_and_docs_clear_md_says_the_same() {
    both().iter().for_each(is_readable);
    holds_document(&EXPERIMENT, both());
}

#[test]
fn less_memory_touches_less_gives_the_same_figures_and_is_judged_by_nothing_published() {
    let small = machine("milan").with("nodes.0.memory", "\"4 GiB\"").expect("a machine");
    let page = (EXPERIMENT.sim)(&Context { machine: &small, seed: 1 }).expect("it runs");
    assert!(page.title.ends_with("2 GiB"), "{}", page.title);
    assert!(page.statements.is_empty(), "the file is not the shipped one");
    assert!(page.limits.iter().any(|s| s.contains("2 GiB are touched")), "{:?}", page.limits);
    let whole = &both()[0];
    assert_eq!(page.tables[0].rows.len(), whole.tables[0].rows.len());
    for (small, whole) in page.tables[0].rows.iter().zip(&whole.tables[0].rows) {
        assert_eq!(small.published, [None, None]);
        for (small, whole) in small.ours.iter().zip(whole.ours) {
            let (small, whole) = (small.expect("measured"), whole.expect("measured"));
            assert!((small / whole - 1.0).abs() < 0.01, "{small} of 2 GiB, {whole} of 64 GiB");
        }
    }
}

#[test]
fn a_machine_without_room_for_pages_of_1_gib_has_rows_of_2_mib_and_says_so() {
    let page = (EXPERIMENT.sim)(&Context { machine: &machine("tiny"), seed: 1 }).expect("it runs");
    assert!(page.tables[0].rows.iter().all(|row| row.name.starts_with("2 MiB")), "{page:?}");
    assert!(page.limits.iter().any(|s| s.contains("left out")), "{:?}", page.limits);
    let none = machine("milan").with("nodes.0.memory", "\"2 MiB\"");
    let refused = none.ok().map(|m| (EXPERIMENT.sim)(&Context { machine: &m, seed: 1 }));
    assert!(refused.is_none_or(|r| r.is_err()));
}

#[test]
fn statements_belong_to_the_contents_of_a_shipped_file_and_not_to_its_name() {
    let milan = machine("milan");
    assert!(milan.is_preset("milan") && !milan.is_preset("icelake-x"));
    let text = vellum_sim::file::preset_text("milan").expect("a preset");
    let named = text.replacen("name = \"milan\"", "name = \"mine\"", 1);
    assert!(Machine::parse("mine.toml", &named).expect("a machine").is_preset("milan"));
    assert!(!milan.scaled("costs.clear_page_line", 2, 1).expect("a machine").is_preset("milan"));
}

/// The library is called on this computer; what its kernel takes for a fault is not in the figures.
#[test]
fn a_measured_page_is_set_beside_the_model_without_the_kernels_own_fault() {
    let measured = {
        let row = |name: &str, before, after| Row {
            name: format!("2 MiB, {name}, GiB/s"),
            published: [None, None],
            ours: [Some(before), Some(after)],
            spread: None,
            provenance: None,
        };
        let rows = vec![row("extents", 11.0, 16.0), row("extents, bypassing", 11.0, 33.0)];
        let table = Table { title: String::new(), columns: Default::default(), rows };
        Page { tables: vec![table], ..Page::default() }
    };
    let beside = |machine: &Machine| -> Vec<(String, [Option<f64>; 2])> {
        let context = Context { machine, seed: 1 };
        let table = (EXPERIMENT.twin)(&context, &measured).expect("it runs");
        table.expect("all were measured").rows.into_iter().map(|row| (row.name, row.ours)).collect()
    };
    let milan = machine("milan");
    let slow_faults = milan.with("costs.work.large", "\"100 us\"").expect("a machine");
    let rows = beside(&milan);
    assert_eq!(beside(&slow_faults), rows);
    // 2 MiB around the caches by 3.79 cycles a line of 2.42 GHz, and a neighbourhood through them.
    let (name, around) = &rows[3];
    assert!(name.contains("bypassing"), "{rows:?}");
    assert!((36.0..38.1).contains(&around[1].expect("modelled")), "{around:?}");
    let faster = milan.with("costs.clear_elided_line", "2").expect("a machine");
    assert!(beside(&faster)[3].1[1] > around[1]);
}
