//! A block of 2 MiB in place of an object's pages.
//!
//! ```text
//!   freeze pages, under the guard      nobody maps them anew, or touches their bytes
//!   take them out of every space, and copy them: 64 at a time
//!   look again, under the guard        what has come meanwhile is frozen and copied as well
//!   nothing new: exchange all of them for the block, by one store
//!   wait for readers, free the pages   who has found one of them finds it frozen, and looks anew
//! ```
//! Nobody is waited for with pages frozen: where one is in somebody's hand nothing happens. A page
//! of which the pager, or who harvests, has yet to be told stays a page. So a block is clean: who
//! wants to write to one of those objects splits it.

use core::iter;

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::{Data, SlabRef};
use crate::machine::Machine;
use crate::object::record::owner_of;
use crate::object::{
    BLOCK_PAGES, ObjectBlock, ObjectLayer, ObjectPage, PageMark, TrieCursor, TrieEntry, Tries,
};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::stats::Counter;
use crate::sync::Token;

const WORD: u64 = u64::BITS as u64;
/// Pages that are thawed between two looks.
const BATCH: usize = 64;

/// A block that is being filled.
pub(crate) struct Filling {
    pub object: SlabRef,
    /// The index of its first page.
    pub index: u64,
    pub block: Pfn,
    /// Pages of the object that are frozen for it, a bit each.
    frozen: [u64; (BLOCK_PAGES / WORD) as usize],
}

impl Filling {
    pub fn new(object: SlabRef, index: u64, block: Pfn) -> Filling {
        Filling { object, index, block, frozen: [0; (BLOCK_PAGES / WORD) as usize] }
    }

    /// Whether the object has a page there, which is frozen for the block.
    pub fn has(&self, page: u64) -> bool {
        self.frozen[(page / WORD) as usize] >> (page % WORD) & 1 != 0
    }

    fn add(&mut self, page: u64) {
        self.frozen[(page / WORD) as usize] |= 1 << (page % WORD);
    }

    fn count(&self) -> u64 {
        self.frozen.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// What [`ObjectCollapse::fill`] has found.
pub(crate) enum Filled {
    /// So many pages more are frozen, to be copied.
    More(usize),
    /// No page that is not copied: the others are to be cleared.
    All,
    /// The object has the block.
    Done,
    /// A page may not be frozen, or is missing.
    Other,
}

pub(crate) struct ObjectCollapse<'v, M: Machine>(pub &'v ObjectLayer<M>);

over!(ObjectCollapse, ObjectLayer);

impl<M: Machine> ObjectCollapse<'_, M> {
    /// Whether one of the pages of a block is marked as written, just now.
    pub fn has_dirty(self, object: SlabRef, index: u64) -> bool {
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
        let dirty = guard.cursor().next_marked(index, PageMark::Dirty);
        dirty.is_some_and(|(page, _)| page < index + BLOCK_PAGES)
    }

    /// Freezes pages that a block takes the place of, as many as `out` has room for. Where there
    /// are no more, and the block has all else that it should, gives it to the object and frees the
    /// pages. The caller keeps the object, holds no lock, is in no epoch, and nobody changes the
    /// size meanwhile.
    ///
    /// # Errors
    /// There is no memory for a node of the trie.
    pub fn fill(
        self,
        filling: &mut Filling,
        is_cleared: bool,
        out: &mut [ObjectPage],
    ) -> Result<Filled, NoMemory> {
        let record = self.object(filling.object);
        let (mut pages, mut dirty) = (None, 0);
        let filled = {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let mut cursor = guard.cursor();
            match self.freeze(&mut cursor, filling, out) {
                Filled::All if is_cleared => {
                    (pages, dirty) = self.join(&mut cursor, filling)?;
                    record.count_dirty(-dirty);
                    record.count_blocks(1);
                    Filled::Done
                }
                filled => filled,
            }
        };
        match filled {
            // Who found them before is at his end.
            Filled::More(_) => self.epochs.synchronize(&self.machine, &mut Token::top()),
            Filled::Done => {
                self.count_object_pages(record, (BLOCK_PAGES - filling.count()) as i64);
                ObjectBlock(self.0).count_huge_pages(record, 1);
                self.count(Counter::DirtyPages, -dirty);
                self.count(Counter::ThpCollapse, 1);
                self.free_replaced(pages);
            }
            _ => {}
        }
        Ok(filled)
    }

    fn freeze(
        self,
        cursor: &mut TrieCursor<'_, '_, M>,
        filling: &mut Filling,
        out: &mut [ObjectPage],
    ) -> Filled {
        let (mut count, mut seen, mut is_other) = (0, 0, false);
        cursor.set_limit(filling.index + BLOCK_PAGES);
        cursor.walk(filling.index, |index, entry| {
            seen += 1;
            if filling.has(index - filling.index) {
                return true;
            }
            let frame = self.frames.record(entry.pfn());
            let data = Data::of(frame);
            is_other = data.is_taken_or_block() || entry.is_marked(PageMark::Dirty);
            if is_other || count == out.len() {
                return false;
            }
            if data.end_ahead() {
                self.count_here(Counter::ReadaheadUnused, -1);
            }
            ObjectFrame(self.0).freeze_in(frame);
            filling.add(index - filling.index);
            out[count] = (entry.pfn(), index);
            count += 1;
            true
        });
        let is_paged = self.object(filling.object).pager().is_some();
        match count {
            _ if is_other || seen == 0 => Filled::Other,
            0 if is_paged && seen < BLOCK_PAGES => Filled::Other,
            0 => Filled::All,
            _ => Filled::More(count),
        }
    }

    /// Exchanges the pages for the block; the first of them, to be freed, and how many were marked
    /// as dirty: by who is about to write to one, and looks again before that.
    fn join(
        self,
        cursor: &mut TrieCursor<'_, '_, M>,
        filling: &Filling,
    ) -> Result<(Option<Pfn>, i64), NoMemory> {
        let Filling { object, index, block, .. } = *filling;
        let (mut pages, mut dirty) = (None, 0);
        let entry = TrieEntry::new(block, Order::HUGE).ok_or(NoMemory)?;
        Data::init_block(self.frames.record(block), owner_of(object), index);
        let done = cursor.join(index, entry, |_, entry| {
            dirty += i64::from(entry.is_marked(PageMark::Dirty));
            Data::of(self.frames.record(entry.pfn())).set_next(pages);
            pages = Some(entry.pfn());
        });
        done.map_err(|_| NoMemory)?;
        Ok((pages, dirty))
    }

    /// Frees frozen pages that a block has replaced.
    fn free_replaced(self, mut pages: Option<Pfn>) {
        // Who found one before is at his end.
        self.epochs.synchronize(&self.machine, &mut Token::top());
        let replaced = iter::from_fn(|| {
            let page = pages?;
            pages = Data::of(self.frames.record(page)).next();
            Some(page)
        });
        let free = replaced.filter(|&page| ObjectFrame(self.0).leave(page));
        self.frames.give_back_all(&self.machine, free);
    }

    /// Others may use the pages again; the block is the caller's alone.
    pub fn give_up(self, filling: &Filling) {
        let record = self.object(filling.object);
        for part in (0..BLOCK_PAGES).step_by(BATCH) {
            let (mut pages, mut count) = ([Pfn(0); BATCH], 0);
            {
                let mut top = Token::top();
                let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
                let mut cursor = guard.cursor();
                for page in (part..part + BATCH as u64).filter(|&page| filling.has(page)) {
                    if let Some(entry) = cursor.lookup(filling.index + page) {
                        pages[count] = entry.pfn();
                        count += 1;
                    }
                }
            }
            pages[..count].iter().for_each(|&page| self.thaw(page));
        }
    }
}
