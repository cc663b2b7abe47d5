//! What each CPU keeps of each node for itself.

pub mod buddy;
pub mod magazine;
