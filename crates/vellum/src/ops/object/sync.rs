//! What was written of an object: brought to its pager, or told to who harvests it.
//!
//! In the order of the indices, runs of 32 pages at most. Each index is visited once, so a program
//! that goes on writing cannot keep the call from its end; what it writes behind the call is dirty
//! afterwards. A page that another such call is writing is waited for, and written once more if
//! that failed.

use crate::addr::{PAGE_SIZE, Pfn};
use crate::error::ObjectError;
use crate::fault::Faults;
use crate::fault::object::ProtectObject;
use crate::frame::SlabRef;
use crate::machine::{Machine, RUN_PAGES, Verb};
use crate::object::{INDEX_END, NextDirty, Object, ObjectIo, ObjectPage};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;

const PAGE: u64 = PAGE_SIZE as u64;

pub(crate) struct Sync<'v, M: Machine>(pub &'v Faults<M>);

over!(Sync, Faults);

impl<M: Machine> Sync<'_, M> {
    /// `Objects::sync`.
    pub fn sync(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            if record.pager().is_none() {
                return Ok(());
            }
            let done = self.write_runs((object.handle, true), pages_of(offset, bytes), |pages| {
                ObjectIo(self.0).write_pages(object.handle, pages).is_ok()
            });
            // Its own, and those of others that it was not told of.
            if object.hears(record.errors()) || !done { Err(ObjectError::Io) } else { Ok(()) }
        })
    }

    /// `Objects::write_back`.
    pub fn write_back(self, object: &Object, offset: u64, bytes: u64) {
        self.verb(Verb::Object, || {
            if self.record_of_object(object).pager().is_some() {
                self.write_runs((object.handle, false), pages_of(offset, bytes), |pages| {
                    ObjectIo(self.0).begin_write(object.handle, pages, None);
                    true
                });
            }
        });
    }

    /// `Objects::harvest`.
    pub fn harvest(
        self,
        object: &Object,
        from: u64,
        out: &mut [u64],
    ) -> Result<usize, ObjectError> {
        self.verb(Verb::Object, || {
            if !self.record_of_object(object).is_logged() {
                return Err(ObjectError::NotLogged);
            }
            let (mut next, mut count) = (from / PAGE, 0);
            while count < out.len() {
                let mut pages: Run = [(Pfn(0), 0); RUN_PAGES];
                let room = pages.len().min(out.len() - count);
                let range = (&mut next, INDEX_END);
                match self.freeze_next((object.handle, true), range, &mut pages[..room]) {
                    None => break,
                    Some(frozen) => {
                        ObjectIo(self.0).end_dirty(object.handle, frozen);
                        for (&(pfn, index), out) in frozen.iter().zip(&mut out[count..]) {
                            self.thaw(pfn);
                            *out = index * PAGE;
                        }
                        count += frozen.len();
                    }
                }
            }
            Ok(count)
        })
    }

    /// Has each run of dirty pages written, and says whether all were. One page that cannot be
    /// written fails its run: each page of that is tried by itself. `waits`: also for pages that
    /// somebody else has in hand.
    fn write_runs(
        self,
        (object, waits): (SlabRef, bool),
        (mut next, end): (u64, u64),
        mut write: impl FnMut(&[ObjectPage]) -> bool,
    ) -> bool {
        let (mut done, mut alone) = (true, 0);
        loop {
            let mut pages: Run = [(Pfn(0), 0); RUN_PAGES];
            let most = if next < alone { 1 } else { RUN_PAGES };
            match self.freeze_next((object, waits), (&mut next, end), &mut pages[..most]) {
                None => return done,
                Some(frozen) if frozen.is_empty() || write(frozen) => {}
                Some(&[(_, first), .., (_, last)]) => (next, alone) = (first, last + 1),
                Some(_) => done = false,
            }
        }
    }

    /// Freezes dirty pages that follow each other, and takes the right to write from every space.
    /// None: somebody was at the next one, and is not any more, or is passed over. No page is
    /// visited twice, but who was waited for.
    fn freeze_next<'p>(
        self,
        (object, waits): (SlabRef, bool),
        (next, end): (&mut u64, u64),
        out: &'p mut [ObjectPage],
    ) -> Option<&'p [ObjectPage]> {
        let frozen = match ObjectIo(self.0).freeze_dirty(object, (*next, end), out) {
            NextDirty::None => return None,
            NextDirty::Taken((pfn, index)) => {
                *next = index + u64::from(!waits);
                match waits {
                    true => ObjectIo(self.0).wait_for_page(pfn),
                    false => ObjectFrame(self.0).let_go(pfn),
                }
                return Some(&[]);
            }
            NextDirty::Frozen(count) => &out[..count],
        };
        ProtectObject(self.0).everywhere(object, frozen);
        *next = frozen.last().map_or(end, |page| page.1 + 1);
        Some(frozen)
    }
}

/// Pages that follow each other.
type Run = [ObjectPage; RUN_PAGES];

/// The pages of so many bytes.
fn pages_of(offset: u64, bytes: u64) -> (u64, u64) {
    match bytes {
        0 => (0, 0),
        _ => (offset / PAGE, offset.saturating_add(bytes).div_ceil(PAGE)),
    }
}
