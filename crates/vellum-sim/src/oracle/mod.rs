//! The oracle: watches everything the machine is told and stops it at the first lie.
//!
//! The law is `docs/oracle.md`: which differences between a cached translation and a fresh walk are
//! legal. The bookkeeping that makes checking cheap is here, one file for each question:
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
pub(crate) mod frames;
pub(crate) mod hit;
pub(crate) mod obligations;
pub(crate) mod plant;
mod stop;
mod store;
pub(crate) mod tables;
mod two_pages;
mod zeros;

pub use plant::Bug;
pub(crate) use stop::Note;
pub use stop::{Rule, Stop};

use vellum::machine::{USES, Use};

use crate::machine::lazy::Lazy;
use frames::FrameNote;
use obligations::{Extra, Part};
use stop::Ring;
use tables::{RootNote, TableNote};

/// All the oracle remembers.
pub(crate) struct Oracle {
    /// What each frame is used for, as `Use as u8`.
    pub uses: Lazy<u8>,
    pub frames: Lazy<FrameNote>,
    pub tables: Lazy<TableNote>,
    pub roots: Vec<RootNote>,
    /// Open obligations, by the CPU that opened them.
    pub parts: Vec<Vec<Part>>,
    /// Their number, over all CPUs.
    pub open: usize,
    /// Number of the next obligation.
    pub next: u32,
    /// Number of the next cut of a table.
    pub next_cut: u64,
    /// Frames with obligations of more than one opener.
    pub extra: Vec<Extra>,
    pub in_use: [u64; USES],
    pub peak: [u64; USES],
    pub ring: Ring,
}

impl Oracle {
    pub(crate) fn new(frames: u64, cpus: usize) -> Option<Oracle> {
        let n = usize::try_from(frames).ok()?;
        let mut only_free = [0; USES];
        only_free[Use::Free as usize] = frames;
        Some(Oracle {
            uses: Lazy::new(n, true)?,
            frames: Lazy::new(n, true)?,
            tables: Lazy::new(n, false)?,
            roots: Vec::new(),
            parts: vec![Vec::new(); cpus],
            open: 0,
            next: 1,
            next_cut: 1,
            extra: Vec::new(),
            in_use: only_free,
            peak: only_free,
            ring: Ring::default(),
        })
    }
}

impl Oracle {
    /// Whether a walker may read a frame: it is a node of somebody's, or a table of zeros of
    /// everybody's.
    #[inline]
    pub(crate) fn is_table(&self, pfn: u64) -> bool {
        let used = self.uses[pfn as usize];
        used == Use::Table as u8 || used == Use::ZeroTable as u8
    }

    /// Whether a frame is a table of zeros that everybody shares.
    #[inline]
    pub(crate) fn is_zero_table(&self, pfn: u64) -> bool {
        self.uses[pfn as usize] == Use::ZeroTable as u8
    }
}

/// The note of a fault.
pub(crate) fn note_fault(va: u64, kind: crate::cpu::Kind) -> Note {
    Note::Fault { va, kind }
}
