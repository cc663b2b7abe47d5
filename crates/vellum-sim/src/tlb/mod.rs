//! Translation lookaside buffers and page-walk caches.
//!
//! A [`Tlb`] holds leaves, a [`WalkCache`] the entries above them that point to tables, a
//! [`NestedTlb`] what the walks of a guest need of the hypervisor's tables. All are made of banks:
//! set-associative arrays under true LRU. Nothing here knows page tables, or decides when an entry
//! is stale: the oracle sets [`Entry::stale`] when the entry's source changes, and tests that bit
//! on a hit.

mod bank;
mod buffer;
mod entry;
mod invalidate;
mod nested;
mod walk_cache;

pub use bank::MAX_ENTRIES;
pub use buffer::{BankShape, Tlb, TlbShape};
pub use entry::{Entry, Flags, GLOBAL_CONTEXT, PageSize, TableEntry};
pub use nested::{NestedShape, NestedTlb};
pub use walk_cache::{WalkCache, WalkCacheShape};
