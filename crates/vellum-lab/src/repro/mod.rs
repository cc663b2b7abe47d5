//! Published experiments, run again: one page each.
//!
//! An experiment is a function from a machine and a seed to a [`Page`]: what was asked, what was
//! run, published figures beside ours, what it means, and where it does not help. It states of each
//! row which constants of the machine file the row rests on; the mark (predicted, fitted, guess)
//! follows from what the file says of those constants, and nobody types it. To add an experiment,
//! write its file and its row in [`EXPERIMENTS`].
//!
//! | file | what |
//! |---|---|
//! | `page`, `text`, `json` | what an experiment answers, as a terminal page and as JSON |
//! | `brief` | a line or two of it for the first screen |
//! | `basis` | marks from machine files, and guesses halved and doubled |
//! | `side` | work done two at a time |
//! | `ground` | the library, booted on a simulated machine |
//! | `bench` | a small program there, counted |
//! | `clear` | clearing in extents |
//! | `colour` | coloured zero pages |
//! | `hugezero` | huge pages and tables of zeros |

pub mod basis;
pub mod bench;
pub mod brief;
pub mod clear;
pub mod colour;
pub mod ground;
pub mod hugezero;
pub mod json;
pub mod page;
pub mod side;
pub mod text;

use vellum_sim::file::Machine;

use crate::error::LabError;
use brief::Brief;
use page::{Page, Row};

/// What an experiment on the simulator is given.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Seed of everything random in it.
    pub seed: u64,
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// How the mechanism works, for its page in `docs/`.
    pub how: &'static str,
    /// The machines it was published for, or the likeliest; the first is the one on the first
    /// screen.
    pub machines: &'static [&'static str],
    /// Runs it on a simulated machine.
    pub sim: fn(&Ask<'_>) -> Result<Page, LabError>,
    /// Its lines of the first screen.
    pub brief: fn(&Ask<'_>) -> Result<Brief, LabError>,
    /// Runs it on this computer.
    pub host: fn() -> Result<Page, LabError>,
    /// Its lines of the first screen that are measured on this computer, or why there are none.
    pub here: fn() -> Result<Vec<Row>, String>,
}

/// All of them, in the order they are run.
pub const EXPERIMENTS: &[Entry] = &[clear::ENTRY, colour::ENTRY, hugezero::ENTRY];
