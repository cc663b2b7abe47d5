//! What an experiment is, and what it is given.

use vellum_sim::file::Machine;

use super::page::{Page, Row, Table};
use super::summary::Summary;
use crate::error::LabError;

/// What an experiment on the simulator is given.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Seed of everything random in it.
    pub seed: u64,
}

/// Sets a measured page beside the simulated machine: a table more, or why there is none.
pub type Twin = fn(&Context<'_>, &Page) -> Result<Result<Table, String>, LabError>;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct PublishedExperiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// How the mechanism works, for its page in `docs/`; may be empty.
    pub how: &'static str,
    /// The machines it was published for, or the likeliest; the first is the one on the first
    /// screen.
    pub machines: &'static [&'static str],
    /// Runs it on a simulated machine.
    pub sim: fn(&Context<'_>) -> Result<Page, LabError>,
    /// Its lines of the first screen.
    pub summary: fn(&Context<'_>) -> Result<Summary, LabError>,
    /// Runs it on this computer.
    pub host: fn() -> Result<Page, LabError>,
    /// Figures of such a page beside the same of a simulated machine, which is to be this computer
    /// as it was calibrated.
    pub twin: Twin,
    /// Its lines of the first screen that are measured on this computer, or why there are none.
    pub here: fn() -> Result<Vec<Row>, String>,
}
