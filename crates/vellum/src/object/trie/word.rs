//! What the 64 bits of a slot say: nothing, an entry, or a node.
//!
//! ```text
//!          63..28           27..21  20..12          11    10..5   4..2     1..0
//! leaf     frame number     low 21 bits of the index, 27..7  6..5 order, marks  1
//! node     address / 64, 63..22     slot (parents)  high  level   marks    2 small, 3 large
//! ```
//! The marks stand at the same bits in both: those of an entry, or those that some entry below has.
//! A leaf has the low bits of its index, so a descent need not look at the page it names. Rejected:
//! the whole index in the page's record, which costs a cache miss a lookup.

use crate::addr::{Order, PFN_END, Pfn};

/// Indices of base pages are below this.
pub const INDEX_END: u64 = 1 << 52;
/// Bits of its index that a leaf's word has.
pub(in super::super) const LOW_BITS: u32 = 21;
/// The highest level whose slots may hold a leaf: the bits below it are in the leaf.
pub(in super::super) const LEAF_LEVEL: u32 = LOW_BITS;

const TAG: u64 = 3;
const LEAF: u64 = 1;
const SMALL: u64 = 2;
const LARGE: u64 = 3;
const MARK_SHIFT: u32 = 2;
/// All marks of a word.
pub(in super::super) const MARKS: u64 = 7 << MARK_SHIFT;
const ORDER_SHIFT: u32 = 5;
const LOW_SHIFT: u32 = 7;
const LOW: u64 = (1 << LOW_BITS) - 1;
const PFN_SHIFT: u32 = 28;
const LEVEL_SHIFT: u32 = 5;
const LEVEL: u64 = 63;
/// Of a node: some of the indices that it covers are 2^21 or above.
const HIGH: u64 = 1 << 11;
const SLOT_SHIFT: u32 = 12;
const SLOT: u64 = 511;
/// Unit of a node's address, as a shift.
const UNIT_SHIFT: u32 = 6;
const UNIT_BITS: u32 = 12 - UNIT_SHIFT;
const ADDRESS_SHIFT: u32 = PFN_SHIFT - UNIT_BITS;

const _: () = {
    assert!(PFN_END == 1 << (64 - PFN_SHIFT) && LOW_SHIFT + LOW_BITS == PFN_SHIFT);
    assert!(Order::GIANT.get() == 18 && LOW_BITS > 18 && MARKS < 1 << ORDER_SHIFT);
    assert!(SLOT << SLOT_SHIFT < 1 << ADDRESS_SHIFT && HIGH < 1 << SLOT_SHIFT);
    assert!(LEVEL << LEVEL_SHIFT < HIGH);
};

/// What is remembered of a page beside its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageMark {
    /// Written since it was last clean.
    Dirty,
    /// Being written to where it came from.
    Writeback,
    /// Used since somebody last looked.
    Accessed,
}

impl PageMark {
    /// Every mark.
    pub const ALL: [PageMark; 3] = [PageMark::Dirty, PageMark::Writeback, PageMark::Accessed];

    #[inline]
    pub(in super::super) fn bit(self) -> u64 {
        1 << (MARK_SHIFT + self as u32)
    }
}

/// What is at an index: a frame, or a block of 2 MiB or 1 GiB, and its marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TrieEntry(u64);

impl TrieEntry {
    /// A block without marks. `None` if it has no place in an index: of an order that is no leaf of
    /// a page table, or not aligned to its order.
    #[inline]
    pub const fn new(first: Pfn, order: Order) -> Option<TrieEntry> {
        let size = order.get() as u64 / 9;
        if !matches!(order.get(), 0 | 9 | 18)
            || first.0 >= PFN_END
            || first.0 & (order.frames() - 1) != 0
        {
            return None;
        }
        Some(TrieEntry(LEAF | size << ORDER_SHIFT | first.0 << PFN_SHIFT))
    }
    /// A base page of a frame of the machine's, without marks.
    #[inline]
    pub(in super::super) fn page(frame: Pfn) -> TrieEntry {
        debug_assert!(frame.0 < PFN_END, "a frame of no machine");
        TrieEntry(LEAF | frame.0 << PFN_SHIFT)
    }
    /// The first frame.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn(self.0 >> PFN_SHIFT)
    }
    /// The order of the block.
    #[inline]
    pub const fn order(self) -> Order {
        match self.0 >> ORDER_SHIFT & 3 {
            0 => Order::BASE,
            1 => Order::HUGE,
            _ => Order::GIANT,
        }
    }
    /// Whether it has a mark.
    #[inline]
    pub fn is_marked(self, mark: PageMark) -> bool {
        self.0 & mark.bit() != 0
    }
    /// The same with a mark.
    #[inline]
    #[must_use]
    pub fn with_mark(self, mark: PageMark) -> TrieEntry {
        TrieEntry(self.0 | mark.bit())
    }
    /// The word of this entry at an index.
    #[inline]
    pub(in super::super) fn at(self, index: u64) -> Word {
        Word(self.0 | (index & LOW) << LOW_SHIFT)
    }
}

impl core::fmt::Debug for TrieEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let marks = PageMark::ALL.map(|mark| self.is_marked(mark) as u8);
        write!(f, "{:?} {:?} marks {marks:?}", self.pfn(), self.order())
    }
}

/// A slot's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Word(pub u64);

impl Word {
    pub const EMPTY: Word = Word(0);
    /// From a page's word to that of the next index, if the page there is the next in memory and
    /// has the same marks.
    pub const NEXT_PAGE: u64 = 1 << PFN_SHIFT | 1 << LOW_SHIFT;

    /// A reference to a node: its physical address, its level, its first index.
    pub fn node(address: u64, is_large: bool, level: u32, base: u64) -> Word {
        let width = if is_large { 9 } else { 3 };
        let high = base >> LOW_BITS != 0 || level + width > LOW_BITS;
        let tag = if is_large { LARGE } else { SMALL };
        let high = if high { HIGH } else { 0 };
        Word(address >> UNIT_SHIFT << ADDRESS_SHIFT | high | (level as u64) << LEVEL_SHIFT | tag)
    }
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    #[inline]
    pub fn is_node(self) -> bool {
        self.0 & 2 != 0
    }
    #[inline]
    pub fn is_leaf(self) -> bool {
        self.0 & TAG == LEAF
    }
    /// Of a slot of base pages: whether there is one that is not dirty.
    #[inline]
    pub fn is_clean_entry(self) -> bool {
        self.0 & (LEAF | PageMark::Dirty.bit()) == LEAF
    }
    /// Of a node: whether it is a large one.
    #[inline]
    pub fn is_large(self) -> bool {
        self.0 & (LARGE ^ SMALL) != 0
    }
    #[inline]
    pub fn marks(self) -> u64 {
        self.0 & MARKS
    }
    #[inline]
    pub fn with_marks(self, marks: u64) -> Word {
        Word(self.0 & !MARKS | marks)
    }

    /// Of a leaf: the entry.
    #[inline]
    pub fn entry(self) -> TrieEntry {
        TrieEntry(self.0 & !(LOW << LOW_SHIFT))
    }
    /// Of a leaf: its order, as a shift of base pages.
    #[inline]
    pub fn order(self) -> u32 {
        (self.0 >> ORDER_SHIFT & 3) as u32 * 9
    }
    /// Of a leaf: the low bits of its index.
    #[inline]
    pub fn low(self) -> u64 {
        self.0 >> LOW_SHIFT & LOW
    }
    /// Whether this is a leaf that has the low bits of an index, or covers it.
    #[inline]
    pub fn is_leaf_of(self, index: u64) -> bool {
        // Most are base pages.
        self.is_page_of(index) || self.is_block_of(index)
    }
    /// Whether this is the leaf of a base page that has the low bits of an index.
    #[inline]
    pub fn is_page_of(self, index: u64) -> bool {
        (self.0 ^ (index << LOW_SHIFT | LEAF)) & (LOW << LOW_SHIFT | 3 << ORDER_SHIFT | TAG) == 0
    }
    /// Whether this is the leaf of a base page that has no marks.
    #[inline]
    pub fn is_unmarked_page(self) -> bool {
        self.0 & (MARKS | 3 << ORDER_SHIFT | TAG) == LEAF
    }
    fn is_block_of(self, index: u64) -> bool {
        self.is_leaf() && ((self.0 >> LOW_SHIFT ^ index) & LOW) >> self.order() == 0
    }

    /// Of a node: its physical address.
    #[inline]
    pub fn address(self) -> u64 {
        self.0 >> ADDRESS_SHIFT << UNIT_SHIFT
    }
    /// Of a node: the lowest bit of the index that its slots tell apart.
    #[inline]
    pub fn level(self) -> u32 {
        (self.0 >> LEVEL_SHIFT & LEVEL) as u32
    }
    /// Of a node: the number of bits that its slots tell apart.
    #[inline]
    pub fn width(self) -> u32 {
        3 + 6 * (self.0 & 1) as u32
    }
    /// Of a node: the lowest bit above those.
    #[inline]
    pub fn top(self) -> u32 {
        self.level() + self.width()
    }
    /// Of a node: the slot of an index.
    #[inline]
    pub fn digit(self, index: u64) -> usize {
        (index >> self.level()) as usize & self.last()
    }
    /// Of a node: its last slot.
    #[inline]
    pub fn last(self) -> usize {
        7 | (0usize.wrapping_sub(self.0 as usize & 1) & 0x1f8)
    }
    /// Of a node: some indices that it covers are 2^21 or above.
    #[inline]
    pub fn is_high(self) -> bool {
        self.0 & HIGH != 0
    }
    /// Of a node: whether a bit lies in the nine bits that one large node would tell apart.
    #[inline]
    pub fn is_small_of(self, group: u32) -> bool {
        self.0 & TAG == SMALL && self.level() / 9 == group
    }

    /// What a child's header says: this node, and the child's slot in it.
    #[inline]
    pub fn with_slot(self, slot: usize) -> Word {
        Word(self.0 & !(MARKS | SLOT << SLOT_SHIFT) | (slot as u64) << SLOT_SHIFT)
    }
    #[inline]
    pub fn slot(self) -> usize {
        (self.0 >> SLOT_SHIFT & SLOT) as usize
    }
    /// The reference alone, without marks and slot.
    #[inline]
    pub fn reference(self) -> Word {
        Word(self.0 & !(MARKS | SLOT << SLOT_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_leaf_do_not_disturb_each_other() {
        for (pfn, order) in [(PFN_END - 1, 0), (PFN_END - 512, 9), (PFN_END - (1 << 18), 18)] {
            let order = Order::new(order).unwrap();
            let entry = TrieEntry::new(Pfn(pfn), order).unwrap();
            let index = (INDEX_END - 1) & !(order.frames() - 1);
            let word = PageMark::ALL.into_iter().fold(entry, TrieEntry::with_mark).at(index);
            assert!(word.is_leaf() && !word.is_node() && word.marks() == MARKS);
            assert_eq!((word.entry().pfn(), word.entry().order()), (Pfn(pfn), order));
            assert_eq!(word.low(), index & LOW);
            assert!(word.is_leaf_of(index) && word.is_leaf_of(index + order.frames() - 1));
            assert!(!word.is_leaf_of(index ^ order.frames()));
        }
        assert_eq!(TrieEntry::new(Pfn(1), Order::HUGE), None);
        assert_eq!(TrieEntry::new(Pfn(8), Order::new(3).unwrap()), None);
    }

    #[test]
    fn the_fields_of_a_node_do_not_disturb_each_other() {
        let address = ((PFN_END - 1) << 12) | (4096 - 64);
        for (address, large) in [(address, false), (address & !4095, true)] {
            let word = Word::node(address, large, 45, 0).with_marks(MARKS);
            assert!(word.is_node() && !word.is_leaf() && word.is_high());
            assert_eq!((word.address(), word.level(), word.is_large()), (address, 45, large));
            let parent = word.with_slot(511);
            assert_eq!((parent.slot(), parent.marks()), (511, 0));
            assert_eq!(parent.reference(), Word::node(address, large, 45, 0));
            assert_eq!(word.digit(INDEX_END - 1), if large { 127 } else { 7 });
        }
        assert!(!Word::node(0, true, 9, 0).is_high() && Word::node(0, false, 21, 0).is_high());
        assert!(Word::node(0, false, 0, 1 << 21).is_high());
    }
}
