//! What a fault has seen, and whether it is still so.
//!
//! A verb that edits regions raises the space's edit count before it visits the nodes below, each
//! under its lock. A fault reads the count before it descends. If it finds the count unchanged
//! under the node's lock, it installs by a region that is right, or the verb has yet to visit the
//! node and will correct what it finds there. If the count changed, the fault descends once more
//! and compares the region's handle, which cannot have been reused: the epoch keeps it.

use crate::addr::{Level, Order, Pfn, Va};
use crate::config::Thp;
use crate::entry::Flags;
use crate::fault::{FaultOrigin, FaultRequest, Faults};
use crate::frame::{AllocRequest, Data, SlabRef};
use crate::machine::{Act, Machine, Use};
use crate::space::attrs::Packed;
use crate::space::{Access, Edits, HugeAdvice, LeafSize, SpaceRecord};
use crate::vma::lookup::Spot;
use crate::vma::region::Region;

/// What a descent found, and the region that decides.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub space: &'a SpaceRecord,
    pub va: Va,
    /// The space's edits before the descent.
    pub edits: Edits,
    pub spot: Spot<'a>,
    pub region: &'a Region,
    pub attrs: Packed,
}

impl Seen<'_> {
    /// The index of the first page of a leaf of that size at the address.
    #[inline]
    pub fn index(&self, order: Order) -> u64 {
        (self.va.page() & !(order.frames() - 1)).wrapping_add(self.region.shift())
    }

    /// The flags of a fresh page. The marks are those that the access, retried, would set.
    #[inline]
    pub fn fresh_flags(&self, access: Access) -> Flags {
        let rights = self.attrs.rights();
        let dirty = access == Access::Write;
        Flags { write: rights.write, exec: rights.exec, accessed: true, dirty }
    }

    /// The flags of a copy that was just made for the space. What `write_forced` makes in a region
    /// that gives no writes is neither writable nor dirty: dirty without the right to write once
    /// let a program write into the shared zeros of all (Linux, CVE-2017-1000405).
    #[inline]
    pub fn own_flags(&self) -> Flags {
        let rights = self.attrs.rights();
        Flags { write: rights.write, exec: rights.exec, accessed: true, dirty: rights.write }
    }

    /// The flags of shared zeros.
    #[inline]
    pub fn zero_flags(&self) -> Flags {
        Flags { write: false, exec: self.attrs.rights().exec, accessed: true, dirty: false }
    }
}

impl<M: Machine> Faults<M> {
    /// Makes the record of a fresh block that of a page of the space.
    #[inline(always)]
    pub fn init_page(&self, seen: &Seen<'_>, pfn: Pfn, order: Order) {
        Data::init(self.frames.record(pfn), order, seen.space.owner(), seen.index(order));
    }

    /// Whether a base page of shared zeros serves the access to a reserved entry.
    #[inline]
    pub fn serves_zeros(&self, space: &SpaceRecord, ask: FaultRequest) -> bool {
        ask.access != Access::Write
            && self.config.zero_page
            && space.takes_zeros()
            && ask.origin != FaultOrigin::Owner
    }

    /// The size of the leaf that populates a reserved entry at `level`, `None` if it is smaller
    /// than the entry.
    #[inline]
    pub fn leaf_order(&self, attrs: Packed, level: Level, huge: bool) -> Option<Order> {
        let here = level.leaf_order()?;
        if here == Order::BASE { Some(here) } else { self.large_order(attrs, here, huge) }
    }

    /// `here` if the region is to have leaves of that size.
    pub fn large_order(&self, attrs: Packed, here: Order, huge: bool) -> Option<Order> {
        if here > self.rules.max_leaf {
            return None;
        }
        let wanted = match attrs.leaf() {
            LeafSize::Exactly(order) => order,
            LeafSize::Policy => {
                let allowed = match (self.config.thp, attrs.thp()) {
                    (Thp::Never, _) | (_, Some(HugeAdvice::NoHuge)) => false,
                    (Thp::Always, _) | (Thp::Advise, Some(HugeAdvice::Huge)) => true,
                    (Thp::Advise, None) => false,
                };
                if huge && allowed { Order::HUGE } else { Order::BASE }
            }
        };
        (wanted == here).then_some(here)
    }

    /// What the allocator is asked for a page at the address.
    #[inline(always)]
    pub fn want(&self, seen: &Seen<'_>) -> AllocRequest {
        self.want_block(seen, Order::BASE)
    }

    /// The same for the block of a leaf of that size, whichever of its pages is touched.
    #[inline(always)]
    pub fn want_block(&self, seen: &Seen<'_>, order: Order) -> AllocRequest {
        AllocRequest {
            policy: seen.attrs.numa().unwrap_or(self.config.numa),
            index: seen.index(order),
            use_: Use::Data,
            optional: false,
        }
    }

    /// Whether what was seen still holds. Under the node's lock, inside the epoch of the descent.
    #[inline(always)]
    pub fn still(&self, seen: &Seen<'_>) -> bool {
        self.still_unedited(seen).is_some()
    }

    /// The same; says whether nothing of the space was edited, so that what was seen beside the
    /// entry holds, too. `None` if the entry's part does not.
    #[inline(always)]
    pub fn still_unedited(&self, seen: &Seen<'_>) -> Option<bool> {
        let spot = &seen.spot;
        if spot.node.state().dead() || self.machine.entry(spot.node.pfn, spot.slot) != spot.raw {
            return None;
        }
        if seen.space.is_unedited(seen.edits) {
            return Some(true);
        }
        self.still_region(seen.space, seen.va, (spot.node.pfn, spot.region)).then_some(false)
    }

    /// Whether the region that was seen still decides, and faults may change entries. Under the
    /// node's lock, inside the epoch of the descent.
    #[inline(always)]
    pub fn same_region(&self, seen: &Seen<'_>) -> bool {
        let spot = &seen.spot;
        seen.space.is_unedited(seen.edits)
            || self.still_region(seen.space, seen.va, (spot.node.pfn, spot.region))
    }

    #[cold]
    fn still_region(&self, space: &SpaceRecord, va: Va, seen: (Pfn, Option<SlabRef>)) -> bool {
        let now = self.descend(space, va);
        !space.faults_stopped() && (now.node.pfn, now.region) == seen
    }

    /// What lies at `va`, if a region says what may be done there. Within an epoch, or under the
    /// mmap lock.
    pub fn seen<'s>(&'s self, space: &'s SpaceRecord, va: Va) -> Option<Seen<'s>> {
        let edits = space.edits();
        let spot = self.descend(space, va);
        let region = spot.region.map(|handle| self.region(handle))?;
        Some(Seen { space, va, edits, spot, region, attrs: region.packed() })
    }
}
