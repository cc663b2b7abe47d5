//! Huge pages of zeros: one page for 2 MiB, or a table of small ones.
//!
//! Two designs were measured against each other when the first was proposed: a shared page of 2 MiB
//! (`zero.huge=page`) and a table whose 512 entries all name the small page of zeros
//! (`table-private`, as posted). The same two benchmarks are run here, and the reason for either:
//! memory that reads no longer take. A third form is the library's own, one table for all
//! (`table`).

mod host;
pub mod loops;
mod prose;
pub mod rss;
mod sim;
mod summary;

pub(super) use sim::CYCLES;

use super::context::PublishedExperiment;

/// The experiment.
pub const EXPERIMENT: PublishedExperiment = PublishedExperiment {
    name: "hugezero",
    about: "huge memory that is only read: one 2 MiB page of zeros, or one table of small ones",
    how: include_str!("how.md"),
    machines: &["westmere-ex"],
    sim: sim::run,
    summary: summary::run,
    host: host::run,
    twin: host::twin,
    here: host::here,
};
