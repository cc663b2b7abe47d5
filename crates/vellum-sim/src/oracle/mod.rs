//! The oracle: watches everything the machine is told and stops it at the first violation.
//!
//! The rules are in `docs/oracle.md`: which differences between a cached translation and a fresh
//! walk are legal. The bookkeeping that makes checking cheap is here, one file for each question:
//!
//! - `frames`: in which one state is each frame, and may it change to the next?
//! - `tables`: which table nodes hang in which tree, and what do their entries map?
//! - `zeros`: are shared tables of zeros what they say, and what goes when one gives way?
//! - `store`: what does this entry store take away, and from whom?
//! - `obligations`: who still may hold what was taken away?
//! - `two_pages`: can CPUs see two pages at one address?
//! - `hit`: is this hit legal?
//! - `audit`: does everything add up?
//!
//! *Incremental* checking marks cached entries when the entry they came from changes, so that a hit
//! tests one bit; *walk* checking compares every hit with a fresh walk and reports also if the
//! marks were wrong.

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
