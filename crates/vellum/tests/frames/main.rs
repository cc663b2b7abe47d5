//! The frame allocator.

#[path = "../common/flat.rs"]
mod flat;

mod calls;
mod long;
mod model;
mod threads;
mod weave;
