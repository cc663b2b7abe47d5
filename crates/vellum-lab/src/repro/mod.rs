//! Published experiments, run again: one page each.
//!
//! An experiment is a function from a machine and a seed to a [`Page`](page::Page): what was asked,
//! what was run, published figures beside ours, what it means, and where it does not help. It
//! states of each row which constants of the machine file the row rests on; the mark (predicted,
//! fitted, guess) follows from what the file says of those constants, and nobody types it. To add
//! an experiment, write its file and its row in [`EXPERIMENTS`].
//!
//! | file | what |
//! |---|---|
//! | `page`, `text`, `json` | what an experiment answers, as a terminal page and as JSON |
//! | `summary` | a line or two of it for the first screen |
//! | `basis` | marks from machine files, and guesses halved and doubled |
//! | `side` | work done two at a time |
//! | `fixture`, `bench` | the library, booted on a simulated machine; a small program there |
//! | `clear` | clearing in extents |
//! | `colour` | coloured zero pages |
//! | `hugezero` | huge pages and tables of zeros |
//! | `cursor` | a cursor of a page trie, from the failed lookup to the insertion |
//! | `heldout` | published runs that had no part in any machine file |

pub mod basis;
pub mod bench;
pub mod clear;
pub mod colour;
mod context;
pub mod cursor;
pub mod fixture;
pub mod heldout;
pub mod hugezero;
pub mod json;
pub mod page;
pub mod side;
pub mod summary;
pub mod text;

pub use context::{Context, PublishedExperiment};

/// All of them, in the order they are run.
pub const EXPERIMENTS: &[PublishedExperiment] = &[
    clear::EXPERIMENT,
    colour::EXPERIMENT,
    hugezero::EXPERIMENT,
    cursor::EXPERIMENT,
    heldout::EXPERIMENT,
];
