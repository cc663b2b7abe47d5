//! Fetching a page that is absent from its object's pager, and reading ahead.
//!
//! ```text
//!   pages of one fetch   1 after a jump; 4 at the object's beginning; after that twice as many as
//!                        the last time, as long as each fetch begins where the last one ended
//! ```
//! One run has all of them: those that follow the page asked for, as far as they are absent, lie
//! before the object's end, and memory is there. Nobody waits for them but who comes to use one
//! (`file.readahead`). If the run cannot be read, the page asked for is read alone. Where reads are
//! is kept for each object, not for each reader: two who read different parts in turn get no pages
//! ahead.

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::{AllocRequest, Data, PageIo, SlabRef};
use crate::machine::{Machine, RUN_PAGES, Use};
use crate::object::manage::owner_of;
use crate::object::page::entry_for;
use crate::object::record::ObjectRecord;
use crate::object::trie::InsertError;
use crate::object::{ObjectIo, ObjectPage, Tries};
use crate::rmap::object_page::ObjectFrame;
use crate::stats::Counter;
use crate::sync::{Above, Object, Token};

/// Pages of the first fetch, at an object's beginning. Basis: outside; Linux begins with four for a
/// reader of single pages (`get_init_ra_size`).
const FIRST: u64 = 4;

/// How the attempt to fetch a page began.
pub(crate) enum Fetch {
    /// A pager fills it; the caller waits, with [`ObjectIo::wait_for_pager`].
    Begun(Pfn),
    /// Somebody was faster.
    There,
    /// It lies past the end.
    Beyond,
}

impl<M: Machine> ObjectIo<'_, M> {
    /// Has the pager fill a page that is absent. The caller keeps the object, holds no lock and is
    /// in no epoch.
    pub fn fetch_page<H: Above<Object>>(
        self,
        object: SlabRef,
        index: u64,
        want: &AllocRequest,
        token: &mut Token<H>,
    ) -> Result<Fetch, NoMemory> {
        let record = self.object(object);
        let mut most = self.pages_to_fetch(record, index);
        let mut pages = [(Pfn(0), 0); RUN_PAGES];
        let put = loop {
            let _in_hand = self.hands.begin(&self.machine);
            let taken = self.take_pages(object, index, want, &mut pages[..most])?;
            // For who waits.
            ObjectFrame(self.0).keep(pages[0].0);
            let (put, end) = self.put_pages(record, &pages[..taken], token);
            for &(pfn, index) in &pages[put..taken] {
                let data = Data::of(self.frames.record(pfn));
                debug_assert_eq!(data.index(), index);
                data.set_uses(1);
                data.end_read(false);
                self.untake(pfn, Order::BASE);
            }
            match end {
                Some(InsertError::Index) if put == 0 => return Ok(Fetch::Beyond),
                Some(InsertError::Occupied) if put == 0 => return Ok(Fetch::There),
                // Pages ahead have taken the memory of the node.
                Some(_) if put == 0 && taken > 1 => most = 1,
                Some(_) if put == 0 => return Err(NoMemory),
                _ => break put,
            }
        };
        record.set_fetched(index + put as u64, put as u64);
        self.count_object_pages(record, put as i64);
        self.count(Counter::ReadaheadPages, put as i64 - 1);
        self.ask_for(object, &pages[..put]);
        Ok(Fetch::Begun(pages[0].0))
    }

    /// How many pages a fetch may have.
    fn pages_to_fetch(self, record: &ObjectRecord, index: u64) -> usize {
        let (next, last) = record.fetched();
        let pages = match index {
            _ if index == next && last != 0 => (2 * last).max(FIRST),
            0 => FIRST,
            _ => 1,
        };
        pages.min(self.config.file_readahead).clamp(1, RUN_PAGES as u64) as usize
    }

    /// Frames for pages from an index on, frozen for their pager: as many as there is memory for,
    /// at least one.
    fn take_pages(
        self,
        object: SlabRef,
        index: u64,
        want: &AllocRequest,
        pages: &mut [ObjectPage],
    ) -> Result<usize, NoMemory> {
        let mut taken = 0;
        for (page, index) in pages.iter_mut().zip(index..) {
            let want = AllocRequest { use_: Use::Object, index, ..*want };
            let pfn = match self.frames.alloc(&self.machine, Order::BASE, &want) {
                Ok(pfn) => pfn,
                Err(NoMemory) if taken == 0 => return Err(NoMemory),
                Err(NoMemory) => break,
            };
            let data = Data::init(self.frames.record(pfn), Order::BASE, owner_of(object), index);
            data.freeze();
            data.begin_io(PageIo::Read);
            *page = (pfn, index);
            taken += 1;
        }
        Ok(taken)
    }

    /// Puts pages that follow each other into their object, up to the first that cannot be; says
    /// how many, and what was in the way.
    fn put_pages<H: Above<Object>>(
        self,
        record: &ObjectRecord,
        pages: &[ObjectPage],
        token: &mut Token<H>,
    ) -> (usize, Option<InsertError>) {
        let mut guard = Tries::new(self.0).lock(&record.trie, token);
        let mut cursor = guard.cursor();
        for (put, &(pfn, index)) in pages.iter().enumerate() {
            let entry = entry_for(record, index, pfn);
            if let Err(error) = entry.and_then(|entry| cursor.insert(index, entry)) {
                return (put, Some(error));
            }
        }
        (pages.len(), None)
    }
}
