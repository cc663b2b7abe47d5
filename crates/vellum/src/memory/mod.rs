//! Memory: frames, and what is done when there are none.

pub(crate) mod pool;
pub(crate) mod retry;
