//! Published runs that had no part in any machine file.
//!
//! A machine file is set by figures from before a mechanism and by sources that never saw it; the
//! experiments beside this one show what it then says of the posting it was made for. Here it is
//! held against runs of other editions, people and processors. Each runs on a preset that is
//! changed by that run's own old column, outside facts and marked guesses, and has a limit for its
//! error. No constant may follow a new column; a run that misses is shown as it is.
//!
//! | file | what |
//! |---|---|
//! | `machines` | presets with a part of a machine file laid over them, and those parts |
//! | `found` | what the runs on a preset came to |
//! | `clear`, `colour`, `hugezero` | the runs, on the presets `milan`, `thunderx2`, `westmere-ex` |
//! | `sim` | pages |

mod clear;
mod colour;
mod found;
mod hugezero;
mod machines;
mod sim;

use super::context::PublishedExperiment;

/// The experiment.
pub const EXPERIMENT: PublishedExperiment = PublishedExperiment {
    name: "heldout",
    about: "published runs that no machine file was made from, each with a limit for its error",
    how: include_str!("how.md"),
    machines: &["milan", "westmere-ex", "thunderx2"],
    sim: sim::run,
    summary: sim::summary,
    host: sim::host,
    twin: sim::twin,
    here: sim::here,
};
