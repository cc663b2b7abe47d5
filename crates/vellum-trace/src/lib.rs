//! Traces: what a program did with its memory, in a file.
//!
//! A trace is a list of *events* (accesses, instruction lines, memory system calls, threads) in an
//! order that some real execution could have had. Addresses are stored as *mapping + offset*, so
//! that a replay may place the mappings by its own policy; the recorded base of each mapping is
//! kept as well for replays that want the layout of the recording.
//!
//! | noun | where |
//! |---|---|
//! | what can happen | [`event`] |
//! | who was recorded, and what the native run cost | [`header`] |
//! | totals at the end of a file | [`totals`] |
//! | reading, writing | [`TraceReader`], [`TraceWriter`] |
//! | from raw addresses to events, sampling windows | [`build`] |
//! | valgrind's lackey text | [`lackey`] |
//! | footprint, reuse, TLB pressure | [`info`] |
//! | running the recorder | [`record`] |
//!
//! The bytes are described in `docs/trace-format.md`.
//!
//! Rejected: one file per thread (the order between threads' memory calls would need a second file,
//! and streams could not be piped); fixed-size records (16 bytes an access against the fraction of
//! a byte that prediction and zstd leave); storing absolute addresses only (a replay under another
//! placement policy would have to guess what belongs together).
#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod build;
mod codec;
mod error;
pub mod event;
mod frame;
pub mod header;
pub mod info;
pub mod lackey;
mod reader;
pub mod record;
pub mod totals;
mod varint;
mod writer;

pub use error::TraceError;
pub use event::{Advice, Call, Event, Flags, Map, MapKind, Prot};
pub use header::{Header, NativeRun, Recorder};
pub use reader::{TraceReader, read_totals};
pub use totals::Totals;
pub use writer::{LEVEL_FAST, LEVEL_SMALL, TraceWriter};

/// Bytes in a page as far as traces are concerned (x86_64 base page; first touches are kept per
/// page).
pub const PAGE: u64 = 4096;
/// Bytes in an instruction line (x86_64 cache line).
pub const LINE: u64 = 64;
