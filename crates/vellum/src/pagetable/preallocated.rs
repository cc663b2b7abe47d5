//! Frames for tables, taken before a verb changes anything.

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::AllocRequest;
use crate::machine::{Machine, Use};
use crate::pagetable::PageTables;

/// Frames for tables, linked through their own first words.
#[must_use = "what is not needed is given back by `free`"]
#[derive(Default)]
pub(crate) struct Preallocated {
    /// The first frame + 1, 0 for none.
    first: u64,
}

impl Preallocated {
    /// That many.
    pub fn new<M: Machine>(tables: &PageTables<M>, frames: usize) -> Result<Self, NoMemory> {
        let mut all = Self::default();
        for _ in 0..frames {
            match tables.table_frame() {
                Ok(frame) => all.put(&tables.machine, frame),
                Err(error) => {
                    all.free(tables);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Puts a frame back that was not needed after all.
    pub fn put<M: Machine>(&mut self, m: &M, frame: Pfn) {
        // SAFETY: the frame was allocated for a table and is linked nowhere, so its words are ours
        // alone.
        unsafe { m.direct(frame).cast::<u64>().write(self.first) };
        self.first = frame.0 + 1;
    }

    /// One of them, or another if there are none left.
    pub fn take<M: Machine>(&mut self, tables: &PageTables<M>) -> Result<Pfn, NoMemory> {
        let Some(frame) = self.first.checked_sub(1).map(Pfn) else { return tables.table_frame() };
        // SAFETY: as in `put`, which wrote the word.
        self.first = unsafe { tables.machine.direct(frame).cast::<u64>().read() };
        Ok(frame)
    }

    /// Gives back what was not needed.
    pub fn free<M: Machine>(mut self, tables: &PageTables<M>) {
        while self.first != 0
            && let Ok(frame) = self.take(tables)
        {
            tables.untake(frame, Order::BASE);
        }
    }
}

impl<M: Machine> PageTables<M> {
    /// A frame that will be a table.
    pub(super) fn table_frame(&self) -> Result<Pfn, NoMemory> {
        self.frames.alloc(&self.machine, Order::BASE, &AllocRequest::kernel(Use::Table))
    }
}
