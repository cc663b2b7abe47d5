//! Huge pages of zeros: the same benchmark on a second machine, whose last level is smaller than
//! the tables.

use vellum_sim::file::Machine;

use super::found::Found;
use super::machines::WESTMERE;
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::hugezero::CYCLES;
use crate::repro::hugezero::loops::{Each, PAGES, Taken, compare, glance};
use crate::repro::page::{Pair, Row, Statement, Table};
use crate::repro::{basis, side};

/// By what factor the ratio may be off.
const LIMIT: f64 = 1.5;
/// Comparisons of the published run.
const COMPARED: f64 = 1000.0 * 1_048_576.0;
const FORMS: [&str; 2] = ["page", "table-private"];

/// Cycles, first-level misses and reads of the last level, by the page and by tables.
const PUBLISHED: [[f64; 2]; 3] = [
    [7_927_948_993.0, 60_182_028_883.0],
    [1_051_317_291.0, 264_297_418.0],
    [1_049_134_961.0, 6_732_362.0],
];

/// The run on `westmere-ex`.
pub(super) fn found(context: &Context<'_>) -> Result<Found, LabError> {
    let seed = context.seed;
    let machine = WESTMERE.over(context.machine)?;
    let with = |key, value| machine.with(key, value).map_err(LabError::failed);
    let (blind, near) = (with("prefetch.walks", "false")?, with("llc.latency", "40")?);
    let asked: Vec<(&Machine, &str)> =
        [&machine, &blind, &near].into_iter().flat_map(|m| FORMS.map(|form| (m, form))).collect();
    let taken = side::by_side(&asked, |&(machine, form)| compare(machine, seed, form, PAGES))?;
    let cycles = |nth: usize| taken[nth + 1].all.cycles / taken[nth].all.cycles;
    let short = |machine: &Machine| {
        let cycles = |form| glance(machine, seed, form).map(|glance| glance.pages);
        Ok::<f64, LabError>(cycles(FORMS[1])? / cycles(FORMS[0])?)
    };
    // Guesses are varied over a sixteenth of the memory.
    let scale = cycles(0) / short(&machine)?;
    let rests: Vec<&str> = CYCLES.into_iter().chain(["prefetch"]).collect();
    let ratio = |machine: &Machine| short(machine).map(|ratio| ratio * scale);
    let provenance = basis::measured_provenance(&machine, &rests, &ratio)?;
    let table = table(&taken, &provenance);
    let published = PUBLISHED[0][1] / PUBLISHED[0][0];
    let off = cycles(0) / published;
    let statements = vec![Statement {
        id: "D-17",
        what: "ratio of cycles, ours over published".into(),
        value: off,
        band: [1.0 / LIMIT, LIMIT],
        provenance,
    }];
    Ok(Found {
        table,
        statements,
        run: vec![
            "Benchmark 2 of `vellum repro hugezero`, as another person ran it: a byte of each page \
             of 4 GiB against the one 4 GiB further. Tables for 8 GiB take 16 MiB, more than the \
             last level has. The run by the page stands for the old column."
                .into(),
            WESTMERE.changes(context.machine)?,
        ],
        means: "Whether tables are read from memory or were fetched ahead decides this run, and \
                the published count of reads of the last level says that they were fetched ahead."
            .into(),
        limits: vec![format!(
            "7-cpu measured 40 cycles for the last level where the run by the page took 60.5. With \
             40 that run is faster than published, and the ratio is off by a factor of {:.2}.",
            cycles(4) / published
        )],
    })
}

fn table(taken: &[Taken], provenance: &basis::Provenance) -> Table {
    let published = |nth: usize| PUBLISHED[nth].map(|count| Some(count / COMPARED));
    let row = |name: &str, published: Pair, figure: fn(&Each) -> f64, after: usize| Row {
        name: name.to_owned(),
        published,
        ours: [after - 1, after].map(|nth| Some(figure(&taken[nth].all))),
        spread: None,
        provenance: Some(provenance.clone()),
    };
    let varied = row("cycles", published(0), |e| e.cycles, 1);
    let still =
        basis::Provenance { sensitivities: Vec::new(), varied: false, ..provenance.clone() };
    let rest = [
        row("cycles, if walks train nothing", published(0), |e| e.cycles, 3),
        row("cycles, last level of 40 cycles", published(0), |e| e.cycles, 5),
        row("L1 misses, program and walks", published(1), |e| e.l1, 1),
        row("reads of the LLC", published(2), |e| e.llc, 1),
    ];
    let rest = rest.map(|row| Row { provenance: Some(still.clone()), ..row });
    Table {
        title: "Huge zeros, benchmark 2 on a second machine: a comparison".into(),
        columns: ["page".into(), "tables".into()],
        rows: std::iter::once(varied).chain(rest).collect(),
    }
}
