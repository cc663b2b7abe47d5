//! Fetching pages that are absent from their object's pager, and reading ahead.
//!
//! ```text
//!   pages of one fetch   1 after a jump; 4 at the object's beginning; after that twice as many as
//!                        the last time, as long as each fetch begins where the last one ended
//! ```
//! Who wants the first page waits for it; nobody waits for the others. The first use of one of
//! those begins the next fetch, so that the pager reads while the pages before are used. They are
//! as many as are absent, lie before the object's end, and find memory, up to `file.readahead`.
//! If a run cannot be read, its first page is read alone. Where reads are is kept for each object,
//! not for each reader: two who read different parts in turn get few pages ahead.

use crate::addr::{Order, Pfn};
use crate::config::MOST_AHEAD;
use crate::error::NoMemory;
use crate::frame::{AllocRequest, Data, PageIo, SlabRef};
use crate::machine::{Machine, PageRun, RUN_PAGES, Use};
use crate::object::at_place::entry_for;
use crate::object::page::MOST_SEEN;
use crate::object::record::owner_of;
use crate::object::record::{ObjectRecord, ReadPattern};
use crate::object::trie::InsertError;
use crate::object::{ObjectIo, ObjectPage, Tries};
use crate::rmap::object_page::ObjectFrame;
use crate::sync::{Above, Object, Token};

/// Pages of the first fetch, at an object's beginning. Basis: outside; Linux begins with four for a
/// reader of single pages (`get_init_ra_size`).
const FIRST: u64 = 4;

/// What is asked for.
struct Ask<'w> {
    first: u64,
    /// Pages, at most.
    pages: u64,
    want: &'w AllocRequest,
    /// The caller waits for the first page, whose frame is kept. The others are ahead of who will
    /// want them.
    waits: bool,
}

/// What became of that.
struct Put {
    pfn: Pfn,
    /// Pages that are in the trie now, and what was in the way of the next one.
    pages: u64,
    end: Option<InsertError>,
    /// What the pager is to be asked for.
    run: Option<PageRun>,
}

/// A fetch whose first pages are in the trie, busy. The pager is to be asked for them.
pub(crate) struct BegunFetch {
    first: u64,
    /// Pages that it may have, and those that it has.
    most: u64,
    put: Put,
}

/// How the attempt to fetch a page began.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack, and the library has no boxes"
)]
pub(crate) enum Fetch {
    /// The caller asks the pager, with [`ObjectIo::ask_pager`], when it holds nothing that a pager
    /// might want: the turn to look for memory above all.
    Begun(BegunFetch),
    /// Somebody was faster.
    There,
    /// It lies past the end.
    Beyond,
}

impl<M: Machine> ObjectIo<'_, M> {
    /// Puts a page that is absent in place, for the pager to fill it. The caller keeps the object,
    /// holds no lock and is in no epoch.
    pub fn fetch_page<H: Above<Object>>(
        self,
        object: SlabRef,
        index: u64,
        want: &AllocRequest,
        token: &mut Token<H>,
    ) -> Result<Fetch, NoMemory> {
        let record = self.object(object);
        let pages = self.pages_to_fetch(record, index, record.fetched());
        let ask = Ask { first: index, pages, want, waits: true };
        let put = self.put_run(object, &ask, token)?;
        Ok(match put.end {
            Some(InsertError::Index) if put.pages == 0 => Fetch::Beyond,
            Some(InsertError::Occupied) if put.pages == 0 => Fetch::There,
            _ => Fetch::Begun(BegunFetch { first: index, most: pages, put }),
        })
    }

    /// Asks the pager for a fetch that has begun, and for what follows. The caller waits for the
    /// page, with [`ObjectIo::wait_for_pager`]. As [`fetch_page`](ObjectIo::fetch_page), and the
    /// caller has not the turn to look for memory: a pager may want it, which reads its own pages
    /// from another object.
    pub fn ask_pager<H: Above<Object>>(
        self,
        object: SlabRef,
        begun: BegunFetch,
        want: &AllocRequest,
        token: &mut Token<H>,
    ) -> Pfn {
        let BegunFetch { first, most, put: Put { pfn, pages, run, .. } } = begun;
        self.ask_for(run);
        self.ask_more(object, &Ask { first, pages: most, want, waits: true }, pages, token);
        pfn
    }

    /// Begins the next fetch: somebody has used a page of the last one. As
    /// [`ask_pager`](ObjectIo::ask_pager).
    pub fn fetch_next<H: Above<Object>>(
        self,
        object: SlabRef,
        index: u64,
        want: &AllocRequest,
        token: &mut Token<H>,
    ) {
        let record = self.object(object);
        // Or somebody else has begun it.
        if let Some(fetched) = record.end_newest(index) {
            let (first, pages) = (fetched.0, self.pages_to_fetch(record, fetched.0, fetched));
            self.ask_more(object, &Ask { first, pages, want, waits: false }, 0, token);
        }
    }

    /// `Objects::will_need`: asks for what is absent among the pages of `[first, end)`, as far as
    /// there is memory.
    pub fn fetch_ahead<H: Above<Object>>(
        self,
        object: SlabRef,
        (first, end): (u64, u64),
        want: &AllocRequest,
        token: &mut Token<H>,
    ) {
        let (record, mut next) = (self.object(object), first);
        while next < end.min(record.pages()) {
            let gap = {
                let mut guard = Tries::new(self.0).lock(&record.trie, token);
                let mut cursor = guard.cursor();
                cursor.set_limit(end.min(next.saturating_add(MOST_SEEN as u64)));
                cursor.next_gap(next)
            };
            let Some(first) = gap else {
                next = next.saturating_add(MOST_SEEN as u64);
                continue;
            };
            let ask = Ask { first, pages: end - first, want, waits: false };
            match self.put_run(object, &ask, token) {
                Ok(Put { pages: 0, end: Some(InsertError::Index), .. }) | Err(NoMemory) => return,
                Ok(put) => {
                    next = first + put.pages;
                    self.ask_for(put.run);
                }
            }
        }
    }

    /// Asks for the pages of a fetch after the first ones, and notes how far it goes.
    fn ask_more<H: Above<Object>>(
        self,
        object: SlabRef,
        ask: &Ask<'_>,
        mut asked: u64,
        token: &mut Token<H>,
    ) {
        let had = asked;
        while asked < ask.pages {
            let (first, pages) = (ask.first + asked, ask.pages - asked);
            let more = Ask { first, pages, waits: false, ..*ask };
            let Ok(Put { pages, end, run, .. }) = self.put_run(object, &more, token) else { break };
            self.ask_for(run);
            asked += pages;
            if end.is_some() {
                break;
            }
        }
        if asked > had {
            self.object(object).set_fetched(ask.first + asked, asked);
        }
    }

    /// Puts one run in place for the pager: absent pages that follow each other.
    fn put_run<H: Above<Object>>(
        self,
        object: SlabRef,
        ask: &Ask<'_>,
        token: &mut Token<H>,
    ) -> Result<Put, NoMemory> {
        let record = self.object(object);
        // No frames for what lies past the end.
        let left = record.pages().saturating_sub(ask.first);
        if left == 0 {
            return Ok(Put { pfn: Pfn(0), pages: 0, end: Some(InsertError::Index), run: None });
        }
        let mut most = ask.pages.min(RUN_PAGES as u64).min(left) as usize;
        let mut pages = [(Pfn(0), 0); RUN_PAGES];
        let (put, end) = loop {
            let _in_hand = self.hands.begin(&self.machine);
            let taken = self.take_pages(object, ask, &mut pages[..most])?;
            if ask.waits {
                ObjectFrame(self.0).keep(pages[0].0);
            }
            let (put, end) = self.put_pages(record, &pages[..taken], token);
            for &(pfn, index) in &pages[put..taken] {
                let data = Data::of(self.frames.record(pfn));
                debug_assert_eq!(data.index(), index);
                data.set_uses(1);
                data.end_read(false);
                self.untake(pfn, Order::BASE);
            }
            match end {
                Some(InsertError::NoNodes) if put == 0 && taken > 1 => most = 1,
                Some(InsertError::NoNodes) if put == 0 => return Err(NoMemory),
                // There was no memory for all of them.
                None if put < most => break (put, Some(InsertError::NoNodes)),
                end => break (put, end),
            }
        };
        if put != 0 {
            if ask.waits {
                record.set_fetched(ask.first + put as u64, put as u64);
            }
            self.count_object_pages(record, put as i64);
        }
        let run = (put != 0).then(|| self.run_to_fill(object, &pages[..put]));
        Ok(Put { pfn: pages[0].0, pages: put as u64, end, run })
    }

    /// How many pages a fetch may have, after one that ended before `next` and had `last`.
    fn pages_to_fetch(self, record: &ObjectRecord, index: u64, (next, last): (u64, u64)) -> u64 {
        let most = self.config.file_readahead.clamp(1, MOST_AHEAD);
        let pages = match record.pattern() {
            ReadPattern::Random => 1,
            ReadPattern::Sequential => most,
            ReadPattern::Normal if index == next && last != 0 => (2 * last).max(FIRST),
            ReadPattern::Normal if index == 0 => FIRST,
            ReadPattern::Normal => 1,
        };
        pages.min(most)
    }

    /// Frames for pages from an index on, frozen for their pager: as many as there is memory for,
    /// at least one.
    fn take_pages(
        self,
        object: SlabRef,
        ask: &Ask<'_>,
        pages: &mut [ObjectPage],
    ) -> Result<usize, NoMemory> {
        let mut taken = 0;
        for (page, index) in pages.iter_mut().zip(ask.first..) {
            let want = AllocRequest { use_: Use::Object, index, ..*ask.want };
            let pfn = match self.frames.alloc(&self.machine, Order::BASE, &want) {
                Ok(pfn) => pfn,
                Err(NoMemory) if taken == 0 => return Err(NoMemory),
                Err(NoMemory) => break,
            };
            let data = Data::init(self.frames.record(pfn), Order::BASE, owner_of(object), index);
            data.freeze();
            data.begin_io(PageIo::Read);
            if taken != 0 || !ask.waits {
                data.set_ahead();
            }
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
