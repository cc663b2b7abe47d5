//! Moving a mapping, making it longer or shorter.
//!
//! Pages never move, entries do, and tables of them as a whole where they may. Everything in the
//! old range is taken away first: tables all of whose entries leave are detached (`leaving.rs`),
//! other entries stashed (`stash.rs`), with one flush. So nothing can appear there that the new
//! place has no table for; then the tables are counted and taken, and if they cannot be had the old
//! range is what it was to the bit (`relocate.rs`). Then the new place is laid out (`lay.rs`). A
//! frame keeps its index; the distance goes into the new regions' shift and the space's list of
//! index shifts, so nothing is written for each page.
//!
//! A huge leaf stays one if its new place is aligned for it, else it arrives as base pages.

mod alone;
mod lay;
mod leaving;
mod live_shifts;
mod plan;
mod relocate;
mod single_table;
mod stash;

use crate::addr::{Level, Order, Va, VaRange};
use crate::entry::{Busy, Codec, Entry};
use crate::error::SpaceError;
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::{Machine, Verb};
use crate::ops::map::Map;
use crate::ops::remap::plan::RemapPlan;
use crate::ops::remap::relocate::Relocate;
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::pagetable::cursor::Place;
use crate::platform::over;
use crate::space::{LeafSize, Placement, Space, SpaceRecord};
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

pub(crate) struct Remap<'v, M: Machine>(pub &'v Faults<M>);

over!(Remap, Faults);

impl<'v, M: Machine> Remap<'v, M> {
    /// `Vm::remap`.
    pub fn remap(
        self,
        space: &Space,
        old: Va,
        old_bytes: u64,
        new_bytes: u64,
        to: Placement,
    ) -> Result<Va, SpaceError> {
        self.verb_with_memory(Verb::Remap, || {
            let end = self.user_end();
            let range = VaRange::new(old, old_bytes, end)?;
            VaRange::new(Va(0), new_bytes, end)?;
            self.edit(self.record_of(space), |edit| self.remap_range(edit, range, new_bytes, to))
        })
    }

    fn remap_range(
        self,
        edit: &mut Edit<'_>,
        old: VaRange,
        new_bytes: u64,
        to: Placement,
    ) -> Result<Va, SpaceError> {
        let end = self.user_end();
        let space = edit.space;
        if !self.is_mapped(space, old) {
            return Err(SpaceError::Unmapped);
        }
        let last = self.descend(space, Va(old.end().0 - 1)).region.ok_or(SpaceError::Unmapped)?;
        let align = match self.region(last).packed().leaf() {
            LeafSize::Exactly(order) => order.bytes(),
            LeafSize::Policy => Order::BASE.bytes(),
        };
        if new_bytes & (align - 1) != 0 {
            return Err(SpaceError::LeafSize);
        }
        let may_stay = matches!(to, Placement::Anywhere) || to == Placement::At(old.start());
        if may_stay && new_bytes <= old.bytes() {
            self.cut_tail(edit, old, new_bytes)?;
            return Ok(old.start());
        }
        if may_stay {
            let tail = VaRange::new(old.end(), new_bytes - old.bytes(), end);
            if let Ok(tail) = tail
                && self.is_hole(space, tail)
            {
                Map(self.0).map_range(edit, tail, last, Placement::At(tail.start()))?;
                return Ok(old.start());
            }
            if matches!(to, Placement::At(_)) {
                tail?;
                return Err(SpaceError::Occupied);
            }
        }
        let new = Map(self.0).place(space, to, new_bytes, align)?;
        if new.intersect(old).is_some() {
            return Err(SpaceError::Occupied);
        }
        let moved = VaRange::new(old.start(), old.bytes().min(new_bytes), end)?;
        Relocate(self.0).relocate(
            edit,
            &RemapPlan {
                all: old,
                moved,
                new,
                replace: matches!(to, Placement::Replace(_)),
                delta: new.start().0.wrapping_sub(old.start().0),
                bytes: new_bytes,
            },
        )?;
        Ok(new.start())
    }

    /// Unmaps what is past the first `keep` bytes of a range.
    fn cut_tail(self, edit: &mut Edit<'_>, range: VaRange, keep: u64) -> Result<(), SpaceError> {
        if keep < range.bytes() {
            let tail =
                VaRange::new(Va(range.start().0 + keep), range.bytes() - keep, self.user_end())?;
            self.make_boundaries(edit.space, tail, false)?;
            Unmap(self.0).take_out(edit, tail, Leftover::Nothing);
        }
        Ok(())
    }

    /// Where the run of pages from `va` on ends, inside `range`, that are of one region, and the
    /// region.
    pub(crate) fn same_region(
        self,
        space: &SpaceRecord,
        va: Va,
        range: VaRange,
    ) -> Option<(Va, SlabRef)> {
        let first = self.descend(space, va);
        let mut end = va;
        while end < range.end() {
            let spot = self.descend(space, end);
            if spot.region != first.region {
                break;
            }
            // As far as this node's interval goes, if no table comes first.
            let (last, _) = self.intervals(spot.node).from(spot.slot);
            let is_table = |slot: &usize| {
                matches!(self.load(spot.node.pfn, *slot, spot.level), Entry::Table(_))
            };
            let tables = if spot.level > Level::ONE { spot.slot..last } else { 0..0 };
            let stop = tables.into_iter().find(is_table).unwrap_or(last);
            let base = end.align_down(spot.level.entry_bytes() << 9).0;
            end = Va(base + ((stop as u64) << spot.level.shift()));
        }
        first.region.map(|handle| (end.min(range.end()), handle))
    }

    /// Makes an entry absent; `false` if a fault has it in transit. Under the node's lock.
    #[inline(always)]
    pub(super) fn stash_entry(self, at: Place<'_>, va: Va, receipt: &mut Receipt) -> bool {
        let (level, zeros) = (at.level, self.zero_span());
        let new = |entry| match entry {
            Entry::Leaf(pfn, _)
                if (level > Level::ONE || pfn.0.wrapping_sub(zeros.0.0) < zeros.1)
                    && self.is_zero_leaf(pfn, level) =>
            {
                Some(Entry::Busy(Busy::Nothing))
            }
            Entry::Leaf(pfn, _) | Entry::Inaccessible(pfn) => Some(Entry::Busy(Busy::Page(pfn))),
            Entry::Reserved | Entry::ZeroTable(_) => Some(Entry::Busy(Busy::Nothing)),
            _ => None,
        };
        let old = self.exchange(at, |e| new(e).map(|e| M::Codec::encode(e, level)));
        match old {
            Some(Entry::Leaf(..)) => receipt.leaf(va, level),
            Some(Entry::ZeroTable(_)) => receipt.span(va, level.entry_bytes()),
            _ => {}
        }
        old.is_some()
    }
}
