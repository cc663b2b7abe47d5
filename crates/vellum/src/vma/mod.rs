//! What a range of addresses allows: regions, and the intervals of table nodes that name them.

mod assign;
pub(crate) mod deferred_free;
pub(crate) mod detach;
pub(crate) mod edit;
pub(crate) mod find_hole;
pub(crate) mod interval;
pub(crate) mod lookup;
pub(crate) mod region;
mod single_table;

use crate::frame::Slab;
use crate::machine::Machine;
use crate::pagetable::PageTables;
use crate::platform::above;
use crate::stats::{Counter, Stats};
use crate::vma::interval::pairs::LIST_PAIRS;

/// The layer that knows what ranges of addresses allow.
pub(crate) struct Regions<M: Machine> {
    tables: PageTables<M>,
    regions: Slab,
    pub lists: [Slab; 3],
}

above!(Regions, tables: PageTables);

impl<M: Machine> Regions<M> {
    pub fn new(tables: PageTables<M>) -> Regions<M> {
        Regions {
            tables,
            regions: Slab::new(64),
            lists: LIST_PAIRS.map(|pairs| Slab::new(pairs * 8)),
        }
    }

    /// A reading of every counter, summed over the CPUs.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::sum(self.counters());
        self.frames.stats(&mut stats);
        stats.add(Counter::SlabPages, self.slabs().iter().map(|slab| slab.pages() as i64).sum());
        stats
    }

    /// Every slab.
    pub fn slabs(&self) -> [&Slab; 6] {
        let ([a, b, c], [spaces, small]) = (&self.lists, self.rmap_slabs());
        [spaces, &self.regions, small, a, b, c]
    }
}
