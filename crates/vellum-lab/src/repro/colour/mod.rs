//! Coloured zero pages: the two published tests, swept, and what colours cost.
//!
//! The posting leaves open how much of the zero-backed area a turn of its second test reads, and
//! where the frames of its two areas lie. So both readings are run, and every alignment of one area
//! to the other; the page shows the mean over alignments and the worst. It does not say which
//! replacement policy the caches have either: least recently used, a tree of bits, and random are
//! all run, set by the experiment, so that no figure rests on the machine file's word for it.

mod brief;
mod costs;
mod host;
mod scenes;
mod shape;
mod sim;
mod words;

use super::Entry;

/// The experiment.
pub const ENTRY: Entry = Entry {
    name: "colour",
    about: "several shared zero pages, so that zeros spread over cache sets",
    how: include_str!("how.md"),
    machines: &["thunderx2"],
    sim: sim::run,
    brief: brief::run,
    host: host::run,
    here: host::here,
};
