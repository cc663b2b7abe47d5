//! The oracle: checks everything that the machine is told, and stops it at the first violation.
//!
//! The rules are in `docs/oracle.md`: which differences between a cached translation and a fresh
//! walk are legal. The bookkeeping is here, one file for each question:
//!
//! - `frames`: which state is each frame in, and may it change to the next?
//! - `tables`: which table nodes belong to which tree, and what do their entries map?
//! - `zeros`: are shared tables of zeros unchanged, and what becomes stale when one is replaced?
//! - `store`: what does this store of an entry take away, and from which CPUs?
//! - `obligations`: which CPUs may still hold what was taken away?
//! - `two_pages`: can CPUs see two pages at one address?
//! - `hit`: is this hit legal?
//! - `audit`: does everything add up?
//!
//! *Incremental* checking marks cached entries when their source changes, so that a hit tests one
//! bit. *Walk* checking compares every hit with a fresh walk, and also reports wrong marks.

mod audit;
pub(crate) mod bug;
pub(crate) mod frames;
pub(crate) mod hit;
pub(crate) mod notes;
mod obligations;
mod plant;
pub(crate) mod stop;
mod store;
mod tables;
mod two_pages;
mod zeros;

pub use bug::Bug;
pub(crate) use stop::Note;
pub use stop::{Rule, Stop};

/// The note of a fault.
pub(crate) fn note_fault(va: u64, kind: crate::cpu::Kind) -> Note {
    Note::Fault { va, kind }
}
