//! Blocks of 2 MiB that become single pages.

use crate::error::NoMemory;
use crate::fault::Faults;
use crate::fault::object::UnmapObject;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::object::{ObjectBlock, Tries};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;

pub(crate) struct Split<'v, M: Machine>(pub &'v Faults<M>);

over!(Split, Faults);

impl<M: Machine> Split<'_, M> {
    /// Has no block at an index: one that is there leaves every space, and becomes single pages.
    /// The caller keeps the object, holds no lock and is in no epoch. It may have earlier pages
    /// frozen.
    ///
    /// # Errors
    /// There is no memory for a node of the trie; nothing changed.
    pub fn split(self, object: SlabRef, index: u64) -> Result<(), NoMemory> {
        if !ObjectBlock(self.0).is_at(object, index) {
            return Ok(());
        }
        let mut node = Tries::new(self.0).reserve();
        node.fill_to_split()?;
        let Some(frozen) = self.freeze(object, index) else { return Ok(()) };
        if ObjectFrame(self.0).is_block(&[frozen]) {
            UnmapObject(self.0).everywhere(object, &[frozen]);
            ObjectBlock(self.0).split(object, frozen, &mut node);
        } else {
            self.thaw(frozen.0);
        }
        Ok(())
    }
}
