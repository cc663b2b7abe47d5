//! A trie: what is at each page index, in nodes of eight or of 512 slots.
//!
//! Digits have three bits in a small node and nine in a large one, and meet at bits 9 and 18, so a
//! block of 2 MiB or 1 GiB is one word. Levels without a branch are left out. A node covers the
//! indices that have its prefix, and neither prefix nor level ever change.
//!
//! Who holds the guard changes the trie; readers without locks descend inside an epoch. A change is
//! published by one store of one slot. A node that leaves the tree keeps its words, is marked dead,
//! and is freed when the readers that may be in it are gone.
//!
//! The nine bits from a multiple of nine on are a *group*. Its small nodes are exchanged for one
//! large node when there are many, or when what precedes a new entry is dense.
//!
//! Rejected: one size of nodes. Sixteen slots are 12 bytes an entry from our slabs and one more
//! miss a lookup; 512 slots are 4 KiB for a page alone.

pub(super) mod edit;
pub(super) mod exchange;
pub(super) mod insert;
pub(super) mod marks;
pub(super) mod node;
pub(super) mod read;
pub(super) mod remove;
pub(super) mod retire;
pub(super) mod supply;
mod validate;
pub(super) mod word;

pub use insert::InsertError;
pub(crate) use read::{Run, clean_page_in, clean_run_in, page_in};
pub use read::{TriePlace, TrieReader};
pub use supply::NodeReserve;
pub use validate::Shape;
pub use word::{INDEX_END, PageMark, TrieEntry};

use crate::sync::atomic::AtomicU64;
use crate::sync::{Lock, Object};

/// A trie. It belongs to the `Vm` that made it, and is given back to it by `Tries::destroy`; one
/// that is dropped keeps its memory for ever.
#[repr(C, align(64))]
pub struct Trie {
    /// Written under `lock`, read inside an epoch.
    pub(super) root: AtomicU64,
    /// Whose it is, and which: no two tries of a `Vm` have the same name.
    pub(super) vm: usize,
    pub(super) name: u64,
    /// What readers read shares no line with what each insertion writes.
    spare: [u64; 5],
    pub(super) lock: Lock<Object>,
    /// All that follows, under `lock`. Entries there are.
    pub(super) entries: AtomicU64,
    /// Rises when a node leaves the tree: a place that was remembered may be gone.
    pub(super) changes: AtomicU64,
    /// Dead nodes that readers may be in: the first of a list, and how much they weigh.
    pub(super) dead: AtomicU64,
    pub(super) dead_weight: AtomicU64,
}

impl Trie {
    pub(super) fn new(vm: usize, name: u64) -> Trie {
        let zero = || AtomicU64::new(0);
        Trie {
            root: zero(),
            vm,
            name,
            spare: [0; 5],
            lock: Lock::new(),
            entries: zero(),
            changes: zero(),
            dead: zero(),
            dead_weight: zero(),
        }
    }
}
