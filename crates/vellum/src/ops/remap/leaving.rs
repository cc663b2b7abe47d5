//! Tables that leave a place with all they map.
//!
//! Where everything that a table node maps lies in the range that moves, the entry above it is made
//! `Detached` instead of the entries in it, one by one: the node and those below it are dead, so no
//! fault changes an entry there, and their entries stay what they are. After the flush (no CPU
//! walks there) and a wait for the epochs (no fault and no walk from a frame to its mappings has
//! gone down there and waits for a lock of it) they are this verb's alone: a walk that looks for
//! entries which it has made busy may come there yet, and finds none. A node that nobody is
//! in can be linked elsewhere as it is. Whoever came to it by the old addresses would otherwise
//! lock it, find it alive and its entry as it was, and flush the old address for a change at the
//! new one.
//!
//! Rejected: to link it elsewhere after the flush alone, with whoever holds a lock asking whether
//! the node is still where it was (a question in each walk by the reverse map, and one that asks
//! too early is not found by any test that does not stop it there).

use crate::addr::{Level, Pfn, Va, VaRange};
use crate::entry::Entry;
use crate::fault::Faults;
use crate::machine::{Machine, Work};
use crate::ops::remap::plan::RemapPlan;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::walk::each_table_below;
use crate::platform::over;
use crate::space::SpaceRecord;
use crate::sync::Token;
use crate::tlb::Receipt;
use crate::vma::deferred_free::DeferredFree;

pub(crate) struct Leaving<'v, M: Machine>(pub &'v Faults<M>);

over!(Leaving, Faults);

impl<M: Machine> Leaving<'_, M> {
    /// Whether everything that a node maps leaves, and nothing comes there. The range that leaves
    /// touches the node and has no hole, so a count says it.
    fn leaves(self, plan: &RemapPlan, at: Cursor<'_>) -> bool {
        let end = at.base + (at.level.entry_bytes() << 9);
        let is_inside = |va: Va| at.base < va.0 && va.0 < end;
        let is_cut = plan.moved != plan.all && is_inside(plan.moved.end());
        if is_cut || plan.new.start().0 < end && at.base < plan.new.end().0 {
            return false;
        }
        let p = at.part(plan.all);
        let is_tables = |slot| match self.load(at.node.pfn, slot, at.level) {
            Entry::Table(child) => self.leaves(plan, at.below(slot, self.node(child))),
            _ => false,
        };
        at.node.state().count() == (p.end - p.first) as u64
            && p.ends().all(|slot| p.covers(slot) || is_tables(slot))
    }

    /// Lets the new place begin and end where a node does that moves as a whole and maps nothing
    /// beyond what moves, if nothing is mapped there.
    pub(super) fn widen(self, space: &SpaceRecord, plan: &mut RemapPlan) {
        let meets = plan.delta & (Level::TWO.entry_bytes() - 1) == 0;
        if plan.replace || plan.grows() || !meets {
            return;
        }
        let (first, last) = (plan.moved.start(), Va(plan.moved.end().0 - 1));
        let (mut start, mut end) = (plan.new.start(), plan.new.end());
        if let Some(there) = self.node_that_moves(space, plan, first) {
            (start, end) = (there.start(), end.max(there.end()));
        }
        // One node may be both.
        if end == plan.new.end()
            && let Some(there) = self.node_that_moves(space, plan, last)
        {
            end = there.end();
        }
        if let Ok(new) = VaRange::new(start, end.0 - start.0, self.user_end()) {
            plan.new = new;
        }
    }

    /// Where the uppermost node above a page will be that moves as a whole.
    fn node_that_moves(self, space: &SpaceRecord, plan: &RemapPlan, va: Va) -> Option<VaRange> {
        let mut at = self.root(space);
        while at.level > Level::ONE {
            let (slot, bytes) = (at.level.slot(va), at.level.entry_bytes());
            let Entry::Table(child) = self.load(at.node.pfn, slot, at.level) else { break };
            at = at.below(slot, self.node(child));
            if plan.delta & (bytes - 1) == 0 && self.leaves(plan, at) {
                let there = Va(at.base.wrapping_add(plan.delta));
                let there = VaRange::new(there, bytes, self.user_end()).ok()?;
                if self.is_hole(space, there) {
                    return Some(there);
                }
            }
        }
        None
    }

    /// Detaches the node below a slot if it leaves; says whether it does.
    pub(super) fn detach(
        self,
        plan: &RemapPlan,
        (at, slot): (Cursor<'_>, usize),
        below: Cursor<'_>,
        receipt: &mut Receipt,
    ) -> bool {
        if !self.leaves(plan, below) {
            return false;
        }
        let m = &self.machine;
        {
            let mut top = Token::top();
            let _guard = at.node.lock(m, &mut top);
            self.store(at.node.pfn, slot, at.level, Entry::Detached(below.node.pfn));
        }
        m.work(Work::Entry, 1);
        self.mark_subtree_dead(below.node.pfn, below.level);
        let (start, end) = (below.base, below.base + at.level.entry_bytes());
        receipt.table(Va(start.max(plan.all.start().0)), Va(end.min(plan.all.end().0)));
        true
    }

    /// The opposite of [`detach`](Self::detach).
    #[cold]
    pub(super) fn attach_again(self, range: VaRange, at: Cursor<'_>) {
        let (m, node, level) = (&self.machine, at.node, at.level);
        if level == Level::ONE {
            return;
        }
        let p = at.part(range);
        for slot in p.first..p.end {
            match self.load(node.pfn, slot, level) {
                Entry::Table(child) => self.attach_again(range, at.below(slot, self.node(child))),
                Entry::Detached(child) => {
                    self.revive_subtree(child, level.child());
                    let mut top = Token::top();
                    let _guard = node.lock(m, &mut top);
                    self.write_entry(node.pfn, slot, level, Entry::Table(child));
                }
                _ => {}
            }
        }
    }

    /// The opposite of `mark_subtree_dead`, of a subtree that nobody has gone down to since every
    /// CPU left the epoch in which it could: what is in it is as it was.
    pub(super) fn revive_subtree(self, table: Pfn, level: Level) {
        each_table_below(self.0, table, level, |child| self.revive_subtree(child, level.child()));
        let node = self.node(table);
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        node.set_state(node.state().without_dead());
    }

    /// Takes every interval of a dead subtree: what the nodes above it say holds for all of it.
    /// Under each node's lock, as whatever changes a word of one that is not new: a walk that looks
    /// for entries it has made busy may be there.
    pub(super) fn clear_intervals(self, table: Pfn, level: Level, deferred: &mut DeferredFree) {
        {
            let node = self.node(table);
            let mut top = Token::top();
            let _guard = node.lock(&self.machine, &mut top);
            self.intervals(node).clear(deferred);
        }
        each_table_below(self.0, table, level, |child| {
            self.clear_intervals(child, level.child(), deferred);
        });
    }
}
