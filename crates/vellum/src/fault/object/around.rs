//! Mapping what an object has around the page of a read fault (`file.around`).
//!
//! Most programs read a file's neighbouring pages next. Those of the aligned block around the fault
//! that are present and wait for nobody are looked up in the same epoch, one after the other in the
//! same node of the trie, and each is stored at once: the lock of the table is held over all of
//! them. Nothing is read from a pager, and no page is made. A page that is mapped so is not marked
//! as accessed where hardware sets the mark itself.

use core::iter;

use crate::addr::{Level, Order, Pfn};
use crate::config::MOST_AROUND;
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::object::page::entry_flags;
use crate::fault::{Faults, Seen, Step};
use crate::frame::{Data, Record};
use crate::machine::{Act, Machine, Work};
use crate::object::{
    BLOCK_PAGES, FindPage, ObjectRecord, PageMark, Run, TrieEntry, TriePlace, page_in, pages_of,
};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::{Access, Fault};
use crate::sync::{EpochGuard, Token};

/// The page of the fault, inside the epoch in which it was found.
pub(crate) struct FoundPage<'e> {
    pub pfn: Pfn,
    pub frame: &'e Record,
    pub dirty: bool,
    pub place: TriePlace<'e>,
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
    /// that is reserved. Without a page: it is mapped already.
    #[inline(always)]
    pub fn map(
        self,
        seen: &Seen<'_>,
        (object, index): (&'v ObjectRecord, u64),
        page: Option<FoundPage<'v>>,
        epoch: &'v EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        let block = self.config.file_around.min(MOST_AROUND).frames();
        let in_block = spot.slot as u64 & (block - 1);
        let (before, bytes) = (in_block.min(index), object.bytes());
        // Up to the block's end, and the object's.
        let after = (block - in_block).min(pages_of(bytes).saturating_sub(index));

        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if !self.still(seen) {
            return Ok(Step::Again);
        }
        let mut mapped = Mapped::default();
        let part = Part { object, bytes, first: index - before, index, end: index + after };
        let mut slots = None;
        if let Some(FoundPage { pfn, frame, dirty, place }) = page {
            let flags = entry_flags(seen, Access::Read, dirty);
            mapped.add(ObjectFrame(self.0).add_mapping_in(frame)?);
            self.store(spot.node.pfn, spot.slot, Level::ONE, Entry::Shared(pfn, flags));
            slots = place.slots_around(index, before, after);
        }
        // What decides about the others was seen before the lock, and may have been edited since.
        if seen.space.is_unedited(seen.edits) {
            let more = match slots {
                Some(slots) if is_of_one(seen) => {
                    self.map_part(seen, &part, slots.iter().map(page_in), |_| true, epoch)
                }
                _ => self.map_parts(seen, part, epoch),
            };
            mapped.add_all(more);
        }
        spot.node.add_resident(mapped.entries);
        self.count_object_here(mapped.entries as i64, mapped.pages());
        self.machine.work(Work::Scan, before + after);
        self.machine.work(Work::Entry, mapped.entries);
        Ok(Step::Done(Fault::Object))
    }

    /// Maps what is there of the block, where more than one node of the trie may have it. Under the
    /// node's lock.
    #[inline(never)]
    fn map_parts(
        self,
        seen: &Seen<'_>,
        mut part: Part<'v>,
        epoch: &'v EpochGuard<'_, M>,
    ) -> Mapped {
        let is_of_one = is_of_one(seen);
        let is_of_region = |slot| is_of_one || self.is_of_region(seen, slot);
        let mut mapped = Mapped::default();
        while part.first < part.end {
            let (more, pages) = match FindPage(self.0).run_at(part.object, part.first, epoch) {
                Run::Pages(slots) => {
                    let slots = &slots[..slots.len().min((part.end - part.first) as usize)];
                    let pages = slots.iter().map(page_in);
                    let more = self.map_part(seen, &part, pages, is_of_region, epoch);
                    (more, slots.len() as u64)
                }
                Run::One(Some(block)) if block.order() != Order::BASE => {
                    (self.map_part_of_block(seen, &part, block), part.in_block())
                }
                Run::One(entry) => {
                    (self.map_part(seen, &part, iter::once(entry), is_of_region, epoch), 1)
                }
            };
            part.first += pages;
            mapped.add_all(more);
        }
        mapped
    }

    /// Maps what is there of a part of the block. Under the node's lock. The fault's own entry is
    /// reserved no more. A function of its own, so that its loop has the registers.
    #[inline(never)]
    fn map_part(
        self,
        seen: &Seen<'_>,
        part: &Part<'_>,
        pages: impl Iterator<Item = Option<TrieEntry>>,
        is_of_region: impl Fn(usize) -> bool,
        epoch: &EpochGuard<'_, M>,
    ) -> Mapped {
        let (node, m) = (seen.spot.node.pfn, &self.machine);
        let first = seen.spot.slot.wrapping_sub(part.index.wrapping_sub(part.first) as usize);
        let clean = self.leaf(seen, false);
        // What is rare is counted, so that a page that is mapped first is not.
        let (mut n, mut skipped, mut more) = (0, 0, 0);
        for page in pages {
            let slot = first.wrapping_add(n);
            if let Some(entry) = page
                && m.entry(node, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
                && is_of_region(slot)
                && let frame = self.frames.record(entry.pfn())
                && let is_clean = !entry.is_marked(PageMark::Dirty)
                && let Some(leaf) = match is_clean && FindPage(self.0).is_usable(frame) {
                    true => Some(clean),
                    false => self.other_leaf(seen, part, (n, entry), epoch),
                }
                // Asked after that, as in `ObjectFault::serve`: of another size, nothing more.
                && part.object.bytes() == part.bytes
                && let Ok(is_first) = ObjectFrame(self.0).add_mapping_in(frame)
            {
                m.set_entry(node, slot, leaf | entry.pfn().addr());
                if !is_first {
                    count(&mut more);
                }
            } else {
                count(&mut skipped);
            }
            n += 1;
        }
        Mapped { entries: n as u64 - skipped, more }
    }

    /// [`leaf`](Self::leaf) of a page that was read ahead, or whose word says that it is dirty;
    /// `None` if it is not to be mapped.
    #[cold]
    #[inline(never)]
    fn other_leaf(
        self,
        seen: &Seen<'_>,
        part: &Part<'_>,
        (n, entry): (usize, TrieEntry),
        epoch: &EpochGuard<'_, M>,
    ) -> Option<u64> {
        let (find, index) = (FindPage(self.0), part.first + n as u64);
        let is_usable = find.is_usable(self.frames.record(entry.pfn()))
            || find.is_first_used(part.object, index, entry);
        let is_marked = entry.is_marked(PageMark::Dirty);
        is_usable.then(|| self.leaf(seen, is_marked && find.is_dirty(part.object, index, epoch)))
    }

    /// The same where the pages lie in a block. One that is not cut is mapped as a whole by others,
    /// and faults cut it.
    #[cold]
    #[inline(never)]
    fn map_part_of_block(self, seen: &Seen<'_>, part: &Part<'_>, block: TrieEntry) -> Mapped {
        let (node, m, mut mapped) = (seen.spot.node.pfn, &self.machine, Mapped::default());
        let from = part.first % BLOCK_PAGES;
        let data = Data::of(self.frames.record(block.pfn()));
        if data.is_frozen() || !data.is_cut() {
            return mapped;
        }
        let first = seen.spot.slot.wrapping_sub(part.index.wrapping_sub(part.first) as usize);
        let leaf = self.leaf(seen, false);
        for n in 0..part.in_block() {
            let (slot, pfn) = (first.wrapping_add(n as usize), block.pfn().add(from + n));
            if m.entry(node, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
                && self.is_of_region(seen, slot)
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
    fn is_of_region(self, seen: &Seen<'_>, slot: usize) -> bool {
        self.region_of(seen.spot.node, slot) == seen.spot.region
    }

    /// An entry that maps a page around the fault's, but for the frame.
    #[inline]
    fn leaf(self, seen: &Seen<'_>, dirty: bool) -> u64 {
        let accessed = !self.rules.hardware_ad;
        let flags = Flags { accessed, ..entry_flags(seen, Access::Read, dirty) };
        M::Codec::encode(Entry::Shared(Pfn(0), flags), Level::ONE)
    }
}

/// Whether all of the table is of the region: it lists none, so an ancestor lists the one.
fn is_of_one(seen: &Seen<'_>) -> bool {
    seen.spot.node.state().listed() == 0
}

/// Counts in memory, out of the way of a loop that needs its registers.
#[cold]
#[inline(never)]
fn count(n: &mut u64) {
    *n += 1;
}

/// Indices of the pages around a fault, from one on.
struct Part<'e> {
    object: &'e ObjectRecord,
    /// Its size, which the end of the pages is before.
    bytes: u64,
    first: u64,
    /// That of the fault.
    index: u64,
    /// The end of the pages around it.
    end: u64,
}

impl Part<'_> {
    /// How many of them lie in the block that covers the first.
    fn in_block(&self) -> u64 {
        (BLOCK_PAGES - self.first % BLOCK_PAGES).min(self.end - self.first)
    }
}
