//! Mapping what an object has around the page of a read fault (`file.around`).
//!
//! Most programs read a file's neighbouring pages next. Those of the aligned block around the fault
//! that are present and wait for nobody are looked up in the same epoch, one after the other in the
//! same node of the trie, and each is stored at once: the lock of the table is held over all of
//! them. Nothing is read from a pager, and no page is made. A page that is mapped so is not marked
//! as accessed where hardware sets the mark itself.

use crate::addr::{Level, Order, Pfn};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::object::beside::{Beside, BesideFault};
use crate::fault::object::page::{entry_flags, flags_by};
use crate::fault::{Faults, Seen, Step};
use crate::frame::{Data, Record};
use crate::machine::{Act, Machine, Work};
use crate::object::{
    BLOCK_PAGES, FindPage, ObjectRecord, PageMark, Run, TrieEntry, TriePlace, page_in, pages_of,
};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::attrs::Packed;
use crate::space::{Access, Fault};
use crate::stats::{Counter, CpuCounters};
use crate::sync::atomic::AtomicU64;
use crate::sync::{EpochGuard, Token};
use crate::vma::lookup::Spot;

/// The page of the fault, inside the epoch in which it was found.
pub(crate) struct FoundPage<'e> {
    pub pfn: Pfn,
    pub frame: &'e Record,
    pub dirty: bool,
    pub place: TriePlace<'e>,
}

/// An object whose size was asked once. It is the size that decides about all pages of a fault.
#[derive(Clone, Copy)]
pub(crate) struct SizedObject<'e> {
    pub object: &'e ObjectRecord,
    pub bytes: u64,
}

/// What was mapped.
#[derive(Default)]
struct Mapped {
    /// Entries, with the fault's.
    entries: u64,
    /// Those of pages that were mapped before.
    more: u64,
}

impl Mapped {
    #[inline(always)]
    fn add(&mut self, is_first: bool) {
        self.entries += 1;
        self.more += u64::from(!is_first);
    }

    #[inline(always)]
    fn add_all(&mut self, other: Mapped) {
        self.entries += other.entries;
        self.more += other.more;
    }

    /// Pages that nobody mapped before.
    #[inline(always)]
    fn pages(&self) -> i64 {
        (self.entries - self.more) as i64
    }
}

pub(crate) struct Around<'v, M: Machine>(pub &'v Faults<M>);

over!(Around, Faults);

impl<'v, M: Machine> Around<'v, M> {
    /// Maps a present page of an object, and those around it. A read of a program, on a base page
    /// that is reserved.
    #[inline(always)]
    pub fn map(
        self,
        seen: Seen<'v>,
        (SizedObject { object, bytes }, index): (SizedObject<'v>, u64),
        FoundPage { pfn, frame, dirty, place }: FoundPage<'v>,
        epoch: &'v EpochGuard<'_, M>,
        counters: &CpuCounters,
    ) -> Result<Step, FaultError> {
        let spot = seen.spot;
        let (before, after) = self.reach(spot.slot, index, bytes);
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        let Some(is_unedited) = self.still_unedited(&seen) else { return Ok(Step::Again) };
        let flags = entry_flags(&seen, Access::Read, dirty);
        let mut mapped = Mapped::default();
        mapped.add(ObjectFrame(self.0).add_mapping_in(frame)?);
        self.store(spot.node.pfn, spot.slot, Level::ONE, Entry::Shared(pfn, flags));
        // What decides about the others was seen before the lock, and may have been edited since.
        if is_unedited {
            let slots = place.slots_around(index, before, after);
            // Built where something is not as usual.
            let part = || {
                let (first, end) = (index - before, index + after);
                Part { object, bytes, spot, attrs: seen.attrs, first, index, end }
            };
            if let Some(slots) = slots
                && spot.node.state().listed() == 0
            {
                let (first, leaf) = (spot.slot - before as usize, self.leaf(seen.attrs));
                let mut beside = Beside { object, bytes, first, skipped: 0, more: 0 };
                let (head, rest) = slots.split_at(before as usize);
                if !head.is_empty() {
                    BesideFault(self.0).map((spot.node.pfn, first), head, leaf, &mut beside);
                }
                if let [_, tail @ ..] = rest {
                    let next = (spot.node.pfn, spot.slot + 1);
                    BesideFault(self.0).map(next, tail, leaf, &mut beside);
                }
                let Beside { skipped, more, .. } = beside;
                // All but the fault's own, which is one of them.
                mapped.add_all(Mapped { entries: slots.len() as u64 - 1, more });
                if skipped != 0 {
                    mapped.entries -= u64::from(skipped.count_ones());
                    mapped.add_all(self.map_skipped(part(), (slots, skipped), epoch));
                }
            } else {
                mapped.add_all(self.map_parts(part(), epoch));
            }
        }
        spot.node.add_resident(mapped.entries);
        counters.add(Counter::ObjectRss, mapped.entries as i64);
        counters.add(Counter::Mapped, mapped.pages());
        self.machine.work(Work::Scan, before + after);
        self.machine.work(Work::Entry, mapped.entries);
        Ok(Step::Done(Fault::Object))
    }

    /// Maps the pages around one that is mapped already. Inside the epoch in which `seen` was.
    #[cold]
    pub fn map_others(
        self,
        seen: Seen<'v>,
        (SizedObject { object, bytes }, index): (SizedObject<'v>, u64),
        epoch: &'v EpochGuard<'_, M>,
    ) {
        let spot = seen.spot;
        let (before, after) = self.reach(spot.slot, index, bytes);
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if self.still_unedited(&seen) != Some(true) {
            return;
        }
        let (first, end) = (index - before, index + after);
        let part = Part { object, bytes, spot, attrs: seen.attrs, first, index, end };
        let mapped = self.map_parts(part, epoch);
        spot.node.add_resident(mapped.entries);
        self.count_object_here(mapped.entries as i64, mapped.pages());
        self.machine.work(Work::Scan, before + after);
        self.machine.work(Work::Entry, mapped.entries);
    }

    /// How many pages before that of a fault lie in the block around it, and how many from it on,
    /// itself the first: up to the end of the block, and of the object, whose size covers it.
    #[inline(always)]
    fn reach(self, slot: usize, index: u64, bytes: u64) -> (u64, u64) {
        let block = self.config.file_around.frames();
        let in_block = slot as u64 & (block - 1);
        let after = (block - in_block).min(pages_of(bytes) - index);
        (in_block.min(index), after)
    }

    /// Maps those of the pages that were skipped that can be mapped.
    #[cold]
    #[inline(never)]
    fn map_skipped(
        self,
        part: Part<'_>,
        (slots, skipped): (&[AtomicU64], u64),
        epoch: &EpochGuard<'_, M>,
    ) -> Mapped {
        let mut mapped = Mapped::default();
        for (n, slot) in slots.iter().enumerate().filter(|(n, _)| skipped >> n & 1 != 0) {
            if let Some(entry) = page_in(slot) {
                self.map_page(&part, (n as u64, entry), epoch, &mut mapped);
            }
        }
        mapped
    }

    /// Maps what is there of the block, where more than one node of the trie may have it, or the
    /// table more than one region. Under the node's lock.
    #[inline(never)]
    fn map_parts(self, mut part: Part<'v>, epoch: &'v EpochGuard<'_, M>) -> Mapped {
        let is_of_one = part.spot.node.state().listed() == 0;
        let mut mapped = Mapped::default();
        while part.first < part.end {
            let mut map_page = |n, entry| {
                if is_of_one || self.is_of_region(&part, part.slot(n)) {
                    self.map_page(&part, (n, entry), epoch, &mut mapped);
                }
            };
            part.first += match FindPage(self.0).run_at(part.object, part.first, epoch) {
                Run::Pages(slots) => {
                    let slots = &slots[..slots.len().min((part.end - part.first) as usize)];
                    for (n, slot) in slots.iter().enumerate() {
                        if let Some(entry) = page_in(slot) {
                            map_page(n as u64, entry);
                        }
                    }
                    slots.len() as u64
                }
                Run::One(Some(block)) if block.order() != Order::BASE => {
                    mapped.add_all(self.map_part_of_block(&part, block));
                    part.in_block()
                }
                Run::One(entry) => {
                    if let Some(entry) = entry {
                        map_page(0, entry);
                    }
                    1
                }
            };
        }
        mapped
    }

    /// Maps a page of a part of the block, if it can be. Under the node's lock; the slot is of the
    /// region. The fault's own entry is reserved no more.
    #[inline]
    fn map_page(
        self,
        part: &Part<'_>,
        (n, entry): (u64, TrieEntry),
        epoch: &EpochGuard<'_, M>,
        mapped: &mut Mapped,
    ) {
        let (table, slot, m) = (part.spot.node.pfn, part.slot(n), &self.machine);
        let is_clean = !entry.is_marked(PageMark::Dirty);
        let frame = self.frames.record(entry.pfn());
        if m.entry(table, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
            && let Some(leaf) = match is_clean && FindPage(self.0).is_usable(frame) {
                true => Some(self.leaf(part.attrs)),
                false => self.other_leaf(part, (n, entry), epoch),
            }
            // Asked after that, as in `ObjectFault::serve`: of another size, nothing more.
            && part.object.bytes() == part.bytes
            && let Ok(is_first) = ObjectFrame(self.0).add_mapping_in(frame)
        {
            m.set_entry(table, slot, leaf | entry.pfn().addr());
            mapped.add(is_first);
        }
    }

    /// [`leaf`](Self::leaf) of a page that was read ahead, or whose word says that it is dirty;
    /// `None` if it is not to be mapped.
    #[cold]
    #[inline(never)]
    fn other_leaf(
        self,
        part: &Part<'_>,
        (n, entry): (u64, TrieEntry),
        epoch: &EpochGuard<'_, M>,
    ) -> Option<u64> {
        let (find, index) = (FindPage(self.0), part.first + n);
        if !find.is_usable(self.frames.record(entry.pfn()))
            && !find.is_first_used(part.object, index, entry)
        {
            return None;
        }
        let is_marked = entry.is_marked(PageMark::Dirty);
        let is_dirty = is_marked && find.is_dirty(part.object, index, epoch);
        Some(self.leaf(if is_dirty { part.attrs.noted() } else { part.attrs }))
    }

    /// The same where the pages lie in a block. One that is not cut is mapped as a whole by others,
    /// and faults cut it.
    #[cold]
    #[inline(never)]
    fn map_part_of_block(self, part: &Part<'_>, block: TrieEntry) -> Mapped {
        let (node, m, mut mapped) = (part.spot.node.pfn, &self.machine, Mapped::default());
        let from = part.first % BLOCK_PAGES;
        let data = Data::of(self.frames.record(block.pfn()));
        if data.is_frozen() || !data.is_cut() {
            return mapped;
        }
        let leaf = self.leaf(part.attrs);
        for n in 0..part.in_block() {
            let (slot, pfn) = (part.slot(n), block.pfn().add(from + n));
            if m.entry(node, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
                && self.is_of_region(part, slot)
                && part.object.bytes() == part.bytes
                && let Ok(is_first) = ObjectFrame(self.0).add_mapping(pfn)
            {
                m.set_entry(node, slot, leaf | pfn.addr());
                mapped.add(is_first);
            }
        }
        mapped
    }

    #[inline(never)]
    fn is_of_region(self, part: &Part<'_>, slot: usize) -> bool {
        self.region_of(part.spot.node, slot) == part.spot.region
    }

    /// An entry that maps a page around the fault's, but for the frame.
    #[inline]
    fn leaf(self, attrs: Packed) -> u64 {
        let accessed = !self.rules.hardware_ad;
        let flags = Flags { accessed, ..flags_by(attrs, Access::Read) };
        M::Codec::encode(Entry::Shared(Pfn(0), flags), Level::ONE)
    }
}

/// Pages around that of a fault, from one on.
struct Part<'e> {
    object: &'e ObjectRecord,
    /// Its size, which the end of the pages is before.
    bytes: u64,
    /// Where the fault was.
    spot: Spot<'e>,
    attrs: Packed,
    first: u64,
    /// The index of the fault's page.
    index: u64,
    /// The end of the pages around it.
    end: u64,
}

impl Part<'_> {
    /// The table's slot of a page of them.
    fn slot(&self, n: u64) -> usize {
        let before = self.index.wrapping_sub(self.first.wrapping_add(n));
        self.spot.slot.wrapping_sub(before as usize)
    }

    /// How many of them lie in the block that covers the first.
    fn in_block(&self) -> u64 {
        (BLOCK_PAGES - self.first % BLOCK_PAGES).min(self.end - self.first)
    }
}
