//! Readers without locks.
//!
//! A descent reads one slot of each node. Skipped levels are not compared on the way. The low bits
//! in the leaf's word say whether it is the one that was asked for; where indices of 2^21 and more
//! come in, the prefix in the last node's header says the rest.
//!
//! ```text
//!   reader (in an epoch)                 writer (has the guard)
//!   load a word (acquire)                fill a node; store its word (release)
//!   load the slot of that node           mark a node dead; store a word over its reference
//!   ...                                  free the node after one wait for the epochs
//! ```
//! A node that left the tree keeps its words, so an index that is present throughout is found from
//! inside it, too. What came later is not: who keeps a place from one lookup to the next asks for
//! the mark of the dead first.

use core::cell::Cell;

use super::Trie;
use super::edit::prefix;
use super::node::{Node, step};
use super::word::{INDEX_END, LOW_BITS, TrieEntry, Word};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::object::layer::ObjectLayer;
use crate::stats::Counter;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Acquire;
use crate::sync::{EpochGuard, touch};

/// Lookups inside an epoch of the caller's.
pub(in super::super) struct Look<'e, M: Machine> {
    trie: &'e Trie,
    objects: &'e ObjectLayer<M>,
}

/// Lookups in one trie inside one epoch. Its CPU is not preempted meanwhile.
#[must_use = "the epoch is left at once"]
pub struct TrieReader<'t, M: Machine> {
    trie: &'t Trie,
    objects: &'t ObjectLayer<M>,
    /// Dropped after the counts are noted.
    epoch: EpochGuard<'t, M>,
    visits: Cell<u64>,
}

/// Where a lookup ended, for the next one of the same reader.
#[derive(Clone, Copy)]
pub struct TriePlace<'r> {
    node: Option<Node<'r>>,
}

impl<'r> TriePlace<'r> {
    /// At the root.
    pub const START: Self = TriePlace { node: None };

    /// The slots of the indices from one on that lie in the place's node, if its slots are base
    /// pages. The node covers the index before.
    #[inline]
    fn rest(&self, from: u64) -> &'r [AtomicU64] {
        match self.node {
            Some(node) if node.word.level() == 0 => &node.slots_from(from - 1)[1..],
            _ => &[],
        }
    }

    /// The slots of so many indices before one that was found here, and so many from it on, if all
    /// of them are base pages of the node. In a node that is dead by now they are of the epoch of
    /// the lookup.
    #[inline(always)]
    pub fn slots_around(self, found: u64, before: u64, after: u64) -> Option<&'r [AtomicU64]> {
        let node = self.node.filter(|node| node.word.level() == 0)?;
        let (slot, count) = (found as usize & node.word.last(), (before + after) as usize);
        let first = slot.checked_sub(before as usize)?;
        node.run(first, count)
    }

    /// The lowest node on the way to the index.
    pub(in super::super) fn node(self) -> Option<Node<'r>> {
        self.node
    }
}

/// What is at indices that follow each other.
pub(crate) enum Run<'e> {
    /// Slots of a node, each of a base page.
    Pages(&'e [AtomicU64]),
    /// What is at one index, or covers it.
    One(Option<TrieEntry>),
}

/// The page that is in such a slot just now.
#[inline(always)]
pub(crate) fn page_in(slot: &AtomicU64) -> Option<TrieEntry> {
    let word = Word(slot.load(Acquire));
    (!word.is_empty()).then(|| word.entry())
}

/// The page that is in such a slot just now, if it is not dirty.
#[inline(always)]
pub(crate) fn clean_page_in(slot: &AtomicU64) -> Option<Pfn> {
    let word = Word(slot.load(Acquire));
    word.is_clean_entry().then(|| word.entry().pfn())
}

/// The first of the pages that are in such slots of a node just now, if none is dirty and they lie
/// one after the other in memory.
#[inline(always)]
pub(crate) fn clean_run_in<const N: usize>(slots: &[AtomicU64; N]) -> Option<Pfn> {
    let first = Word(slots[0].load(Acquire));
    // No index in a node has the low bits of another's: what is added to them stays there.
    let is_next =
        |n: usize| slots[n].load(Acquire) == first.0.wrapping_add(n as u64 * Word::NEXT_PAGE);
    (first.is_clean_entry() && (1..N).all(is_next)).then(|| first.entry().pfn())
}

impl<'e, M: Machine> Look<'e, M> {
    #[inline]
    pub fn new(trie: &'e Trie, objects: &'e ObjectLayer<M>, _epoch: &'e EpochGuard<'_, M>) -> Self {
        touch(&objects.machine, &trie.root, false);
        Look { trie, objects }
    }

    /// What is at an index, or covers it; or else where a cursor would look for it first. Says how
    /// many nodes were visited, too.
    #[inline(always)]
    pub fn find(&self, index: u64, visits: &mut u64) -> Result<TrieEntry, TriePlace<'e>> {
        match self.find_place(index, visits) {
            (Some(entry), _) => Ok(entry),
            (None, place) => Err(place),
        }
    }

    /// The same with the place of what was found.
    #[inline(always)]
    pub fn find_place(&self, index: u64, visits: &mut u64) -> (Option<TrieEntry>, TriePlace<'e>) {
        let (leaf, node) = self.descend(index, None, visits);
        if self.is_at(leaf, node, index) {
            return (Some(leaf.entry()), TriePlace { node });
        }
        (None, TriePlace { node })
    }

    /// As `find`, beginning where the last lookup that found something ended.
    #[inline]
    fn find_near(
        &self,
        place: &mut TriePlace<'e>,
        index: u64,
        visits: &mut u64,
    ) -> Option<TrieEntry> {
        let near = place
            .node
            .filter(|node| self.covers(*node, index) && !self.objects.header(*node).is_dead());
        let (leaf, last) = self.descend(index, near, visits);
        // A node that the index is known to lie in needs no look at its header.
        let found = match (near, last) {
            (Some(near), Some(last)) if near.word == last.word => leaf.is_leaf_of(index),
            _ => self.is_at(leaf, last, index),
        };
        if !found {
            return None;
        }
        *place = TriePlace { node: last };
        Some(leaf.entry())
    }

    /// What is at indices that follow each other, from one on: as many as lie in its node of base
    /// pages, or one.
    #[inline]
    pub fn run_at(&self, index: u64, visits: &mut u64) -> Run<'e> {
        match self.descend(index, None, visits) {
            (_, Some(node)) if node.word.level() == 0 && self.covers(node, index) => {
                Run::Pages(node.slots_from(index))
            }
            (word, node) => Run::One(self.is_at(word, node, index).then(|| word.entry())),
        }
    }

    /// Whether a leaf whose low bits are those of the index is its, where a descent has ended.
    #[inline]
    fn may_have(&self, last: Option<Node<'_>>, index: u64) -> bool {
        match last {
            Some(node) if node.word.is_high() => self.covers(node, index),
            _ => index >> LOW_BITS == 0,
        }
    }

    #[inline]
    fn covers(&self, node: Node<'_>, index: u64) -> bool {
        (self.objects.header(node).base() ^ index) >> node.word.top() == 0
    }

    #[inline(always)]
    fn descend(
        &self,
        index: u64,
        near: Option<Node<'e>>,
        visits: &mut u64,
    ) -> (Word, Option<Node<'e>>) {
        let mut last = near;
        let mut word = match near {
            Some(node) => Word(node.slot_of(index).load(Acquire)),
            None => Word(self.trie.root.load(Acquire)),
        };
        while word.is_node() {
            let (node, slot) = step(self.objects, word, index, visits);
            (last, word) = (Some(node), Word(slot.load(Acquire)));
        }
        (word, last)
    }

    /// Whether a word that a descent has found is the leaf of an index.
    #[inline(always)]
    fn is_at(&self, leaf: Word, last: Option<Node<'_>>, index: u64) -> bool {
        leaf.is_leaf_of(index) && self.may_have(last, index)
    }
}

impl<'t, M: Machine> TrieReader<'t, M> {
    pub(in super::super) fn new(trie: &'t Trie, objects: &'t ObjectLayer<M>) -> Self {
        let epoch = objects.epochs.enter(&objects.machine);
        touch(&objects.machine, &trie.root, false);
        TrieReader { trie, objects, epoch, visits: Cell::new(0) }
    }

    /// What is at an index, or covers it. What is there throughout is found; what is found was
    /// there at a moment of the call.
    #[inline(always)]
    pub fn lookup(&self, index: u64) -> Option<TrieEntry> {
        let mut visits = 0;
        let (leaf, last) = self.look().descend(index, None, &mut visits);
        self.visits.set(self.visits.get() + visits);
        let is_high = last.is_some_and(|node| node.word.is_high());
        if leaf.is_page_of(index) && index >> LOW_BITS == 0 && !is_high {
            return Some(leaf.entry());
        }
        self.entry_below(leaf, last, index)
    }

    /// The entry of an index where a descent has ended, if it is there.
    #[inline(never)]
    fn entry_below(&self, leaf: Word, last: Option<Node<'_>>, index: u64) -> Option<TrieEntry> {
        self.look().is_at(leaf, last, index).then(|| leaf.entry())
    }

    /// As `lookup`, beginning where the last one ended.
    #[inline]
    pub fn lookup_near<'r>(&'r self, place: &mut TriePlace<'r>, index: u64) -> Option<TrieEntry> {
        let mut visits = 0;
        let found = self.look().find_near(place, index, &mut visits);
        self.visits.set(self.visits.get() + visits);
        found
    }

    /// Entries from an index on, without a hole between them; the first one covers the index. Says
    /// how many.
    pub fn lookup_run(&self, index: u64, out: &mut [TrieEntry]) -> usize {
        let (mut place, mut next, mut count) = (TriePlace::START, index, 0);
        while count < out.len() && next < INDEX_END {
            let Some(entry) = self.lookup_near(&mut place, next) else { break };
            out[count] = entry;
            count += 1;
            next = prefix(next, entry.order().get() as u32) + entry.order().frames();
            count += self.rest_of_node(&place, &mut next, &mut out[count..]);
        }
        count
    }

    /// Base pages that follow in the node of a place.
    #[inline]
    fn rest_of_node(&self, place: &TriePlace<'_>, next: &mut u64, out: &mut [TrieEntry]) -> usize {
        let mut count = 0;
        for (place, slot) in out.iter_mut().zip(place.rest(*next)) {
            let Some(entry) = page_in(slot) else { break };
            *place = entry;
            count += 1;
        }
        *next += count as u64;
        count
    }

    #[inline(always)]
    fn look(&self) -> Look<'_, M> {
        Look { trie: self.trie, objects: self.objects }
    }
}

impl<M: Machine> Drop for TrieReader<'_, M> {
    fn drop(&mut self) {
        let _ = &self.epoch;
        self.objects.count_here(Counter::ObjectNodeVisits, self.visits.get() as i64);
    }
}
