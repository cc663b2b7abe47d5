//! The frame allocator.

mod calls;
mod long;
mod model;
mod threads;
mod weave;
