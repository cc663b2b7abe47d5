//! The search for a neighbour of an index, up or down, from where a cursor stands.

use super::standing::Standing;
use crate::machine::Machine;
use crate::object::trie::edit::{leaf_index, prefix};
use crate::object::trie::node::Node;
use crate::object::trie::word::{TrieEntry, Word};

impl<'t, M: Machine> Standing<'t, M> {
    /// The first entry from an index on that has all those marks.
    pub(super) fn seek_up(&mut self, index: u64, marks: u64) -> Option<(u64, TrieEntry)> {
        if index >= self.limit {
            return None;
        }
        self.locate(index);
        if self.found.is_leaf() && self.found.0 & marks == marks {
            return Some(self.hit());
        }
        // The word in the slot of the index may be of higher ones.
        let at = self.spot();
        let (mut slot, word) = (at.slot, self.edit.load(at));
        if self.has(word, marks) && self.first_index(slot, word) > index {
            return self.descend_to(slot, word, marks, true, index);
        }
        while let Some(node) = self.node {
            let after = slot + 1..node.slots();
            // Whether a slot has them at all the node knows.
            if (marks == 0 || self.edit.counts(node).marks() & marks == marks)
                && let Some(slot) = self.find_slot(node, after, marks)
            {
                return self.descend_to(slot, node.load(slot), marks, true, index);
            }
            slot = self.climb();
        }
        self.nothing_at(index)
    }

    pub(super) fn seek_down(&mut self, index: u64) -> Option<(u64, TrieEntry)> {
        self.locate(index);
        if self.found.is_leaf() {
            return Some(self.hit());
        }
        let at = self.spot();
        let (mut slot, word) = (at.slot, self.edit.load(at));
        if !word.is_empty() && self.first_index(slot, word) < index {
            return self.descend_to(slot, word, 0, false, index);
        }
        while let Some(node) = self.node {
            if let Some(slot) = self.find_slot(node, (0..slot).rev(), 0) {
                return self.descend_to(slot, node.load(slot), 0, false, index);
            }
            slot = self.climb();
        }
        self.nothing_at(index)
    }

    #[inline]
    fn has(&self, word: Word, marks: u64) -> bool {
        !word.is_empty() && word.0 & marks == marks
    }

    #[inline]
    fn find_slot(
        &self,
        node: Node<'t>,
        mut slots: impl Iterator<Item = usize>,
        marks: u64,
    ) -> Option<usize> {
        slots.find(|slot| self.has(node.load(*slot), marks))
    }

    /// The first index of what a slot of the cursor's node holds, or the root.
    fn first_index(&self, slot: usize, word: Word) -> u64 {
        match self.node {
            Some(node) => self.edit.index_of(node, slot, word),
            None if word.is_leaf() => word.low(),
            None => self.edit.objects.header(self.edit.objects.node(word)).base(),
        }
    }

    /// Goes to the first or the last entry below a slot of the cursor's node that has the marks.
    /// Without one below the limit, the cursor is at `index` and there is nothing.
    fn descend_to(
        &mut self,
        mut slot: usize,
        mut word: Word,
        marks: u64,
        is_up: bool,
        index: u64,
    ) -> Option<(u64, TrieEntry)> {
        let objects = self.edit.objects;
        while word.is_node() {
            let node = objects.visit(word, &mut self.visits, 0);
            self.stand(Some(node), objects.header(node).base());
            let found = if is_up {
                self.find_slot(node, 0..node.slots(), marks)
            } else {
                self.find_slot(node, (0..node.slots()).rev(), marks)
            };
            let Some(found) = found else {
                debug_assert!(false, "nothing below a word that says there is");
                return self.nothing_at(index);
            };
            (slot, word) = (found, node.load(found));
        }
        let first = match self.node {
            Some(node) => {
                let level = node.word.level();
                leaf_index(self.base | (slot as u64) << level, level, word)
            }
            None => word.low(),
        };
        if first >= self.limit {
            return self.nothing_at(index);
        }
        (self.index, self.found, self.is_located) = (first, word, true);
        Some((first, word.entry()))
    }

    /// The entry that the cursor has found, and where it begins, which becomes its index.
    fn hit(&mut self) -> (u64, TrieEntry) {
        self.index = prefix(self.index, self.found.order());
        (self.index, self.found.entry())
    }

    fn nothing_at<T>(&mut self, index: u64) -> Option<T> {
        (self.index, self.found, self.is_located) = (index, Word::EMPTY, false);
        None
    }
}
