//! Dropping the index shifts that no region of a space has any more.
//!
//! Every remap to a new distance adds a shift, and whoever goes from a frame to its mappings tries
//! all of them. So before a remap adds to as many as were kept the last time, it goes through the
//! intervals of all tables and keeps the shifts of their regions. At rest every entry is of the
//! region that decides about its address, so no entry is left whose page is at a shift that goes.
//!
//! What that costs is paid by the remaps before it. Those that add a shift try all that are there,
//! which the list may grow for only so far: to look at `n` tables and intervals costs as much as
//! those remaps together if they are four times the root of `n`, and that is the least for both. At
//! least there were as many as shifts are kept, and [`LEAST`].

use crate::addr::Level;
use crate::entry::Entry;
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::machine::Machine;
use crate::pagetable::cursor::Cursor;
use crate::platform::over;
use crate::rmap::shifts::ShiftLists;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::vma::edit::Edit;

/// Shifts that are added before unused ones are looked for, at least: nine objects of the list.
const LEAST: u32 = 63;
/// So many times the root of what is looked at: an interval takes eight times what it takes to try
/// a shift (42 ns, and 5).
const ROOTS: u64 = 4;

pub(crate) struct LiveShifts<'v, M: Machine>(pub &'v Faults<M>);

over!(LiveShifts, Faults);

/// What a walk has found.
#[derive(Default)]
struct Live {
    /// The new list.
    list: AtomicU64,
    shifts: u32,
    /// Tables, and intervals.
    looked: u64,
}

impl<M: Machine> LiveShifts<'_, M> {
    /// Drops the shifts that no region has, if it is time. Without memory for a new list the old
    /// one stays as it is.
    #[inline(always)]
    pub(super) fn keep_live_shifts(self, edit: &mut Edit<'_>) {
        let space = edit.space;
        let due = space.shifts_due.load(Ordering::Relaxed).max(LEAST);
        if space.shifts_added.load(Ordering::Relaxed) >= due {
            self.keep_now(edit);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_now(self, edit: &mut Edit<'_>) {
        let (space, mut live) = (edit.space, Live::default());
        let found = self.find_live(edit, self.root(space), &mut live);
        match found {
            Ok(()) => self.replace_shifts(space, &live.list, edit.token),
            Err(NoMemory) => ShiftLists(self.0).drop_list(&live.list, edit.token),
        }
        space.shifts_added.store(0, Ordering::Relaxed);
        let most = u32::try_from(ROOTS * live.looked.isqrt()).unwrap_or(u32::MAX);
        space.shifts_due.store(live.shifts.max(most), Ordering::Relaxed);
    }

    /// Adds the shifts of all regions of a table and those below it.
    fn find_live(
        self,
        edit: &mut Edit<'_>,
        at: Cursor<'_>,
        live: &mut Live,
    ) -> Result<(), NoMemory> {
        live.looked += 1;
        let mut added = Ok(());
        self.intervals(at.node).check(|handle| {
            live.looked += 1;
            let region = self.region(handle);
            if added.is_ok() && !region.packed().is_shared_view() {
                added = ShiftLists(self.0)
                    .add(&live.list, region.shift(), edit.token)
                    .map(|new| live.shifts += u32::from(new));
            }
        });
        added?;
        if at.level == Level::ONE {
            return Ok(());
        }
        // Nothing but the caller takes or makes tables, so the count says when no more can follow.
        let (mut left, mut slot) = (at.node.state().count(), 0);
        while left != 0 && slot < self.slots(at.level) {
            let entry = self.load(at.node.pfn, slot, at.level);
            if let Entry::Table(child) = entry {
                self.find_live(edit, at.below(slot, self.node(child)), live)?;
            }
            left -= u64::from(entry != Entry::Empty);
            slot += 1;
        }
        Ok(())
    }
}
