//! Linking a new entry.
//!
//! A failed lookup has found where: an empty slot, or a slot whose word belongs to other indices.
//! There a node is put in between, at the highest bit in which the two differ. All memory is taken
//! first, so an insertion that fails has changed nothing.

use super::edit::{Edit, Spot, prefix};
use super::node::Node;
use super::supply::Supply;
use super::word::{LEAF_LEVEL, LOW_BITS, Word};
use crate::machine::Machine;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, Queue, TableLock};

/// Slots in use before a new entry, from which on its node is a large one. Looked at where a node
/// is made: an insertion into a node notes nothing, and CPUs that fill one object from several
/// places on do not disturb each other.
const APPENDED: u64 = 64;
/// The same of slots that lead to nodes, of which the one before is a large one. The large node
/// then adds a 24th to what is below it, and saves every descent a node. More than a large node
/// goes back with, so whoever appends and removes in turn does not exchange it each time.
const APPENDED_NODES: u64 = 24;
/// Small nodes of a group that are not reached: a large node comes instead. Where entries have a
/// distance that is a power of two a group has 9 small nodes at most, or 73, so any number between
/// says the same of these. So many have more entries than a large node goes back with.
const CROWD: u64 = 20;

const _: () = assert!(CROWD as usize > super::remove::FEW);
const _: () = assert!(APPENDED_NODES as usize > super::remove::FEW);

/// Why an entry was not inserted. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError {
    /// The index is not aligned to the entry's order, or past the last one.
    Index,
    /// Something is there already.
    Occupied,
    /// A node is needed and no memory for it is to be had; or, with a reserve, it has none left.
    NoNodes,
}

/// Two words that are to be told apart.
struct Fork {
    old: Word,
    old_index: u64,
    new: Word,
    index: u64,
    /// The highest bit in which the indices differ.
    bit: u32,
}

impl<'e, M: Machine> Edit<'e, M> {
    /// Links a leaf where a lookup of its index has failed. Says which node it is in.
    #[inline]
    pub fn insert<H: Above<Queue> + Above<TableLock>>(
        self,
        at: Spot<'e>,
        index: u64,
        leaf: Word,
        supply: &mut Supply<'_, 'e, M, H>,
    ) -> Result<Option<Node<'e>>, InsertError> {
        let old = self.load(at);
        if old.is_empty() && at.fits(index, leaf.order()) {
            self.store(at, leaf);
            return Ok(at.node);
        }
        self.insert_with_node(at, index, leaf, supply)
    }

    #[inline(never)]
    fn insert_with_node<H: Above<Queue> + Above<TableLock>>(
        self,
        at: Spot<'e>,
        index: u64,
        leaf: Word,
        supply: &mut Supply<'_, 'e, M, H>,
    ) -> Result<Option<Node<'e>>, InsertError> {
        let old = self.load(at);
        if old.is_empty() {
            let address = supply.small().map_err(|_| InsertError::NoNodes)?;
            let holder = self.hold(address, index, leaf, at.word());
            self.family_changed(at, LEAF_LEVEL / 9, 1);
            self.store(at, self.marked(holder));
            return Ok(Some(holder));
        }
        let old_index = match at.node {
            // Of a lower level than the node, so its slot tells all bits from there on.
            Some(node) => self.index_of(node, at.slot, old),
            None if old.is_node() => self.objects.header(self.objects.node(old)).base(),
            None => old.low(),
        };
        let span = if old.is_node() { old.top() } else { old.order() };
        let differ = old_index ^ index;
        if differ >> span.max(leaf.order()) == 0 {
            return Err(InsertError::Occupied);
        }
        let fork = Fork { old, old_index, new: leaf, index, bit: 63 - differ.leading_zeros() };
        let top = self.top_of_group(at, old, fork.bit / 9);
        let appends = is_preceded(self, index, fork.bit / 9 * 9, at.node);
        let crowded = top.is_some_and(|top| self.counts(top).family() + 1 >= CROWD);
        if appends || crowded {
            let Some(top) = top else { return self.branch(at, &fork, true, supply) };
            if let Ok(address) = supply.large() {
                return self.insert_in_large(top, address, &fork, supply);
            }
        }
        self.branch(at, &fork, false, supply)
    }

    /// Exchanges a group for a large node and puts the new leaf there.
    fn insert_in_large<H: Above<Queue> + Above<TableLock>>(
        self,
        top: Node<'e>,
        address: u64,
        fork: &Fork,
        supply: &mut Supply<'_, 'e, M, H>,
    ) -> Result<Option<Node<'e>>, InsertError> {
        if fork.bit / 9 * 9 <= LEAF_LEVEL {
            let large = self.to_large(top, address);
            self.store(Spot::of(Some(large), fork.index), fork.new);
            return Ok(Some(large));
        }
        let Ok(holder) = supply.small() else {
            supply.put_back_large(address);
            return Err(InsertError::NoNodes);
        };
        let at = Spot::of(Some(self.to_large(top, address)), fork.index);
        let holder = self.hold(holder, fork.index, fork.new, at.word());
        self.store(at, self.marked(holder));
        Ok(Some(holder))
    }

    /// The uppermost small node of a group above or at a spot, or below it.
    fn top_of_group(self, at: Spot<'e>, old: Word, group: u32) -> Option<Node<'e>> {
        let mut top = None;
        let mut above = at.node;
        while let Some(node) = above
            && node.word.is_small_of(group)
        {
            top = Some(node);
            above = self.spot_of(node).node;
        }
        top.or_else(|| old.is_small_of(group).then(|| self.objects.node(old)))
    }

    /// A node of level 21 for a single leaf whose word has no room for the bits above. Not
    /// published.
    pub fn hold(self, address: u64, index: u64, leaf: Word, parent: Option<Word>) -> Node<'e> {
        let base = prefix(index, LEAF_LEVEL + 3);
        let holder = self.make(Word::node(address, false, LEAF_LEVEL, base), base, parent);
        self.put(holder, index, leaf);
        let header = self.objects.header(holder);
        header.set_counts(header.counts().with_family(1));
        holder
    }

    /// Puts a node with both words where the old one is.
    fn branch<H: Above<Queue> + Above<TableLock>>(
        self,
        at: Spot<'e>,
        fork: &Fork,
        wants_large: bool,
        supply: &mut Supply<'_, 'e, M, H>,
    ) -> Result<Option<Node<'e>>, InsertError> {
        let large = if wants_large { supply.large().ok() } else { None };
        let (is_large, width) = if large.is_some() { (true, 9) } else { (false, 3) };
        let level = fork.bit / width * width;
        let holders = if level > LEAF_LEVEL { 1 + fork.old.is_leaf() as usize } else { 0 };
        let mut taken = [0; 3];
        let wanted = &mut taken[..holders + !is_large as usize];
        for i in 0..wanted.len() {
            let Ok(address) = supply.small() else {
                wanted[..i].iter().for_each(|address| supply.put_back(*address));
                large.into_iter().for_each(|address| supply.put_back_large(address));
                return Err(InsertError::NoNodes);
            };
            wanted[i] = address;
        }
        let [first, second, third] = taken;
        let (address, holders_at) =
            large.map_or((first, [second, third]), |large| (large, [first, second]));
        let base = prefix(fork.index, level + width);
        let word = Word::node(address, is_large, level, base);
        let node = self.make(word, base, at.word());
        let words = [(fork.index, fork.new), (fork.old_index, fork.old)];
        let mut family = 1;
        for ((index, mut word), holder) in words.into_iter().zip(holders_at) {
            if level > LEAF_LEVEL && word.is_leaf() {
                let parent = node.word.with_slot(node.word.digit(index));
                word = self.marked(self.hold(holder, index, word, Some(parent)));
            }
            self.put(node, index, word);
            family += self.family(word, level / 9);
        }
        self.publish_branch(at, fork.old, (node, family));
        // Which node of the two the new entry is in.
        let child = node.slot_of(fork.index).load(Relaxed);
        let lies_in = if Word(child).is_node() { self.objects.node(Word(child)) } else { node };
        Ok(Some(lies_in))
    }

    /// Counts a new node in its group, of which so many are small ones at and below it, and links
    /// it.
    fn publish_branch(self, at: Spot<'e>, old: Word, (node, family): (Node<'e>, u64)) {
        let group = node.word.level() / 9;
        if !node.word.is_large() {
            let header = self.objects.header(node);
            header.set_counts(header.counts().with_family(family));
            let more = family as i64 - self.family(old, group) as i64;
            self.family_changed(at, group, more);
        }
        self.store(at, self.marked(node));
        self.splice_holder(old);
        // A node that only held a single leaf's bits is not needed above another node.
        if let Some(above) = at.node
            && self.counts(above).used() == 1
        {
            self.splice(above);
        }
    }
}

/// Whether [`APPENDED`] slots of a level, or [`APPENDED_NODES`], are in use before an index's own,
/// by one index in each. `near` covers the index. The slot before is looked at first: where it is
/// empty, as it is most often, the insertion has just been there. Then all of them in order.
fn is_preceded<'e, M: Machine>(
    edit: Edit<'e, M>,
    index: u64,
    level: u32,
    near: Option<Node<'e>>,
) -> bool {
    let step = 1 << level;
    let Some(mut before) = index.checked_sub(step) else { return false };
    let near = near.filter(|node| (before ^ index) >> node.word.top() == 0);
    let wanted = if leads_to_large(edit, near, before, level) { APPENDED_NODES } else { APPENDED };
    let Some(mut next) = index.checked_sub(wanted << level) else { return false };
    if !has_run(edit, near, &mut before, (step, index)) {
        return false;
    }
    while next < index {
        if !has_run(edit, None, &mut next, (step, index)) {
            return false;
        }
    }
    true
}

/// Whether the slot of a level that an index has leads to a large node.
fn leads_to_large<'e, M: Machine>(
    edit: Edit<'e, M>,
    near: Option<Node<'e>>,
    index: u64,
    level: u32,
) -> bool {
    if level == 0 {
        return false;
    }
    let mut word = edit.load(Spot::of(near, index));
    while word.is_small_of(level / 9) {
        word = Word(edit.objects.node(word).slot_of(index).load(Relaxed));
    }
    word.is_node() && word.is_large()
}

/// Whether there is something at an index, which lies in a node or below the root. If so, goes past
/// it and what follows in its node, slot by slot, up to an end or to where there is nothing.
fn has_run<'e, M: Machine>(
    edit: Edit<'e, M>,
    mut last: Option<Node<'e>>,
    next: &mut u64,
    (step, end): (u64, u64),
) -> bool {
    let objects = edit.objects;
    let mut word = edit.load(Spot::of(last, *next));
    while word.is_node() {
        let node = objects.node(word);
        (last, word) = (Some(node), Word(node.slot_of(*next).load(Relaxed)));
    }
    let covers = |node: Node<'_>| (objects.header(node).base() ^ *next) >> node.word.top() == 0;
    if !word.is_leaf_of(*next) || !last.map_or(*next >> LOW_BITS == 0, covers) {
        return false;
    }
    *next += step;
    if let Some(node) = last.filter(|node| 1 << node.word.level() == step) {
        let is_here = |index: u64| Word(node.slot_of(index).load(Relaxed)).is_leaf_of(index);
        while *next < end && node.word.digit(*next) != 0 && is_here(*next) {
            *next += step;
        }
    }
    true
}
