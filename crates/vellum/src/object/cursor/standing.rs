//! Where a cursor stands, and how it gets elsewhere.

use crate::machine::Machine;
use crate::object::trie::edit::{Edit, Spot, prefix};
use crate::object::trie::node::{Header, Node, SMALL_SLOTS, step};
use crate::object::trie::remove::FEW;
use crate::object::trie::word::{INDEX_END, LEAF_LEVEL, LOW_BITS, TrieEntry, Word};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::touch;

/// What no node covers.
const NOWHERE: (u64, u32) = (u64::MAX, 0);

/// A place in a trie whose guard is held.
pub(super) struct Standing<'t, M: Machine> {
    pub edit: Edit<'t, M>,
    /// A node in the trie, the first index that it covers, and the lowest bit above its slots'.
    pub node: Option<Node<'t>>,
    pub base: u64,
    top: u32,
    /// The node's header, if it was looked at.
    header: Option<Header<'t>>,
    pub index: u64,
    pub limit: u64,
    /// The word that an operation found at the index, or none.
    pub found: Word,
    /// Whether the node is the lowest that covers the index, and `found` is what is there.
    pub is_located: bool,
    pub visits: u64,
}

impl<'t, M: Machine> Standing<'t, M> {
    /// At the root, without a limit.
    #[inline]
    pub(super) fn new(edit: Edit<'t, M>) -> Self {
        Standing {
            edit,
            node: None,
            base: NOWHERE.0,
            top: NOWHERE.1,
            header: None,
            index: 0,
            limit: INDEX_END,
            found: Word::EMPTY,
            is_located: false,
            visits: 0,
        }
    }

    /// Goes to a node, whose first index is known.
    #[inline]
    pub(super) fn stand(&mut self, node: Option<Node<'t>>, base: u64) {
        (self.node, self.header) = (node, None);
        (self.base, self.top) = node.map_or(NOWHERE, |node| (base, node.word.top()));
    }

    /// Puts a base page without marks into the cursor's node, if that covers its index and the slot
    /// there is empty.
    #[inline(always)]
    pub(super) fn fill_slot(&mut self, index: u64, leaf: Word) -> bool {
        let Some(node) = self.node else { return false };
        if !self.covers(index) || node.word.level() > LEAF_LEVEL {
            return false;
        }
        let header = self.header_of(node);
        self.fill(node.slot_of(index), header, index, leaf)
    }

    /// The same where the slot and its node's header are known.
    #[inline(always)]
    fn fill(&mut self, slot: &AtomicU64, header: Header<'t>, index: u64, leaf: Word) -> bool {
        let is_filled = self.edit.fill_slot(slot, header, leaf);
        if is_filled {
            (self.index, self.found, self.is_located) = (index, leaf, true);
            self.edit.count_inserted(1);
        }
        is_filled
    }

    /// Takes the leaf without marks that was found out of a node that stays as it is without it.
    #[inline]
    pub(super) fn empty_slot(&mut self, leaf: Word) -> bool {
        let Some(node) = self.node else { return false };
        let header = self.header_of(node);
        let few = if node.word.is_large() { FEW } else { 1 };
        if leaf.marks() != 0 || header.counts().used() <= few + 1 {
            return false;
        }
        let slot = node.slot_of(self.index);
        touch(&self.edit.objects.machine, slot, true);
        slot.store(0, Release);
        header.set_counts(header.counts().less_one());
        true
    }

    /// The header of the cursor's node.
    #[inline(always)]
    fn header_of(&mut self, node: Node<'t>) -> Header<'t> {
        let header = self.header.unwrap_or_else(|| self.edit.objects.header(node));
        self.header = Some(header);
        header
    }

    /// What is at an index, or covers it.
    #[inline]
    pub(super) fn lookup(&mut self, index: u64) -> Option<TrieEntry> {
        if index >= self.limit {
            return None;
        }
        self.locate(index);
        self.found.is_leaf().then(|| self.found.entry())
    }

    /// Where the cursor's index is.
    #[inline]
    pub(super) fn spot(&self) -> Spot<'t> {
        Spot::of(self.node, self.index)
    }

    /// Whether the cursor has looked for an index, and nothing has changed since.
    #[inline]
    pub(super) fn is_at(&self, index: u64) -> bool {
        self.is_located && self.index == index
    }

    /// Whether the cursor's node covers an index.
    #[inline]
    pub(super) fn covers(&self, index: u64) -> bool {
        (index ^ self.base) >> self.top == 0
    }

    /// Goes to the node above; to none from a root. Says in which slot the node was. A visit.
    pub(super) fn climb(&mut self) -> usize {
        let Some(node) = self.node else { return 0 };
        let Some(parent) = self.header_of(node).parent() else {
            self.stand(None, 0);
            return 0;
        };
        let above = self.edit.objects.visit(parent, &mut self.visits, parent.slot());
        self.stand(Some(above), prefix(self.base, above.word.top()));
        parent.slot()
    }

    /// Goes to the lowest of the cursor's node and those above it that covers an index.
    #[inline(never)]
    fn climb_to(&mut self, index: u64) {
        while self.node.is_some() && !self.covers(index) {
            self.climb();
        }
    }

    /// Goes to the lowest node that covers an index, and notes what is there.
    #[inline]
    pub(super) fn locate(&mut self, index: u64) {
        if self.covers(index)
            && let Some(node) = self.node
        {
            let word = Word(node.slot_of(index).load(Relaxed));
            if !word.is_node() {
                (self.index, self.is_located) = (index, true);
                self.found = if word.is_leaf_of(index) { word } else { Word::EMPTY };
                return;
            }
        }
        self.descend(index);
    }

    /// The same. A neighbour, which a small node above the cursor's would cover, is climbed to;
    /// what is further away is as near to the root, most often, and a descent reads one line of a
    /// node where a climb reads two.
    #[inline(never)]
    pub(super) fn descend(&mut self, index: u64) {
        self.descend_here(index);
    }

    /// The same, and puts a base page without marks there, if the slot is empty.
    #[inline(always)]
    pub(super) fn descend_and_fill(&mut self, index: u64, leaf: Word) -> bool {
        match (self.descend_here(index), self.header) {
            (Some(slot), Some(header)) => self.fill(slot, header, index, leaf),
            _ => false,
        }
    }

    /// As `descend`. Says which slot the base page of the index has, if the descent has found
    /// nothing there; then the header was looked at.
    #[inline(always)]
    fn descend_here(&mut self, index: u64) -> Option<&'t AtomicU64> {
        let mut last = None;
        if (index ^ self.base) >> self.top < SMALL_SLOTS as u64 {
            self.climb_to(index);
            last = self.node.map(|node| (node, node.slot_of(index)));
        }
        let (edit, mut visits) = (self.edit, self.visits);
        let root = || edit.load(Spot::ROOT);
        let mut word = last.map_or_else(root, |(_, slot)| Word(slot.load(Relaxed)));
        while word.is_node() {
            let (below, slot) = step(edit.objects, word, index, &mut visits);
            if !below.word.is_large() {
                edit.objects.bring_header_near(below);
            }
            (last, word) = (Some((below, slot)), Word(slot.load(Relaxed)));
        }
        self.visits = visits;
        (self.index, self.found, self.is_located) = (index, Word::EMPTY, true);
        let Some((node, slot)) = last else {
            self.stand(None, 0);
            if word.is_leaf_of(index) && index >> LOW_BITS == 0 {
                self.found = word;
            }
            return None;
        };
        self.settle(node, word, index).then_some(slot)
    }

    /// Goes to the lowest node that covers an index, from the node where a descent has ended:
    /// levels that were skipped are compared only now. Notes the word there, if it is the index's.
    /// Says whether a base page of the index has its place in the node.
    #[inline(always)]
    fn settle(&mut self, node: Node<'t>, word: Word, index: u64) -> bool {
        let is_found = !word.is_empty() && word.is_leaf_of(index);
        if is_found && !node.word.is_high() && index >> LOW_BITS == 0 {
            self.stand(Some(node), prefix(index, node.word.top()));
            self.found = word;
            return false;
        }
        let header = self.edit.objects.header(node);
        self.stand(Some(node), header.base());
        self.header = Some(header);
        if !self.covers(index) {
            self.climb_to(index);
            return false;
        }
        if is_found {
            self.found = word;
        }
        node.word.level() <= LEAF_LEVEL
    }

    /// The cursor's node if its slots are base pages, and how many of them are left from an index
    /// on, below the limit.
    #[inline]
    pub(super) fn base_pages(&self, from: u64) -> Option<(Node<'t>, usize)> {
        let node = self.node.filter(|node| node.word.level() == 0)?;
        let end = prefix(self.base, node.word.top()) + node.slots() as u64;
        Some((node, end.min(self.limit).saturating_sub(from) as usize))
    }

    /// The uppermost node above the cursor that covers nothing outside of a range.
    pub(super) fn highest_inside(&self, from: u64, end: u64) -> Option<Node<'t>> {
        let (mut above, mut inside) = (self.node, None);
        while let Some(node) = above {
            let base = self.edit.objects.header(node).base();
            if base < from || base + (1 << node.word.top()) > end {
                break;
            }
            inside = above;
            above = self.edit.spot_of(node).node;
        }
        inside
    }

    /// Goes up to a node that is in the trie. What is dead is freed after the cursor's end.
    pub(super) fn leave_dead(&mut self) {
        self.is_located = false;
        while let Some(node) = self.node
            && self.edit.objects.header(node).is_dead()
        {
            self.climb();
        }
    }

    /// Counts entries that were inserted.
    #[inline]
    pub(super) fn count_inserted(&self, count: u64) {
        self.edit.count_inserted(count);
    }

    #[inline]
    pub(super) fn count_removed(&self, count: u64) {
        let trie = self.edit.trie;
        trie.entries.store(trie.entries.load(Relaxed) - count, Relaxed);
    }

    pub(super) fn store_found(&mut self, word: Word) {
        self.edit.store(self.spot(), word);
        self.found = word;
    }
}
