//! From a frame to the entries that map it: map counts, owners, index shifts, families of forks.

pub(crate) mod attachment;
pub(crate) mod family;
pub(crate) mod map_count;
pub(crate) mod mappings;
pub(crate) mod object_page;
pub(super) mod shifts;

use crate::frame::{Owner, Slab};
use crate::machine::Machine;
use crate::platform::above;
use crate::space::SpaceRecord;
use crate::sync::atomic::AtomicU64;
use crate::zero::Zero;

/// The layer that knows which spaces map a frame.
pub(crate) struct Rmap<M: Machine> {
    zero: Zero<M>,
    pub spaces: Slab,
    /// Forks that have begun. Each is numbered by it. Anyone.
    pub forks: AtomicU64,
    /// Fork families, attachments, and parts of lists of index shifts.
    small: Slab,
}

above!(Rmap, zero: Zero);

impl<M: Machine> Rmap<M> {
    pub fn new(zero: Zero<M>) -> Rmap<M> {
        let spaces = Slab::new(size_of::<SpaceRecord>());
        Rmap { zero, spaces, forks: AtomicU64::new(0), small: Slab::new(64) }
    }

    /// Slabs of this layer.
    pub fn rmap_slabs(&self) -> [&Slab; 2] {
        [&self.spaces, &self.small]
    }
}

impl SpaceRecord {
    /// The owner of frames that only this space maps.
    #[inline]
    pub fn owner(&self) -> Owner {
        Owner::Space(self.id())
    }
}
