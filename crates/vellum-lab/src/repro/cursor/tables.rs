//! The tables of the page.

use vellum_sim::file::Machine;

use super::published::{ALLOC, CHANGES, FUNCTIONS};
use super::shapes::disciplines::Visits;
use super::sim::{PRICE, PRICED, Prices, Rests, Shapes, Taken};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::page::{Pair, Row, Table};

/// All of them.
pub fn all(machine: &Machine, taken: &Taken, rests: &Rests) -> Result<Vec<Table>, LabError> {
    let exact = basis::provenance(machine, &[])?;
    let mut tables = vec![
        visits(&exact, "Nodes visited a call, eight compilations: M2", &taken.compiled),
        visits(&exact, "The same of the invented mix: M2", &taken.mixed),
        loops(&exact, taken),
        depths(&exact, taken),
        library(&exact, taken),
        cycles(machine, &taken.prices, rests)?,
        shares(machine, taken, &rests[2])?,
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
    let by_loops = taken.saved_by_loops();
    // What is predicted of alloc stands beside each of its runs.
    if let Some(alloc) =
        tables.iter_mut().find(|table| table.title.starts_with("alloc, cycles a call"))
    {
        for (nth, row) in alloc.rows.iter_mut().enumerate() {
            let run = usize::from(nth >= 2);
            let saved = if nth % 2 == 0 { by_loops } else { Some(taken.prices.saved(run)) };
            row.ours = [Some(1.0), saved.map(|saved| 1.0 - saved / ALLOC)];
            row.provenance = Some(basis::provenance(machine, &PRICE)?);
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
    let rows = vec![
        row("as private memory", faults.private, exact),
        row("as objects", faults.objects, exact),
    ];
    Table {
        title: "Nodes that the library's own faults visit, one compilation: alloc.cursor".into(),
        columns: ["off".into(), "on".into()],
        rows,
    }
}

fn cycles(machine: &Machine, prices: &Prices, rests: &Rests) -> Result<Table, LabError> {
    let last = PRICED - 1;
    let by = |level: usize| prices.cycles(last, [prices.latencies[level]; 4]);
    let lines = prices.runs[last].map(|price| price[0].lines());
    let (near, far) = (&["l1d.latency"], &["memory.latency"]);
    Ok(Table {
        title: "Cycles of visited lines a call, published shape".into(),
        columns: ["root".into(), "faults".into()],
        rows: vec![
            row("lines, run 2", lines, &basis::provenance(machine, &[])?),
            row("all in the first level, run 2", by(0), &basis::provenance(machine, near)?),
            row(
                "simulated caches, run 1 (files cold)",
                prices.cycles(0, prices.latencies),
                &rests[0],
            ),
            row("simulated caches, run 2", prices.cycles(last, prices.latencies), &rests[1]),
            row("all in memory, run 2", by(3), &basis::provenance(machine, far)?),
        ],
    })
}

/// Cycles of `alloc` as a share of the original's. Were all lines in memory, the difference would
/// be more than the call took, so that bound has no row here.
fn shares(machine: &Machine, taken: &Taken, rests: &Provenance) -> Result<Table, LabError> {
    let published = |change: usize| -> Pair {
        let function = &FUNCTIONS[0];
        let mean = |runs: &[f64; 8]| runs[1..].iter().sum::<f64>() / 7.0;
        [Some(1.0), Some(mean(&function.after[change]) / mean(&function.before))]
    };
    let line = |name: &str, published: Pair, saved: Option<f64>, rests: &Provenance| Row {
        published,
        ours: [Some(1.0), saved.map(|saved| 1.0 - saved / ALLOC)],
        ..row(name, [1.0; 2], rests)
    };
    let near = basis::provenance(machine, &["l1d.latency"])?;
    let (prices, last) = (&taken.prices, PRICED - 1);
    Ok(Table {
        title: "alloc, cycles as a share of the original's, runs 2 to 8".into(),
        columns: ["original".into(), "cursor".into()],
        rows: vec![
            line("M1", published(0), taken.saved_by_loops(), &basis::provenance(machine, &[])?),
            line("M2, simulated caches", published(1), Some(prices.saved(last)), rests),
            line("M2, all in the first level", published(1), Some(prices.saved_by(last, 0)), &near),
        ],
    })
}
