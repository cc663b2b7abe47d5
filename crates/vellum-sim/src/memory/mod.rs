//! Main memory and the core that waits for it: time, NUMA latency and bandwidth, overlap of misses.

mod arrivals;
mod core;
mod nested_tables;
mod numa;
mod pending;
mod store_buffer;
mod ticks;
mod waits;

pub use self::arrivals::{Arrivals, Coming, Refill};
pub use self::core::{Core, Overlap, Ready};
pub use nested_tables::NestedTables;
pub use numa::{Memory, Moved, NodeRange, Numa, Traffic};
pub use ticks::Ticks;
pub use waits::Translating;
pub(crate) use waits::{SOURCES, Waits};
