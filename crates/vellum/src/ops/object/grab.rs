//! Pages of an object for one holder alone.
//!
//! A run is taken by one cursor, in the order of the indices. A page that is there is frozen. Where
//! none is one of zeros is put in by the same cursor: it stands where the lookup failed, and the
//! frame is taken without the guard. Whatever has to wait gives the guard back, and looks again
//! where it was. Who waits has the pages before frozen: as all wait in the order of the indices,
//! none of two waits for the other. For memory nobody waits with a page frozen.

use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::config::NumaPolicy;
use crate::error::{NoMemory, ObjectError};
use crate::fault::Faults;
use crate::fault::object::{Split, UnmapObject};
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Machine, RUN_PAGES, Verb};
use crate::object::{
    Fetch, GrabWait, Grabbed, INDEX_END, Object, ObjectIo, Stop, TakePages, Taking,
};
use crate::ops::object::bytes::ObjectBytes;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::sync::Token;

pub(crate) struct Grab<'v, M: Machine>(pub &'v Faults<M>);

over!(Grab, Faults);

impl<M: Machine> Grab<'_, M> {
    /// `Objects::grab`.
    pub fn grab(
        self,
        object: &Object,
        offset: u64,
        pages: usize,
        wait: GrabWait,
    ) -> Result<Grabbed, ObjectError> {
        self.grab_by(object, (offset, pages), (wait, self.config.numa))
    }

    /// `Objects::back`.
    pub fn back(
        self,
        object: &Object,
        offset: u64,
        numa: NumaPolicy,
        frames: &mut [Pfn],
    ) -> (usize, Result<(), ObjectError>) {
        if !self.record_of_object(object).is_kernels() {
            return (0, Err(ObjectError::NotKernel));
        }
        let mut done = 0;
        while done < frames.len() {
            let at = offset.saturating_add(done as u64 * PAGE_SIZE as u64);
            match self.grab_by(object, (at, frames.len() - done), (GrabWait::Always, numa)) {
                Ok(grabbed) => {
                    let there = grabbed.frames();
                    frames[done..done + there.len()].copy_from_slice(there);
                    done += there.len();
                    self.release(grabbed, false);
                }
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    fn grab_by(
        self,
        object: &Object,
        (offset, pages): (u64, usize),
        (wait, numa): (GrabWait, NumaPolicy),
    ) -> Result<Grabbed, ObjectError> {
        self.verb(Verb::Object, || {
            let (record, handle) = (self.record_of_object(object), object.handle);
            if record.device().is_some() {
                return Err(ObjectError::Device);
            }
            let first = (offset / PAGE_SIZE as u64).min(INDEX_END);
            let end = first + pages.min(RUN_PAGES) as u64;
            let mut run = Taking::new(first, end.min(INDEX_END), numa);
            let done = self.take_run(handle, &mut run, wait);
            let pages = &run.pages[..run.taken];
            if pages.is_empty() {
                return Err(done.err().unwrap_or(ObjectError::Beyond));
            }
            // Who found them before is at his end.
            self.epochs.synchronize(&self.machine, &mut Token::top());
            UnmapObject(self.0).everywhere(handle, pages);
            record.attachments.keep();
            Ok(Grabbed::new((self.id(), handle), pages))
        })
    }

    /// `Objects::release`.
    pub fn release(self, grabbed: Grabbed, written: bool) {
        self.verb(Verb::Object, || {
            let (object, pages) = grabbed.pages(self.id());
            if written && self.object(object).notes_writes() {
                ObjectIo(self.0).mark_dirty(object, pages.clone().map(|page| page.1));
            }
            pages.for_each(|page| self.thaw(page.0));
            self.let_go_of(object);
        });
    }

    /// Takes pages up to what is in the way.
    fn take_run(
        self,
        object: SlabRef,
        run: &mut Taking,
        wait: GrabWait,
    ) -> Result<(), ObjectError> {
        let waits = wait != GrabWait::Never;
        loop {
            // Who has pages frozen waits for no memory: who has some in hand may wait for them.
            let may_look = waits && run.taken == 0;
            let mut attempt = || self.in_hand(|| self.take_or_make(object, run));
            let stop = if may_look { self.with_memory(attempt) } else { attempt() };
            match stop? {
                Stop::Nothing => return Ok(()),
                Stop::Beyond => return Err(ObjectError::Beyond),
                // Some more were made, or there is no memory to split a block.
                Stop::Block => continue,
                Stop::Absent if self.object(object).pager().is_none() => continue,
                Stop::Absent => self.fetch(object, run, waits)?,
                Stop::Taken(pfn) if waits => ObjectIo(self.0).wait_for_page(pfn),
                Stop::Taken(pfn) => ObjectFrame(self.0).let_go(pfn),
            }
            if wait != GrabWait::Always {
                return Err(ObjectError::Busy);
            }
        }
    }

    /// Takes pages, and makes those that are missing where no pager has them. It is refused only
    /// where it did nothing.
    fn take_or_make(self, object: SlabRef, run: &mut Taking) -> Result<Stop, NoMemory> {
        let (before, is_paged) = (run.taken, self.object(object).pager().is_some());
        let mut spare = None;
        let done = loop {
            let stop = TakePages(self.0).take(object, run, &mut spare);
            if matches!(stop, Stop::Block) {
                match Split(self.0).try_split(object, run.next()) {
                    Ok(_) => continue,
                    Err(NoMemory) if run.taken > before => break Ok(Stop::Block),
                    Err(NoMemory) => break Err(NoMemory),
                }
            }
            if is_paged || !matches!(stop, Stop::Absent) {
                break Ok(stop);
            }
            let want = ObjectBytes(self.0).want_for(run.next());
            let want = AllocRequest { policy: run.numa, ..want };
            // There is no node for the one before.
            let made = if spare.is_some() {
                Err(NoMemory)
            } else {
                TakePages(self.0).zeros_for(object, &want)
            };
            match made {
                Ok(pfn) => spare = Some(pfn),
                Err(NoMemory) if run.taken > before => break Ok(Stop::Absent),
                Err(NoMemory) => break Err(NoMemory),
            }
        };
        if let Some(pfn) = spare {
            self.untake(pfn, Order::BASE);
        }
        done
    }

    /// Has the pager fill a page that is absent, and waits for it if the caller does.
    fn fetch(self, object: SlabRef, run: &Taking, waits: bool) -> Result<(), ObjectError> {
        let index = run.next();
        let (want, mut top) = (ObjectBytes(self.0).want_for(index), Token::top());
        let mut fetch = || ObjectIo(self.0).fetch_page(object, index, &want, &mut top);
        let may_look = waits && run.taken == 0;
        match if may_look { self.with_memory(fetch) } else { fetch() }? {
            Fetch::Begun(begun) => {
                let pfn = ObjectIo(self.0).ask_pager(object, begun, &want, &mut top);
                if waits {
                    return Ok(ObjectIo(self.0).wait_for_pager(pfn)?);
                }
                ObjectFrame(self.0).let_go(pfn);
                Ok(())
            }
            // It is there, or lies past the end.
            Fetch::There | Fetch::Beyond => Ok(()),
        }
    }
}
