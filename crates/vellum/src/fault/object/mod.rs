//! Faults in regions that map an object, and taking an object's pages out of every space.

mod around;
mod beside;
mod block;
mod device;
mod page;
mod protect;
mod split;
mod unmap;

pub(crate) use block::BlockFault;
pub(crate) use device::DeviceFault;
pub(crate) use page::ObjectFault;
pub(crate) use protect::ProtectObject;
pub(crate) use split::Split;
pub(crate) use unmap::{BATCH, UnmapObject};
