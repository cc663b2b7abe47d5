//! Blocks of 2 MiB that become single pages.

use crate::error::NoMemory;
use crate::fault::Faults;
use crate::fault::object::UnmapObject;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::object::{ObjectBlock, ObjectIo, Tries};
use crate::platform::over;

pub(crate) struct Split<'v, M: Machine>(pub &'v Faults<M>);

over!(Split, Faults);

impl<M: Machine> Split<'_, M> {
    /// Has no block at an index: one that is there leaves every space, and becomes single pages. It
    /// waits for who has the block in hand, and for memory, for one of them at a time. The caller
    /// keeps the object, holds no lock, is in no epoch, and looks for no memory itself.
    ///
    /// # Errors
    /// There is no memory for a node of the trie; nothing changed.
    pub fn split(self, object: SlabRef, index: u64) -> Result<(), NoMemory> {
        self.split_by(object, index, || self.with_memory(|| self.try_split(object, index)))
    }

    /// The same, but it waits for no memory.
    pub fn split_now(self, object: SlabRef, index: u64) -> Result<(), NoMemory> {
        self.split_by(object, index, || self.try_split(object, index))
    }

    fn split_by(
        self,
        object: SlabRef,
        index: u64,
        mut attempt: impl FnMut() -> Result<bool, NoMemory>,
    ) -> Result<(), NoMemory> {
        while ObjectBlock(self.0).is_at(object, index) && !attempt()? {
            // Nothing is in hand here that others could wait for.
            if let Some(pfn) = ObjectBlock(self.0).keep_taken(object, index) {
                ObjectIo(self.0).wait_for_page(pfn);
            }
        }
        Ok(())
    }

    /// The same without waiting at all: a block that somebody has in hand stays. Says whether it
    /// split one.
    pub fn try_split(self, object: SlabRef, index: u64) -> Result<bool, NoMemory> {
        // Or who looks for memory again would be refused where none is needed any more.
        if !ObjectBlock(self.0).is_at(object, index) {
            return Ok(false);
        }
        let _in_hand = self.hands.begin(&self.machine);
        let mut node = Tries::new(self.0).reserve();
        node.fill_to_split()?;
        let block = ObjectBlock(self.0).freeze(object, index);
        if let Some(block) = block {
            UnmapObject(self.0).everywhere(object, &[block]);
            ObjectBlock(self.0).split(object, block, &mut node);
        }
        Ok(block.is_some())
    }
}
