//! Coloured zero pages: the first test as the first edition of the posting measured it.

use vellum_sim::file::Machine;

use super::found::{Found, error};
use super::machines::THUNDER;
use crate::error::LabError;
use crate::repro::colour::{TEST_ONE_MISSES, TURNS, in_a_row};
use crate::repro::context::Context;
use crate::repro::page::{Row, Statement, Table};
use crate::repro::{basis, side};

/// The largest error, in per cent.
const LIMIT: f64 = 25.0;
const WAYS: u64 = 8;
/// Policies as machine files write them; the first is that of the machine.
const POLICIES: [&str; 5] = ["nru", "nru-rotating", "lru", "plru", "random"];

/// The run on `thunderx2`.
pub(super) fn found(context: &Context<'_>) -> Result<Found, LabError> {
    let machine = THUNDER.over(context.machine)?;
    let rests = ["l1d.size", "l1d.ways", "l1d.policy"];
    let provenance = basis::provenance(&machine, &rests)?;
    let rows = side::by_side(&POLICIES, |policy| {
        let machine =
            machine.with("l1d.policy", &format!("\"{policy}\"")).map_err(LabError::failed)?;
        Ok(Row {
            name: format!("L1 misses a read, {policy}"),
            published: TEST_ONE_MISSES[2],
            ours: [
                misses(&machine, WAYS, context.seed)?,
                misses(&machine, WAYS + 1, context.seed)?,
            ]
            .map(Some),
            spread: None,
            provenance: Some(provenance.clone()),
        })
    })?;
    let value = rows[0].ours[1].zip(TEST_ONE_MISSES[2][1]);
    let statements = vec![Statement {
        id: "B-13",
        what: format!("misses a read, {} frames, {}, error, %", WAYS + 1, POLICIES[0]),
        value: value.map_or(f64::NAN, |(ours, published)| error(ours, published)),
        band: [-LIMIT, LIMIT],
        provenance,
    }];
    Ok(Found {
        table: Table {
            title: "Colours, test 1 of the first edition: offset 0 of N frames in a row".into(),
            columns: [format!("N = {WAYS}"), format!("N = {}", WAYS + 1)],
            rows,
        },
        statements,
        run: vec![
            "Test 1 of `vellum repro colour` as the first edition of the posting had it: half of \
             all reads miss with 9 frames, where the third edition misses always."
                .into(),
            THUNDER.changes(context.machine)?,
        ],
        means: "Of five policies one comes near what was published: bits for \"not recently \
                used\", looked through from way 0. That makes it likely for that machine, and no \
                more: it was not chosen without knowing the figure."
            .into(),
        limits: vec![
            "The published times (0.2175 and 0.2481 s) are not compared. A read takes 27 ns in \
             them, misses or none, so what is measured is the loop around it."
                .into(),
        ],
    })
}

fn misses(machine: &Machine, frames: u64, seed: u64) -> Result<f64, LabError> {
    Ok(in_a_row(machine, None, frames, false, (TURNS, seed))?.l1 / frames as f64)
}
