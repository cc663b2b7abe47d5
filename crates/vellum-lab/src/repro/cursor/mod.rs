//! Cursors of a page trie: an insertion goes on where the lookup has failed.
//!
//! A page fault on an absent page searched the object's trie three times from the root. The
//! published change keeps a cursor: first in loops that take many pages (M1), then in the fault
//! (M2). The load is a recorded compilation, and the same calls run on the published shape of the
//! trie and on ours.
//!
//! | file | what |
//! |---|---|
//! | `load`, `mix` | the recorded compilation; an invented mix |
//! | `shapes` | a counting model of the published trie, and the library's; who has a cursor |
//! | `faults` | the library's own faults |
//! | `price` | visited lines among the compiler's own accesses |
//! | `published` | figures of the posting, and which of them are noise |
//! | `sim`, `tables`, `prose`, `summary`, `host`, `twin` | pages |

mod faults;
mod host;
pub mod load;
mod mix;
mod price;
mod prose;
pub mod published;
pub mod shapes;
pub mod sim;
mod summary;
mod tables;
mod twin;

use super::context::PublishedExperiment;

/// The experiment.
pub const EXPERIMENT: PublishedExperiment = PublishedExperiment {
    name: "cursor",
    about: "pages allocated by a cursor: the insertion goes on where the lookup has failed",
    how: include_str!("how.md"),
    machines: &["milan", "icelake-x"],
    sim: sim::run,
    summary: summary::run,
    host: host::run,
    twin: twin::run,
    here: host::here,
};
