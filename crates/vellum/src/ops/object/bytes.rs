//! Reading and writing an object's bytes without a mapping.
//!
//! Page by page, each inside one epoch: who takes a page out, or freezes it, waits for that. Bytes
//! that a program stores through a mapping meanwhile may come before or after.

use core::iter;

use crate::addr::{Order, PAGE_SIZE, Pfn, Va};
use crate::config::Thp;
use crate::error::ObjectError;
use crate::fault::Faults;
use crate::fault::object::{BlockFault, Split};
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Act, Machine, Use, Verb};
use crate::object::{Fetch, FindPage, Object, ObjectIo, ObjectRecord, Present};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::sync::Token;

pub(crate) struct ObjectBytes<'v, M: Machine>(pub &'v Faults<M>);

over!(ObjectBytes, Faults);

/// How much of a page an attempt has done.
enum Chunk {
    Done,
    /// Nothing: the page is not there.
    Absent,
    /// Nothing: the page is frozen.
    Frozen,
    /// Nothing: a pager fills the page, whose frame is kept.
    Reading(Pfn),
    /// Nothing: the next pages are to be read from the pager.
    FetchNext,
    /// Nothing: the page is not marked as written.
    Clean,
    /// Nothing: the page lies in a block, which cannot be marked.
    Whole,
    /// Nothing: the contents stay.
    Sealed,
    /// Nothing: the chunk ends past the end.
    Beyond,
}

impl<M: Machine> ObjectBytes<'_, M> {
    /// `Objects::read`.
    pub fn read(
        self,
        object: &Object,
        offset: u64,
        bytes: &mut [u8],
    ) -> (usize, Result<(), ObjectError>) {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            if record.device().is_some() {
                return (0, Err(ObjectError::Device));
            }
            let mut done = 0;
            while done < bytes.len() {
                let at = offset.saturating_add(done as u64);
                let left = record.bytes().saturating_sub(at).min((bytes.len() - done) as u64);
                let len = (left as usize).min(PAGE_SIZE - at as usize % PAGE_SIZE);
                if len == 0 {
                    break;
                }
                match self.read_chunk(record, object.handle, at, &mut bytes[done..done + len]) {
                    Chunk::Done => done += len,
                    Chunk::Absent => {
                        if let Err(error) = self.make(object.handle, at / PAGE_SIZE as u64) {
                            return (done, Err(error));
                        }
                    }
                    Chunk::FetchNext => self.fetch_next(object.handle, at / PAGE_SIZE as u64),
                    Chunk::Frozen => self.wait_for_thaw(),
                    Chunk::Reading(pfn) => {
                        if let Err(why) = ObjectIo(self.0).wait_for_pager(pfn) {
                            return (done, Err(why.into()));
                        }
                    }
                    Chunk::Beyond | Chunk::Clean | Chunk::Whole | Chunk::Sealed => {}
                }
            }
            (done, Ok(()))
        })
    }

    fn read_chunk(
        self,
        record: &ObjectRecord,
        object: SlabRef,
        at: u64,
        bytes: &mut [u8],
    ) -> Chunk {
        let epoch = self.epochs.enter(&self.machine);
        let found = FindPage(self.0).present(object, at / PAGE_SIZE as u64, &epoch);
        // As in `write_chunk`: what has been cut off is not read as zeros.
        if at + bytes.len() as u64 > record.bytes() {
            return Chunk::Beyond;
        }
        match found {
            Present::Page { pfn, .. } | Present::Block(pfn) => {
                self.machine.read_bytes(pfn, at as usize % PAGE_SIZE, bytes);
                Chunk::Done
            }
            Present::Absent(_) if record.pager().is_some() => Chunk::Absent,
            Present::Absent(_) => {
                bytes.fill(0);
                Chunk::Done
            }
            Present::Ahead => Chunk::FetchNext,
            Present::Frozen => Chunk::Frozen,
            Present::Reading(pfn) => {
                ObjectFrame(self.0).keep(pfn);
                Chunk::Reading(pfn)
            }
        }
    }

    /// `Objects::write`.
    pub fn write(
        self,
        object: &Object,
        offset: u64,
        bytes: &[u8],
    ) -> (usize, Result<(), ObjectError>) {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            if record.device().is_some() {
                return (0, Err(ObjectError::Device));
            }
            let mut done = 0;
            while done < bytes.len() {
                let at = offset.saturating_add(done as u64);
                // As far as the page goes, and the object.
                let room = record.bytes().saturating_sub(at).min(PAGE_SIZE as u64);
                let len = (bytes.len() - done).min(PAGE_SIZE - at as usize % PAGE_SIZE);
                let len = len.min(room as usize);
                if len == 0 {
                    return (done, Err(ObjectError::Beyond));
                }
                match self.write_chunk(record, object.handle, at, &bytes[done..done + len]) {
                    Chunk::Done => done += len,
                    Chunk::Absent => {
                        if let Err(error) = self.make(object.handle, at / PAGE_SIZE as u64) {
                            return (done, Err(error));
                        }
                    }
                    Chunk::FetchNext => self.fetch_next(object.handle, at / PAGE_SIZE as u64),
                    Chunk::Frozen => self.wait_for_thaw(),
                    Chunk::Reading(pfn) => {
                        if let Err(why) = ObjectIo(self.0).wait_for_pager(pfn) {
                            return (done, Err(why.into()));
                        }
                    }
                    Chunk::Clean => {
                        let index = at / PAGE_SIZE as u64;
                        ObjectIo(self.0).mark_dirty(object.handle, iter::once(index));
                    }
                    Chunk::Whole => {
                        let index = at / PAGE_SIZE as u64;
                        if let Err(error) = Split(self.0).split(object.handle, index) {
                            return (done, Err(error.into()));
                        }
                    }
                    Chunk::Sealed => return (done, Err(ObjectError::Sealed)),
                    // It was cut off meanwhile: as much as there is.
                    Chunk::Beyond => {}
                }
            }
            (done, Ok(()))
        })
    }

    fn write_chunk(self, record: &ObjectRecord, object: SlabRef, at: u64, bytes: &[u8]) -> Chunk {
        let epoch = self.epochs.enter(&self.machine);
        let found = FindPage(self.0).present(object, at / PAGE_SIZE as u64, &epoch);
        // Asked inside the epoch: who lowers the size waits for it before it clears what is past
        // the end. And after the page was found: one that a pager filled meanwhile is cleared
        // there, and then thawed, after the size was lowered.
        if at + bytes.len() as u64 > record.bytes() {
            return Chunk::Beyond;
        }
        if record.seals().write {
            return Chunk::Sealed;
        }
        match found {
            Present::Page { dirty: false, .. } if record.notes_writes() => Chunk::Clean,
            Present::Block(_) if record.notes_writes() => Chunk::Whole,
            Present::Page { pfn, .. } | Present::Block(pfn) => {
                self.machine.write_bytes(pfn, at as usize % PAGE_SIZE, bytes);
                Chunk::Done
            }
            Present::Absent(_) => Chunk::Absent,
            Present::Ahead => Chunk::FetchNext,
            Present::Frozen => Chunk::Frozen,
            Present::Reading(pfn) => {
                ObjectFrame(self.0).keep(pfn);
                Chunk::Reading(pfn)
            }
        }
    }

    /// Has the pages of `[first, end)` read that the pager has, and waits for them.
    pub fn read_pages(self, object: SlabRef, (first, end): (u64, u64)) -> Result<(), ObjectError> {
        let want = self.want_for(first);
        ObjectIo(self.0).fetch_ahead(object, (first, end), &want, &mut Token::top());
        let mut next = first;
        while next < end.min(self.object(object).pages()) {
            let found = {
                let epoch = self.epochs.enter(&self.machine);
                match FindPage(self.0).present(object, next, &epoch) {
                    Present::Absent(_) => Chunk::Absent,
                    Present::Ahead => Chunk::FetchNext,
                    Present::Reading(pfn) => {
                        ObjectFrame(self.0).keep(pfn);
                        Chunk::Reading(pfn)
                    }
                    _ => Chunk::Done,
                }
            };
            match found {
                Chunk::Absent => self.make(object, next)?,
                Chunk::FetchNext => self.fetch_next(object, next),
                Chunk::Reading(pfn) => ObjectIo(self.0).wait_for_pager(pfn)?,
                _ => next += 1,
            }
        }
        Ok(())
    }

    /// Has a page of an object that has a pager in memory, for a moment at least.
    pub fn have_page(self, object: SlabRef, index: u64) -> Result<(), ObjectError> {
        let is_absent = {
            let epoch = self.epochs.enter(&self.machine);
            matches!(FindPage(self.0).present(object, index, &epoch), Present::Absent(_))
        };
        if is_absent { self.make(object, index) } else { Ok(()) }
    }

    /// The frame that is wanted for a page which no space has asked for.
    pub fn want_for(self, index: u64) -> AllocRequest {
        AllocRequest { policy: self.config.numa, index, use_: Use::Object, optional: false }
    }

    fn fetch_next(self, object: SlabRef, index: u64) {
        ObjectIo(self.0).fetch_next(object, index, &self.want_for(index), &mut Token::top());
    }

    /// `Objects::will_need`.
    pub fn will_need(self, object: &Object, offset: u64, bytes: u64) {
        self.verb(Verb::Object, || {
            if self.record_of_object(object).pager().is_some() && bytes != 0 {
                let page = PAGE_SIZE as u64;
                let pages = (offset / page, offset.saturating_add(bytes).div_ceil(page));
                let want = self.want_for(pages.0);
                ObjectIo(self.0).fetch_ahead(object.handle, pages, &want, &mut Token::top());
            }
        });
    }

    /// Puts a page at an index that has none: of zeros, or as the pager has it. One that lies past
    /// the end by now is found to by the caller.
    fn make(self, object: SlabRef, index: u64) -> Result<(), ObjectError> {
        let want = self.want_for(index);
        let va = Va(index.wrapping_mul(Order::BASE.bytes()));
        let mut top = Token::top();
        if self.object(object).pager().is_none() {
            if self.config.object_huge == Thp::Always
                && self.object(object).gets_blocks()
                && BlockFault(self.0).make_block((object, index), &want, va)?
            {
                return Ok(());
            }
            self.with_memory(|| self.make_page(object, index, (&want, va), &mut top))?;
            return Ok(());
        }
        match self.with_memory(|| ObjectIo(self.0).fetch_page(object, index, &want, &mut top))? {
            Fetch::Begun(begun) => {
                let pfn = ObjectIo(self.0).ask_pager(object, begun, &want, &mut top);
                Ok(ObjectIo(self.0).wait_for_pager(pfn)?)
            }
            Fetch::There | Fetch::Beyond => Ok(()),
        }
    }

    /// Lets who has the page frozen go on, perhaps a task of this CPU.
    fn wait_for_thaw(self) {
        self.machine.relax();
        self.let_others_run();
    }
}
