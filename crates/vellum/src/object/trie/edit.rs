//! What every change of a trie is made of: exchanging the word of one slot, with the counts of its
//! node and the marks above.

use super::Trie;
use super::node::{Counts, Header, Node};
use super::word::{LEAF_LEVEL, LOW_BITS, Word};
use crate::machine::Machine;
use crate::object::layer::ObjectLayer;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::touch;

/// The index without its low `bits` bits.
#[inline]
pub(in super::super) fn prefix(index: u64, bits: u32) -> u64 {
    index >> bits << bits
}

/// Where a word is: in a slot of a node, or in the trie as its root.
#[derive(Clone, Copy)]
pub(in super::super) struct Spot<'e> {
    pub node: Option<Node<'e>>,
    pub slot: usize,
}

impl<'e> Spot<'e> {
    pub const ROOT: Spot<'static> = Spot { node: None, slot: 0 };

    /// The slot of an index in a node, or the root.
    #[inline]
    pub fn of(node: Option<Node<'e>>, index: u64) -> Spot<'e> {
        Spot { node, slot: node.map_or(0, |node| node.word.digit(index)) }
    }
    /// As the header of a child has it.
    #[inline]
    pub fn word(self) -> Option<Word> {
        self.node.map(|node| node.word.with_slot(self.slot))
    }
    /// Whether a leaf here says all of an index that its place does not. `order` is the leaf's.
    #[inline]
    pub fn fits(self, index: u64, order: u32) -> bool {
        match self.node {
            Some(node) => node.word.level() <= LEAF_LEVEL,
            None => (index + (1 << order) - 1) >> LOW_BITS == 0,
        }
    }
}

/// A trie under its guard.
pub(in super::super) struct Edit<'e, M: Machine> {
    pub objects: &'e ObjectLayer<M>,
    pub trie: &'e Trie,
}

impl<M: Machine> Clone for Edit<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Edit<'_, M> {}

impl<'e, M: Machine> Edit<'e, M> {
    /// The word at a spot.
    #[inline]
    pub fn load(self, at: Spot<'e>) -> Word {
        match at.node {
            Some(node) => node.load(at.slot),
            None => Word(self.trie.root.load(Ordering::Relaxed)),
        }
    }

    /// Puts a base page without marks into its slot of a node, if that is empty.
    #[inline(always)]
    pub fn fill_slot(self, slot: &AtomicU64, header: Header<'e>, leaf: Word) -> bool {
        if !leaf.is_unmarked_page() || slot.load(Ordering::Relaxed) != 0 {
            return false;
        }
        touch(&self.objects.machine, slot, true);
        slot.store(leaf.0, Ordering::Release);
        header.set_counts(header.counts().plus(1));
        true
    }

    /// Counts entries that were inserted.
    #[inline]
    pub fn count_inserted(self, count: u64) {
        let entries = &self.trie.entries;
        entries.store(entries.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Where a node's word is.
    #[inline]
    pub fn spot_of(self, node: Node<'e>) -> Spot<'e> {
        match self.objects.header(node).parent() {
            Some(parent) => Spot { node: Some(self.objects.node(parent)), slot: parent.slot() },
            None => Spot::ROOT,
        }
    }

    /// Exchanges the word at a spot: publishes what the new one names. Counts and, where they
    /// change, the marks in the nodes above follow.
    #[inline]
    pub fn store(self, at: Spot<'e>, word: Word) {
        if let Some((node, marks)) = self.store_here(at, word) {
            self.marks_changed(node, marks);
        }
    }

    /// The node whose marks changed by it, and what they are.
    #[inline]
    fn store_here(self, at: Spot<'e>, word: Word) -> Option<(Node<'e>, u64)> {
        let Some(node) = at.node else {
            touch(&self.objects.machine, &self.trie.root, true);
            self.trie.root.store(word.0, Ordering::Release);
            return None;
        };
        let slot = node.slot(at.slot);
        let old = Word(slot.load(Ordering::Relaxed));
        touch(&self.objects.machine, slot, true);
        slot.store(word.0, Ordering::Release);
        let header = self.objects.header(node);
        let (before, after) = (header.counts(), header.counts().exchanged(old, word));
        header.set_counts(after);
        (before.marks() != after.marks()).then_some((node, after.marks()))
    }

    /// Tells the nodes above that what is below a node has other marks.
    #[inline(never)]
    pub fn marks_changed(self, mut node: Node<'e>, mut marks: u64) {
        loop {
            let at = self.spot_of(node);
            let word = self.load(at).with_marks(marks);
            match self.store_here(at, word) {
                Some(above) => (node, marks) = above,
                None => return,
            }
        }
    }

    /// Makes a node in zeroed memory that nobody knows.
    pub fn make(self, word: Word, base: u64, parent: Option<Word>) -> Node<'e> {
        let node = self.objects.node(word);
        self.objects.header(node).init(base, parent);
        node
    }

    /// Puts a word into a node that is not published.
    pub fn put(self, node: Node<'e>, index: u64, word: Word) {
        self.place(node, index, word);
        let header = self.objects.header(node);
        header.set_counts(header.counts().exchanged(Word::EMPTY, word));
    }

    /// The same, where the caller counts what is put there.
    #[inline]
    pub fn place(self, node: Node<'e>, index: u64, word: Word) {
        let slot = node.word.digit(index);
        node.slot(slot).store(word.0, Ordering::Relaxed);
        if word.is_node() {
            let child = self.objects.header(self.objects.node(word));
            child.set_parent(Some(node.word.with_slot(slot)));
        }
    }

    /// The reference to a node with the marks of what is below.
    pub fn marked(self, node: Node<'e>) -> Word {
        node.word.with_marks(self.counts(node).marks())
    }

    #[inline]
    pub fn counts(self, node: Node<'e>) -> Counts {
        self.objects.header(node).counts()
    }

    /// The first index of what a slot holds.
    pub fn index_of(self, node: Node<'e>, slot: usize, word: Word) -> u64 {
        if word.is_node() {
            return self.objects.header(self.objects.node(word)).base();
        }
        let base = self.objects.header(node).base();
        leaf_index(base | (slot as u64) << node.word.level(), node.word.level(), word)
    }

    /// How many small nodes of a group a word stands for.
    pub fn family(self, word: Word, group: u32) -> u64 {
        if !word.is_small_of(group) {
            return 0;
        }
        self.counts(self.objects.node(word)).family()
    }

    /// Small nodes of a group came or went below a spot.
    pub fn family_changed(self, mut at: Spot<'e>, group: u32, by: i64) {
        while let Some(node) = at.node
            && node.word.is_small_of(group)
        {
            let header = self.objects.header(node);
            let counts = header.counts();
            header.set_counts(counts.with_family(counts.family().wrapping_add_signed(by)));
            at = self.spot_of(node);
        }
    }
}

/// The index of a leaf in the slot that covers the indices from `from` on.
#[inline]
pub(in super::super) fn leaf_index(from: u64, level: u32, leaf: Word) -> u64 {
    prefix(from, level) | leaf.low() & ((1 << level) - 1)
}
