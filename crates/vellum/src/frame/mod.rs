//! Physical memory: who has which frame.
//!
//! There are two kinds of metadata, apart from each other. *Records* ([`Record`]) are 64 bytes a
//! frame and belong to whoever has the frame; the allocator never reads them. *Allocator state* is
//! dense: two bits a frame, a word and eleven bits per 2 MiB block, a magazine per CPU and node.
//! All of it is zero for memory that is free and was never used.
//!
//! | module | what |
//! |---|---|
//! | `frames`, `init`, `view` | the nodes and magazines of a machine; boot |
//! | `record` | a frame's 64 bytes, and their meaning for data frames |
//! | `node` | a memory node: its numbers, watermarks, counters |
//! | `block` | 2 MiB blocks: state, lock, free index, taking and freeing |
//! | `cpu` | what a CPU keeps for itself: magazine and cpu buddy |
//! | `alloc`, `free`, `pending` | allocating, freeing, freeing after a flush |
//! | `slab` | small objects |
//! | `stats`, `validate` | counts, and everything recounted |
//!
//! `pub` in these modules means: in all of `frame`, unless the list below exports it.

mod alloc;
mod block;
mod cpu;
mod frames;
mod free;
mod init;
mod node;
mod pending;
#[cfg(test)]
mod raw;
mod record;
mod slab;
mod stats;
mod validate;
mod view;

pub use alloc::request::AllocRequest;
pub use frames::Frames;
pub use node::marks::{Mark, Watermarks};
pub use record::Record;
pub use validate::FrameCounts;

pub(crate) use crate::space::SlabRef;
#[cfg(test)]
pub(crate) use raw::RawState;
pub(crate) use record::data::{
    Data, Owner, PageIo, REFERENCE, SPLIT, SPLIT_SHIFT, USES, has_failed, io_of, is_taken,
};
pub(crate) use slab::Slab;
#[cfg(test)]
pub(crate) use slab::SlabCounts;
