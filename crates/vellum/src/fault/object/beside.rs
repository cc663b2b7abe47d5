//! Mapping the pages beside that of a fault, whose slots of the trie are known.
//!
//! Pages that were read or made one after the other mostly lie so in memory, too. Such a run needs
//! no more than a comparison of each slot: one look says where all its records are, one
//! whether the object still has its size, and the entries differ by a page each.

use crate::addr::{Level, PAGE_SIZE, Pfn};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::frame::Record;
use crate::machine::{Act, Machine};
use crate::object::{FindPage, ObjectRecord, clean_page_in, clean_run_in};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::sync::atomic::AtomicU64;

/// Pages of a run: three of them are what is around the first page of a block of 64 KiB.
const RUN: usize = 5;

/// What came of the pages beside. In memory, out of the way of loops that need their registers.
pub(crate) struct Beside<'e> {
    pub object: &'e ObjectRecord,
    /// Its size, of which the pages are.
    pub bytes: u64,
    /// The table's slot of the first of them.
    pub first: usize,
    /// Those that are not mapped, by their numbers, a bit each.
    pub skipped: u64,
    /// How many of the others were mapped before.
    pub more: u64,
}

impl Beside<'_> {
    /// Notes a page that was not mapped for the first time; says whether it was at all.
    #[cold]
    #[inline(never)]
    fn note(&mut self, slot: usize, is_first: Result<bool, NoMemory>) -> bool {
        match is_first {
            Ok(is_first) => self.more += u64::from(!is_first),
            Err(_) => self.skip(slot),
        }
        is_first.is_ok()
    }

    fn skip(&mut self, slot: usize) {
        self.skipped |= 1 << (slot - self.first);
    }
}

pub(crate) struct BesideFault<'v, M: Machine>(pub &'v Faults<M>);

over!(BesideFault, Faults);

impl<M: Machine> BesideFault<'_, M> {
    /// Maps pages from a slot of a table on, as far as they are there, clean, used before and not
    /// mapped. Under the node's lock; all of the table is of the region.
    #[inline(never)]
    pub fn map(
        self,
        (table, mut slot): (Pfn, usize),
        slots: &[AtomicU64],
        leaf: u64,
        beside: &mut Beside<'_>,
    ) {
        let (runs, rest) = slots.as_chunks::<RUN>();
        for run in runs {
            if !self.map_run((table, slot), run, leaf, beside) {
                self.map_ones((table, slot), run, leaf, beside);
            }
            slot += RUN;
        }
        if !rest.is_empty() {
            self.map_ones((table, slot), rest, leaf, beside);
        }
    }

    /// Maps pages that lie one after the other in memory. If they do not, or one of them needs a
    /// look of its own, nothing is mapped.
    #[inline(always)]
    fn map_run(
        self,
        (table, slot): (Pfn, usize),
        slots: &[AtomicU64; RUN],
        leaf: u64,
        beside: &mut Beside<'_>,
    ) -> bool {
        let m = &self.machine;
        let Some(pfn) = clean_run_in(slots) else { return false };
        let Some(frames) = Record::run_of::<RUN>(&self.frames, pfn) else { return false };
        let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
        let is_usable = |all, frame| all & FindPage(self.0).is_usable(frame);
        // The size is asked after the look at the pages, as in `ObjectFault::serve`.
        if !(0..RUN).all(|n| m.entry(table, slot + n) == reserved)
            || !frames.iter().fold(true, is_usable)
            || beside.object.bytes() != beside.bytes
        {
            return false;
        }
        let leaf = leaf | pfn.addr();
        for (n, frame) in frames.iter().enumerate() {
            let is_first = ObjectFrame(self.0).add_mapping_in(frame);
            if is_first == Ok(true) || beside.note(slot + n, is_first) {
                m.set_entry(table, slot + n, leaf + (n * PAGE_SIZE) as u64);
            }
        }
        true
    }

    /// Maps pages wherever they lie.
    #[inline(never)]
    fn map_ones(
        self,
        (table, first): (Pfn, usize),
        slots: &[AtomicU64],
        leaf: u64,
        beside: &mut Beside<'_>,
    ) {
        let m = &self.machine;
        for (slot, in_trie) in (first..).zip(slots) {
            if let Some(pfn) = clean_page_in(in_trie)
                && m.entry(table, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
                && let frame = self.frames.record(pfn)
                && FindPage(self.0).is_usable(frame)
                && beside.object.bytes() == beside.bytes
            {
                let is_first = ObjectFrame(self.0).add_mapping_in(frame);
                if is_first == Ok(true) || beside.note(slot, is_first) {
                    m.set_entry(table, slot, leaf | pfn.addr());
                }
            } else {
                beside.skip(slot);
            }
        }
    }
}
