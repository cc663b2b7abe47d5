//! Physical memory: who has which frame.
//!
//! Two kinds of metadata, apart from each other. *Records* ([`Record`]) are 64 bytes a frame and
//! belong to whoever has the frame; the allocator never looks at them. *Allocator state* is dense:
//! two bits a frame, a word and eleven bits per 2 MiB block, a magazine per CPU and node. All of it
//! is zero for memory that is free and was never used, so booting a large machine touches next to
//! nothing.
//!
//! | file | what |
//! |---|---|
//! | `record`, `data` | a frame's 64 bytes, and their meaning for data frames |
//! | `carve` | a topology turned into nodes over the memory handed in |
//! | `node`, `bits` | a memory node's arrays, and searching 64 bits |
//! | `block`, `take` | 2 MiB blocks: opened for small frames, locked to be changed, closed when empty again |
//! | `large` | 2 MiB and larger: whole blocks and runs of them |
//! | `small`, `rooms`, `sweep` | orders 0 to 8: finding a block with room, noting what came back |
//! | `magazine`, `kept` | what each CPU has at hand: a stack of frames, a few larger blocks |
//! | `alloc`, `free` | the two doors |
//! | `pending` | frames that wait for a flush |
//! | `slab` | small objects |
//! | `validate` | everything recounted |

mod alloc;
mod block;
mod cpu;
#[cfg(test)]
mod doors;
mod frames;
mod free;
mod init;
mod node;
mod pending;
mod record;
pub(crate) mod slab;
mod stats;
mod validate;

pub use alloc::AllocRequest;
pub use frames::Frames;
pub use node::numa_node::{Mark, Watermarks};
pub use record::Record;
pub use validate::FrameCounts;

#[cfg(test)]
pub(crate) use doors::Doors;
pub(crate) use record::data::{Data, Owner, SPLIT, SPLIT_SHIFT};
pub(crate) use slab::{Slab, SlabRef};
