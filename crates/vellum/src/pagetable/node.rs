//! A table node's own memory: what the record of a frame means while the frame is a table.
//!
//! The frame itself belongs to hardware: 512 entries and no room. What the library knows of a node
//! stands in the frame's record; [`Record`] has the words and their locks.
//!
//! `count` and whether a slot is `Empty` change only under the mmap lock (faults turn `Reserved`
//! into something else that is not empty), so verbs that hold it may read them without the node's
//! lock. `resident` changes under the node's lock alone.

use crate::addr::{ENTRIES, Level, PFN_END, Pfn};
use crate::error::NoMemory;
use crate::frame::Record;
use crate::machine::{Machine, Use, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Cursor;
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Above, EpochGuard, Guard, Lock, SeqCount, Token};

/// The root's level is 4 or 5.
const LEVEL: u64 = 7;
const DEAD: u64 = 1 << 3;
const LISTED_SHIFT: u32 = 4;
const COUNT_SHIFT: u32 = 7;
const RESIDENT_SHIFT: u32 = 17;
const RUN_SHIFT: u32 = 27;
/// Two fields of ten bits: slots that are not empty, and resident pages. At most all slots.
const TEN: u64 = 0x3ff;
/// The greatest run, where the field ends. A level-4 node covers 2^36 pages; a root of 5 levels
/// covers more and says this, and nobody asks a root: a search goes down from there whatever it
/// says.
const RUN_MAX: u64 = (1 << 37) - 1;

/// The value of `NodeState::listed` that says the intervals are in a list: the greatest.
pub(crate) const IN_LIST: u64 = 4;

const _: () = {
    assert!(IN_LIST <= 7 && LISTED_SHIFT + 3 == COUNT_SHIFT);
    assert!(
        ENTRIES as u64 <= TEN
            && COUNT_SHIFT + 10 == RESIDENT_SHIFT
            && RESIDENT_SHIFT + 10 == RUN_SHIFT
    );
    assert!(RUN_MAX << RUN_SHIFT >> RUN_SHIFT == RUN_MAX && full_run(Level(4)) < RUN_MAX);
};

/// Word 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeState(u64);

impl NodeState {
    /// A node of that level with no entry at all.
    fn empty(level: Level) -> NodeState {
        NodeState(level.0 as u64).with_run(full_run(level))
    }
    #[inline]
    pub fn level(self) -> Level {
        Level((self.0 & LEVEL) as u8)
    }
    #[inline]
    pub fn dead(self) -> bool {
        self.0 & DEAD != 0
    }
    /// Inline intervals, or [`IN_LIST`].
    #[inline]
    pub fn listed(self) -> u64 {
        self.0 >> LISTED_SHIFT & 7
    }
    /// Slots that are not `Empty`.
    #[inline]
    pub fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT & TEN
    }
    /// Slots that hold a resident page: leaves of data, inaccessible ones, both at this node's own
    /// leaf size.
    #[inline]
    pub fn resident(self) -> u64 {
        self.0 >> RESIDENT_SHIFT & TEN
    }
    /// No run of unmapped pages inside what the node covers is longer than this, in 4 KiB pages.
    /// Placement lowers it to the truth when it looks, unmapping raises it; it is never too low.
    #[inline]
    pub fn run(self) -> u64 {
        self.0 >> RUN_SHIFT
    }
    pub fn with_dead(self) -> NodeState {
        NodeState(self.0 | DEAD)
    }
    pub fn without_dead(self) -> NodeState {
        NodeState(self.0 & !DEAD)
    }
    pub fn with_listed(self, listed: u64) -> NodeState {
        NodeState(self.0 & !(7 << LISTED_SHIFT) | listed << LISTED_SHIFT)
    }
    #[inline]
    pub fn with_count(self, count: u64) -> NodeState {
        NodeState(self.0 & !(TEN << COUNT_SHIFT) | count << COUNT_SHIFT)
    }
    #[inline]
    pub fn with_resident(self, resident: u64) -> NodeState {
        NodeState(self.0 & !(TEN << RESIDENT_SHIFT) | resident << RESIDENT_SHIFT)
    }
    /// With `gone` entries less, `pages` of them resident; the node has as many.
    #[inline]
    pub fn without(self, gone: u64, pages: u64) -> NodeState {
        debug_assert!(gone <= self.count() && pages <= self.resident(), "more went than there was");
        NodeState(self.0 - (gone << COUNT_SHIFT) - (pages << RESIDENT_SHIFT))
    }
    #[inline]
    pub fn with_run(self, run: u64) -> NodeState {
        NodeState(self.0 & !(RUN_MAX << RUN_SHIFT) | run.min(RUN_MAX) << RUN_SHIFT)
    }
}

/// Pages a whole node of that level covers.
#[inline]
pub(crate) const fn full_run(level: Level) -> u64 {
    let pages = 1u64 << (9 * level.0 as u32);
    if pages < RUN_MAX { pages } else { RUN_MAX }
}

/// The state of a node in which `freed` pages became a hole: the longest run can have grown by them
/// and what lay free on both sides.
#[inline]
pub(crate) fn raised(state: NodeState, freed: u64) -> NodeState {
    state.with_run((state.run() * 2 + freed).min(full_run(state.level())))
}

/// A table node: its frame and its record.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub pfn: Pfn,
    record: &'a Record,
}

/// Flag of the head: the node was made to map zeros.
const OF_ZEROS: u16 = 1;

/// Word 2: the parent's frame, the slot there, a bit for a root, which has none, and how many
/// entries are in transit.
const PARENT_PFN: u64 = PFN_END - 1;
const PARENT_SLOT_SHIFT: u32 = 36;
/// A bit of its own: every frame number that fits is a frame that a machine may have.
const ROOT: u64 = 1 << 45;
/// The bits between, always clear.
const SPARE: u64 = 3 << 46;
const TRANSIT: u64 = 1 << 48;
/// The greatest number of entries in transit: each of the slots once.
const MOST_TRANSIT: u64 = ENTRIES as u64;

const _: () = {
    assert!(PFN_END == 1 << PARENT_SLOT_SHIFT && (ENTRIES as u64) << PARENT_SLOT_SHIFT == ROOT);
    assert!(ROOT < SPARE && SPARE < TRANSIT && MOST_TRANSIT <= u64::MAX / TRANSIT);
};

impl<'a> Node<'a> {
    #[inline]
    pub fn state(self) -> NodeState {
        NodeState(self.record.word(1).load(Ordering::Acquire))
    }
    /// Under the node's lock, or before the node is linked.
    #[inline]
    pub fn set_state(self, state: NodeState) {
        self.record.word(1).store(state.0, Ordering::Release);
    }
    /// Adds to `resident`, under the node's lock.
    #[inline]
    pub fn add_resident(self, n: u64) {
        let word = self.record.word(1);
        let state = word.load(Ordering::Relaxed);
        word.store(state.wrapping_add(n << RESIDENT_SHIFT), Ordering::Relaxed);
    }
    /// Takes from `resident`, under the node's lock.
    #[inline]
    pub fn sub_resident(self, n: u64) {
        let word = self.record.word(1);
        let state = word.load(Ordering::Relaxed);
        word.store(state.wrapping_sub(n << RESIDENT_SHIFT), Ordering::Relaxed);
    }
    /// The node above and the slot there; `None` for a root.
    #[inline]
    pub fn parent(self) -> Option<(Pfn, usize)> {
        let word = self.record.word(2).load(Ordering::Relaxed);
        (word & ROOT == 0)
            .then_some((Pfn(word & PARENT_PFN), (word >> PARENT_SLOT_SHIFT & 0x1ff) as usize))
    }
    /// Says where a node will be that is nowhere: new, or dead. Who comes to a dead one after a
    /// wait for the epochs changes nothing of it.
    pub fn set_parent(self, parent: Option<(Pfn, usize)>) {
        let word = match parent {
            Some((pfn, slot)) => pfn.0 | (slot as u64) << PARENT_SLOT_SHIFT,
            None => ROOT,
        };
        self.record.word(2).store(word, Ordering::Relaxed);
    }
    /// Entries that a CPU has in transit as `Busy` and comes back to: the node cannot die before.
    /// Under the node's lock.
    #[inline]
    pub fn transit(self) -> u64 {
        self.record.word(2).load(Ordering::Relaxed) / TRANSIT
    }
    /// The bits of the word that mean nothing, for audits.
    pub fn spare(self) -> u64 {
        self.record.word(2).load(Ordering::Relaxed) & SPARE
    }
    pub(super) fn add_transit(self) {
        let word = self.record.word(2);
        debug_assert!(self.transit() < MOST_TRANSIT, "more entries in transit than there are");
        word.store(word.load(Ordering::Relaxed) + TRANSIT, Ordering::Relaxed);
    }
    pub(super) fn sub_transit(self, entries: u64) {
        let word = self.record.word(2);
        debug_assert!(self.transit() >= entries, "an entry came out of transit twice");
        word.store(word.load(Ordering::Relaxed) - entries * TRANSIT, Ordering::Relaxed);
    }
    /// Chains dead nodes; word 3 is free for it once the node is dead and flushed.
    pub fn chain(self) -> &'a AtomicU64 {
        self.record.word(3)
    }
    /// Interval word `i`, 0 to 2.
    #[inline]
    pub fn interval_word(self, i: usize) -> &'a AtomicU64 {
        self.record.word(4 + i)
    }
    #[inline]
    pub fn sequence(self) -> &'a SeqCount {
        SeqCount::from_word(self.record.word(7))
    }
    /// Whether the node was made to map zeros; what is in it now its counts say.
    #[inline]
    pub fn is_of_zeros(self) -> bool {
        self.record.flags() & OF_ZEROS != 0
    }
    /// Before the node is linked.
    pub fn set_of_zeros(self) {
        self.record.set_flags(OF_ZEROS);
    }
    /// Takes the node's lock.
    #[inline]
    pub fn lock<'g, M: Machine, H: Above<sync::TableLock>>(
        self,
        m: &'g M,
        above: &'g mut Token<H>,
    ) -> Guard<'g, sync::TableLock, M>
    where
        'a: 'g,
    {
        let record: &'a Record = self.record;
        Lock::<sync::TableLock>::from_word(record.lock_word()).lock(m, above, self.pfn.0)
    }
    /// The same inside an epoch, for faults.
    #[inline(always)]
    pub fn lock_inside<'g, M: Machine, H: Above<sync::TableLock>>(
        self,
        epoch: &'g EpochGuard<'_, M>,
        above: &'g mut Token<H>,
    ) -> Guard<'g, sync::TableLock, M, true>
    where
        'a: 'g,
    {
        let record: &'a Record = self.record;
        Lock::<sync::TableLock>::from_word(record.lock_word()).lock_inside(epoch, above, self.pfn.0)
    }
}

impl<M: Machine> PageTables<M> {
    /// The node in frame `pfn`, which a table entry or a space names.
    #[inline]
    pub fn node(&self, pfn: Pfn) -> Node<'_> {
        Node { pfn, record: self.frames.record(pfn) }
    }

    /// The root of a space.
    #[inline(always)]
    pub fn root(&self, space: &SpaceRecord) -> Cursor<'_> {
        Cursor { node: self.node(space.root()), level: self.top(), base: 0 }
    }

    /// A new node, every entry `fill`, linked nowhere. `parent` is where it will be.
    pub fn make_node(
        &self,
        level: Level,
        parent: Option<(Pfn, usize)>,
        fill: u64,
    ) -> Result<Node<'_>, NoMemory> {
        Ok(self.init_node(self.table_frame()?, level, parent, fill))
    }

    /// The same in a frame that was taken for it. Who links it nowhere takes the count of tables
    /// back.
    pub fn init_node(
        &self,
        pfn: Pfn,
        level: Level,
        parent: Option<(Pfn, usize)>,
        fill: u64,
    ) -> Node<'_> {
        let m = &self.machine;
        let words = m.direct(pfn).cast::<u64>();
        for slot in 0..ENTRIES {
            // SAFETY: the frame is ours alone until it is linked; 512 words are its 4096 bytes.
            unsafe { words.add(slot).write(fill) };
        }
        let node = self.node(pfn);
        // The first two follow.
        for i in 3..=7 {
            node.record.word(i).store(0, Ordering::Relaxed);
        }
        node.record.set_head(Use::Table, crate::addr::Order::BASE);
        node.set_parent(parent);
        node.set_state(if fill == 0 {
            NodeState::empty(level)
        } else {
            NodeState(level.0 as u64).with_count(ENTRIES as u64)
        });
        m.work(Work::Table, 1);
        self.count(Counter::TablePages, 1);
        node
    }

    /// Gives a node back that no entry names and no reader can reach. Its intervals are gone
    /// already.
    pub fn free_node(&self, pfn: Pfn) {
        self.frames.give_back(&self.machine, pfn, crate::addr::Order::BASE);
        self.machine.work(Work::Table, 1);
        self.count(Counter::TablePages, -1);
    }

    /// As [`untake`](crate::memory::Memory::untake), of a table that is linked nowhere.
    #[cold]
    #[inline(never)]
    pub fn untake_node(&self, pfn: Pfn) {
        self.free_node(pfn);
        self.hands.untook(&self.machine, 1);
    }
}
