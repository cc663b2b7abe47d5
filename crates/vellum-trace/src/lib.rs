//! Traces: what a program did with its memory, in a file (`docs/trace-format.md`).
//!
//! A trace is a list of *events* (accesses, instruction lines, system calls on memory and files,
//! threads) in an order that a real execution could have had. An address is *mapping + offset*, so
//! that a replay may place mappings by its own policy; each mapping's recorded base is kept, too.
//!
//! | noun | where |
//! |---|---|
//! | what can happen | [`event`] |
//! | who was recorded, and what the native run cost | [`header`] |
//! | totals at the end of a file | [`totals`] |
//! | reading, writing | [`TraceReader`], [`TraceWriter`] |
//! | from raw addresses to events, sampling windows | [`build`] |
//! | valgrind's lackey text | [`lackey`] |
//! | memory touched, reuse, TLB pressure | [`info`] |
//! | running the recorder | [`record`] |
//!
//! Rejected: a file for each thread, which loses the order between threads and cannot be piped;
//! records of fixed size, 16 bytes an access where prediction and zstd leave a fraction of a byte.
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
pub use header::{Header, Khugepaged, NativeRun, Recorder, printable};
pub use reader::{Sums, TraceReader, read_totals};
pub use totals::Totals;
pub use writer::{LEVEL_FAST, LEVEL_SMALL, TraceWriter};

/// Bytes in a page as far as traces are concerned (x86_64 base page; first touches are kept per
/// page).
pub const PAGE: u64 = 4096;
/// Bytes in an instruction line (x86_64 cache line).
pub const LINE: u64 = 64;
