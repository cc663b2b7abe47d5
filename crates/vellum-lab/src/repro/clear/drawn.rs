//! The same workload with the touched byte drawn for each page, by several seeds.
//!
//! The fault address decides what is cleared last, and so the length of the runs on either side. In
//! a page of 1 GiB one side may be too short for elision. The old way goes down or up to the fault
//! and turns, and ascending pages are cheaper. An eighth of the footprint is used, since three
//! seeds of all of it would take longer than the rest of the page. Old and new get the same draws.

use vellum::addr::Order;

use super::cases::{BEFORE, Case};
use super::footprint::{Footprint, power_of_two};
use super::touch::{TouchedByte, touch};
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::page::{Row, Table};
use crate::repro::{basis, side};

/// Seeds that are run: the one asked for and those after it.
const SEEDS: u64 = 3;
/// A row for each case that a statement judges.
pub fn table(
    context: &Context<'_>,
    footprint: &Footprint,
    cases: &[Case],
) -> Result<Table, LabError> {
    let judged = || cases.iter().filter(|c| c.stated.is_some());
    let largest = cases.iter().map(|c| c.leaf).max().unwrap_or(Order::HUGE);
    // The old way is run once for each leaf size.
    let mut runs: Vec<_> = judged().map(|c| (c.leaf, c.after)).collect();
    for case in judged() {
        if !runs.contains(&(case.leaf, BEFORE)) {
            runs.push((case.leaf, BEFORE));
        }
    }
    let asked: Vec<_> = (0..SEEDS)
        .flat_map(|n| runs.iter().map(move |&run| (context.seed.wrapping_add(n), run)))
        .collect();
    let figures = side::by_side(&asked, |&(seed, (leaf, switches))| {
        let bytes = footprint.part(8, leaf);
        Ok(touch(context.machine, leaf, switches, bytes, TouchedByte::Drawn(seed))?.gib_per_s)
    })?;
    let figure = |seed: usize, run| {
        let nth = runs.iter().position(|r| *r == run).unwrap_or(0);
        figures[seed * runs.len() + nth]
    };
    let rows = judged().map(|case| {
        let pair =
            |seed| [figure(seed, (case.leaf, BEFORE)), figure(seed, (case.leaf, case.after))];
        let ratios = (0..SEEDS as usize).map(|seed| pair(seed)[1] / pair(seed)[0]).collect();
        Ok(Row {
            name: case.name.into(),
            published: [None, None],
            ours: pair(0).map(Some),
            spread: Row::spread(ratios),
            provenance: Some(basis::provenance(context.machine, case.rests)?),
        })
    });
    Ok(Table {
        title: format!(
            "Touched at a byte drawn for each page, {}, three seeds",
            power_of_two(footprint.part(8, largest))
        ),
        columns: ["page by page".to_owned(), "extents".to_owned()],
        rows: rows.collect::<Result<_, LabError>>()?,
    })
}
