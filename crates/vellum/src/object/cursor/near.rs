//! Insertion where a lookup without the guard has found nothing.
//!
//! Its place is good for the epoch of the lookup alone, which keeps the node's memory. Whether the
//! node is in the trie yet, its own mark says. So CPUs that fill one object go on where they were,
//! whatever nodes the others take out.

use super::TrieCursor;
use super::guard::TrieGuard;
use super::standing::Standing;
use crate::machine::Machine;
use crate::object::trie::edit::Edit;
use crate::object::trie::marks::set_mark;
use crate::object::trie::node::Node;
use crate::object::trie::word::{LEAF_LEVEL, PageMark, TrieEntry, Word};
use crate::object::trie::{InsertError, TriePlace};
use crate::sync::atomic::Ordering::Relaxed;

impl<'t> TriePlace<'t> {
    /// What most insertions are: a free slot in the node of the place.
    #[inline(always)]
    pub(in super::super) fn fill<M: Machine>(
        self,
        edit: Edit<'t, M>,
        index: u64,
        entry: TrieEntry,
    ) -> bool {
        let Some(node) = self.node() else { return false };
        if node.word.level() != 0 {
            return fill_above(edit, node, index, entry);
        }
        // As there, where all that depends on the level is known.
        let (header, last) = (edit.objects.header(node), node.word.last());
        if !header.covers(index & !(last as u64), 0) {
            return false;
        }
        let slot = node.slot(index as usize & last);
        let filled = edit.fill_slot(slot, header, entry.at(index));
        if filled {
            edit.count_inserted(1);
        }
        filled
    }

    /// Sets a mark of the entry at an index, which was found here, and says whether that changed
    /// it. `None`: it is not here any more.
    #[inline(always)]
    pub(in super::super) fn mark<M: Machine>(
        self,
        edit: Edit<'t, M>,
        index: u64,
        mark: PageMark,
    ) -> Option<bool> {
        let node = self.node()?;
        let header = edit.objects.header(node);
        let word = Word(node.slot_of(index).load(Relaxed));
        if header.is_dead() || !word.is_leaf_of(index) {
            return None;
        }
        let changes = word.marks() & mark.bit() == 0;
        if changes {
            set_mark(edit, (node, header), index, mark);
        }
        Some(changes)
    }
}

/// [`fill`](TriePlace::fill) in a node of any level.
#[inline(never)]
fn fill_above<'t, M: Machine>(
    edit: Edit<'t, M>,
    node: Node<'t>,
    index: u64,
    entry: TrieEntry,
) -> bool {
    let header = edit.objects.header(node);
    if !header.covers(index, node.word.top()) || node.word.level() > LEAF_LEVEL {
        return false;
    }
    let filled = edit.fill_slot(node.slot_of(index), header, entry.at(index));
    if filled {
        edit.count_inserted(1);
    }
    filled
}

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
        if place.fill(self.edit, index, entry) {
            self.kept += 1;
            return Ok(());
        }
        self.resume_near(place).insert(index, entry)
    }

    #[inline(never)]
    fn resume_near(&mut self, place: TriePlace<'t>) -> TrieCursor<'_, 't, M> {
        let mut at = Standing::new(self.edit);
        if let Some(node) = place.node() {
            let header = self.edit.objects.header(node);
            if header.is_dead() {
                self.restarted += 1;
            } else {
                self.kept += 1;
                at.stand(Some(node), header.base());
            }
        }
        TrieCursor { guard: self, at }
    }
}
