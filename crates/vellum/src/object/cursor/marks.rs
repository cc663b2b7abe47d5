//! Marks of entries, and finding the next one that has a mark.
//!
//! The word of a node has each mark that some entry below has, so the search passes over nodes
//! without it.

use core::ops::Range;

use super::TrieCursor;
use crate::machine::Machine;
use crate::object::trie::marks::exchange_marks;
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

    /// Takes a mark from the entries of a range, and gives all of them another. Says how many lost
    /// the one, and how many got the other. A node is recounted once.
    pub(in super::super) fn exchange_marks(
        &mut self,
        range: Range<u64>,
        (from, to): (PageMark, Option<PageMark>),
    ) -> (i64, i64) {
        let (mut next, mut lost, mut got) = (range.start, 0, 0);
        while next < range.end {
            let is_there = self.lookup(next).is_some();
            let Some((node, left)) = self.at.base_pages(next) else {
                // One entry, or a block.
                lost += i64::from(is_there && self.clear_mark(from));
                got += i64::from(is_there && to.is_some_and(|to| self.set_mark(to)));
                next += 1;
                continue;
            };
            let slots = node.slots_from(next);
            let slots = &slots[..left.min((range.end - next) as usize)];
            let here = exchange_marks(self.at.edit, node, slots, (from, to));
            (lost, got) = (lost + here.0, got + here.1);
            self.at.is_located = false;
            next += slots.len() as u64;
        }
        (lost, got)
    }

    /// The first entry that has a mark, of those that cover an index or are past it.
    pub fn next_marked(&mut self, index: u64, mark: PageMark) -> Option<(u64, TrieEntry)> {
        self.at.seek_up(index, mark.bit())
    }
}
