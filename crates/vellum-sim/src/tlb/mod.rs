//! Translation lookaside buffers and page-walk caches: what an MMU remembers of page tables.
//!
//! A [`Tlb`] remembers leaves, a [`WalkCache`] the entries above them that point to tables. Both
//! are made of banks: a set-associative array under true LRU. Nothing here knows what a page table
//! looks like, nor decides when an entry is wrong: the oracle marks entries stale
//! ([`Entry::stale`]) when the entry they came from changes, and tests that one bit on a hit.

mod bank;
mod buffer;
mod entry;
mod invalidate;
mod walk_cache;

pub use bank::MAX_ENTRIES;
pub use buffer::{BankShape, Tlb, TlbShape};
pub use entry::{Entry, Flags, GLOBAL_CONTEXT, PageSize, TableEntry};
pub use walk_cache::{WalkCache, WalkCacheShape};
