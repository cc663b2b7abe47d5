//! A block for a leaf, cleared on the way if the switch `alloc.zero` asks for it.

use crate::addr::{Order, Pfn, Va};
use crate::clear::{Clear, Extent};
use crate::error::{NoMemory, Stopped};
use crate::frame::AllocRequest;
use crate::machine::Machine;

/// What is known of a block's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bytes {
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
    ) -> Result<(Pfn, Bytes), Short> {
        let pfn = self.alloc_block(order, want, exact)?;
        if !self.config.alloc_zero {
            return Ok((pfn, Bytes::Old));
        }
        let extent = Extent { first: pfn, frames: order.frames(), at: Va(pfn.addr()), fault: 0 };
        match self.clear_block(&extent) {
            Ok(()) => Ok((pfn, Bytes::Zeros)),
            Err(Stopped) => {
                self.untake(pfn, order);
                Err(Short::Stopped)
            }
        }
    }
}

/// Why there is no block.
#[derive(PartialEq)]
pub(crate) enum Short {
    Memory,
    Stopped,
}

impl From<NoMemory> for Short {
    fn from(NoMemory: NoMemory) -> Short {
        Short::Memory
    }
}
