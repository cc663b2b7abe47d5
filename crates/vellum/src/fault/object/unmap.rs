//! Taking an object's pages out of every space that maps them.
//!
//! The caller has them frozen, so no entry comes that is not there when the visits begin. An entry
//! that a visit misses, since a fork or a remap had it in hand, is still counted by the page's
//! record, and the visits are repeated.

use core::iter;

use crate::addr::{ENTRIES, Level, PAGE_SHIFT, Pfn, Va};
use crate::entry::Entry;
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::object::{BLOCK_PAGES, ObjectPage};
use crate::pagetable::transit::TakeOut;
use crate::platform::over;
use crate::rmap::attachment::Attach;
use crate::rmap::object_page::ObjectFrame;
use crate::space::SpaceRecord;
use crate::sync::Token;
use crate::tlb::Receipt;

/// Pages that are taken out of all spaces at once: a KiB of the stack. One flush of a space serves
/// all of them.
pub(crate) const BATCH: usize = 64;

/// How often a visit that found not all looks at the counts before the next one, at most. Basis: a
/// guess; it decides how much of a long fork the visits beside it repeat.
pub(super) const MOST_WAIT: u32 = 64;

pub(crate) struct UnmapObject<'v, M: Machine>(pub &'v Faults<M>);

over!(UnmapObject, Faults);

impl<M: Machine> UnmapObject<'_, M> {
    /// Takes frozen pages of an object, whose indices ascend, or one block, out of every space that
    /// maps them. The caller keeps the object, holds no lock and is in no epoch.
    pub fn everywhere(self, object: SlabRef, pages: &[ObjectPage]) {
        let is_block = ObjectFrame(self.0).is_block(pages);
        let is_done = || match is_block {
            true => ObjectFrame(self.0).is_block_unmapped(pages[0].0),
            false => pages.iter().all(|page| self.is_unmapped(page.0)),
        };
        let mut wait = 1;
        while !is_done() {
            Attach(self.0).for_each_attachment(object, &mut Token::top(), |space, shift| {
                match is_block {
                    true => self.unmap_block(space, shift, pages[0]),
                    false => self.unmap_pages(space, shift, pages),
                }
            });
            // A fork, a verb or an exit has an entry in hand, perhaps a task of this CPU.
            for _ in 0..wait {
                if is_done() {
                    return;
                }
                self.machine.relax();
                self.let_others_run();
            }
            wait = (2 * wait).min(MOST_WAIT);
        }
    }

    /// Takes pages out of one space, where it sees the object at that shift: the pages of each
    /// table at once.
    fn unmap_pages(self, space: &SpaceRecord, shift: u64, pages: &[ObjectPage]) {
        debug_assert!(pages.is_sorted_by_key(|page| page.1), "indices ascend");
        let page = move |page: &ObjectPage| page.1.wrapping_sub(shift);
        let tables = || {
            let mut rest = pages;
            iter::from_fn(move || {
                let start = *rest.first()?;
                let (first, left) = (page(&start), ENTRIES as u64 - page(&start) % ENTRIES as u64);
                let here;
                (here, rest) = rest.split_at(rest.partition_point(|a| a.1 - start.1 < left));
                let leaves = here.iter().map(move |a| (page(a) as usize % ENTRIES, a.0));
                Some(InTable { first, leaves, block: None })
            })
        };
        self.unmap_parts(space, tables, |mut leaves| leaves.all(|leaf| self.is_unmapped(leaf.1)));
    }

    /// Takes a block out of one space: its leaf of 2 MiB, or the leaves of its pages, which lie in
    /// two tables at most.
    #[cold]
    fn unmap_block(self, space: &SpaceRecord, shift: u64, (block, index): ObjectPage) {
        let page = move |n: u64| index.wrapping_sub(shift).wrapping_add(n);
        let left = ENTRIES as u64 - page(0) % ENTRIES as u64;
        let tables = || {
            let parts = [(0, left), (left, BLOCK_PAGES)].into_iter();
            parts.filter(|(from, end)| from < end).map(move |(from, end)| {
                let leaves = (from..end).map(move |n| (page(n) as usize % ENTRIES, block.add(n)));
                let block = (end - from == BLOCK_PAGES).then_some(block);
                InTable { first: page(from), leaves, block }
            })
        };
        self.unmap_parts(space, tables, |_| ObjectFrame(self.0).is_block_unmapped(block));
    }

    /// Takes out what maps the pages of tables: makes the entries busy, flushes once, and lets them
    /// be reserved.
    #[inline(always)]
    fn unmap_parts<L, T>(
        self,
        space: &SpaceRecord,
        tables: impl Fn() -> T,
        is_gone: impl Fn(L) -> bool,
    ) where
        L: Iterator<Item = (usize, Pfn)> + Clone,
        T: Iterator<Item = InTable<L>>,
    {
        let _epoch = self.epochs.enter(&self.machine);
        let end = self.user_end().page();
        let tables = || tables().filter(|part| part.first < end);
        let mut receipt = Receipt::new();
        for part in tables() {
            if is_gone(part.leaves.clone()) {
                continue;
            }
            let at = self.descend_entry(space, part.va());
            let base = part.va().align_down(Level::TWO.entry_bytes());
            let table = (at.node, at.level);
            match (at.level, part.block) {
                (Level::ONE, _) => TakeOut(self.0).make_busy(table, part.leaves, |slot| {
                    receipt.leaf(Va(base.0 + ((slot as u64) << PAGE_SHIFT)), Level::ONE);
                }),
                (Level::TWO, Some(block)) => {
                    let leaf = iter::once((at.slot, block));
                    TakeOut(self.0).make_busy(table, leaf, |_| receipt.leaf(base, Level::TWO));
                }
                _ => {}
            }
        }
        if receipt.is_empty() {
            return;
        }
        let (flushed, mut entries, mut unmapped) = (self.flush(space, receipt), 0, 0);
        for part in tables() {
            let at = self.exchanged_in(space, part.va());
            let (table, slot) = ((at.node, at.level), at.level.slot(part.va()));
            match (at.level, part.block) {
                (Level::ONE, _) => {
                    TakeOut(self.0).settle(table, part.leaves, Entry::Reserved, |pfn| {
                        entries += 1;
                        unmapped += i64::from(ObjectFrame(self.0).release(&flushed, pfn));
                    });
                }
                (Level::TWO, Some(block)) => {
                    let leaf = iter::once((slot, block));
                    TakeOut(self.0).settle(table, leaf, Entry::Reserved, |block| {
                        self.release_shared(&flushed, block, Level::TWO);
                    });
                }
                _ => {}
            }
        }
        self.count_object_here(-entries, -unmapped);
    }
}

/// Pages of an object whose entries lie in one table of a space.
struct InTable<L> {
    /// The number of the first page in the space.
    first: u64,
    /// The slots of the entries, and the frames that they should map.
    leaves: L,
    /// The block that they are, if an entry for all of the table may map it.
    block: Option<Pfn>,
}

impl<L> InTable<L> {
    fn va(&self) -> Va {
        Va(self.first << PAGE_SHIFT)
    }
}
