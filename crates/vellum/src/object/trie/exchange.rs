//! Exchanging the small nodes of a group for one large node, and back; a block for its pages, and
//! back.
//!
//! The new nodes are filled first and published by one store. The old ones keep their words, so a
//! reader inside them finds what was there.

use super::edit::{Edit, Spot, prefix};
use super::insert::InsertError;
use super::node::{Counts, Node};
use super::remove::FEW;
use super::supply::Supply;
use super::word::{LEAF_LEVEL, TrieEntry, Word};
use crate::addr::Order;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, Queue, TableLock};

/// Nodes that so many words need at most: where they part, and one for each leaf.
const NODES: usize = 2 * FEW;

/// Words of a node with their indices.
#[derive(Clone, Copy)]
struct Listed {
    index: u64,
    word: Word,
}

/// Memory for small nodes, taken before it is needed.
struct Taken {
    addresses: [u64; NODES],
    count: usize,
}

impl<'e, M: Machine> Edit<'e, M> {
    /// Exchanges the small nodes of a group, of which `top` is the uppermost, for a large node in
    /// zeroed memory.
    pub fn to_large(self, top: Node<'e>, address: u64) -> Node<'e> {
        let (group, at) = (top.word.level() / 9, self.spot_of(top));
        let base = prefix(self.objects.header(top).base(), 9 * group + 9);
        let large = self.make(Word::node(address, true, 9 * group, base), base, at.word());
        let counts = self.pour(top, large, Counts::default());
        self.objects.header(large).set_counts(counts);
        self.store(at, self.marked(large));
        // Below level 0 there are no nodes.
        if group != 0 && large.word.level() <= LEAF_LEVEL {
            (0..large.slots()).for_each(|slot| self.splice_holder(large.load(slot)));
        }
        large
    }

    /// Puts the words of a group's small nodes into a large one, and retires the nodes. Says what
    /// it counts then.
    fn pour(self, from: Node<'e>, large: Node<'e>, mut counts: Counts) -> Counts {
        let group = large.word.level() / 9;
        // They were filled over a long time, and are read in an order that no processor foresees.
        for slot in from.slots_from(0) {
            let word = Word(slot.load(Relaxed));
            if word.is_small_of(group) {
                self.objects.bring_near(word);
            }
        }
        for slot in 0..from.slots() {
            let word = from.load(slot);
            if word.is_small_of(group) {
                counts = self.pour(self.objects.node(word), large, counts);
            } else if !word.is_empty() {
                self.place(large, self.index_of(from, slot, word), word);
                counts = counts.exchanged(Word::EMPTY, word);
            }
        }
        self.retire(from);
        counts
    }

    /// Exchanges a large node with few words for small ones. Without memory for them it stays.
    pub fn to_small<H: Above<Queue> + Above<TableLock>>(
        self,
        large: Node<'e>,
        supply: &mut Supply<'_, 'e, M, H>,
    ) {
        let mut list = [Listed { index: 0, word: Word::EMPTY }; FEW];
        let mut used = 0;
        for slot in 0..large.slots() {
            let word = large.load(slot);
            if !word.is_empty() {
                list[used] = Listed { index: self.index_of(large, slot, word), word };
                used += 1;
            }
        }
        let (list, at) = (&list[..used], self.spot_of(large));
        let mut taken = Taken { addresses: [0; NODES], count: 0 };
        // Above a single leaf, which had no room there, a node is needed.
        let level = at.node.map_or(u32::MAX, |above| above.word.level());
        for _ in 0..nodes_for(list, level) {
            let Ok(address) = supply.small() else {
                let taken = &taken.addresses[..taken.count];
                return taken.iter().for_each(|address| supply.put_back(*address));
            };
            taken.addresses[taken.count] = address;
            taken.count += 1;
        }
        let built = self.build(list, level, &mut taken);
        self.objects.header(self.objects.node(built)).set_parent(at.word());
        self.retire(large);
        self.store(at, built);
    }

    /// The word that stands for a list in a slot of that level. Nothing of it is published; its
    /// parent is not set.
    fn build(self, list: &[Listed], level: u32, taken: &mut Taken) -> Word {
        let [first, .., last] = list else {
            let Some(Listed { index, word }) = list.first().copied() else { return Word::EMPTY };
            if !word.is_leaf() || level <= LEAF_LEVEL {
                return word;
            }
            let base = prefix(index, LEAF_LEVEL + 3);
            let holder = self.make(taken.node(LEAF_LEVEL, base), base, None);
            self.put(holder, index, word);
            return self.settled(holder);
        };
        let bit = 63 - (first.index ^ last.index).leading_zeros();
        let level = bit / 3 * 3;
        let base = prefix(first.index, level + 3);
        let node = self.make(taken.node(level, base), base, None);
        for part in list.chunk_by(|a, b| a.index >> level == b.index >> level) {
            let word = self.build(part, level, taken);
            self.put(node, part[0].index, word);
        }
        self.settled(node)
    }

    /// The word of a new small node, whose group is counted now.
    fn settled(self, node: Node<'e>) -> Word {
        let group = node.word.level() / 9;
        let below = |slot| self.family(node.load(slot), group);
        let family = 1 + (0..node.slots()).map(below).sum::<u64>();
        let header = self.objects.header(node);
        header.set_counts(header.counts().with_family(family));
        self.marked(node)
    }
}

/// Exchanges the leaf of a block of 2 MiB for a large node, in zeroed memory, with a leaf for each
/// of its first pages.
pub(in super::super) fn to_pages<M: Machine>(
    edit: Edit<'_, M>,
    at: Spot<'_>,
    (index, pages): (u64, u64),
    address: u64,
) {
    let block = edit.load(at);
    let node = edit.make(Word::node(address, true, 0, index), index, at.word());
    for page in 0..pages {
        let entry = TrieEntry::new(block.entry().pfn().add(page), Order::BASE);
        let word = entry.map_or(Word::EMPTY, |entry| entry.at(index + page));
        edit.put(node, index + page, word.with_marks(block.marks()));
    }
    edit.store(at, edit.marked(node));
    // A node that only held a single leaf's bits is not needed above another node.
    if let Some(above) = at.node
        && edit.counts(above).used() == 1
    {
        edit.splice(above);
    }
}

/// Exchanges all entries of 512 pages, which one word at a spot stands for, for the leaf of a
/// block. `first` is the index of the first one. Tells of each, and says how many they were. Where
/// the leaf has no room a node of level 21 holds it.
pub(in super::super) fn to_block<'e, M: Machine, H: Above<Queue> + Above<TableLock>>(
    edit: Edit<'e, M>,
    at: Spot<'e>,
    (first, block): (u64, TrieEntry),
    supply: &mut Supply<'_, 'e, M, H>,
    each: &mut impl FnMut(u64, Word),
) -> Result<u64, InsertError> {
    let index = prefix(first, Order::HUGE.get() as u32);
    let (old, leaf) = (edit.load(at), block.at(index));
    let new = if at.fits(index, leaf.order()) {
        leaf
    } else {
        let address = supply.small().map_err(|_| InsertError::NoNodes)?;
        let holder = edit.hold(address, index, leaf, at.word());
        edit.family_changed(at, LEAF_LEVEL / 9, 1);
        edit.marked(holder)
    };
    // Before the store, as in `detach`.
    let count = if old.is_node() {
        edit.drain(edit.objects.node(old), each)
    } else {
        each(first, old);
        1
    };
    edit.store(at, new);
    Ok(count)
}

impl Taken {
    fn node(&mut self, level: u32, base: u64) -> Word {
        self.count -= 1;
        Word::node(self.addresses[self.count], false, level, base)
    }
}

/// How many nodes a list needs in a slot of that level.
fn nodes_for(list: &[Listed], level: u32) -> usize {
    let [first, .., last] = list else {
        return list.iter().filter(|one| one.word.is_leaf() && level > LEAF_LEVEL).count();
    };
    let level = (63 - (first.index ^ last.index).leading_zeros()) / 3 * 3;
    let parts = list.chunk_by(|a, b| a.index >> level == b.index >> level);
    1 + parts.map(|part| nodes_for(part, level)).sum::<usize>()
}
