//! What lies at an address: the entry, and the region that says what is allowed there.

use crate::addr::{Level, Va};
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;
use crate::vma::Regions;

/// Where a descent ended: an entry that is no table.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub node: Node<'a>,
    pub level: Level,
    pub slot: usize,
    /// The entry as it was seen.
    pub raw: u64,
    /// The nearest interval's region.
    pub region: Option<SlabRef>,
}

impl<M: Machine> Regions<M> {
    /// Goes down to the entry that decides about `va`, which lies in the user half. Inside an
    /// epoch, or under the layout lock. Records are looked at only on the way back up to the
    /// nearest interval, which is rarely far.
    pub(crate) fn descend(&self, space: &SpaceRecord, va: Va) -> Spot<'_> {
        let (node, level, slot, raw) = self.descend_part(space, va);
        Spot { node, level, slot, raw, region: self.region_of(node, slot) }
    }

    /// The region that decides about a slot: that of the nearest interval. `None` also if a node on
    /// the way is dead, since its intervals may have been taken already, and those above it speak
    /// of something else.
    #[inline(always)]
    pub(crate) fn region_of<'a>(&'a self, mut node: Node<'a>, mut slot: usize) -> Option<SlabRef> {
        loop {
            let mut state = node.state();
            if state.listed() != 0 {
                if let found @ Some(_) = self.region_at(node, slot) {
                    return found;
                }
                state = node.state();
            }
            // Said by the same word as "no intervals".
            if state.dead() {
                return None;
            }
            let (parent, above) = node.parent()?;
            (node, slot) = (self.node(parent), above);
        }
    }
}
