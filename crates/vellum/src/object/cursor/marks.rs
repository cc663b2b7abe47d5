//! Marks of entries, and finding the next one that has a mark.
//!
//! The word of a node has each mark that some entry below has, so the search passes over nodes
//! without it.

use super::TrieCursor;
use crate::machine::Machine;
use crate::object::trie::word::{PageMark, TrieEntry, Word};

impl<M: Machine> TrieCursor<'_, '_, M> {
    /// Sets a mark of the entry that the cursor has found. Says whether it changed.
    pub fn set_mark(&mut self, mark: PageMark) -> bool {
        self.change_marks(self.at.found.0 | mark.bit())
    }

    /// Clears one.
    pub fn clear_mark(&mut self, mark: PageMark) -> bool {
        self.change_marks(self.at.found.0 & !mark.bit())
    }

    fn change_marks(&mut self, word: u64) -> bool {
        let changes = self.at.is_located && self.at.found.is_leaf() && word != self.at.found.0;
        if changes {
            self.at.store_found(Word(word));
        }
        changes
    }

    /// The first entry that has a mark, of those that cover an index or are past it.
    pub fn next_marked(&mut self, index: u64, mark: PageMark) -> Option<(u64, TrieEntry)> {
        self.at.seek_up(index, mark.bit())
    }
}
