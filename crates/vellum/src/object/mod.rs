//! What an object has at each page index.
//!
//! So far the trie that says it, and cursors over a trie. Objects in spaces, pagers and the page
//! cache will stand on them.

mod cursor;
mod objects;
mod trie;
mod tries;

pub use cursor::{Cursor, CursorToken, TrieGuard};
pub(crate) use objects::Objects;
pub use trie::{Entry, INDEX_END, InsertError, PageMark, Place, Reader, Reserve, Shape, Trie};
pub use tries::Tries;
