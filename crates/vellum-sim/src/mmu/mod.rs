//! The memory-management unit: entry formats, walks, speculation.
//!
//! Formats are decoded here a second time, written from the manuals and without the library's
//! codec, so that a mistake in the codec shows as a fault or a stop instead of cancelling itself
//! out.

pub mod format;
pub(crate) mod fresh;
pub(crate) mod in_flight;
pub(crate) mod nested;
pub(crate) mod speculate;
pub(crate) mod walk;
