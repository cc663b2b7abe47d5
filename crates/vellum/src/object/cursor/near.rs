//! Insertion where a lookup without the guard has found nothing.
//!
//! Its place is good for the epoch of the lookup alone, which keeps the node's memory. Whether the
//! node is in the trie yet, its own mark says. So CPUs that fill one object go on where they were,
//! whatever nodes the others take out.

use super::TrieCursor;
use super::guard::TrieGuard;
use super::standing::Standing;
use crate::machine::Machine;
use crate::object::trie::word::{LEAF_LEVEL, TrieEntry};
use crate::object::trie::{InsertError, TriePlace};

impl<'t, M: Machine> TrieGuard<'t, M> {
    /// Puts a base page at an index, from where the lookup ended. No node is visited from the root
    /// if the place is kept.
    #[inline]
    pub(in super::super) fn insert_near(
        &mut self,
        place: TriePlace<'t>,
        index: u64,
        entry: TrieEntry,
    ) -> Result<(), InsertError> {
        if self.fill_near(place, index, entry) {
            return Ok(());
        }
        self.resume_near(place).insert(index, entry)
    }

    /// What most insertions are: a free slot in the node of the place.
    #[inline]
    fn fill_near(&mut self, place: TriePlace<'t>, index: u64, entry: TrieEntry) -> bool {
        let (Some(node), base) = place.parts() else { return false };
        let header = self.edit.objects.header(node);
        let covers = (index ^ base) >> node.word.top() == 0;
        if header.is_dead() || !covers || node.word.level() > LEAF_LEVEL {
            return false;
        }
        if !self.edit.fill_slot(node, header, index, entry.at(index)) {
            return false;
        }
        self.edit.count_inserted(index, 1, 1);
        self.kept += 1;
        true
    }

    #[inline(never)]
    fn resume_near(&mut self, place: TriePlace<'t>) -> TrieCursor<'_, 't, M> {
        let mut at = Standing::new(self.edit);
        let (node, base) = place.parts();
        match node {
            Some(node) if self.edit.objects.header(node).is_dead() => self.restarted += 1,
            Some(_) => {
                self.kept += 1;
                (at.node, at.base) = (node, base);
            }
            None => {}
        }
        TrieCursor { guard: self, at }
    }
}
