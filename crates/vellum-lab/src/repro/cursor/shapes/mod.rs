//! The two shapes of the trie under the same calls: the published one, counted, and the library's.

pub mod disciplines;
pub(super) mod library;
pub mod nodes;
