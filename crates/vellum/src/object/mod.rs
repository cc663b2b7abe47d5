//! What is at each page index of an object: a trie that says it, readers without locks, and a
//! cursor under the trie's guard.

mod at_place;
mod block;
mod collapse;
mod cursor;
mod device;
mod fetch;
mod find_page;
mod grab;
mod io;
mod layer;
mod manage;
mod page;
mod record;
mod trie;
mod tries;

pub(crate) use at_place::AtPlace;
pub(crate) use block::{BLOCK_PAGES, ObjectBlock};
pub(crate) use collapse::{Filled, Filling, ObjectCollapse};
pub use cursor::{TrieCursor, TrieGuard, TrieToken};
pub use device::DeviceMemory;
pub(crate) use fetch::Fetch;
pub(crate) use find_page::{FindPage, Present};
pub use grab::{GrabWait, Grabbed};
pub(crate) use grab::{Stop, TakePages, Taking};
pub(crate) use io::{NextDirty, ObjectIo};
pub(crate) use layer::ObjectLayer;
pub(crate) use page::{MOST_SEEN, ObjectPage, PageKind};
pub(crate) use record::{MOST_BYTES, ObjectRecord, Source, pages_of};
pub use record::{Object, ObjectPart, ReadPattern};
pub use trie::{
    INDEX_END, InsertError, NodeReserve, PageMark, Shape, Trie, TrieEntry, TriePlace, TrieReader,
};
pub(crate) use trie::{Run, clean_page_in, clean_run_in, page_in};
pub use tries::Tries;
