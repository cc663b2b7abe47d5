//! What is at each page index of an object: a trie that says it, readers without locks, and a
//! cursor under the trie's guard.

mod cursor;
mod objects;
mod trie;
mod tries;

pub use cursor::{TrieCursor, TrieGuard, TrieToken};
pub(crate) use objects::Objects;
pub use trie::{
    INDEX_END, InsertError, NodeReserve, PageMark, Shape, Trie, TrieEntry, TriePlace, TrieReader,
};
pub use tries::Tries;
