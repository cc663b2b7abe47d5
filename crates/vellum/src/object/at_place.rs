//! Changes of an object where a lookup without its guard has ended, inside the epoch of the lookup.
//!
//! The guard is held for the change alone. Whoever finds it taken looks again some times, and then
//! leaves the epoch: who holds the guard may be waiting for that.

use crate::addr::Pfn;
use crate::frame::{Data, Record};
use crate::machine::Machine;
use crate::object::record::ObjectRecord;
use crate::object::trie::edit::Edit;
use crate::object::{InsertError, ObjectLayer, PageMark, TrieEntry, TriePlace, Tries};
use crate::stats::{Counter, CpuCounters};
use crate::sync::{EpochGuard, Token};

/// How often a fault that finds the guard taken looks again. Basis: a guess; others that fill the
/// object hold it for tens of instructions.
const LOOKS: u32 = 32;

/// An index of an object, and where its lookup ended.
#[derive(Clone, Copy)]
pub(crate) struct AtPlace<'e, M: Machine> {
    pub objects: &'e ObjectLayer<M>,
    pub record: &'e ObjectRecord,
    pub index: u64,
    pub place: TriePlace<'e>,
}

impl<'e, M: Machine> AtPlace<'e, M> {
    fn edit(&self) -> Edit<'e, M> {
        Edit { objects: self.objects, trie: &self.record.trie }
    }

    /// Puts a page there, if that is an empty slot of a node that is in the trie; `None` where the
    /// guard is not to be had soon, or the index lies past the end.
    #[inline(always)]
    pub fn fill(&self, pfn: Pfn, epoch: &'e EpochGuard<'_, M>) -> Option<bool> {
        let (trie, mut top) = (&self.record.trie, Token::top());
        let _guard = trie.lock.try_lock_inside(epoch, &mut top, (trie.name, LOOKS))?;
        let entry = entry_for(self.record, self.index, pfn).ok()?;
        Some(self.place.fill(self.edit(), self.index, entry))
    }

    /// The same where a node has to be made.
    #[cold]
    pub fn insert(&self, pfn: Pfn, epoch: &'e EpochGuard<'_, M>) -> Option<()> {
        let mut top = Token::top();
        let tries = Tries::new(self.objects);
        let mut guard = tries.try_lock_inside(&self.record.trie, &mut top, epoch)?;
        let entry = entry_for(self.record, self.index, pfn).ok()?;
        guard.insert_near(self.place, self.index, entry).ok()
    }

    /// Marks the page that was found there as written, so that the caller may store an entry that
    /// gives writes. `false`, and nothing was done, where the guard is not to be had soon, the
    /// place is gone, or somebody has frozen the page since: he may have found it clean.
    #[inline(always)]
    pub fn mark_dirty(
        &self,
        frame: &Record,
        counters: &CpuCounters,
        epoch: &'e EpochGuard<'_, M>,
    ) -> bool {
        let (trie, mut top) = (&self.record.trie, Token::top());
        let guard = trie.lock.try_lock_inside(epoch, &mut top, (trie.name, LOOKS));
        if guard.is_none() || Data::of(frame).is_frozen() {
            return false;
        }
        let marked = self.place.mark(self.edit(), self.index, PageMark::Dirty);
        if marked == Some(true) {
            self.record.count_dirty(1);
            counters.add(Counter::DirtyPages, 1);
            counters.add(Counter::Dirtied, 1);
        }
        marked.is_some()
    }
}

/// The entry of a page that may be put in at an index, which has to lie before the end. Under the
/// guard.
#[inline]
pub(super) fn entry_for(
    record: &ObjectRecord,
    index: u64,
    pfn: Pfn,
) -> Result<TrieEntry, InsertError> {
    if !record.has_page(index) {
        return Err(InsertError::Index);
    }
    Ok(TrieEntry::page(pfn))
}
