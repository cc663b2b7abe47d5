//! A block for a leaf, cleared on the way if the switch `alloc.zero` asks for it.

use crate::addr::{Order, Pfn, Va};
use crate::clear::{Clear, Extent};
use crate::error::{NoMemory, Stopped};
use crate::frame::AllocRequest;
use crate::machine::Machine;

/// What is known of a block's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockContents {
    /// Anything.
    Old,
    /// Zeros, stored through an address that is not the program's.
    Zeros,
}

impl<M: Machine> Clear<M> {
    /// A block for a leaf of `order`, cleared if the allocator is to do that.
    pub fn take_block(
        &self,
        order: Order,
        want: &AllocRequest,
        exact: bool,
    ) -> Result<(Pfn, BlockContents), NoBlock> {
        let pfn = self.alloc_block(order, want, exact)?;
        if !self.config.alloc_zero {
            return Ok((pfn, BlockContents::Old));
        }
        let extent =
            Extent { first: pfn, frames: order.frames(), at: Va(pfn.addr()), fault: Some(0) };
        match self.clear_block(&extent) {
            Ok(()) => Ok((pfn, BlockContents::Zeros)),
            Err(Stopped) => {
                self.untake_block(pfn, order, exact);
                Err(NoBlock::Stopped)
            }
        }
    }
}

/// Why there is no block.
#[derive(PartialEq)]
pub(crate) enum NoBlock {
    Memory,
    Stopped,
}

impl From<NoMemory> for NoBlock {
    fn from(NoMemory: NoMemory) -> NoBlock {
        NoBlock::Memory
    }
}
