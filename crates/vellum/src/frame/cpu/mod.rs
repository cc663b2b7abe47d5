//! What each CPU keeps of a memory node for itself.

pub mod buddy;
pub mod count;
pub mod magazine;
