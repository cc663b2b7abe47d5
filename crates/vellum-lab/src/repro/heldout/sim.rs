//! The pages: one for each preset that runs were made from.

use super::found::Found;
use super::{clear, colour, hugezero};
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Table};
use crate::repro::summary::Summary;

const TITLE: &str = "Held-out published runs";
const HERE: &str = "the runs are of other computers";

/// The runs that were made from the machine.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let machine = context.machine;
    let is = |name: &str| machine.is_preset(name);
    let found = if is("milan") {
        clear::found(machine)?
    } else if is("westmere-ex") {
        hugezero::found(context)?
    } else if is("thunderx2") {
        colour::found(context)?
    } else {
        return Ok(nothing(format!(
            "no run was made from `{}`; they are made from milan, westmere-ex and thunderx2 as \
             shipped.",
            machine.name
        )));
    };
    Ok(page(context, found))
}

fn page(context: &Context<'_>, found: Found) -> Page {
    let Found { table, statements, run, means, limits } = found;
    let held = statements.iter().filter(|s| s.ok()).count();
    let how = "Machines differ from a preset in constants that are from the run's own old column \
               (before), from sources that never saw the mechanism (outside), or estimated \
               (guess). None was changed after its figure came out, but for costs.work.large of \
               the runs made from milan and costs.clear_elided_line of genoa.";
    Page {
        name: "heldout",
        title: TITLE.into(),
        on: format!("made from {}, simulated, seed {}", context.machine.name, context.seed),
        asked: vec![
            "Does the model say what was measured where nobody set it by that? These runs had no \
             part in the machine files."
                .into(),
        ],
        run: std::iter::once(how.to_owned()).chain(run).collect(),
        tables: vec![table],
        out: vec![match (held, statements.len()) {
            (1, 1) => "The figure lies within its limit.".to_owned(),
            (0, 1) => "The figure does not lie within its limit, and is shown as it is.".to_owned(),
            (held, all) => format!("{held} of {all} figures lie within their limit."),
        }],
        statements,
        means: vec![means],
        limits,
        skipped: Vec::new(),
    }
}

fn nothing(why: String) -> Page {
    Page { name: "heldout", title: TITLE.into(), skipped: vec![why], ..Page::default() }
}

/// Lines of the first screen: some of the runs on Milan, over a part of the memory.
pub fn summary(context: &Context<'_>) -> Result<Summary, LabError> {
    let [gains, losses] = clear::glance(context.machine)?;
    Ok(Summary {
        title: "Runs that no machine file was made from, GiB/s: page by page -> extents".into(),
        gains,
        losses,
    })
}

/// There is nothing to measure here.
pub fn host() -> Result<Page, LabError> {
    Ok(nothing(format!("{HERE}.")))
}

/// Nor to compare.
pub fn twin(_: &Context<'_>, _: &Page) -> Result<Result<Table, String>, LabError> {
    Ok(Err(HERE.into()))
}

/// Nor to show.
pub fn here() -> Result<Vec<Row>, String> {
    Ok(Vec::new())
}
