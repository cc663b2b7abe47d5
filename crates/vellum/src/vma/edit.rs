//! A change of what a space's addresses allow.

use crate::machine::Machine;
use crate::space::SpaceRecord;
use crate::sync::{MmapLock, Token, Top};
use crate::vma::Regions;
use crate::vma::deferred_free::DeferredFree;

/// A change in progress: the space, the token of its mmap lock, and what is to be freed when the
/// change is over.
pub(crate) struct Edit<'e> {
    pub space: &'e SpaceRecord,
    pub token: &'e mut Token<MmapLock>,
    pub deferred: &'e mut DeferredFree,
}

impl<M: Machine> Regions<M> {
    /// Changes a space under its mmap lock, and frees afterwards what no reader can still see.
    #[inline(always)]
    pub fn edit<R>(&self, space: &SpaceRecord, change: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let mut top: Token<Top> = Token::top();
        let mut deferred = DeferredFree::default();
        let done = {
            let mut layout = space.mmap_lock().lock(&self.machine, &mut top, space.id());
            change(&mut Edit { space, token: layout.token(), deferred: &mut deferred })
        };
        self.free_deferred(deferred, &mut top);
        done
    }
}
