//! Coloured zero pages: the two published tests, swept, and the cost of colours.
//!
//! The posting does not say how much of the zero-backed area a turn of its second test reads, or
//! where the frames of its two areas are. So both readings are run, with every alignment of one
//! area to the other; the page shows the mean over alignments and the worst. The posting does not
//! name the replacement policy of the caches either: LRU, tree-PLRU and random are all run, set by
//! the experiment, so that no figure depends on the machine file's.

mod costs;
mod host;
mod prose;
mod shape;
mod sim;
mod summary;
mod twin;
mod workloads;

pub(super) use prose::TEST_ONE_MISSES;
pub(super) use workloads::{TURNS, in_a_row};

use super::context::PublishedExperiment;

/// The experiment.
pub const EXPERIMENT: PublishedExperiment = PublishedExperiment {
    name: "colour",
    about: "several shared zero pages, so that zeros spread over cache sets",
    how: include_str!("how.md"),
    machines: &["thunderx2"],
    sim: sim::run,
    summary: summary::run,
    host: host::run,
    twin: twin::run,
    here: host::here,
};
