//! What long clears did, in order and by the clock: for tests and experiments about portions, order
//! and latency.
//!
//! Kept apart from the oracle's ring, which holds the last few events of everything; this list
//! holds all of one kind, and only where someone asked for it.

use vellum::addr::Pfn;
use vellum::machine::Stores;

/// Something that happened in or about a clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillNote {
    /// The library begins a range.
    Range {
        /// First frame.
        first: Pfn,
        /// Number of frames.
        frames: u64,
    },
    /// A scheduling point.
    Point,
    /// The machine is told to clear a run.
    Run {
        /// First frame.
        first: Pfn,
        /// Number of frames.
        frames: u64,
        /// Through the caches or around them.
        stores: Stores,
    },
}
