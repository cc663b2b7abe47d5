//! From a frame to the entries that map it: map counts, owners, index shifts, families of forks.

pub(crate) mod map_count;
pub(crate) mod shifts;
