//! The experiment in a few lines: a part of benchmark 2, and memory.

use super::loops::glance;
use super::prose;
use super::rss::{self, ALWAYS, NEVER, RssLoad};
use super::sim::CYCLES;
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::page::{Pair, Row};
use crate::repro::summary::Summary;
use crate::repro::{basis, side};

/// Lines of the first screen.
pub fn run(context: &Context<'_>) -> Result<Summary, LabError> {
    let machine = context.machine;
    let cycles = |&form: &&str| Ok(glance(machine, context.seed, form)?.pages);
    let cycles = side::by_side(&["page", "table-private"], cycles)?;
    let page = rss::zeros("page");
    let memory = |load: RssLoad| {
        let pages =
            side::by_side(&[NEVER, ALWAYS, page], |switches| rss::pages(machine, switches, load))?;
        Ok::<_, LabError>([pages[0] as f64, pages[1] as f64, pages[2] as f64])
    };
    let read = memory(RssLoad::Read)?.map(|pages| pages / 256.0);
    let row = |name: &str, published: Pair, ours: [f64; 2], rests: &[&str]| {
        let provenance = Some(basis::provenance(machine, rests)?);
        Ok::<_, LabError>(Row {
            name: name.to_owned(),
            published,
            ours: ours.map(Some),
            spread: None,
            provenance,
        })
    };
    let [never, always, zeros] = memory(RssLoad::Slab(16))?;
    let [all_never, all_always, all_zeros] = memory(RssLoad::Slab(128))?;
    Ok(Summary {
        title: "Huge zeros: thp=always without -> with them".into(),
        gains: vec![
            row("MiB that stay of 200 MiB read", prose::PUBLISHED[3][0], [read[1], read[2]], &[])?,
            row(
                "a transform's memory over thp=never",
                prose::PUBLISHED[3][1],
                [always / never, zeros / never],
                &[],
            )?,
        ],
        losses: vec![
            row(
                "hugezero: reads by page, cycles: page -> tables",
                prose::PUBLISHED[0][0],
                [cycles[0], cycles[1]],
                &CYCLES,
            )?,
            row(
                "hugezero: a transform that writes all",
                [None, None],
                [all_always / all_never, all_zeros / all_never],
                &[],
            )?,
        ],
    })
}
