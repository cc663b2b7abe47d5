//! Page tables: nodes, walks, boundaries, splits, entries in transit.

pub(crate) mod boundary;
pub(crate) mod node;
pub(crate) mod single_table;
pub(crate) mod split;
pub(crate) mod transit;
pub(crate) mod unlinked;
pub(crate) mod walk;
