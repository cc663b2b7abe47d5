//! Blocks of 2 MiB: their state, the index of free runs, and what is taken from them.

pub mod bits;
pub mod free_index;
pub mod huge;
pub mod lock;
pub mod search;
pub mod sweep;
pub mod take;
