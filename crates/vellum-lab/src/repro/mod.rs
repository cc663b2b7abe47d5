//! Published experiments, run again: one page each.
//!
//! An experiment is a function from a machine and a seed to a [`Page`]: what was asked, what was run, published figures beside ours,
//! what it means, and where it does not help. It states of each row which constants of the machine file the row rests on; the mark
//! (predicted, fitted, guess) follows from what the file says of those constants, and nobody types it. To add an experiment, write its
//! file and its row in [`EXPERIMENTS`].
//!
//! | file | what |
//! |---|---|
//! | `page`, `text`, `json` | what an experiment answers, as a terminal page and as JSON |
//! | `basis` | marks from machine files, and guesses halved and doubled |
//! | `side` | work done two at a time |
//! | `bench` | a small program on a simulated machine, counted |
//! | `clear` | clearing in extents |
//! | `colour` | coloured zero pages |

pub mod basis;
pub mod bench;
pub mod clear;
pub mod colour;
pub mod json;
pub mod page;
pub mod side;
pub mod text;

use vellum_sim::file::Machine;

use crate::error::LabError;
use page::Page;

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
    /// The machine it was published for, or the likeliest.
    pub machine: &'static str,
    /// Runs it on a simulated machine.
    pub sim: fn(&Ask<'_>) -> Result<Page, LabError>,
    /// Runs it on this computer.
    pub host: fn() -> Result<Page, LabError>,
}

/// All of them, in the order they are run.
pub const EXPERIMENTS: &[Entry] = &[clear::ENTRY, colour::ENTRY];
