//! Neighbours in the order of indices. Steps past either end, or past the limit, find nothing.

use super::TrieCursor;
use crate::machine::Machine;
use crate::object::trie::edit::prefix;
use crate::object::trie::word::TrieEntry;

impl<'t, M: Machine> TrieCursor<'_, 't, M> {
    /// The entry that covers an index or is the first one past it, and where it begins.
    #[inline]
    pub fn lookup_ge(&mut self, index: u64) -> Option<(u64, TrieEntry)> {
        self.at.seek_up(index, 0)
    }

    /// The first entry past an index that does not cover it.
    #[inline]
    pub fn lookup_gt(&mut self, index: u64) -> Option<(u64, TrieEntry)> {
        let past = match self.lookup(index) {
            Some(entry) => prefix(index, entry.order().get() as u32) + entry.order().frames(),
            None => index.checked_add(1)?,
        };
        self.at.seek_up(past, 0)
    }

    /// The entry that covers an index or is the last one before it.
    pub fn lookup_le(&mut self, index: u64) -> Option<(u64, TrieEntry)> {
        self.at.seek_down(index.min(self.at.limit.checked_sub(1)?))
    }

    /// The last entry before an index that does not cover it.
    pub fn lookup_lt(&mut self, index: u64) -> Option<(u64, TrieEntry)> {
        let before = match self.lookup(index) {
            Some(entry) => prefix(index, entry.order().get() as u32),
            None => index,
        };
        self.lookup_le(before.checked_sub(1)?)
    }

    /// The entry after the cursor's index.
    #[inline]
    pub fn next_entry(&mut self) -> Option<(u64, TrieEntry)> {
        self.lookup_gt(self.at.index)
    }

    /// The entry before the cursor's index.
    pub fn prev_entry(&mut self) -> Option<(u64, TrieEntry)> {
        self.lookup_lt(self.at.index)
    }
}
