//! Clearing in extents: other editions of the posting, and other processors.

use vellum::addr::Order;
use vellum_sim::file::Machine;

use super::found::{Found, error};
use super::machines::{GENOA, MILAN_V3, MILAN_V8, Part, ZEN_5};
use crate::error::LabError;
use crate::repro::clear::{
    BATCHES, BEFORE, ELIDED, FOOTPRINT, GIANT, HUGE, Switches, TouchedByte, WHOLE, touch,
};
use crate::repro::page::{Row, Statement, Table};
use crate::repro::{basis, side};

/// The largest error of a run, in per cent.
const LIMIT: f64 = 12.0;

/// A published run.
#[derive(Clone, Copy)]
struct Run {
    id: &'static str,
    name: &'static str,
    /// What is laid over the preset; `None`: it is the machine of the run as it stands.
    part: Option<Part>,
    leaf: Order,
    after: Switches,
    /// GiB/s, page by page and in extents.
    published: [f64; 2],
    rests: &'static [&'static str],
}

/// Runs on a preemptible kernel, or where the model of preemption changes nothing.
const SMALL: Run = Run {
    id: "",
    name: "",
    part: None,
    leaf: Order::HUGE,
    after: WHOLE,
    published: [0.0; 2],
    rests: HUGE,
};
const LARGE: Run = Run { leaf: Order::GIANT, rests: ELIDED, ..SMALL };

/// 64 GiB in so many seconds.
const fn in_seconds(before: f64, after: f64) -> [f64; 2] {
    [64.0 / before, 64.0 / after]
}

const RUNS: [Run; 9] = [
    Run {
        id: "A-15-v3",
        name: "Milan, 3rd edition, 2 MiB",
        part: Some(MILAN_V3),
        published: [11.89, 16.12],
        ..SMALL
    },
    Run {
        id: "A-15-v3-1g",
        name: "Milan, 3rd edition, 1 GiB",
        part: Some(MILAN_V3),
        published: [16.51, 42.80],
        ..LARGE
    },
    Run { id: "A-15-v4-1g", name: "Milan, 4th edition, 1 GiB", published: [17.51, 40.03], ..LARGE },
    Run {
        id: "A-15-v8",
        name: "Milan, 8th edition, 2 MiB",
        part: Some(MILAN_V8),
        published: [12.92, 17.03],
        ..SMALL
    },
    Run {
        id: "A-15-v8-8m",
        name: "Milan, 8th edition, by 8 MiB",
        part: Some(MILAN_V8),
        after: BATCHES,
        published: [17.14, 18.04],
        rests: GIANT,
        ..LARGE
    },
    Run {
        id: "A-15-v8-1g",
        name: "Milan, 8th edition, 1 GiB",
        part: Some(MILAN_V8),
        published: [17.26, 42.17],
        ..LARGE
    },
    Run {
        id: "A-15-genoa",
        name: "Genoa, 2 MiB",
        part: Some(GENOA),
        published: in_seconds(5.098403, 2.52015),
        ..SMALL
    },
    Run {
        id: "A-15-genoa-1g",
        name: "Genoa, 1 GiB",
        part: Some(GENOA),
        published: in_seconds(2.47044, 1.060877),
        ..LARGE
    },
    Run {
        id: "A-15-zen5",
        name: "Zen 5, 2 MiB",
        part: Some(ZEN_5),
        published: [20.655559, 35.060572],
        ..SMALL
    },
];

impl Run {
    fn machine(&self, preset: &Machine) -> Result<Machine, LabError> {
        self.part.map_or_else(|| Ok(preset.clone()), |part| part.over(preset))
    }

    /// GiB/s, page by page and in extents.
    fn figures(&self, machine: &Machine, bytes: u64) -> Result<[f64; 2], LabError> {
        let one = |switches| touch(machine, self.leaf, switches, bytes, TouchedByte::First);
        Ok([one(BEFORE)?.gib_per_s, one(self.after)?.gib_per_s])
    }

    /// Its row; guesses are halved and doubled where asked.
    fn row(&self, preset: &Machine, bytes: u64, vary: bool) -> Result<Row, LabError> {
        let machine = self.machine(preset)?;
        let ratio =
            |machine: &Machine| self.figures(machine, FOOTPRINT / 16).map(|[old, new]| new / old);
        let provenance = match vary {
            true => basis::measured_provenance(&machine, self.rests, &ratio)?,
            false => basis::provenance(&machine, self.rests)?,
        };
        Ok(Row {
            name: self.name.to_owned(),
            published: self.published.map(Some),
            ours: self.figures(&machine, bytes)?.map(Some),
            spread: None,
            provenance: Some(provenance),
        })
    }

    fn statement(&self, row: &Row) -> Option<Statement> {
        Some(Statement {
            id: self.id,
            what: format!("{}, error, %", self.name),
            value: error(row.ours[1]?, self.published[1]),
            band: [-LIMIT, LIMIT],
            provenance: row.provenance.clone()?,
        })
    }
}

/// The runs on `milan`.
pub(super) fn found(preset: &Machine) -> Result<Found, LabError> {
    let rows = side::by_side(&RUNS, |run| run.row(preset, FOOTPRINT, true))?;
    let statements: Vec<Statement> =
        RUNS.iter().zip(&rows).filter_map(|(run, row)| run.statement(row)).collect();
    let mut run = vec![
        "64 GiB are touched as in `vellum repro clear`, page by page and then in extents. Runs of \
         1 GiB are on a preemptible kernel, but for those in batches of 8 MiB. The error is that \
         of the new figure. The old one is what the machine was set by."
            .to_owned(),
    ];
    for part in [MILAN_V3, MILAN_V8, GENOA, ZEN_5] {
        run.push(part.changes(preset)?);
    }
    run.push(format!(
        "The 4th edition has the old column that {} is made from, and no other new figure than \
         the 7th but this one.",
        preset.name
    ));
    let table = Table {
        title: "Clearing in extents, GiB/s".into(),
        columns: ["page by page".into(), "extents".into()],
        rows,
    };
    Ok(Found { limits: limits(), means: means(&statements), table, statements, run })
}

fn means(statements: &[Statement]) -> String {
    if statements.iter().all(|s| s.value < 0.0) {
        "All errors have one sign, so the model lacks something that makes long stores faster. \
         What it says that extents are worth may be read as a lower bound."
            .to_owned()
    } else {
        "Errors have both signs: nothing that all runs have in common is missing.".to_owned()
    }
}

fn limits() -> Vec<String> {
    vec![
        "2 MiB: until 2026-11-28 a huge fault without zeroing was a guess of 13 us, from \
         transparent huge pages on a Haswell; these runs take pages of hugetlbfs, which come from \
         a pool. The measurement in its place knows nothing of extents, but it was made when the \
         errors were known: -8.3, -9.6, -13.7 and -9.1 %."
            .to_owned(),
        "Genoa, 1 GiB: what decides is the time of a line that string stores write without \
         write-allocate. Until 2026-11-28 the cycles of Milan stood in, 1.27 ns, and the error was \
         -22.4 %. No figure of string stores on this processor was found that does not come from a \
         kernel with extents. Stores around the caches stand in now, found when the answer was \
         known. The six virtual machines measured 43.7, 43.8, 45.5, 52.2, 52.8 and 61.4 GB/s; the \
         fastest is taken, as the least of several times is everywhere here. With the median of \
         the six the error would be -25 %. An EPYC 9754, whose cores are Zen 4c, measured 28.7."
            .to_owned(),
        "Left out: Genoa with pages populated by the mapping (2025-07), which is the same \
         processor once more; Zen 5 with CLZERO and MOVNT in place of string stores, and its runs \
         of 1 GiB, which are not published; editions 9 and 10 and the merged commit, whose figures \
         could not be read in full."
            .to_owned(),
    ]
}

/// Some of the runs, over a part of the memory: those that lie within the limit, and the others.
pub(super) fn glance(preset: &Machine) -> Result<[Vec<Row>; 2], LabError> {
    let (mut holds, mut misses) = (Vec::new(), Vec::new());
    for run in RUNS.iter().filter(|run| !run.id.contains("-v3") && !run.id.contains("-v4")) {
        let mut row = run.row(preset, FOOTPRINT / 16, false)?;
        match run.statement(&row).is_some_and(|s| s.ok()) {
            true => holds.push(row),
            false => {
                row.name = format!("held out: {}, GiB/s", row.name);
                misses.push(row);
            }
        }
    }
    Ok([holds, misses])
}
