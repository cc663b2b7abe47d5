//! Giving a range of addresses to a region.
//!
//! A range is a run of whole slots in a few nodes: one where its two edges part, and the nodes down
//! along each edge. Everything that can fail comes first, and what shows comes last of it:
//! [`Regions::make_room`] makes room in interval lists, [`Regions::prepare_change`] that and the
//! new regions, and then `PageTables::make_boundaries` makes the range's ends slot boundaries, all
//! of it or nothing. Nodes that an opening makes need no room: an empty node has it. What then
//! changes intervals cannot fail.

use crate::addr::{ENTRIES, Level, VaRange};
use crate::entry::Entry;
use crate::error::{NoMemory, SpaceError};
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::Node;
use crate::space::{Attrs, SpaceRecord};
use crate::sync::atomic::Ordering;
use crate::vma::Regions;
use crate::vma::deferred_free::{DeferredFree, drop_names};
use crate::vma::edit::Edit;
use crate::vma::interval::undo::Undo;
use crate::vma::region::seal_forbids;

/// Regions made for a change of attributes, chained, each remembering which region it stands in
/// for.
pub(crate) struct Fresh {
    first: Option<SlabRef>,
    /// Where the last search ended; changes come in the order of preparation, so it nearly always
    /// is the answer.
    cursor: Option<SlabRef>,
}

/// Slots of one node whose intervals decide about a range.
struct AssignRun<'v> {
    node: Node<'v>,
    slots: (usize, usize),
    how: AssignKind,
    /// What the nodes above say of the slots.
    inherited: Option<SlabRef>,
}

/// AssignKind a range meets a run of slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AssignKind {
    /// It covers the slots and ends inside the node's parent's slot, so both ends of the run become
    /// boundaries, and slots without a region of their own are to change, too.
    Edge,
    /// It covers the whole node.
    Whole,
    /// It ends inside the slot, which is not open yet: what is to be a boundary lies in a node that
    /// is not there.
    Inside,
}

/// What is done with a run of whole slots: node, first slot and end, whether the range ends inside
/// the slot behind.
type EachEdge<'e> = dyn FnMut(Node<'_>, (usize, usize), bool) -> Result<(), NoMemory> + 'e;

type EachRun<'e, 'v> = dyn FnMut(AssignRun<'v>) -> Result<(), SpaceError> + 'e;

impl<M: Machine> Regions<M> {
    /// Makes room for the intervals that [`assign`](Regions::assign) will write once the range is
    /// open.
    pub fn make_room(
        &self,
        edit: &mut Edit<'_>,
        range: VaRange,
        region: SlabRef,
        undo: &mut Undo,
    ) -> Result<(), NoMemory> {
        self.edges(edit.space, range, &mut |node, slots, opens| {
            self.intervals(node).prepare(slots, Some(region), opens, edit.token, undo)
        })
    }

    /// Gives the range to a region; each interval takes a reference. The range is open, there
    /// is room, and nothing is mapped in it.
    pub fn assign(&self, edit: &mut Edit<'_>, range: VaRange, region: SlabRef) {
        let done = self.edges(edit.space, range, &mut |node, slots, _| {
            self.intervals(node).assign(edit, slots, Some(region));
            Ok(())
        });
        debug_assert!(done.is_ok());
    }

    /// Calls `each` with the run of whole slots in every node there is where the range has one and
    /// no ancestor's slot holds it.
    pub fn edges(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        each: &mut EachEdge<'_>,
    ) -> Result<(), NoMemory> {
        self.edges_of(self.root(space), range, each)
    }

    fn edges_of(
        &self,
        at: Cursor<'_>,
        range: VaRange,
        each: &mut EachEdge<'_>,
    ) -> Result<(), NoMemory> {
        let p = at.visit(&self.machine, range);
        if p.whole_first < p.whole_end {
            each(at.node, (p.whole_first, p.whole_end), p.whole_end < p.end)?;
        }
        for slot in p.ends() {
            if !p.covers(slot)
                && let Entry::Table(child) = self.load(at.node.pfn, slot, at.level)
            {
                self.edges_of(at.below(slot, self.node(child)), range, each)?;
            }
        }
        Ok(())
    }

    /// Makes every region that changing the attributes of the (wholly mapped) range needs, and room
    /// for their intervals.
    pub fn prepare_change(
        &self,
        edit: &mut Edit<'_>,
        range: VaRange,
        change: &dyn Fn(Attrs) -> Attrs,
        undo: &mut Undo,
    ) -> Result<Fresh, SpaceError> {
        let mut fresh = Fresh { first: None, cursor: None };
        let done = self.each_run(edit.space, range, &mut |run| {
            let intervals = self.intervals(run.node);
            if run.how == AssignKind::Edge {
                intervals.room(2, edit.token, undo)?;
            }
            let inherited = if run.how == AssignKind::Whole { None } else { run.inherited };
            let (mut slot, end) = run.slots;
            while slot < end {
                let (next, own) = intervals.from(slot);
                slot = next.min(end);
                let Some(old) = own.or(inherited) else { continue };
                let region = self.region(old);
                let attrs = change(region.attrs());
                if !region.backing().kind.may_give(attrs.rights)
                    || seal_forbids(self, region.backing(), attrs)
                {
                    return Err(SpaceError::Rights);
                }
                let known =
                    fresh.cursor.is_some_and(|last| self.region(last).replaces() == old.raw());
                if attrs == region.attrs() || known {
                    continue;
                }
                let handle = self.make_region(attrs, region.backing(), edit.token)?;
                // Kept until nobody writes by it in this space any more.
                region.share();
                self.region(handle).set_replaces(old.raw());
                match fresh.cursor {
                    Some(last) => self.region(last).next.store(handle.raw(), Ordering::Relaxed),
                    None => fresh.first = Some(handle),
                }
                fresh.cursor = Some(handle);
            }
            Ok(())
        });
        fresh.cursor = fresh.first;
        match done {
            Ok(()) => Ok(fresh),
            Err(error) => {
                self.drop_fresh(fresh, edit.deferred);
                Err(error)
            }
        }
    }

    /// Whether some of the prepared regions have less rights than what they stand for, and some
    /// have more.
    pub fn takes_and_gives(&self, fresh: &Fresh) -> bool {
        let (mut takes, mut gives, mut next) = (0, 0, fresh.first);
        while let Some(handle) = next {
            let region = self.region(handle);
            if let Some(old) = SlabRef::from_raw(region.replaces()) {
                let (taken, given) = self.region(old).packed().taken_and_given(region.packed());
                (takes, gives) = (takes | taken, gives | given);
            }
            next = SlabRef::from_raw(region.next.load(Ordering::Relaxed));
        }
        takes != 0 && gives != 0
    }

    /// Exchanges the regions of the range, which is open, for the prepared ones.
    pub fn commit_change(&self, edit: &mut Edit<'_>, range: VaRange, mut fresh: Fresh) {
        let done =
            self.each_run(edit.space, range, &mut |AssignRun { node, slots, how, inherited }| {
                let edge = how == AssignKind::Edge;
                debug_assert!(how != AssignKind::Inside, "the range is not open");
                let handle = |own: Option<SlabRef>| {
                    let old = if edge { own.or(inherited)? } else { own? };
                    let new = self.find_fresh(&mut fresh, old).unwrap_or(old);
                    // What the nodes above say anyway need not be said here.
                    if self.equivalent(Some(new), inherited) {
                        return None;
                    }
                    self.region(new).share();
                    Some(new)
                };
                self.intervals(node).rename(edit, slots, edge, handle);
                Ok(())
            });
        debug_assert!(done.is_ok());
        edit.deferred.replaced(self, fresh.first);
        if edit.space.maps_objects() {
            // What is left of an old region beside the range may speak for nothing, and gives no
            // right to write then.
            let done = self.each_run(edit.space, range, &mut |AssignRun { node, .. }| {
                self.intervals(node).forget_idle(edit);
                Ok(())
            });
            debug_assert!(done.is_ok());
        }
    }

    /// The prepared region that stands in for an old one, or for one that says the same: a change
    /// nearby may have joined two intervals, and an old region is known by its neighbour's handle
    /// since then.
    fn find_fresh(&self, fresh: &mut Fresh, old: SlabRef) -> Option<SlabRef> {
        let start = fresh.cursor?;
        let mut at = start;
        loop {
            let region = self.region(at);
            // What was dropped meanwhile is freed after the change.
            if self.equivalent(SlabRef::from_raw(region.replaces()), Some(old)) {
                fresh.cursor = Some(at);
                return Some(at);
            }
            at = SlabRef::from_raw(region.next.load(Ordering::Relaxed)).or(fresh.first)?;
            if at == start {
                return None;
            }
        }
    }

    /// Gives up the chain's own references, and those to the regions that it was to replace.
    pub fn drop_fresh(&self, fresh: Fresh, deferred: &mut DeferredFree) {
        drop_names(self, fresh.first, deferred);
    }

    /// Calls `each` with every run of slots in the range whose intervals decide something.
    fn each_run<'v>(
        &'v self,
        space: &SpaceRecord,
        range: VaRange,
        each: &mut EachRun<'_, 'v>,
    ) -> Result<(), SpaceError> {
        self.runs_of(self.root(space), range, None, each)
    }

    fn runs_of<'v>(
        &'v self,
        at: Cursor<'v>,
        range: VaRange,
        inherited: Option<SlabRef>,
        each: &mut EachRun<'_, 'v>,
    ) -> Result<(), SpaceError> {
        let (node, level) = (at.node, at.level);
        let p = at.part(range);
        if p.whole_first < p.whole_end {
            each(AssignRun {
                node,
                slots: (p.whole_first, p.whole_end),
                how: AssignKind::Edge,
                inherited,
            })?;
        }
        for slot in p.first..p.end {
            if let Entry::Table(child) = self.load(node.pfn, slot, level) {
                let here = self.intervals(node).from(slot).1.or(inherited);
                let below = at.below(slot, self.node(child));
                if p.covers(slot) {
                    self.runs_below(below.node, below.level, here, each)?;
                } else {
                    self.runs_of(below, range, here, each)?;
                }
            } else if !p.covers(slot) {
                each(AssignRun {
                    node,
                    slots: (slot, slot + 1),
                    how: AssignKind::Inside,
                    inherited,
                })?;
            }
        }
        Ok(())
    }

    fn runs_below<'v>(
        &'v self,
        node: Node<'v>,
        level: Level,
        inherited: Option<SlabRef>,
        each: &mut EachRun<'_, 'v>,
    ) -> Result<(), SpaceError> {
        if node.state().listed() != 0 {
            each(AssignRun { node, slots: (0, ENTRIES), how: AssignKind::Whole, inherited })?;
        }
        if level > Level::ONE {
            for slot in self.scanned(0, ENTRIES) {
                if let Entry::Table(child) = self.load(node.pfn, slot, level) {
                    let here = self.intervals(node).from(slot).1.or(inherited);
                    self.runs_below(self.node(child), level.child(), here, each)?;
                }
            }
        }
        Ok(())
    }
}
