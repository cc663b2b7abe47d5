//! Moving what is mapped in a range to another: everything that takes memory first, then what
//! shows.
//!
//! ```text
//! regions, index shifts, lists of intervals    made or made room for
//! stash the old range                          exactly undone if what follows fails
//! count the tables, take their frames           the last that can fail
//! split at the old range's ends, replace, assign, transfer
//! ```
//! The counts are of a stashed range, so nobody can make them wrong. Rejected: making the new place
//! while the old one lives, which leaves tables, split leaves and a hole where something was to be
//! replaced if the last table cannot be had.

use crate::addr::{Level, Va, VaRange};
use crate::entry::{Busy, Entry};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::ops::map::Map;
use crate::ops::remap::Remap;
use crate::ops::remap::single_table::RelocateInTable;
use crate::ops::remap::stash::Stash;
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::pagetable::boundary::MissingTables;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::preallocated::Preallocated;
use crate::platform::over;
use crate::space::{Backing, SpaceRecord};
use crate::sync::atomic::Ordering;
use crate::vma::edit::Edit;
use crate::vma::interval::pairs::list_class;
use crate::vma::interval::undo::Undo;

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct RemapPlan {
    /// Everything that leaves the old place: what moves and, behind it, a tail that goes.
    pub all: VaRange,
    /// What moves.
    pub moved: VaRange,
    pub new: VaRange,
    /// Whether something may be in the new place.
    pub replace: bool,
}

impl RemapPlan {
    fn delta(&self) -> u64 {
        self.new.start().0.wrapping_sub(self.moved.start().0)
    }

    /// Whether all of an entry moves, to where an entry of that level may stand.
    fn moves_whole(&self, va: Va, level: Level) -> bool {
        let (bytes, to) = (level.entry_bytes(), Va(va.0.wrapping_add(self.delta())));
        va >= self.moved.start() && va.0 + bytes <= self.moved.end().0 && to.is_aligned(bytes)
    }
}

/// What was made for the new place and is not in it yet.
#[derive(Default)]
struct Prepared {
    /// Regions in the order of their addresses, chained; `replaces` is 1 where its index shift
    /// is new, too.
    first: Option<SlabRef>,
    last: Option<SlabRef>,
    parts: usize,
    /// Lists of `class` for nodes that will be new, chained by their first words.
    lists: Option<SlabRef>,
    class: usize,
}

/// Counts the tables a new place lacks, by ascending addresses.
struct TableCount {
    new: VaRange,
    /// Where the old range will have been split before.
    boundaries: [(Va, Option<MissingTables>); 3],
    /// Where the table counted last begins, by level.
    last: [u64; 6],
    tables: usize,
}

impl TableCount {
    fn new(new: VaRange) -> TableCount {
        TableCount { new, boundaries: [(Va(0), None); 3], last: [u64::MAX; 6], tables: 0 }
    }
    /// Whether the old place's ends make the table with entries of `level` that covers the address.
    fn is_cut(&self, va: Va, level: Level) -> bool {
        let base = |va: Va| va.align_down(level.entry_bytes() << 9);
        self.boundaries.iter().any(|&(at, lack)| {
            let made = lack.is_some_and(|lack| lack.last <= level && level <= lack.below);
            made && base(at) == base(va)
        })
    }
    /// The table with entries of `level` that covers the address, if it was not seen before: its
    /// first address and whether it lies in the new place as a whole.
    fn table(&mut self, va: Va, level: Level) -> Option<bool> {
        let span = level.entry_bytes() << 9;
        let base = va.align_down(span).0;
        let seen = core::mem::replace(&mut self.last[level.0 as usize], base);
        (seen != base).then_some(self.new.start().0 <= base && base + span <= self.new.end().0)
    }
}

pub(crate) struct Relocate<'v, M: Machine>(pub &'v Faults<M>);

over!(Relocate, Faults);

impl<M: Machine> Relocate<'_, M> {
    /// Moves what is mapped.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing changed.
    pub(super) fn relocate(self, edit: &mut Edit<'_>, plan: &RemapPlan) -> Result<(), NoMemory> {
        let RemapPlan { all, moved, new, .. } = *plan;
        if moved == all && RelocateInTable(self.0).relocate_in_table(edit, moved, new)? {
            return Ok(());
        }
        self.relocate_anywhere(edit, plan)
    }

    #[inline(never)]
    fn relocate_anywhere(self, edit: &mut Edit<'_>, plan: &RemapPlan) -> Result<(), NoMemory> {
        let all = plan.all;
        let space = edit.space;
        let (mut undo, mut prepared) = (Undo::new(), Prepared::default());
        let made = self.make_ready(edit, plan, &mut prepared, &mut undo);
        let tables = made.and_then(|()| {
            let receipt = Stash(self.0).stash(space, all);
            let _flushed = self.flush(space, receipt);
            self.count_tables(space, plan)
                .and_then(|tables| Preallocated::new(self.0, tables))
                .inspect_err(|_| {
                    Stash(self.0).unstash(space, all);
                })
        });
        self.end_exchanges(undo, tables.is_ok(), edit);
        let done = tables.map(|mut tables| {
            self.move_prepared(edit, plan, &mut prepared, &mut tables);
            tables.free(self.0);
        });
        self.drop_ready(edit, prepared, done.is_err());
        done
    }

    /// Makes the regions of the new place, and room for their intervals.
    fn make_ready(
        self,
        edit: &mut Edit<'_>,
        plan: &RemapPlan,
        prepared: &mut Prepared,
        undo: &mut Undo,
    ) -> Result<(), NoMemory> {
        let space = edit.space;
        let pages = (plan.delta() as i64 >> 12) as u64;
        self.parts(space, plan, &mut |_, handle| {
            let region = self.region(handle);
            let shift = region.shift().wrapping_sub(pages);
            let moved = match self.view_of(region, pages) {
                Some(view) => Map(self.0).view_region(edit, region.attrs(), view)?,
                None => {
                    let backing = Backing::anonymous(shift);
                    self.make_region(region.attrs(), backing, edit.token)?
                }
            };
            match prepared.last {
                Some(last) => self.region(last).next.store(moved.raw(), Ordering::Relaxed),
                None => prepared.first = Some(moved),
            }
            prepared.last = Some(moved);
            prepared.parts += 1;
            // Where an object is mapped its attachments say.
            if !region.packed().is_shared_view() && self.add_shift(space, shift, edit.token)? {
                self.region(moved).set_replaces(1);
            }
            Ok(())
        })?;
        let Some(first) = prepared.first else { return Ok(()) };
        if prepared.parts == 1 {
            return self.make_room(edit, plan.new, first, undo);
        }
        // Two pairs at most for each end of a part. A node that will be new has room for one
        // boundary inside it.
        let pairs = 2 * prepared.parts + 2;
        self.edges(space, plan.new, &mut |node, _, _| {
            self.intervals(node).room(pairs, edit.token, undo)
        })?;
        prepared.class = list_class(pairs);
        let lists = if prepared.parts > 2 { 2 * prepared.parts } else { 0 };
        for _ in 0..lists {
            let list = self.lists[prepared.class].alloc(&self.machine, &self.frames, edit.token)?;
            self.chain_list(list, prepared.lists);
            prepared.lists = Some(list);
        }
        Ok(())
    }

    /// Gives back what of the preparations was not used, the regions' own names in any case;
    /// `undo`: index shifts go, too.
    fn drop_ready(self, edit: &mut Edit<'_>, prepared: Prepared, undo: bool) {
        let mut next = prepared.first;
        while let Some(handle) = next {
            let region = self.region(handle);
            next = SlabRef::from_raw(region.next.load(Ordering::Relaxed));
            if region.replaces() == 1 {
                region.set_replaces(0);
                if undo {
                    self.undo_shift(edit.space, region.shift(), edit.token);
                }
            }
            self.drop_region(handle, edit.deferred);
        }
        let mut next = prepared.lists;
        while let Some(list) = next {
            next = self.next_list(list);
            self.lists[prepared.class].free(&self.machine, &self.frames, edit.token, list);
        }
    }

    /// Calls `each` with every part of the new place that is of one region, and the old place's
    /// region.
    fn parts(
        self,
        space: &SpaceRecord,
        plan: &RemapPlan,
        each: &mut dyn FnMut(VaRange, SlabRef) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let RemapPlan { moved, new, .. } = *plan;
        let mut va = moved.start();
        while va < moved.end() {
            // The range was found mapped, so every page has one.
            let Some((end, handle)) = Remap(self.0).same_region(space, va, moved) else { break };
            let start = va.0.wrapping_add(plan.delta());
            // What is longer belongs to the last page's region.
            let stop =
                if end == moved.end() { new.end().0 } else { end.0.wrapping_add(plan.delta()) };
            if let Ok(part) = VaRange::new(Va(start), stop - start, self.user_end()) {
                each(part, handle)?;
            }
            va = end;
        }
        Ok(())
    }

    /// The tables that the stashed old place's ends and the new place take, at most.
    fn count_tables(self, space: &SpaceRecord, plan: &RemapPlan) -> Result<usize, NoMemory> {
        let RemapPlan { all, moved, new, .. } = *plan;
        let ends = [all.start(), moved.end(), all.end()];
        let boundaries = ends.map(|va| (va, self.missing_tables(space, va, false)));
        let mut cut = TableCount::new(new);
        for (va, lack) in boundaries {
            let Some(MissingTables { below, last }) = lack else { continue };
            let levels = last.0..=below.0;
            cut.tables += levels.filter(|&level| cut.table(va, Level(level)).is_some()).count();
        }
        let mut count = TableCount::new(new);
        count.boundaries = boundaries;
        self.need_boundary(space, &mut count, new.start());
        self.parts(space, plan, &mut |part, _| {
            self.need_boundary(space, &mut count, part.end());
            Ok(())
        })?;
        // What else pages take lies in the new place as a whole.
        let mut pages = TableCount::new(new);
        self.count_for_pages(&mut pages, plan, self.root(space));
        Ok(cut.tables + count.tables + pages.tables)
    }

    /// Counts what is missing for an address to be a boundary.
    fn need_boundary(self, space: &SpaceRecord, count: &mut TableCount, va: Va) {
        let mut level = Level::ONE;
        while level < self.top() && va.is_aligned(level.entry_bytes() << 9) {
            level = Level(level.0 + 1);
        }
        while level < self.top()
            && let Some(whole) = count.table(va, level)
        {
            // In a new place that is emptied no table stays but those that reach beyond it.
            if !whole && (count.is_cut(va, level) || self.has_table(space, va, level)) {
                break;
            }
            count.tables += 1;
            level = Level(level.0 + 1);
        }
    }

    fn has_table(self, space: &SpaceRecord, va: Va, level: Level) -> bool {
        let (mut table, mut at) = (space.root(), self.top());
        while at > level
            && let Entry::Table(child) = self.load(table, at.slot(va), at)
        {
            (table, at) = (child, at.child());
        }
        at == level
    }

    /// Counts the tables that stashed pages count. Of a lowest table, whose pages land in two at
    /// most, both are counted if it has any page.
    fn count_for_pages(self, count: &mut TableCount, plan: &RemapPlan, at: Cursor<'_>) {
        let (node, level) = (at.node, at.level);
        let part = at.part(plan.moved);
        if level == Level::ONE {
            if node.state().resident() != 0 {
                for slot in [part.first, part.end - 1] {
                    self.count_for_page(count, plan, Va(at.va(slot)), level);
                }
            }
            return;
        }
        for slot in part.first..part.end {
            match self.load(node.pfn, slot, level) {
                Entry::Table(child) => {
                    self.count_for_pages(count, plan, at.below(slot, self.node(child)))
                }
                // A block of an object moves as a whole, or not at all.
                Entry::Busy(Busy::Shared(_)) if !plan.moves_whole(Va(at.va(slot)), level) => {}
                Entry::Busy(Busy::Page(_) | Busy::Shared(_)) => {
                    self.count_for_page(count, plan, Va(at.va(slot)), level)
                }
                _ => {}
            }
        }
    }

    /// Counts the tables above the part of a stashed leaf that moves.
    fn count_for_page(self, count: &mut TableCount, plan: &RemapPlan, va: Va, level: Level) {
        let bytes = level.entry_bytes();
        let end = (va.0 + bytes).min(plan.moved.end().0);
        let mut at = va.0.max(plan.moved.start().0);
        while at < end {
            // As it will be once it is split: all of it, or huge pages of it, or base pages.
            let to = Va(at.wrapping_add(plan.delta()));
            let fits = |level: Level| {
                let bytes = level.entry_bytes();
                at & (bytes - 1) == 0 && to.is_aligned(bytes) && at + bytes <= end
            };
            let small = if fits(level) { level } else { level.child().min(Level::TWO) };
            let small = if small < level && !fits(small) { Level::ONE } else { small };
            let mut above = small;
            while above < self.top() && count.table(to, above) == Some(true) {
                count.tables += 1;
                above = Level(above.0 + 1);
            }
            // The rest of this table's span, or of the leaf, whichever is less.
            let step = small.entry_bytes();
            let next = if small == level {
                end
            } else {
                (to.align_down(step << 9).0 + (step << 9)).wrapping_sub(plan.delta())
            };
            at = if small == Level::TWO && small < level { at + step } else { next };
        }
    }

    /// What cannot fail.
    fn move_prepared(
        self,
        edit: &mut Edit<'_>,
        plan: &RemapPlan,
        prepared: &mut Prepared,
        tables: &mut Preallocated,
    ) {
        let RemapPlan { all, moved, new, replace } = *plan;
        let space = edit.space;
        let boundaries =
            [all.start(), all.end()].map(|va| (va, self.missing_tables(space, va, false)));
        [all.start(), moved.end(), all.end()]
            .into_iter()
            .for_each(|va| Stash(self.0).make_boundary_stashed(space, va, tables));
        // What was stashed beyond the ends because it was one entry with what is inside.
        for (va, lack) in boundaries {
            let Some(MissingTables { below, .. }) = lack else { continue };
            let span = below.entry_bytes() << 9;
            let first = va.align_down(span).0;
            let beyond =
                if va == all.start() { (first, va.0 - first) } else { (va.0, first + span - va.0) };
            if let Ok(beyond) = VaRange::new(Va(beyond.0), beyond.1, self.user_end()) {
                self.unfreeze_outside(space, beyond, all);
            }
        }
        let mut done = self.make_boundaries_from(space, new, true, tables);
        if replace {
            Unmap(self.0).take_out(edit, new, Leftover::Edges);
        }
        let mut region = prepared.first;
        done = done.and_then(|()| {
            self.parts(space, plan, &mut |part, _| {
                let Some(handle) = region else { return Ok(()) };
                region = SlabRef::from_raw(self.region(handle).next.load(Ordering::Relaxed));
                self.make_boundaries_from(space, part, true, tables)?;
                self.room_from(edit, part, handle, prepared)?;
                self.assign(edit, part, handle);
                Ok(())
            })
        });
        let hold = Entry::Busy(Busy::Nothing);
        Map(self.0).reserve(self.root(space), new, hold);
        done = done.and_then(|()| Remap(self.0).make_tables(space, moved, plan.delta(), tables));
        debug_assert!(done.is_ok(), "a remap takes no more than it counted");
        Remap(self.0).transfer(space, moved, plan.delta());
        // What still stands for a reserved entry becomes one, in the place where the mapping is
        // now.
        Remap(self.0).restore_reserved(space, new);
        // A tail goes from the mark to nothing: nobody finds it who has found the rest at the new
        // place.
        Unmap(self.0).take_out(edit, all, Leftover::Nothing);
    }

    /// Unfreezes a range but for what of `all` lies in it.
    fn unfreeze_outside(self, space: &SpaceRecord, range: VaRange, all: VaRange) {
        let ends = [
            (range.start(), range.end().min(all.start())),
            (range.start().max(all.end()), range.end()),
        ];
        for (start, end) in ends {
            if start < end
                && let Ok(part) = VaRange::new(start, end.0 - start.0, self.user_end())
            {
                Stash(self.0).unstash(space, part);
            }
        }
    }

    /// Makes room for a part's intervals in nodes that are new, with the lists that were made for
    /// that.
    fn room_from(
        self,
        edit: &mut Edit<'_>,
        part: VaRange,
        region: SlabRef,
        prepared: &mut Prepared,
    ) -> Result<(), NoMemory> {
        let mut undo = Undo::new();
        let done = self.edges(edit.space, part, &mut |node, slots, opens| {
            let intervals = self.intervals(node);
            if !intervals.lacks(slots, Some(region), opens) {
                return Ok(());
            }
            let Some(list) = prepared.lists else { return Err(NoMemory) };
            prepared.lists = self.next_list(list);
            self.chain_list(list, None);
            let _guard = node.lock(&self.machine, edit.token);
            intervals.move_to(list, prepared.class, &mut undo);
            Ok(())
        });
        self.end_exchanges(undo, true, edit);
        done
    }
}
