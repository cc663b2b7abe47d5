//! A record of long clears, in order and with times, for tests and experiments about portions,
//! order and latency.
//!
//! The oracle's ring holds the last few events of every kind. This list holds all events of one
//! kind, if a test asked for it.

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
