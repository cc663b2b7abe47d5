//! What becomes of a program that needs more memory than is free: files give theirs, as in any
//! kernel, and what lacked memory is done again.

use std::rc::Rc;

use vellum::error::{FaultError, NoMemory, ObjectError, SpaceError};
use vellum::vm::Object;
use vellum_sim::format::Format;

use super::folios::Folios;
use super::session::Session;

/// So often in a row files are evicted for what lacks memory. Where a page comes back that was
/// evicted for its own table of entries, it would be done for ever.
pub const MOST_EVICTIONS: u32 = 8;

/// An error that may be one of memory.
pub trait Lacks {
    /// Whether it is.
    fn lacks_memory(&self) -> bool;
}

impl Lacks for NoMemory {
    fn lacks_memory(&self) -> bool {
        true
    }
}

impl Lacks for SpaceError {
    fn lacks_memory(&self) -> bool {
        *self == SpaceError::NoMemory
    }
}

impl Lacks for ObjectError {
    fn lacks_memory(&self) -> bool {
        *self == ObjectError::NoMemory
    }
}

impl Lacks for FaultError {
    fn lacks_memory(&self) -> bool {
        *self == FaultError::NoMemory
    }
}

impl<F: Format> Session<'_, '_, F> {
    /// Does what may lack memory, again as long as files give some.
    pub(super) fn with_room<T, E: Lacks>(
        &self,
        mut act: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut lacking = 0;
        loop {
            match act() {
                Err(e) if e.lacks_memory() && lacking < MOST_EVICTIONS && self.makes_room() => {
                    lacking += 1;
                }
                done => return done,
            }
        }
    }

    /// Clean pages of files go. Says whether there were any.
    fn evict_files(&self) -> bool {
        let all: Vec<Rc<Object>> = self.files.borrow().objects.values().cloned().collect();
        let evict = |object: &Rc<Object>| self.vm.objects().evict(object, 0, u64::MAX);
        self.look_at_memory();
        let evicted = all.iter().map(evict).sum::<u64>();
        self.recount_children();
        // Nobody knows which pages stay; all are taken to be read anew.
        self.files.borrow_mut().folios.values_mut().for_each(Folios::clear);
        evicted > 0
    }

    /// Memory has run out: files give some, if they have any.
    pub(super) fn makes_room(&self) -> bool {
        self.evict_files() || self.write_files()
    }

    /// Dirty pages of files are written to the disk, and are clean then. Says whether there were
    /// any.
    fn write_files(&self) -> bool {
        let all: Vec<Rc<Object>> = self.files.borrow().objects.values().cloned().collect();
        let write = |object: &Rc<Object>| {
            let dirty = self.vm.objects().usage(object).dirty_pages > 0;
            dirty && self.vm.objects().sync(object, 0, u64::MAX).is_ok()
        };
        all.iter().filter(|object| write(object)).count() > 0
    }
}
