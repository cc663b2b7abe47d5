//! Taking entries out, and what becomes of nodes that are left with little.
//!
//! A node with one word left is spliced out: its word moves up. A large node with few left goes
//! back to small ones, if memory for them is to be had. Where a word cannot move up, since it is a
//! leaf and its bits have no room there, the node stays.

use super::edit::{Edit, Spot};
use super::node::Node;
use super::supply::Supply;
use super::word::Word;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::{Above, Queue, TableLock, touch};

/// Entries of a large node at which it goes back to small ones.
pub(in super::super) const FEW: usize = 16;

/// Words with which a node is looked at.
fn few(node: Node<'_>) -> usize {
    if node.word.is_large() { FEW } else { 1 }
}

impl<'e, M: Machine> Edit<'e, M> {
    /// Empties a spot. Says whether nodes have left the tree, or came, by it.
    #[inline]
    pub fn remove<H: Above<Queue> + Above<TableLock>>(
        self,
        at: Spot<'e>,
        supply: &mut Supply<'_, 'e, M, H>,
    ) -> bool {
        self.store(at, Word::EMPTY);
        let Some(node) = at.node else { return false };
        if self.counts(node).used() > few(node) {
            return false;
        }
        self.shrink(node, supply);
        true
    }

    /// Removes a node that has lost a word, if that is due, and those above.
    #[inline(never)]
    fn shrink<H: Above<Queue> + Above<TableLock>>(
        self,
        mut node: Node<'e>,
        supply: &mut Supply<'_, 'e, M, H>,
    ) {
        loop {
            let used = self.counts(node).used();
            if used != 0 {
                let stays = used > 1 || !self.splice(node);
                if stays && node.word.is_large() && used <= FEW {
                    self.to_small(node, supply);
                }
                return;
            }
            let at = self.spot_of(node);
            self.family_changed(at, node.word.level() / 9, -(self.family_at(node) as i64));
            self.retire(node);
            self.store(at, Word::EMPTY);
            match at.node {
                Some(above) => node = above,
                None => return,
            }
        }
    }

    fn family_at(self, node: Node<'e>) -> u64 {
        self.family(node.word, node.word.level() / 9)
    }

    /// Moves the last word of a node up, if it has room there.
    pub fn splice(self, node: Node<'e>) -> bool {
        let Some((slot, last)) = self.first_word(node) else { return false };
        let at = self.spot_of(node);
        if last.is_leaf() && !at.fits(self.index_of(node, slot, last), last.order()) {
            return false;
        }
        let group = node.word.level() / 9;
        let less = self.family_at(node) - self.family(last, group);
        self.family_changed(at, group, -(less as i64));
        if last.is_node() {
            self.objects.header(self.objects.node(last)).set_parent(at.word());
        }
        self.retire(node);
        self.store(at, last);
        self.splice_holder(last);
        // A node that only held a single leaf's bits is not needed above another node.
        if let Some(above) = at.node
            && self.counts(above).used() == 1
        {
            self.splice(above);
        }
        true
    }

    /// Moves up the leaf of a node that holds nothing else, if it has room in the spot that the
    /// node has come to.
    pub fn splice_holder(self, word: Word) {
        if word.is_node() {
            let node = self.objects.node(word);
            if self.counts(node).used() == 1 {
                self.splice(node);
            }
        }
    }

    /// The first word of a node, and its slot.
    pub fn first_word(self, node: Node<'e>) -> Option<(usize, Word)> {
        (0..node.slots()).map(|slot| (slot, node.load(slot))).find(|(_, word)| !word.is_empty())
    }

    /// Takes everything below a spot out at once and tells of each entry, in order. Says how many
    /// there were.
    pub fn detach<H: Above<Queue> + Above<TableLock>>(
        self,
        at: Spot<'e>,
        supply: &mut Supply<'_, 'e, M, H>,
        each: &mut impl FnMut(u64, Word),
    ) -> u64 {
        let word = self.load(at);
        let node = self.objects.node(word);
        let group = word.level() / 9;
        self.family_changed(at, group, -(self.family(word, group) as i64));
        // Before the store, so that whoever finds the slot empty finds the nodes dead.
        let count = self.drain(node, each);
        self.store(at, Word::EMPTY);
        if let Some(above) = at.node {
            self.shrink(above, supply);
        }
        count
    }

    /// Retires a subtree and tells of its entries. As deep as a trie is, 18 nodes at most.
    pub fn drain(self, node: Node<'e>, each: &mut impl FnMut(u64, Word)) -> u64 {
        let (level, base) = (node.word.level(), self.objects.header(node).base());
        let mut count = 0;
        for (slot, word) in node.slots_from(0).iter().enumerate() {
            let word = Word(word.load(Relaxed));
            if word.is_node() {
                count += self.drain(self.objects.node(word), each);
            } else if !word.is_empty() {
                let from = base | (slot as u64) << level;
                each(super::edit::leaf_index(from, level, word), word);
                count += 1;
            }
        }
        self.retire(node);
        count
    }
}

/// Empties the slots of base pages in a node, and tells of each word that was there. Says how many
/// there were, and whether the node has few left, so that nodes may have left the tree, or come.
pub fn remove_pages<'e, M: Machine, H: Above<Queue> + Above<TableLock>>(
    edit: Edit<'e, M>,
    node: Node<'e>,
    indices: impl Iterator<Item = u64>,
    supply: &mut Supply<'_, 'e, M, H>,
    each: &mut impl FnMut(Word),
) -> (usize, bool) {
    let before = edit.counts(node);
    let mut counts = before;
    for index in indices {
        let slot = node.slot_of(index);
        let word = Word(slot.load(Relaxed));
        if !word.is_empty() {
            touch(&edit.objects.machine, slot, true);
            slot.store(0, Release);
            counts = counts.exchanged(word, Word::EMPTY);
            each(word);
        }
    }
    edit.objects.header(node).set_counts(counts);
    if before.marks() != counts.marks() {
        edit.marks_changed(node, counts.marks());
    }
    let is_left_with_few = counts.used() <= few(node);
    if is_left_with_few {
        edit.shrink(node, supply);
    }
    (before.used() - counts.used(), is_left_with_few)
}
