//! From a frame to the places where entries may map it.
//!
//! A page's index is fixed for life, and only a space, or a family of spaces, maps it. A space sees
//! an index at one address for each of its index shifts. So the places are: every space of the
//! family, at every shift. Which of them hold an entry that maps the frame, the page tables tell.

use crate::addr::{PAGE_SHIFT, Va};
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::rmap::Rmap;
use crate::space::SpaceRecord;
use crate::sync::atomic::Ordering;
use crate::sync::{Above, Family, Token};

/// The places of one page. While this lives no space comes to the family or leaves it, and none
/// takes a shift off its list.
pub(crate) struct Mappings<'v, M: Machine> {
    rmap: &'v Rmap<M>,
    index: u64,
    /// The first space; the others follow by `SpaceRecord::sibling` if there is a family.
    first: &'v SpaceRecord,
    family: bool,
}

impl<M: Machine> Rmap<M> {
    /// Runs `body` with the places of the page that `space` maps at `index`. Under the space's mmap
    /// lock; holds its family's lock until `body` returns.
    pub fn with_mappings<H: Above<Family>, R>(
        &self,
        space: &SpaceRecord,
        index: u64,
        token: &mut Token<H>,
        body: impl FnOnce(&Mappings<'_, M>) -> R,
    ) -> R {
        match SlabRef::from_raw(space.family.load(Ordering::Relaxed)) {
            Some(handle) => {
                let family = self.family(handle);
                let _guard = family.lock().lock(&self.machine, token, handle.raw());
                let first = self.first_member(family).unwrap_or(space);
                body(&Mappings { rmap: self, index, first, family: true })
            }
            None => body(&Mappings { rmap: self, index, first: space, family: false }),
        }
    }
}

impl<M: Machine> Mappings<'_, M> {
    /// Calls `each` with every space and address where an entry may map the page, until it says
    /// `false`.
    pub fn for_each_mapping(&self, mut each: impl FnMut(&SpaceRecord, Va) -> bool) {
        let (mut next, mut goes_on) = (Some(self.first), true);
        while let Some(space) = next
            && goes_on
        {
            let mut at = |shift| {
                let page = self.index.wrapping_sub(shift);
                let end = self.rmap.user_end().page();
                goes_on = goes_on && (page >= end || each(space, Va(page << PAGE_SHIFT)));
                goes_on
            };
            // A child that its fork has not finished is nobody else's to look into.
            if !space.is_unfinished() && at(0) {
                self.rmap.shifts(space, at);
            }
            next = if self.family { self.rmap.sibling(space) } else { None };
        }
    }

    /// The index of the page.
    pub fn index(&self) -> u64 {
        self.index
    }
}
