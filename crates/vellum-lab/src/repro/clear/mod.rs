//! Clearing in extents: the first touch of 64 GiB, or of what a machine has, in pages of 2 MiB and
//! 1 GiB, page by page and in extents.

mod cases;
mod drawn;
mod footprint;
mod host;
mod measured;
mod sim;
mod touch;

pub(super) use cases::{BATCHES, BEFORE, ELIDED, GIANT, HUGE, Switches, WHOLE};
pub use footprint::FOOTPRINT;
pub use touch::{TouchedByte, touch};

use super::context::PublishedExperiment;

/// The experiment.
pub const EXPERIMENT: PublishedExperiment = PublishedExperiment {
    name: "clear",
    about: "large pages cleared in a few long runs, the neighbourhood of the fault last",
    how: include_str!("how.md"),
    machines: &["milan", "icelake-x"],
    sim: sim::run,
    summary: sim::summary,
    host: host::run,
    twin: measured::twin,
    here: host::here,
};
