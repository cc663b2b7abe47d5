//! Set-associative caches, and the hierarchy of them that a machine has.
//!
//! A cache here holds line addresses and nothing else: what the bytes are is the business of the
//! simulated memory. One cache is [`Cache`]; the private and shared levels of all CPUs are a
//! [`Hierarchy`].

mod first;
mod geometry;
mod hierarchy;
mod last;
mod prefetch;
mod recent;
mod replacement;
mod set;
mod single;
mod stream;
mod ways;

pub(crate) use first::First;
pub use first::FirstLevel;
pub(crate) use geometry::Divider;
pub use geometry::{
    Geometry, GeometryError, Index, MAX_AGES, MAX_LINE, MAX_SETS, MAX_WAYS, Policy,
};
pub use hierarchy::{
    Agent, CpuCounters, Hierarchy, Inclusion, Kind, Level, Served, Shape, Structure,
};
pub use prefetch::{Fetch, MAX_STREAMS, PrefetchShape, Prefetcher};
pub use single::{Cache, Lookup, Victim};
pub use stream::StreamCost;
pub use ways::{WayPredictor, linear_hash};
