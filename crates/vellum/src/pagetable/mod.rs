//! Page tables: nodes, walks, boundaries, splits, entries in transit.

pub(crate) mod boundary;
pub(crate) mod cursor;
pub(crate) mod node;
pub(crate) mod preallocated;
mod private_zeros;
pub(crate) mod single_table;
mod split;
pub(crate) mod transit;
pub(crate) mod unlinked;
pub(crate) mod walk;

use crate::machine::Machine;
use crate::platform::above;
use crate::rmap::Rmap;

/// The layer that has the page tables.
pub(crate) struct PageTables<M: Machine> {
    rmap: Rmap<M>,
}

above!(PageTables, rmap: Rmap);

impl<M: Machine> PageTables<M> {
    pub fn new(rmap: Rmap<M>) -> PageTables<M> {
        PageTables { rmap }
    }
}
