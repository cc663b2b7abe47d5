//! A change of what a space's addresses allow.

use crate::space::SpaceRecord;
use crate::sync::{MmapLock, Token};
use crate::vma::deferred_free::DeferredFree;

/// A change in progress: the space, the token of its mmap lock, and what is to be freed when the
/// change is over.
pub(crate) struct Edit<'e> {
    pub space: &'e SpaceRecord,
    pub token: &'e mut Token<MmapLock>,
    pub deferred: &'e mut DeferredFree,
}
