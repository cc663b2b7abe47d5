//! The frame allocator, and the locks under it.

mod calls;
mod interleave;
mod locks;
mod long;
mod model;
mod refused;
mod threads;
