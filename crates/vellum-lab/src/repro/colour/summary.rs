//! The experiment in three lines: the second test under LRU.

use vellum_sim::cache::Policy;

use super::prose;
use super::shape::Shape;
use super::sim::{Aggregate, SETS};
use super::workloads::{Reading, ZeroReads, beside_zeros};
use crate::error::LabError;
use crate::repro::bench::Counted;
use crate::repro::context::Context;
use crate::repro::page::{Pair, Row};
use crate::repro::summary::Summary;
use crate::repro::{basis, side};

/// Lines of the first screen.
pub fn run(context: &Context<'_>) -> Result<Summary, LabError> {
    let shape = Shape::of(context.machine)?;
    let colours = shape.colours[1];
    let run = |reading| {
        let runs: Vec<ZeroReads> = [1, colours]
            .into_iter()
            .flat_map(|colours| (0..shape.colours[1]).map(move |align| (colours, align)))
            .map(|run| ZeroReads {
                policy: Some(Policy::Lru),
                ..ZeroReads::glance(reading, run, context.seed)
            })
            .collect();
        side::by_side(&runs, |run| beside_zeros(context.machine, &shape, run))
    };
    let (one, many) = (run(Reading::Advancing)?, run(Reading::Whole)?);
    let provenance = basis::provenance(context.machine, &SETS)?;
    let row = |name: &str,
               published: Pair,
               counted: &[Counted],
               figure: fn(&Counted) -> f64,
               over: Aggregate| Row {
        name: name.to_owned(),
        published,
        ours: [0, 1].map(|i| {
            counted.chunks(colours as usize).nth(i).map(|c| over.of(c.iter().map(figure)))
        }),
        spread: None,
        provenance: Some(provenance.clone()),
    };
    Ok(Summary {
        title: format!("Coloured zero pages: misses a turn, one page -> {colours} colours"),
        gains: vec![
            row(
                "one zero read a turn, L2, worst alignment",
                [None, None],
                &one,
                |c| c.l2,
                Aggregate::Worst,
            ),
            row("the same, L1, mean", prose::TEST_TWO_MISSES, &one, |c| c.l1, Aggregate::Mean),
        ],
        losses: vec![row(
            "colour: 8 zero reads a turn, L2 misses",
            [None, None],
            &many,
            |c| c.l2,
            Aggregate::Mean,
        )],
    })
}
