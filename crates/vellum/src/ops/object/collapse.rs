//! Making a block of 2 MiB of an object's pages, and pages of a block.

use crate::addr::{Order, PAGE_SIZE, Pfn, Va};
use crate::config::ClearUnit;
use crate::error::{NoMemory, ObjectError};
use crate::fault::Faults;
use crate::fault::object::{BATCH, Split, UnmapObject};
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Act, Machine, Stores, Use, Verb};
use crate::object::{
    BLOCK_PAGES, Filled, Filling, Object, ObjectBlock, ObjectCollapse, ObjectPage,
};
use crate::ops::object::bytes::ObjectBytes;
use crate::ops::object::resize::Resize;
use crate::platform::over;

pub(crate) struct CollapseObject<'v, M: Machine>(pub &'v Faults<M>);

over!(CollapseObject, Faults);

impl<M: Machine> CollapseObject<'_, M> {
    /// `Objects::collapse`.
    pub fn collapse(self, object: &Object, offset: u64) -> Result<bool, ObjectError> {
        self.verb(Verb::Object, || {
            if self.record_of_object(object).device().is_some() {
                return Err(ObjectError::Device);
            }
            self.collapse_at(object.handle, offset / PAGE_SIZE as u64)
        })
    }

    /// `Objects::split`.
    pub fn split(self, object: &Object, offset: u64) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let index = offset / PAGE_SIZE as u64;
            Ok(Split(self.0).split(object.handle, index)?)
        })
    }

    /// Makes a block of the pages around an index. What a pager has of them is read. The caller
    /// keeps the object, holds no lock and is in no epoch. Says whether there is a block now.
    pub fn collapse_at(self, object: SlabRef, index: u64) -> Result<bool, ObjectError> {
        let (record, first) = (self.object(object), index & !(BLOCK_PAGES - 1));
        if ObjectBlock(self.0).is_at(object, first) {
            return Ok(true);
        }
        if !record.has_block(first) || record.device().is_some() || record.is_kernels() {
            return Ok(false);
        }
        if ObjectCollapse(self.0).has_dirty(object, first) {
            return Ok(false);
        }
        if record.pager().is_some() {
            ObjectBytes(self.0).read_pages(object, (first, first + BLOCK_PAGES))?;
        } else if ObjectBlock(self.0).has_room(object, first) {
            return Ok(false);
        }
        // Who waits for the others has no memory in hand, and looks for none.
        let make = || self.in_hand(|| self.make_block(object, first));
        Ok(Resize(self.0).alone(record, || self.with_memory(make))?)
    }

    /// The object becomes no shorter meanwhile.
    fn make_block(self, object: SlabRef, index: u64) -> Result<bool, NoMemory> {
        // It may have become so before.
        if !self.object(object).has_block(index) {
            return Ok(false);
        }
        let want = AllocRequest { use_: Use::Object, ..ObjectBytes(self.0).want_for(index) };
        let block = self.alloc_exactly(Order::HUGE, &want)?;
        if self.config.alloc_zero {
            self.machine.clear_frames(block, BLOCK_PAGES);
        }
        let mut filling = Filling::new(object, index, block);
        let done = self.fill(&mut filling);
        if done != Ok(true) {
            ObjectCollapse(self.0).give_up(&filling);
            self.untake(block, Order::HUGE);
        }
        done
    }

    /// Copies pages until there are no others.
    fn fill(self, filling: &mut Filling) -> Result<bool, NoMemory> {
        let mut is_cleared = false;
        loop {
            let mut pages: [ObjectPage; BATCH] = [(Pfn(0), 0); BATCH];
            match ObjectCollapse(self.0).fill(filling, is_cleared, &mut pages)? {
                Filled::More(count) => {
                    UnmapObject(self.0).everywhere(filling.object, &pages[..count]);
                    let pages = pages[..count].iter();
                    self.copy(filling, pages.map(|&(pfn, index)| (index, Some(pfn))));
                }
                Filled::All => {
                    let missing = (0..BLOCK_PAGES).filter(|&page| !filling.has(page));
                    self.copy(filling, missing.map(|page| (filling.index + page, None)));
                    is_cleared = true;
                }
                Filled::Done => return Ok(true),
                Filled::Other => return Ok(false),
            }
            self.let_others_run();
        }
    }

    /// Fills pages of the block, stored as a run of 2 MiB is, with `clear.unit=page` through the
    /// caches.
    fn copy(self, filling: &Filling, pages: impl Iterator<Item = (u64, Option<Pfn>)>) {
        let extents = self.config.clear_unit == ClearUnit::Extent;
        let stores = if extents { self.stores(BLOCK_PAGES) } else { Stores::Cached };
        for (index, from) in pages {
            let va = Va(index.wrapping_mul(Order::BASE.bytes()));
            let to = filling.block.add(index - filling.index);
            self.fill_run(from, to, 1, stores, va);
        }
        if stores == Stores::NonTemporal {
            self.machine.store_fence();
        }
    }
}
