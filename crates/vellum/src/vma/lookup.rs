//! What lies at an address: the entry, and the region that says what is allowed there.

use crate::addr::Va;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;
use crate::vma::Regions;

/// Where a descent ended: an entry that is no table.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub at: Place<'a>,
    /// The nearest interval's region.
    pub region: Option<SlabRef>,
}

impl<'a> core::ops::Deref for Spot<'a> {
    type Target = Place<'a>;

    #[inline(always)]
    fn deref(&self) -> &Place<'a> {
        &self.at
    }
}

impl<M: Machine> Regions<M> {
    /// Goes down to the entry that decides about `va`, which lies in the user half. Inside an
    /// epoch, or under the mmap lock. Records are looked at only on the way back up to the
    /// nearest interval, which is rarely far.
    pub fn descend(&self, space: &SpaceRecord, va: Va) -> Spot<'_> {
        let at = self.descend_part(space, va);
        Spot { at, region: self.region_of(at.node, at.slot) }
    }

    /// The region that decides about a slot: that of the nearest interval. In a node that died
    /// meanwhile the intervals may be gone, and what those above it say is of something else. So
    /// whoever changes an entry by it asks under the node's lock whether the node is dead, and a
    /// refusal is confirmed under the mmap lock.
    #[inline(always)]
    pub fn region_of<'a>(&'a self, mut node: Node<'a>, mut slot: usize) -> Option<SlabRef> {
        loop {
            if node.state().listed() != 0
                && let found @ Some(_) = self.intervals(node).region_at(slot)
            {
                return found;
            }
            let (parent, above) = node.parent()?;
            (node, slot) = (self.node(parent), above);
        }
    }
}
