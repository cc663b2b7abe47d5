//! The events of a trace on their way to the threads of a replay: decoded block by block
//! ([`Feed`]), distributed to the threads ([`EventQueue`]), with a note of who touches each page
//! first.

mod block;
mod feed;
mod first_touches;
mod queue;
mod wait;

pub use block::Block;
pub use feed::{Feed, Taker};
pub use queue::{EventQueue, LIMIT, Run, Source, TakenEvents, is_barrier, takes};
pub use wait::Wait;
