//! Taking pages of an object for one holder alone.

use crate::addr::{Order, Pfn, Va};
use crate::config::NumaPolicy;
use crate::error::NoMemory;
use crate::frame::{AllocRequest, Data, SlabRef};
use crate::machine::{Machine, RUN_PAGES, Use};
use crate::object::at_place::entry_for;
use crate::object::record::owner_of;
use crate::object::{InsertError, ObjectLayer, ObjectPage, TrieToken, Tries};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::stats::Counter;
use crate::sync::Token;

/// How long [`Objects::grab`](crate::vm::Objects::grab) waits for a page that somebody else has in
/// hand, or that its pager has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrabWait {
    /// Not at all, and not for memory either.
    Never,
    /// Once, and then the call ends: the caller looks anew at what has changed meanwhile.
    Once,
    /// As long as it takes.
    Always,
}

/// Pages of an object that follow each other, for their holder alone: no space maps them, and
/// nobody else maps, reads, writes or frees them until they are given to
/// [`Objects::release`](crate::vm::Objects::release). The object stays until then.
#[must_use = "pages that are not released stay busy for ever"]
#[derive(Debug)]
pub struct Grabbed {
    vm: usize,
    object: SlabRef,
    first: u64,
    len: usize,
    frames: [Pfn; RUN_PAGES],
}

impl Grabbed {
    /// Of an object that the caller has kept.
    pub(crate) fn new((vm, object): (usize, SlabRef), pages: &[ObjectPage]) -> Grabbed {
        let mut frames = [Pfn(0); RUN_PAGES];
        frames.iter_mut().zip(pages).for_each(|(frame, page)| *frame = page.0);
        let first = pages.first().map_or(0, |page| page.1);
        Grabbed { vm, object, first, len: pages.len(), frames }
    }

    /// The first byte in the object, a multiple of 4096.
    pub fn offset(&self) -> u64 {
        self.first * Order::BASE.bytes()
    }

    /// The frames, one for each page.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames[..self.len]
    }

    /// The object, and the pages.
    ///
    /// # Panics
    /// If they are another `Vm`'s.
    pub(crate) fn pages(
        &self,
        vm: usize,
    ) -> (SlabRef, impl Iterator<Item = ObjectPage> + Clone + '_) {
        assert!(self.vm == vm, "the pages belong to another Vm");
        (self.object, self.frames().iter().copied().zip(self.first..))
    }
}

/// A run that is being taken.
pub(crate) struct Taking {
    pub pages: [ObjectPage; RUN_PAGES],
    pub taken: usize,
    pub first: u64,
    pub end: u64,
    /// Which memory nodes the pages that are made come from.
    pub numa: NumaPolicy,
    /// Where the cursor stood.
    place: Option<TrieToken>,
}

impl Taking {
    pub fn new(first: u64, end: u64, numa: NumaPolicy) -> Taking {
        Taking { pages: [(Pfn(0), 0); RUN_PAGES], taken: 0, first, end, numa, place: None }
    }

    /// The index of the next page.
    pub fn next(&self) -> u64 {
        self.first + self.taken as u64
    }
}

/// What is in the way of the next page.
pub(crate) enum Stop {
    Nothing,
    /// Somebody has it in hand. Its frame is kept.
    Taken(Pfn),
    /// It lies in a block of 2 MiB, which is to be split.
    Block,
    /// It is absent, or there is no node for it.
    Absent,
    /// The object ends before it.
    Beyond,
}

/// Taking pages for a holder.
pub(crate) struct TakePages<'v, M: Machine>(pub &'v ObjectLayer<M>);

over!(TakePages, ObjectLayer);

impl<M: Machine> TakePages<'_, M> {
    /// Freezes pages, in the order of their indices, up to one that may not be frozen now; puts a
    /// spare one where the first is absent. The caller keeps the object, holds no lock and is in no
    /// epoch. Others may still use what is frozen until they leave their epochs.
    pub fn take(self, object: SlabRef, run: &mut Taking, spare: &mut Option<Pfn>) -> Stop {
        let record = self.object(object);
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
        let mut cursor = match run.place.take() {
            Some(place) => guard.resume(place),
            None => guard.cursor(),
        };
        let mut made = 0;
        let stop = loop {
            let index = run.next();
            if index == run.end {
                break Stop::Nothing;
            }
            // What lies past the end may be on its way out.
            if index >= record.pages() {
                break Stop::Beyond;
            }
            let pfn = match (cursor.lookup(index), spare.take()) {
                (Some(entry), unused) => {
                    *spare = unused;
                    let data = Data::of(self.frames.record(entry.pfn()));
                    if data.is_taken() {
                        ObjectFrame(self.0).keep(entry.pfn());
                        break Stop::Taken(entry.pfn());
                    }
                    if data.is_block() {
                        break Stop::Block;
                    }
                    if data.end_ahead() {
                        self.count_here(Counter::ReadaheadUnused, -1);
                    }
                    ObjectFrame(self.0).freeze(entry.pfn());
                    entry.pfn()
                }
                (None, Some(pfn)) => {
                    let page = self.frames.record(pfn);
                    Data::init(page, Order::BASE, owner_of(object), index).freeze();
                    let entry = entry_for(record, index, pfn);
                    match entry.and_then(|entry| cursor.insert(index, entry)) {
                        Ok(()) => made += 1,
                        Err(error) => {
                            Data::of(page).thaw();
                            *spare = Some(pfn);
                            break if error == InsertError::Index {
                                Stop::Beyond
                            } else {
                                Stop::Absent
                            };
                        }
                    }
                    pfn
                }
                (None, None) => break Stop::Absent,
            };
            run.pages[run.taken] = (pfn, index);
            run.taken += 1;
        };
        run.place = Some(cursor.into_token());
        drop(guard);
        self.count_object_pages(record, made);
        stop
    }

    /// A frame of zeros for the next page.
    pub fn zeros_for(self, object: SlabRef, want: &AllocRequest) -> Result<Pfn, NoMemory> {
        let va = Va(want.index.wrapping_mul(Order::BASE.bytes()));
        let want = AllocRequest { use_: Use::Object, ..*want };
        self.take_zeros((object, want.index), (&want, va))
    }
}
