//! Everything recounted.

use super::edit::Edit;
use super::node::{Counts, Node};
use super::retire::BATCH;
use super::word::{INDEX_END, LEAF_LEVEL, Word};
use crate::error::Invalid;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::Relaxed;

/// What a trie is made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shape {
    /// Entries, a block counting once.
    pub entries: u64,
    /// Nodes of eight slots.
    pub small: u64,
    /// Nodes of 512 slots.
    pub large: u64,
    /// Nodes that have left the trie and are not freed yet.
    pub dead: u64,
}

impl Shape {
    /// Bytes of the nodes in the trie. Records of frames are not counted.
    pub fn bytes(&self) -> u64 {
        self.small * super::super::layer::SMALL_BYTES as u64 + self.large * 4096
    }
}

fn ensure(holds: bool, what: &'static str, at: u64, found: (u64, u64)) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid::new(what, at, found.0, found.1)) }
}

impl<'e, M: Machine> Edit<'e, M> {
    /// Compares counts, marks, prefixes and parents with what is there.
    pub fn validate(self) -> Result<Shape, Invalid> {
        let mut shape = Shape::default();
        let root = Word(self.trie.root.load(Relaxed));
        if root.is_node() {
            let node = self.objects.node(root);
            let parent = self.objects.header(node).parent();
            ensure(parent.is_none(), "a root has a parent", 0, (0, 1))?;
            self.check(root, INDEX_END.trailing_zeros(), &mut shape)?;
        } else if root.is_leaf() {
            shape.entries = 1;
        }
        let entries = self.trie.entries.load(Relaxed);
        ensure(entries == shape.entries, "entries of a trie", 0, (entries, shape.entries))?;
        let mut weight = 0;
        let mut next = Word(self.trie.dead.load(Relaxed));
        while !next.is_empty() {
            let header = self.objects.header(self.objects.node(next));
            ensure(
                header.is_dead(),
                "a node of the list of the dead is not",
                header.base(),
                (1, 0),
            )?;
            shape.dead += 1;
            weight += if next.is_large() { 32 } else { 1 };
            next = header.chain();
        }
        let kept = self.trie.dead_weight.load(Relaxed);
        ensure(kept == weight, "the weight of a trie's dead nodes", BATCH, (kept, weight))?;
        Ok(shape)
    }

    /// Checks a node and what is below it. `above` is the level of the slot it is in.
    fn check(self, word: Word, above: u32, shape: &mut Shape) -> Result<(), Invalid> {
        let node = self.objects.node(word);
        let (header, level) = (self.objects.header(node), word.level());
        let base = header.base();
        let width = word.width();
        ensure(!header.is_dead(), "a node in a trie is dead", base, (0, 1))?;
        ensure(
            level.is_multiple_of(width) && base >> (level + width) << (level + width) == base,
            "a node's level or first index",
            base,
            (level as u64, width as u64),
        )?;
        ensure(
            word.top() <= above.next_multiple_of(3),
            "a node's level, from above",
            base,
            (above as u64, word.top() as u64),
        )?;
        ensure(
            word.reference() == Word::node(word.address(), word.is_large(), level, base),
            "what a reference says of a node",
            base,
            (word.reference().0, 0),
        )?;
        if word.is_large() {
            shape.large += 1
        } else {
            shape.small += 1
        }
        let (mut counts, mut family) = (Counts::default(), 1);
        for slot in 0..node.slots() {
            let child = node.load(slot);
            counts = counts.exchanged(Word::EMPTY, child);
            self.check_child(node, slot, shape)?;
            family += self.family(child, level / 9);
        }
        let family = if word.is_large() { 0 } else { family };
        let (kept, found) = (header.counts(), counts.with_family(family));
        ensure(
            kept == found,
            "what a node counts",
            base,
            (kept.used() as u64, found.used() as u64),
        )?;
        let (kept, found) = (word.marks(), counts.marks());
        ensure(kept == found, "the marks below a node", base, (kept, found))?;
        let holds = above > LEAF_LEVEL && self.first_word(node).is_some_and(|(_, w)| w.is_leaf());
        let used = counts.used();
        let least = if holds || word.is_large() { 1 } else { 2 };
        ensure(used >= least, "words of a node", base, (least as u64, used as u64))
    }

    fn check_child(self, node: Node<'e>, slot: usize, shape: &mut Shape) -> Result<(), Invalid> {
        let (word, level) = (node.load(slot), node.word.level());
        let from = self.objects.header(node).base() | (slot as u64) << level;
        if word.is_node() {
            let child = self.objects.header(self.objects.node(word));
            let parent = Some(node.word.with_slot(slot));
            ensure(child.parent() == parent, "a node's parent", from, (0, 0))?;
            let base = child.base();
            ensure(base >> level == from >> level, "a node's prefix", from, (from, base))?;
            return self.check(word, level, shape);
        }
        if word.is_leaf() {
            let (order, index) = (word.order(), self.index_of(node, slot, word));
            ensure(
                level <= LEAF_LEVEL && level >= order,
                "a leaf's level",
                index,
                (order as u64, level as u64),
            )?;
            ensure(
                index & ((1 << order) - 1) == 0,
                "a leaf's alignment",
                index,
                (order as u64, 0),
            )?;
            let (low, kept) = (index & ((1 << LEAF_LEVEL) - 1), word.low());
            ensure(low == kept, "the low bits of a leaf", index, (kept, low))?;
            shape.entries += 1;
        }
        Ok(())
    }
}
