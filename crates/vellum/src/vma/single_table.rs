//! Giving a part of one lowest node to a region.

use crate::addr::{Level, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::{NoMemory, SpaceError};
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Work};
use crate::pagetable::node::Node;
use crate::pagetable::single_table::{InTable, above_table};
use crate::pagetable::unlinked::EmptyPath;
use crate::space::{Attrs, Backing};
use crate::sync::atomic::Ordering;
use crate::vma::Regions;
use crate::vma::edit::Edit;

impl<M: Machine> Regions<M> {
    /// Gives slots in which nothing is to a region the caller keeps a reference to, and reserves
    /// pages there, in a table that is there or is made. `false` if the range is no such one, and
    /// nothing was done.
    pub fn map_in_table(
        &self,
        edit: &mut Edit<'_>,
        range: VaRange,
        region: SlabRef,
    ) -> Result<bool, NoMemory> {
        let m = &self.machine;
        let Some(InTable { at, slots }) = self.in_table(edit.space, range) else {
            return map_in_new_table(self, edit, range, region);
        };
        let node = at.node;
        if (slots.0..slots.1).any(|slot| m.entry(node.pfn, slot) != 0) {
            return Ok(false);
        }
        self.intervals(node).set(edit, slots, Some(region))?;
        let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
        let _guard = node.lock(m, edit.token);
        (slots.0..slots.1).for_each(|slot| m.set_entry(node.pfn, slot, reserved));
        m.work(Work::Entry, range.pages());
        node.set_state(node.state().with_count(node.state().count() + range.pages()));
        Ok(true)
    }

    /// Changes the attributes of slots that are all of one region of private memory. `false` if
    /// they are not, and nothing was done.
    #[inline(always)]
    pub fn change_in_table(
        &self,
        edit: &mut Edit<'_>,
        part: InTable<'_>,
        change: &dyn Fn(Attrs) -> Attrs,
    ) -> Result<bool, SpaceError> {
        let (node, slots, space) = (part.node(), part.slots, edit.space);
        if !self.all_in_table(&part, |entry| !matches!(entry, Entry::Empty)) {
            return Err(SpaceError::Unmapped);
        }
        let (until, own) = self.intervals(node).from(slots.0);
        if until < slots.1 {
            return Ok(false);
        }
        let above =
            || node.parent().and_then(|(above, slot)| self.region_of(self.node(above), slot));
        let Some(old) = own.or_else(above) else { return Ok(false) };
        // What is kept for the next change must not keep an object.
        if self.region(old).packed().has_object() {
            return Ok(false);
        }
        let attrs = change(self.region(old).attrs());
        let packed = attrs.pack();
        if packed == self.region(old).packed() {
            return Ok(true);
        }
        if let (1.., 1..) = self.region(old).packed().taken_and_given(packed) {
            space.stop_faults();
        }
        let shift = self.region(old).shift();
        let says = |handle: &SlabRef| {
            self.region(*handle).packed() == packed && self.region(*handle).shift() == shift
        };
        let left = self.left_of(node, slots.0);
        let (new, made) = if left.as_ref().is_some_and(says) {
            (left, false)
        } else if above().as_ref().is_some_and(says) {
            // What the nodes above say need not be said here.
            (None, false)
        } else {
            let (new, made) = self.region_beside(edit, left, attrs, shift)?;
            (Some(new), made)
        };
        let set = self.intervals(node).set(edit, slots, new);
        if made && let Some(new) = new {
            self.keep_region(&space.changed, new, set.is_ok(), edit.deferred);
        }
        set?;
        Ok(true)
    }

    /// The region of the slots left of one, as far as this node says.
    #[inline]
    pub fn left_of(&self, node: Node<'_>, slot: usize) -> Option<SlabRef> {
        if slot == 0 { None } else { self.intervals(node).from(slot - 1).1 }
    }

    /// A region that says something new of a slot: the left neighbour's or the one last made like
    /// this, if they say it, to which the caller gets no reference; else one that is made, and
    /// `true`: what becomes of that reference [`keep_region`](Regions::keep_region) is told.
    #[inline]
    pub fn region_beside(
        &self,
        edit: &mut Edit<'_>,
        left: Option<SlabRef>,
        attrs: Attrs,
        shift: u64,
    ) -> Result<(SlabRef, bool), NoMemory> {
        let packed = attrs.pack();
        let says = |handle: &SlabRef| {
            self.region(*handle).packed() == packed && self.region(*handle).shift() == shift
        };
        let last = SlabRef::from_raw(edit.space.changed.load(Ordering::Relaxed));
        if let Some(known) = left.filter(says).or_else(|| last.filter(says)) {
            return Ok((known, false));
        }
        let backing = Backing::anonymous(shift);
        self.make_region(attrs, backing, edit.token).map(|made| (made, true))
    }
}

/// [`Regions::map_in_table`] where the way down ends above. The tables are filled before one store
/// shows them. What they say they have said to nobody before, so it is no edit: a fault that has
/// seen the empty entry finds another.
#[inline(never)]
fn map_in_new_table<M: Machine>(
    regions: &Regions<M>,
    edit: &mut Edit<'_>,
    range: VaRange,
    region: SlabRef,
) -> Result<bool, NoMemory> {
    let m = &regions.machine;
    let place = above_table(regions, edit.space, range).filter(|place| place.raw == 0);
    let Some(place) = place else { return Ok(false) };
    let Some(path) = EmptyPath(regions).make(place, range.start())? else { return Ok(false) };
    let (node, pages) = (path.last, range.pages());
    let first = Level::ONE.slot(range.start());
    let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
    (first..first + pages as usize).for_each(|slot| m.set_entry(node.pfn, slot, reserved));
    m.work(Work::Entry, pages);
    node.set_state(node.state().with_count(pages));
    regions.intervals(node).begin(first, region);
    let _guard = place.node.lock(m, edit.token);
    path.link(m, place);
    place.node.set_state(place.node.state().with_count(place.node.state().count() + 1));
    Ok(true)
}
