//! What a range of addresses allows: regions, and the intervals of table nodes that name them.

pub(crate) mod assign;
pub(crate) mod deferred_free;
pub(crate) mod detach;
pub(crate) mod find_hole;
pub(crate) mod interval;
pub(crate) mod interval_undo;
pub(crate) mod pairs;
pub(crate) mod region;
