//! Faults that meet the shared zeros: read faults that map them, and writes in their place.

mod page;
mod table;

pub(super) use page::ZeroPage;
pub(crate) use table::ZeroTable;
