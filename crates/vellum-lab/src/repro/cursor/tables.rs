//! The tables of the page.

use vellum_sim::file::Machine;

use super::disciplines::Visits;
use super::price::Price;
use super::published::{ALLOC, CHANGES, FUNCTIONS};
use super::sim::{PRICE, Shapes, Taken};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::page::{Pair, Row, Table};

/// All of them.
pub fn all(machine: &Machine, taken: &Taken) -> Result<Vec<Table>, LabError> {
    let exact = basis::provenance(machine, &[])?;
    let priced = basis::provenance(machine, &PRICE)?;
    let mut tables = vec![
        visits(&exact, "Nodes visited a call, eight compilations: M2", &taken.compiled),
        visits(&exact, "The same of the invented mix: M2", &taken.mixed),
        loops(&exact, taken),
        depths(&exact, taken),
        library(&exact, taken),
        cycles(&priced, taken),
        shares(&priced, taken),
    ];
    tables.extend(FUNCTIONS.iter().map(|function| {
        let rows = (0..8).flat_map(|run| {
            (0..2).map(move |change| Row {
                name: format!("run {}, {}", run + 1, CHANGES[change]),
                published: [Some(function.before[run]), Some(function.after[change][run])],
                ours: [None, None],
                spread: None,
                provenance: None,
            })
        });
        Table {
            title: format!("{}, cycles a call of each published run", function.name),
            columns: ["original".into(), "cursor".into()],
            rows: rows.collect(),
        }
    }));
    // What is predicted of alloc stands beside each of its runs.
    if let Some(alloc) = tables.iter_mut().find(|table| table.title.starts_with("alloc,")) {
        for (nth, row) in alloc.rows.iter_mut().enumerate() {
            let run = usize::from(nth >= 2);
            let saved = if nth % 2 == 0 { 0.0 } else { taken.saved(run, |price| price.cached) };
            row.ours = [Some(1.0), Some(1.0 - saved / ALLOC)];
            row.provenance = Some(priced.clone());
        }
    }
    Ok(tables)
}

fn row(name: &str, ours: [f64; 2], provenance: &Provenance) -> Row {
    Row {
        name: name.to_owned(),
        published: [None, None],
        ours: ours.map(Some),
        spread: None,
        provenance: Some(provenance.clone()),
    }
}

fn each([before, after]: [&Visits; 2], figure: fn(&Visits) -> u64) -> [f64; 2] {
    [before.each(figure(before)), after.each(figure(after))]
}

fn visits(exact: &Provenance, title: &str, shapes: &Shapes) -> Table {
    let published = [&shapes.published[0], &shapes.published[2]];
    let ours = [&shapes.ours[0], &shapes.ours[2]];
    Table {
        title: title.to_owned(),
        columns: ["root".into(), "faults".into()],
        rows: vec![
            row("published shape, nodes", each(published, |v| v.visits), exact),
            row("published shape, of them by climbing", each(published, |v| v.climbs), exact),
            row("published shape, of the insertion", each(published, |v| v.insertion), exact),
            row("our shape, nodes", each(ours, |v| v.visits), exact),
            row("our shape, of the insertion", each(ours, |v| v.insertion), exact),
        ],
    }
}

fn loops(exact: &Provenance, taken: &Taken) -> Table {
    let first = |visits: &[Visits; 3]| each([&visits[0], &visits[1]], |v| v.visits);
    Table {
        title: "Nodes visited a call with the cursor in loops only: M1".into(),
        columns: ["root".into(), "grabs".into()],
        rows: vec![
            row("compilations, published shape", first(&taken.compiled.published), exact),
            row("compilations, our shape", first(&taken.compiled.ours), exact),
            row("invented mix, published shape", first(&taken.mixed.published), exact),
            row("invented mix, our shape", first(&taken.mixed.ours), exact),
        ],
    }
}

fn depths(exact: &Provenance, taken: &Taken) -> Table {
    let both = |shapes: &Shapes, figure: fn(&Visits) -> f64| {
        [figure(&shapes.published[0]), figure(&shapes.ours[0])]
    };
    let (compiled, mixed) = (&taken.compiled, &taken.mixed);
    Table {
        title: "Nodes above a page that is put in: the published shape (16), ours".into(),
        columns: ["16".into(), "ours".into()],
        rows: vec![
            row("compilations, mean", both(compiled, |v| v.each(v.depth)), exact),
            row("compilations, most", both(compiled, |v| v.deepest as f64), exact),
            row("invented mix, mean", both(mixed, |v| v.each(v.depth)), exact),
            row("invented mix, most", both(mixed, |v| v.deepest as f64), exact),
        ],
    }
}

fn library(exact: &Provenance, taken: &Taken) -> Table {
    let faults = &taken.faults;
    let mut rows = vec![row("as private memory", [faults.private; 2], exact)];
    rows.extend(faults.objects.map(|visits| row("as objects", visits, exact)));
    Table {
        title: "Nodes that the library's own faults visit, one compilation: alloc.cursor".into(),
        columns: ["off".into(), "on".into()],
        rows,
    }
}

fn cycles(priced: &Provenance, taken: &Taken) -> Table {
    let both = |run: usize, by: fn(&Price) -> f64| taken.prices[run].map(|price| by(&price[0]));
    Table {
        title: "Cycles of visited lines a call, published shape".into(),
        columns: ["root".into(), "faults".into()],
        rows: vec![
            row("lines, run 2", both(1, |p| p.lines), priced),
            row("all in the first level, run 2", both(1, |p| p.near), priced),
            row("simulated caches, run 1 (files cold)", both(0, |p| p.cached), priced),
            row("simulated caches, run 2", both(1, |p| p.cached), priced),
            row("all in memory, run 2", both(1, |p| p.far), priced),
        ],
    }
}

/// Cycles of `alloc` as a share of the original's.
fn shares(priced: &Provenance, taken: &Taken) -> Table {
    let published = |change: usize| -> Pair {
        let function = &FUNCTIONS[0];
        let mean = |runs: &[f64; 8]| runs[1..].iter().sum::<f64>() / 7.0;
        [Some(1.0), Some(mean(&function.after[change]) / mean(&function.before))]
    };
    let line = |name: &str, published: Pair, saved: f64| Row {
        published,
        ..row(name, [1.0, 1.0 - saved / ALLOC], priced)
    };
    let m2 = |by: fn(&Price) -> f64| taken.saved(1, by);
    Table {
        title: "alloc, cycles as a share of the original's, runs 2 to 8".into(),
        columns: ["original".into(), "cursor".into()],
        rows: vec![
            line("M1", published(0), 0.0),
            line("M2, all in the first level", [None, None], m2(|p| p.near)),
            line("M2, simulated caches", published(1), m2(|p| p.cached)),
            line("M2, all in memory", [None, None], m2(|p| p.far)),
        ],
    }
}
