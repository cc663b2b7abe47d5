//! The experiment in two lines: nodes visited, and the change that changes nothing.

use super::published::FUNCTIONS;
use super::shapes::disciplines::Visits;
use super::sim;
use crate::error::LabError;
use crate::repro::basis;
use crate::repro::context::Context;
use crate::repro::page::{Pair, Row};
use crate::repro::summary::Summary;

/// Lines of the first screen.
pub fn run(context: &Context<'_>) -> Result<Summary, LabError> {
    let machine = context.machine;
    let shapes = sim::compiled(machine, &sim::load()?)?;
    let row = |name: &str, published: Pair, ours: [&Visits; 2]| {
        Ok::<_, LabError>(Row {
            name: name.to_owned(),
            published,
            ours: ours.map(|visits| Some(visits.each(visits.visits))),
            spread: None,
            provenance: Some(basis::provenance(machine, &[])?),
        })
    };
    let alloc = &FUNCTIONS[0];
    let mean = |runs: &[f64; 8]| Some(runs[1..].iter().sum::<f64>() / 7.0);
    let [root, grabs, faults] = &shapes.published;
    Ok(Summary {
        title: "Cursors: cycles of a page allocated (published), trie nodes (ours)".into(),
        gains: vec![row(
            "in the page fault",
            [mean(&alloc.before), mean(&alloc.after[1])],
            [root, faults],
        )?],
        losses: vec![row(
            "cursor: in loops only, cycles; ours: nodes",
            [mean(&alloc.before), mean(&alloc.after[0])],
            [root, grabs],
        )?],
    })
}
