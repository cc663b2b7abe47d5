//! Who leaves a full set, for the policies that keep bits for each way.

pub(super) mod nru;
pub(super) mod rrip;
mod tree;

pub(super) use tree::Tree;
