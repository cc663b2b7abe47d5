//! A node's slots and its header.
//!
//! A small node is two lines of a slab: eight slots, then the header. A large node is a frame of
//! 512 slots, and the header is in the frame's record, as a table node's is. The header's words are
//! the same in both.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::word::{MARKS, PageMark, Word};
use crate::addr::{PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::object::layer::ObjectLayer;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{prefetch, touch};

/// Slots of a small node.
pub(in super::super) const SMALL_SLOTS: usize = 8;

/// Set in the word of the first index when the node has left its tree.
const DEAD: u64 = 1 << 63;

/// Fields of the word of counts: slots in use, slots with each mark, small nodes of the group.
const FIELD: u32 = 10;
const FIELD_MASK: u64 = (1 << FIELD) - 1;
/// The fifth field: of a small node, the nodes of its group at and below it, 73 at most.
const FAMILY_SHIFT: u32 = 4 * FIELD;

/// A node: a reference to it and where its slots are.
#[derive(Clone, Copy)]
pub(in super::super) struct Node<'a> {
    /// Without marks and slot.
    pub word: Word,
    slots: NonNull<AtomicU64>,
    life: PhantomData<&'a AtomicU64>,
}

impl<'a> Node<'a> {
    /// The slot of an index.
    #[inline]
    pub fn slot_of(self, index: u64) -> &'a AtomicU64 {
        // SAFETY: as in `slot`; a digit is below the number of slots.
        unsafe { self.slots.add(self.word.digit(index)).as_ref() }
    }

    /// A slot by its number. One past the end is the first again.
    #[inline]
    pub fn slot(self, number: usize) -> &'a AtomicU64 {
        let number = number & (self.slots() - 1);
        // SAFETY: below the number of slots of its kind of node, all of which are atomics in memory
        // that stays a node as long as the reference may be used: see `ObjectLayer::node`.
        unsafe { self.slots.add(number).as_ref() }
    }

    /// How many slots it has.
    #[inline]
    pub fn slots(self) -> usize {
        self.word.last() + 1
    }

    /// The slots from that of an index to the last one.
    #[inline]
    pub fn slots_from(self, index: u64) -> &'a [AtomicU64] {
        let (first, count) = (self.word.digit(index), self.slots());
        // SAFETY: as in `slot`; a digit is below the number of slots.
        unsafe { core::slice::from_raw_parts(self.slots.add(first).as_ptr(), count - first) }
    }

    /// So many slots from one on, if it has them.
    #[inline]
    pub fn run(self, first: usize, count: usize) -> Option<&'a [AtomicU64]> {
        if first + count > self.slots() {
            return None;
        }
        // SAFETY: as in `slot`; the last one is below the number of slots.
        Some(unsafe { core::slice::from_raw_parts(self.slots.add(first).as_ptr(), count) })
    }

    #[inline]
    pub fn load(self, number: usize) -> Word {
        Word(self.slot(number).load(Ordering::Relaxed))
    }
}

/// What a node knows beside its slots. Written under the guard of its trie alone.
#[derive(Clone, Copy)]
pub(in super::super) struct Header<'a>(&'a [AtomicU64; 4]);

impl Header<'_> {
    /// The node above and the slot there; `None` for a root.
    #[inline]
    pub fn parent(self) -> Option<Word> {
        let word = Word(self.0[0].load(Ordering::Relaxed));
        (!word.is_empty()).then_some(word)
    }
    #[inline]
    pub fn set_parent(self, parent: Option<Word>) {
        self.0[0].store(parent.map_or(0, |parent| parent.0), Ordering::Relaxed);
    }
    /// The first index that the node covers: what all below have in common. It never changes.
    #[inline]
    pub fn base(self) -> u64 {
        self.0[1].load(Ordering::Relaxed) & !DEAD
    }
    /// Whether the node has left its tree. Its words stay as they were then. It is marked before
    /// the store that takes it out, so who knows of an entry that came later finds the mark.
    #[inline]
    pub fn is_dead(self) -> bool {
        self.0[1].load(Ordering::Relaxed) & DEAD != 0
    }
    /// Whether the node covers an index, by the lowest bit above its slots' (`Word::top`), and is
    /// not dead: no index has the bit that says so.
    #[inline]
    pub fn covers(self, index: u64, top: u32) -> bool {
        (self.0[1].load(Ordering::Relaxed) ^ index) >> top == 0
    }
    pub fn set_dead(self) {
        let base = self.0[1].load(Ordering::Relaxed);
        self.0[1].store(base | DEAD, Ordering::Relaxed);
    }
    #[inline]
    pub fn counts(self) -> Counts {
        Counts(self.0[2].load(Ordering::Relaxed))
    }
    #[inline]
    pub fn set_counts(self, counts: Counts) {
        self.0[2].store(counts.0, Ordering::Relaxed);
    }
    /// Of a dead node: the next one of the list it is in.
    pub fn chain(self) -> Word {
        Word(self.0[3].load(Ordering::Relaxed))
    }
    pub fn set_chain(self, next: Word) {
        self.0[3].store(next.0, Ordering::Relaxed);
    }
    /// Initializes the header of a node that nobody can find yet.
    pub fn init(self, base: u64, parent: Option<Word>) {
        self.set_parent(parent);
        self.0[1].store(base, Ordering::Relaxed);
        self.set_counts(Counts::default());
        self.set_chain(Word::EMPTY);
    }
}

/// How many slots are in use, and have each mark.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in super::super) struct Counts(u64);

impl Counts {
    /// What one word counts.
    #[inline]
    pub fn of(word: Word) -> Counts {
        if word.is_empty() {
            return Counts(0);
        }
        // Most words have no mark.
        let mut counts = 1;
        if word.marks() != 0 {
            let marks = word.marks() >> MARKS.trailing_zeros();
            (0..3).for_each(|mark| counts |= (marks >> mark & 1) << (FIELD * (mark + 1)));
        }
        Counts(counts)
    }
    #[inline]
    pub fn used(self) -> usize {
        (self.0 & FIELD_MASK) as usize
    }
    /// The marks that some slot has.
    #[inline]
    pub fn marks(self) -> u64 {
        if self.0 >> FIELD & ((1 << (3 * FIELD)) - 1) == 0 {
            return 0;
        }
        PageMark::ALL.map(|mark| u64::from(self.has(mark)) * mark.bit()).iter().sum()
    }
    /// Whether some slot has a mark.
    #[inline]
    pub fn has(self, mark: PageMark) -> bool {
        self.0 >> (FIELD * (mark as u32 + 1)) & FIELD_MASK != 0
    }
    /// With a mark that so many slots more have, or less.
    #[inline]
    pub fn marked(self, mark: PageMark, slots: i64) -> Counts {
        Counts(self.0.wrapping_add_signed(slots << (FIELD * (mark as u32 + 1))))
    }
    /// With the word of a slot exchanged for another.
    #[inline]
    pub fn exchanged(self, old: Word, new: Word) -> Counts {
        Counts(self.0 + Counts::of(new).0 - Counts::of(old).0)
    }
    /// With so many entries more that have no marks.
    #[inline]
    pub fn plus(self, entries: u64) -> Counts {
        Counts(self.0 + entries)
    }
    /// With an entry less that had no marks.
    #[inline]
    pub fn less_one(self) -> Counts {
        Counts(self.0 - 1)
    }
    /// Of a small node: how many of its group are at and below it.
    #[inline]
    pub fn family(self) -> u64 {
        self.0 >> FAMILY_SHIFT
    }
    #[inline]
    pub fn with_family(self, nodes: u64) -> Counts {
        Counts(self.0 & ((1 << FAMILY_SHIFT) - 1) | nodes << FAMILY_SHIFT)
    }
}

impl<M: Machine> ObjectLayer<M> {
    /// The node that a word names. The caller found the word in a tree whose guard it holds, or
    /// inside an epoch, or has just made the node: so the memory is a node as long as it is used.
    #[inline]
    pub(in super::super) fn node(&self, word: Word) -> Node<'_> {
        let word = word.reference();
        let address = word.address();
        let frame = self.machine.direct(Pfn(address / PAGE_SIZE as u64));
        // SAFETY: the offset is inside the frame.
        let slots = unsafe { frame.add(address as usize % PAGE_SIZE) }.cast();
        Node { word, slots, life: PhantomData }
    }

    /// The same, counted as a visit of whoever descends or climbs.
    #[inline]
    pub(in super::super) fn visit(&self, word: Word, visits: &mut u64, digit: usize) -> Node<'_> {
        let node = self.node(word);
        *visits += 1;
        touch(&self.machine, node.slot(digit), false);
        node
    }

    /// Brings both lines of a small node near.
    #[inline]
    pub(in super::super) fn bring_near(&self, word: Word) {
        let node = self.node(word);
        prefetch(node.slot(0));
        prefetch(self.header(node).0);
    }

    /// Brings a node's header near, for who changes the node soon.
    #[inline(always)]
    pub(in super::super) fn bring_header_near(&self, node: Node<'_>) {
        prefetch(self.header(node).0);
    }

    /// A node's header.
    #[inline]
    pub(in super::super) fn header<'a>(&'a self, node: Node<'a>) -> Header<'a> {
        if node.word.is_large() {
            let pfn = Pfn(node.word.address() / PAGE_SIZE as u64);
            return Header(self.frames.record(pfn).first_words());
        }
        // SAFETY: a small node's second line, which is atomics as the first one is.
        Header(unsafe { node.slots.add(SMALL_SLOTS).cast().as_ref() })
    }
}

/// The node that a word names and the slot of an index there, counted as a visit of whoever
/// descends.
#[inline(always)]
pub(in super::super) fn step<'a, M: Machine>(
    objects: &'a ObjectLayer<M>,
    word: Word,
    index: u64,
    visits: &mut u64,
) -> (Node<'a>, &'a AtomicU64) {
    let node = objects.node(word);
    let slot = node.slot_of(index);
    *visits += 1;
    touch(&objects.machine, slot, false);
    (node, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Order;
    use crate::object::trie::word::{PageMark, TrieEntry};

    #[test]
    fn counts_of_a_full_node_stay_in_their_fields() {
        let entry = TrieEntry::new(Pfn(1), Order::BASE).unwrap();
        let marked = PageMark::ALL.into_iter().fold(entry, TrieEntry::with_mark).at(0);
        let mut counts = Counts::default().with_family(73);
        for _ in 0..512 {
            counts = counts.exchanged(Word::EMPTY, marked);
        }
        assert_eq!((counts.used(), counts.marks(), counts.family()), (512, MARKS, 73));
        counts = counts.exchanged(marked, entry.at(0));
        assert_eq!((counts.used(), counts.marks(), counts.family()), (512, MARKS, 73));
        for _ in 0..511 {
            counts = counts.exchanged(marked, Word::EMPTY);
        }
        assert_eq!((counts.used(), counts.marks(), counts.family()), (1, 0, 73));
    }
}
