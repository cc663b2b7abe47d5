//! Blocks of 2 MiB: their states, the index of their free runs, taking from them and freeing to
//! them.

pub mod array;
pub mod bits;
pub mod check;
pub mod free;
pub mod free_index;
pub mod huge;
pub mod lock;
pub mod state;
pub mod sweep;
pub mod take;
