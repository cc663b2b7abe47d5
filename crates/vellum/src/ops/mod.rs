//! The verbs, one file each.

pub(crate) mod advise;
mod collapse;
pub(crate) mod copy;
pub(crate) mod forbid_zeros;
pub(crate) mod inspect;
pub(crate) mod map;
pub(crate) mod object;
pub(crate) mod poison;
pub(crate) mod protect;
pub(crate) mod remap;
pub(crate) mod spaces;
pub(crate) mod unmap;
mod unmap_page;
mod unmap_table;
pub(crate) mod write_forced;
