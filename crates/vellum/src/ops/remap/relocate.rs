//! Moving what is mapped in a range to another: everything that takes memory first, then what
//! shows.
//!
//! ```text
//! regions, index shifts, lists of intervals    made or made room for
//! detach what leaves as a whole, stash the rest exactly undone if what follows fails
//! flush, and wait for who is inside a table that left
//! count the tables, take their frames           the last that can fail
//! split at the old range's ends, replace, assign, lay out
//! ```
//! The counts are of a stashed range, so nobody can make them wrong. Rejected: making the new place
//! while the old one lives, which leaves tables, split leaves and a hole where something was to be
//! replaced if the last table cannot be had.

use crate::addr::{Va, VaRange};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::ops::map::Map;
use crate::ops::remap::Remap;
use crate::ops::remap::alone::RelocateAlone;
use crate::ops::remap::lay::{Lay, Layout, Tables};
use crate::ops::remap::leaving::Leaving;
use crate::ops::remap::live_shifts::LiveShifts;
use crate::ops::remap::plan::{Cuts, RemapPlan};
use crate::ops::remap::single_table::RelocateInTable;
use crate::ops::remap::stash::Stash;
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::pagetable::boundary::MissingTables;
use crate::pagetable::preallocated::Preallocated;
use crate::platform::over;
use crate::space::{Backing, SpaceRecord};
use crate::sync::atomic::Ordering;
use crate::tlb::{Flushed, Receipt};
use crate::vma::edit::Edit;
use crate::vma::interval::pairs::list_class;
use crate::vma::interval::undo::Undo;

/// What was made for the new place and is not in it yet.
#[derive(Default)]
struct Prepared {
    /// Regions in the order of their parts' addresses, chained.
    first: Option<SlabRef>,
    last: Option<SlabRef>,
    parts: usize,
    /// Lists of `class` for nodes that will be new, chained by their first words.
    lists: Option<SlabRef>,
    class: usize,
}

/// What a remap has when nothing can fail any more.
struct Taken {
    flushed: Flushed,
    cuts: Cuts,
    tables: Preallocated,
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
        LiveShifts(self.0).keep_live_shifts(edit);
        if moved == all
            && (RelocateInTable(self.0).relocate_in_table(edit, moved, new)?
                || RelocateAlone(self.0).relocate_alone(edit, moved, new)?)
        {
            return Ok(());
        }
        self.relocate_anywhere(edit, plan)
    }

    #[inline(never)]
    fn relocate_anywhere(self, edit: &mut Edit<'_>, plan: &RemapPlan) -> Result<(), NoMemory> {
        let mut plan = *plan;
        Leaving(self.0).widen(edit.space, &mut plan);
        let plan = &plan;
        let space = edit.space;
        let (mut undo, mut prepared) = (Undo::new(), Prepared::default());
        let made = self.make_ready(edit, plan, &mut prepared, &mut undo);
        let tables = made.and_then(|()| {
            let flushed = self.take_away(edit, plan);
            let cuts = self.cuts(space, plan);
            let tables = self.take_tables(edit, plan, (&prepared, &cuts)).inspect_err(|_| {
                Leaving(self.0).attach_again(plan.all, self.root(space));
                Stash(self.0).unstash(space, plan.all);
            })?;
            Ok(Taken { flushed, cuts, tables })
        });
        self.end_exchanges(undo, tables.is_ok(), edit);
        let done = tables.map(|taken| self.move_prepared(edit, plan, &mut prepared, taken));
        self.drop_ready(edit, prepared, done.is_err());
        done
    }

    /// Makes everything in the old range this verb's alone: nobody translates by it, and nobody has
    /// a table in hand that left.
    fn take_away(self, edit: &mut Edit<'_>, plan: &RemapPlan) -> Flushed {
        let (space, mut receipt) = (edit.space, Receipt::new());
        Stash(self.0).stash(space, plan, &mut receipt);
        let left = receipt.has_table();
        let flushed = self.flush(space, receipt);
        if left {
            self.epochs.synchronize(&self.machine, edit.token);
        }
        flushed
    }

    /// Where the stashed old range is yet to be split.
    fn cuts(self, space: &SpaceRecord, plan: &RemapPlan) -> Cuts {
        let lack = |va| (va, self.missing_tables(space, va, false));
        let tail = if plan.moved == plan.all { None } else { Some(lack(plan.moved.end())) };
        let (start, end) = (lack(plan.all.start()), lack(plan.all.end()));
        Cuts([start, tail.unwrap_or((start.0, None)), end])
    }

    /// Frames for the tables that those cuts and the new place take.
    fn take_tables(
        self,
        edit: &mut Edit<'_>,
        plan: &RemapPlan,
        (prepared, cuts): (&Prepared, &Cuts),
    ) -> Result<Preallocated, NoMemory> {
        let tables = Tables::Counted(cuts.tables(), cuts);
        let mut layout = Layout { plan, part: prepared.first, tables };
        Lay(self.0).lay(edit, &mut layout);
        match layout.tables {
            Tables::Counted(tables, _) => Preallocated::new(self.0, tables),
            Tables::Taken(_) => Err(NoMemory),
        }
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
        let pages = (plan.delta as i64 >> 12) as u64;
        self.parts(space, plan, &mut |part, handle| {
            let region = self.region(handle);
            let shift = region.shift().wrapping_sub(pages);
            let moved = match region.moved_view(pages) {
                Some(view) => {
                    let beside = (!plan.replace).then_some(part);
                    Map(self.0).view_region(edit, region.attrs(), (view, beside))?
                }
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
            let new =
                !region.packed().is_shared_view() && self.add_shift(space, shift, edit.token)?;
            self.region(moved).set_part(part.end(), new);
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
            next = region.next_part();
            if region.end_part() && undo {
                self.undo_shift(edit.space, region.shift(), edit.token);
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
        let (mut va, mut start) = (moved.start(), new.start());
        while va < moved.end() {
            // The range was found mapped, so every page has one.
            let Some((end, handle)) = Remap(self.0).same_region(space, va, moved) else { break };
            // What is longer belongs to the last page's region.
            let to = Va(end.0.wrapping_add(plan.delta));
            let stop = if end == moved.end() { new.end() } else { to };
            if let Ok(part) = VaRange::new(start, stop.0 - start.0, self.user_end()) {
                each(part, handle)?;
            }
            (va, start) = (end, stop);
        }
        Ok(())
    }

    /// What cannot fail.
    fn move_prepared(
        self,
        edit: &mut Edit<'_>,
        plan: &RemapPlan,
        prepared: &mut Prepared,
        Taken { flushed, cuts, mut tables }: Taken,
    ) {
        let RemapPlan { all, moved, new, replace, .. } = *plan;
        let space = edit.space;
        for &(va, lack) in &cuts.0 {
            let Some(MissingTables { below, .. }) = lack else { continue };
            Stash(self.0).make_boundary_stashed(space, va, &mut tables);
            // What was stashed beyond the ends because it was one entry with what is inside.
            let span = below.entry_bytes() << 9;
            let first = va.align_down(span).0;
            let beyond = match va {
                _ if va == all.start() => VaRange::new(Va(first), va.0 - first, self.user_end()),
                _ if va == all.end() => VaRange::new(va, first + span - va.0, self.user_end()),
                _ => continue,
            };
            if let Ok(beyond) = beyond {
                self.unfreeze_outside(space, beyond, all);
            }
        }
        let mut done = self.make_boundaries_from(space, new, true, &mut tables);
        if replace {
            Unmap(self.0).take_out(edit, new, Leftover::Edges);
        }
        match prepared.first {
            Some(only) if prepared.parts == 1 => self.assign(edit, new, only),
            _ => done = done.and_then(|()| self.assign_parts(edit, plan, prepared, &mut tables)),
        }
        debug_assert!(done.is_ok(), "a remap takes no more than it counted");
        // Nodes that move keep their entries, and the new place may say what was said there before:
        // who has seen one of them at the old place learns that it is another.
        space.edited();
        let (part, taken) = (prepared.first, Tables::Taken(&mut tables));
        Lay(self.0).lay(edit, &mut Layout { plan, part, tables: taken });
        if moved == all {
            Unmap(self.0).reap_marked(edit, all, flushed);
        } else {
            // A tail goes from the mark to nothing: nobody finds it who has found the rest at the
            // new place. A node that it shares with what moved may have nothing any more.
            Unmap(self.0).take_out(edit, all, Leftover::Nothing);
        }
        tables.free(self.0);
    }

    /// Gives each part of the new place to its region.
    fn assign_parts(
        self,
        edit: &mut Edit<'_>,
        plan: &RemapPlan,
        prepared: &mut Prepared,
        tables: &mut Preallocated,
    ) -> Result<(), NoMemory> {
        let (mut next, mut start) = (prepared.first, plan.new.start());
        while let Some(handle) = next {
            let end = Va(self.region(handle).part_end());
            next = self.region(handle).next_part();
            if let Ok(part) = VaRange::new(start, end.0 - start.0, self.user_end()) {
                self.make_boundaries_from(edit.space, part, true, tables)?;
                self.room_from(edit, part, handle, prepared)?;
                self.assign(edit, part, handle);
            }
            start = end;
        }
        Ok(())
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
