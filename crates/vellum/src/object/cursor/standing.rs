//! Where a cursor stands, and how it gets elsewhere.

use crate::machine::Machine;
use crate::object::trie::edit::{Edit, Spot, prefix};
use crate::object::trie::node::{Header, Node, step};
use crate::object::trie::remove::FEW;
use crate::object::trie::word::{INDEX_END, LEAF_LEVEL, LOW_BITS, TrieEntry, Word};
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::touch;

/// A place in a trie whose guard is held.
pub(super) struct Standing<'t, M: Machine> {
    pub edit: Edit<'t, M>,
    /// A node in the trie, and the first index that it covers.
    pub node: Option<Node<'t>>,
    pub base: u64,
    pub index: u64,
    pub limit: u64,
    /// The word that an operation found at the index, or none.
    pub found: Word,
    /// Whether the node is the lowest that covers the index, and `found` is what is there.
    pub is_located: bool,
    pub visits: u64,
    /// A node whose header was looked at last, and the header.
    known: Option<(Word, Header<'t>)>,
}

impl<'t, M: Machine> Standing<'t, M> {
    /// At the root, without a limit.
    #[inline]
    pub(super) fn new(edit: Edit<'t, M>) -> Self {
        Standing {
            edit,
            node: None,
            base: 0,
            index: 0,
            limit: INDEX_END,
            found: Word::EMPTY,
            is_located: false,
            visits: 0,
            known: None,
        }
    }

    /// Puts a leaf without marks into the cursor's node, which covers its index, if its slot there
    /// is empty.
    #[inline]
    pub(super) fn fill_slot(&mut self, index: u64, leaf: Word) -> bool {
        let Some(node) = self.node.filter(|node| node.word.level() <= LEAF_LEVEL) else {
            return false;
        };
        let header = self.header_of(node);
        let is_filled = self.edit.fill_slot(node, header, index, leaf);
        if is_filled {
            (self.index, self.found, self.is_located) = (index, leaf, true);
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

    #[inline]
    fn header_of(&mut self, node: Node<'t>) -> Header<'t> {
        let header = match self.known {
            Some((word, header)) if word == node.word => header,
            _ => self.edit.objects.header(node),
        };
        self.known = Some((node.word, header));
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

    /// Whether the cursor's node covers an index.
    #[inline]
    pub(super) fn covers(&self, index: u64) -> bool {
        self.node.is_some_and(|node| (index ^ self.base) >> node.word.top() == 0)
    }

    /// Goes to the node above; to none from a root. Says in which slot the node was.
    pub(super) fn climb(&mut self) -> usize {
        let Some(node) = self.node else { return 0 };
        let parent = self.edit.objects.header(node).parent();
        (self.node, self.base) = above(self.edit, parent, self.base, &mut self.visits);
        parent.map_or(0, Word::slot)
    }

    /// Goes to a node that covers an index, unless no node does.
    #[inline]
    pub(super) fn approach(&mut self, index: u64) {
        let is_here = self.covers(index) || self.is_located && self.index == index;
        if !is_here {
            self.descend(index);
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

    #[inline(never)]
    pub(super) fn descend(&mut self, index: u64) {
        let (edit, mut visits) = (self.edit, self.visits);
        let (mut node, mut base) = covering(edit, index, (self.node, self.base), &mut visits);
        let (mut word, mut last) = (edit.load(Spot::of(node, index)), None);
        while word.is_node() {
            let (below, slot) = step(edit.objects, word, index, &mut visits);
            (last, word) = (Some(below), Word(slot.load(Relaxed)));
        }
        let mut is_found = word.is_leaf_of(index);
        // Levels that were skipped are compared only now.
        if let Some(last) = last {
            node = Some(last);
            if is_found && !last.word.is_high() && index >> LOW_BITS == 0 {
                base = prefix(index, last.word.top());
            } else {
                let header = edit.objects.header(last);
                self.known = Some((last.word, header));
                (node, base) = covering(edit, index, (node, header.base()), &mut visits);
                is_found &= node.is_some_and(|node| node.word == last.word);
            }
        } else if node.is_none() {
            is_found &= index >> LOW_BITS == 0;
        }
        (self.node, self.base, self.visits) = (node, base, visits);
        (self.index, self.is_located) = (index, true);
        self.found = if is_found { word } else { Word::EMPTY };
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

/// The parent of a node, and the first index that it covers; none from a root. A visit. `base` is
/// the first index that the node covers.
#[inline]
fn above<'t, M: Machine>(
    edit: Edit<'t, M>,
    parent: Option<Word>,
    base: u64,
    visits: &mut u64,
) -> (Option<Node<'t>>, u64) {
    let Some(parent) = parent else { return (None, 0) };
    let above = edit.objects.visit(parent, visits, parent.slot());
    (Some(above), prefix(base, above.word.top()))
}

/// The lowest of a node and those above it that covers an index, and the first index that it
/// covers.
#[inline]
fn covering<'t, M: Machine>(
    edit: Edit<'t, M>,
    index: u64,
    (mut node, mut base): (Option<Node<'t>>, u64),
    visits: &mut u64,
) -> (Option<Node<'t>>, u64) {
    while let Some(below) = node
        && (index ^ base) >> below.word.top() != 0
    {
        (node, base) = above(edit, edit.objects.header(below).parent(), base, visits);
    }
    (node, base)
}
