//! Writing what is dirty of an object to its pager.
//!
//! In the order of the indices, runs of 32 pages at most. Each index is visited once, so a program
//! that goes on writing cannot keep the call from its end; what it writes behind the call is dirty
//! afterwards. A page that another such call is writing is waited for, and written once more if
//! that failed.

use crate::addr::{PAGE_SIZE, Pfn};
use crate::error::ObjectError;
use crate::fault::Faults;
use crate::fault::object::ObjectFault;
use crate::frame::SlabRef;
use crate::machine::{Machine, RUN_PAGES, Verb};
use crate::object::{NextDirty, Object, ObjectIo, ObjectPage};
use crate::platform::over;

pub(crate) struct Sync<'v, M: Machine>(pub &'v Faults<M>);

over!(Sync, Faults);

impl<M: Machine> Sync<'_, M> {
    /// `Objects::sync`.
    pub fn sync(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            if record.pager().is_none() || bytes == 0 {
                return Ok(());
            }
            let page = PAGE_SIZE as u64;
            let (first, end) = (offset / page, offset.saturating_add(bytes).div_ceil(page));
            self.write_back(object.handle, first, end)
        })
    }

    fn write_back(self, object: SlabRef, first: u64, end: u64) -> Result<(), ObjectError> {
        let (mut next, mut done) = (first, Ok(()));
        loop {
            let mut pages: [ObjectPage; RUN_PAGES] = [(Pfn(0), 0); RUN_PAGES];
            let count = match ObjectIo(self.0).freeze_dirty(object, (next, end), &mut pages) {
                NextDirty::None => return done,
                NextDirty::Taken((pfn, index)) => {
                    ObjectIo(self.0).wait_for_page(pfn);
                    next = index;
                    continue;
                }
                NextDirty::Frozen(count) => count,
            };
            let pages = &pages[..count];
            ObjectFault(self.0).unmap_everywhere(object, pages);
            if ObjectIo(self.0).write_pages(object, pages).is_err() {
                done = Err(ObjectError::Io);
            }
            next = pages[count - 1].1 + 1;
        }
    }
}
