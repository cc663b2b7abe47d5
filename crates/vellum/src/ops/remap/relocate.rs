//! Moving what is mapped in a range to another: everything that takes memory first, then what
//! shows.
//!
//! ```text
//! regions, displacements, lists of intervals    made or made room for
//! freeze the old range                          exactly undone if what follows fails
//! count the tables, take their frames           the last that can fail
//! cut the old range's ends, replace, assign, transfer
//! ```
//! The counts are of a frozen range, so nobody can make them wrong. Rejected: making the new place
//! while the old one lives, which leaves tables, cut leaves and a hole where something was to be
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
use crate::ops::unmap::Leave;
use crate::ops::unmap::Unmap;
use crate::pagetable::boundary::MissingTables;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::preallocated::Preallocated;
use crate::platform::over;
use crate::space::SpaceRecord;
use crate::sync::atomic::Ordering;
use crate::vma::edit::Edit;
use crate::vma::interval::pairs::list_class;
use crate::vma::interval::undo::Undo;

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Everything that leaves the old place: what moves and, behind it, a tail that goes.
    pub all: VaRange,
    /// What moves.
    pub moved: VaRange,
    pub new: VaRange,
    /// Whether something may be in the new place.
    pub replace: bool,
}

impl Route {
    fn delta(&self) -> u64 {
        self.new.start().0.wrapping_sub(self.moved.start().0)
    }
}

/// What was made for the new place and is not in it yet.
#[derive(Default)]
struct Ready {
    /// Regions in the order of their addresses, chained; `stands_for` is 1 where its displacement
    /// is new, too.
    first: Option<SlabRef>,
    last: Option<SlabRef>,
    pieces: usize,
    /// Lists of `class` for nodes that will be new, chained by their first words.
    lists: Option<SlabRef>,
    class: usize,
}

/// Counts the tables a new place lacks, by ascending addresses.
struct Need {
    new: VaRange,
    /// Where the old place will have been cut before.
    cuts: [(Va, Option<MissingTables>); 3],
    /// Where the table counted last begins, by level.
    last: [u64; 6],
    tables: usize,
}

impl Need {
    fn new(new: VaRange) -> Need {
        Need { new, cuts: [(Va(0), None); 3], last: [u64::MAX; 6], tables: 0 }
    }
    /// Whether the old place's ends make the table with entries of `level` that covers the address.
    fn is_cut(&self, va: Va, level: Level) -> bool {
        let base = |va: Va| va.align_down(level.entry_bytes() << 9);
        self.cuts.iter().any(|&(at, lack)| {
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
    pub(crate) fn relocate(self, edit: &mut Edit<'_>, route: &Route) -> Result<(), NoMemory> {
        let Route { all, moved, new, .. } = *route;
        if moved == all && RelocateInTable(self.0).relocate_in_table(edit, moved, new)? {
            return Ok(());
        }
        self.relocate_anywhere(edit, route)
    }

    #[inline(never)]
    fn relocate_anywhere(self, edit: &mut Edit<'_>, route: &Route) -> Result<(), NoMemory> {
        let all = route.all;
        let space = edit.space;
        let (mut undo, mut ready) = (Undo::new(), Ready::default());
        let made = self.make_ready(edit, route, &mut ready, &mut undo);
        let tables = made.and_then(|()| {
            let receipt = Stash(self.0).freeze(space, all);
            let _flushed = self.redeem(space, receipt);
            self.count_tables(space, route)
                .and_then(|tables| Preallocated::new(self.0, tables))
                .inspect_err(|_| {
                    Stash(self.0).unfreeze(space, all);
                })
        });
        self.settle_lists(undo, tables.is_ok(), edit);
        let done = tables.map(|mut tables| {
            self.carry(edit, route, &mut ready, &mut tables);
            tables.free(self.0);
        });
        self.drop_ready(edit, ready, done.is_err());
        done
    }

    /// Makes the regions of the new place, and room for their intervals.
    fn make_ready(
        self,
        edit: &mut Edit<'_>,
        route: &Route,
        ready: &mut Ready,
        undo: &mut Undo,
    ) -> Result<(), NoMemory> {
        let space = edit.space;
        let pages = (route.delta() as i64 >> 12) as u64;
        self.pieces(space, route, &mut |_, name| {
            let region = self.region(name);
            let shift = region.shift().wrapping_sub(pages);
            let moved = self.make_region(region.attrs(), shift, edit.token)?;
            match ready.last {
                Some(last) => self.region(last).next.store(moved.raw(), Ordering::Relaxed),
                None => ready.first = Some(moved),
            }
            ready.last = Some(moved);
            ready.pieces += 1;
            if self.displace(space, shift, edit.token)? {
                self.region(moved).stand_for(1);
            }
            Ok(())
        })?;
        let Some(first) = ready.first else { return Ok(()) };
        if ready.pieces == 1 {
            return self.make_room(edit, route.new, first, undo);
        }
        // Two pairs at most for each end of a piece. A node that will be new has room for one
        // boundary inside it.
        let pairs = 2 * ready.pieces + 2;
        self.edges(space, route.new, &mut |node, _, _| {
            self.intervals(node).room(pairs, edit.token, undo)
        })?;
        ready.class = list_class(pairs);
        let lists = if ready.pieces > 2 { 2 * ready.pieces } else { 0 };
        for _ in 0..lists {
            let list = self.lists[ready.class].alloc(&self.machine, &self.frames, edit.token)?;
            self.chain_list(list, ready.lists);
            ready.lists = Some(list);
        }
        Ok(())
    }

    /// Gives back what of the preparations was not used, the regions' own names in any case;
    /// `undo`: displacements go, too.
    fn drop_ready(self, edit: &mut Edit<'_>, ready: Ready, undo: bool) {
        let mut next = ready.first;
        while let Some(name) = next {
            let region = self.region(name);
            next = SlabRef::from_raw(region.next.load(Ordering::Relaxed));
            if region.stands_for() == 1 {
                region.stand_for(0);
                if undo {
                    self.undo_displace(edit.space, region.shift(), edit.token);
                }
            }
            self.drop_region(name, edit.trash);
        }
        let mut next = ready.lists;
        while let Some(list) = next {
            next = self.next_list(list);
            self.lists[ready.class].free(&self.machine, &self.frames, edit.token, list);
        }
    }

    /// Calls `each` with every piece of the new place that is of one region, and the old place's
    /// region.
    fn pieces(
        self,
        space: &SpaceRecord,
        route: &Route,
        each: &mut dyn FnMut(VaRange, SlabRef) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let Route { moved, new, .. } = *route;
        let mut va = moved.start();
        while va < moved.end() {
            // The range was found mapped, so every page has one.
            let Some((end, name)) = Remap(self.0).same_region(space, va, moved) else { break };
            let start = va.0.wrapping_add(route.delta());
            // What is longer belongs to the last page's region.
            let stop =
                if end == moved.end() { new.end().0 } else { end.0.wrapping_add(route.delta()) };
            if let Ok(piece) = VaRange::new(Va(start), stop - start, self.user_end()) {
                each(piece, name)?;
            }
            va = end;
        }
        Ok(())
    }

    /// The tables that the frozen old place's ends and the new place take, at most.
    fn count_tables(self, space: &SpaceRecord, route: &Route) -> Result<usize, NoMemory> {
        let Route { all, moved, new, .. } = *route;
        let ends = [all.start(), moved.end(), all.end()];
        let cuts = ends.map(|va| (va, self.missing_tables(space, va, false)));
        let mut cut = Need::new(new);
        for (va, lack) in cuts {
            let Some(MissingTables { below, last }) = lack else { continue };
            let levels = last.0..=below.0;
            cut.tables += levels.filter(|&level| cut.table(va, Level(level)).is_some()).count();
        }
        let mut need = Need::new(new);
        need.cuts = cuts;
        self.need_boundary(space, &mut need, new.start());
        self.pieces(space, route, &mut |piece, _| {
            self.need_boundary(space, &mut need, piece.end());
            Ok(())
        })?;
        // What else pages take lies in the new place as a whole.
        let mut pages = Need::new(new);
        self.need_pages(&mut pages, route, self.root(space));
        Ok(cut.tables + need.tables + pages.tables)
    }

    /// Counts what is missing for an address to be a boundary.
    fn need_boundary(self, space: &SpaceRecord, need: &mut Need, va: Va) {
        let mut level = Level::ONE;
        while level < self.top() && va.is_aligned(level.entry_bytes() << 9) {
            level = Level(level.0 + 1);
        }
        while level < self.top()
            && let Some(whole) = need.table(va, level)
        {
            // In a new place that is emptied no table stays but those that reach beyond it.
            if !whole && (need.is_cut(va, level) || self.has_table(space, va, level)) {
                break;
            }
            need.tables += 1;
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

    /// Counts the tables that frozen pages need. Of a lowest table, whose pages land in two at
    /// most, both are counted if it has any page.
    fn need_pages(self, need: &mut Need, route: &Route, at: Cursor<'_>) {
        let (node, level) = (at.node, at.level);
        let part = at.part(route.moved);
        if level == Level::ONE {
            if node.state().resident() != 0 {
                for slot in [part.first, part.end - 1] {
                    self.need_page(need, route, Va(at.va(slot)), level);
                }
            }
            return;
        }
        for slot in part.first..part.end {
            match self.load(node.pfn, slot, level) {
                Entry::Table(child) => {
                    self.need_pages(need, route, at.below(slot, self.node(child)))
                }
                Entry::Busy(Busy::Page(_)) => self.need_page(need, route, Va(at.va(slot)), level),
                _ => {}
            }
        }
    }

    /// Counts the tables above the part of a frozen leaf that moves.
    fn need_page(self, need: &mut Need, route: &Route, va: Va, level: Level) {
        let bytes = level.entry_bytes();
        let end = (va.0 + bytes).min(route.moved.end().0);
        let mut at = va.0.max(route.moved.start().0);
        while at < end {
            // As it will be once it is cut: whole, or huge pages of it, or base pages.
            let to = Va(at.wrapping_add(route.delta()));
            let fits = |level: Level| {
                let bytes = level.entry_bytes();
                at & (bytes - 1) == 0 && to.is_aligned(bytes) && at + bytes <= end
            };
            let small = if fits(level) { level } else { level.child().min(Level::TWO) };
            let small = if small < level && !fits(small) { Level::ONE } else { small };
            let mut above = small;
            while above < self.top() && need.table(to, above) == Some(true) {
                need.tables += 1;
                above = Level(above.0 + 1);
            }
            // The rest of this table's span, or of the leaf, whichever is less.
            let step = small.entry_bytes();
            let next = if small == level {
                end
            } else {
                (to.align_down(step << 9).0 + (step << 9)).wrapping_sub(route.delta())
            };
            at = if small == Level::TWO && small < level { at + step } else { next };
        }
    }

    /// What cannot fail.
    fn carry(
        self,
        edit: &mut Edit<'_>,
        route: &Route,
        ready: &mut Ready,
        tables: &mut Preallocated,
    ) {
        let Route { all, moved, new, replace } = *route;
        let space = edit.space;
        let cuts = [all.start(), all.end()].map(|va| (va, self.missing_tables(space, va, false)));
        [all.start(), moved.end(), all.end()]
            .into_iter()
            .for_each(|va| Stash(self.0).open_frozen(space, va, tables));
        // What was frozen beyond the ends because it was one entry with what is inside.
        for (va, lack) in cuts {
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
            Unmap(self.0).take_out(edit, new, Leave::Edges);
        }
        let mut region = ready.first;
        done = done.and_then(|()| {
            self.pieces(space, route, &mut |piece, _| {
                let Some(name) = region else { return Ok(()) };
                region = SlabRef::from_raw(self.region(name).next.load(Ordering::Relaxed));
                self.make_boundaries_from(space, piece, true, tables)?;
                self.room_from(edit, piece, name, ready)?;
                self.assign(edit, piece, name);
                Ok(())
            })
        });
        let hold = Entry::Busy(Busy::Nothing);
        Map(self.0).promise(self.root(space), new, hold);
        done = done.and_then(|()| Remap(self.0).make_tables(space, moved, route.delta(), tables));
        debug_assert!(done.is_ok(), "a remap takes no more than it counted");
        Remap(self.0).transfer(space, moved, route.delta());
        // What still stands for a promise becomes one, in the place where the mapping is now.
        Remap(self.0).thaw(space, new);
        // A tail goes from the mark to nothing: nobody finds it who has found the rest at the new
        // place.
        Unmap(self.0).take_out(edit, all, Leave::Nothing);
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
                Stash(self.0).unfreeze(space, part);
            }
        }
    }

    /// Makes room for a piece's intervals in nodes that are new, with the lists that were made for
    /// that.
    fn room_from(
        self,
        edit: &mut Edit<'_>,
        piece: VaRange,
        region: SlabRef,
        ready: &mut Ready,
    ) -> Result<(), NoMemory> {
        let mut undo = Undo::new();
        let done = self.edges(edit.space, piece, &mut |node, slots, opens| {
            let intervals = self.intervals(node);
            if !intervals.lacks(slots, Some(region), opens) {
                return Ok(());
            }
            let Some(list) = ready.lists else { return Err(NoMemory) };
            ready.lists = self.next_list(list);
            self.chain_list(list, None);
            let _guard = node.lock(&self.machine, edit.token);
            intervals.move_to(list, ready.class, &mut undo);
            Ok(())
        });
        self.settle_lists(undo, true, edit);
        done
    }
}
