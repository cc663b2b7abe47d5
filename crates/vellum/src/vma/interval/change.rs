//! Changing what a node's intervals say.

use crate::addr::ENTRIES;
use crate::entry::Entry;
use crate::error::NoMemory;
use crate::frame::SlabRef;
use crate::machine::{Machine, Work};
use crate::pagetable::node::Node;
use crate::space::SpaceRecord;
use crate::sync::atomic::Ordering;
use crate::sync::{MmapLock, SeqWrite, Token, touch};
use crate::vma::deferred_free::DeferredFree;
use crate::vma::edit::Edit;
use crate::vma::interval::Intervals;
use crate::vma::interval::pairs::{Pair, Pairs, Plan};
use crate::vma::interval::undo::Undo;

/// A change of what a node's intervals say. Before readers get on, faults that read them before
/// learn of it.
pub(super) struct Change<'a, M: Machine> {
    space: &'a SpaceRecord,
    _write: SeqWrite<'a, M>,
}

impl<M: Machine> Drop for Change<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.space.edited();
    }
}

impl<M: Machine> Intervals<'_, M> {
    /// Starts a change, which ends when the guard is dropped. Under the mmap lock and the node's.
    #[inline]
    pub(super) fn change<'a>(&'a self, space: &'a SpaceRecord) -> Change<'a, M> {
        let m = &self.regions.machine;
        let change = Change { space, _write: self.node.sequence().write(m) };
        touch(m, self.node.interval_word(0), true);
        change
    }

    /// What giving the slots `[first, end)` to `region` does to the pairs. `opens`: the slot behind
    /// is about to be opened.
    fn plan(
        &self,
        pairs: &Pairs<'_>,
        (first, end): (usize, usize),
        region: Option<SlabRef>,
        opens: bool,
    ) -> Plan {
        let (from, mut to) = (pairs.below(first), pairs.below(end));
        let says = |i: usize| if i == 0 { None } else { pairs.get(i - 1).region() };
        let open = !self.regions.equivalent(region, says(from));
        let mut close = None;
        if to < pairs.len && pairs.get(to).slot() == end {
            to += usize::from(self.regions.equivalent(region, pairs.get(to).region()));
        } else if end < ENTRIES && !self.regions.equivalent(region, says(to)) {
            let kept = says(to);
            let next = if to < pairs.len { pairs.get(to).slot() } else { ENTRIES };
            let count = pairs.node.state().count();
            let fits = pairs.len + usize::from(open) + from < pairs.capacity() + to;
            close = (opens || count != 0 && (fits || self.any_mapped(end, next))).then_some(kept);
        }
        Plan { from, to, open, close }
    }

    /// Whether anything is mapped in the slots `[slot, end)` of the node.
    #[cold]
    fn any_mapped(&self, slot: usize, end: usize) -> bool {
        let (r, node) = (self.regions, self.node);
        let level = node.state().level();
        r.scanned(slot, end).any(|slot| !matches!(r.load(node.pfn, slot, level), Entry::Empty))
    }

    /// Makes room for giving the slots to `region`; `opens`: the slot behind will have been opened
    /// by then. Under the mmap lock.
    pub fn prepare(
        &self,
        slots: (usize, usize),
        region: Option<SlabRef>,
        opens: bool,
        token: &mut Token<MmapLock>,
        undo: &mut Undo,
    ) -> Result<(), NoMemory> {
        let growth = self.plan(&self.pairs(), slots, region, opens).growth();
        if growth <= 0 { Ok(()) } else { self.room(growth as usize, token, undo) }
    }

    /// Whether there is no room for that.
    pub fn lacks(&self, slots: (usize, usize), region: Option<SlabRef>, opens: bool) -> bool {
        let pairs = self.pairs();
        let growth = self.plan(&pairs, slots, region, opens).growth();
        growth > 0 && pairs.len + growth as usize > pairs.capacity()
    }

    /// Gives slots to a region, or to what the nodes above say; a pair takes a reference of its
    /// own. What is mapped in other slots keeps what it has. Room was made.
    pub fn assign(&self, edit: &mut Edit<'_>, slots: (usize, usize), region: Option<SlabRef>) {
        let plan = self.plan(&self.pairs(), slots, region, false);
        self.carry_out(edit, &plan, slots, region);
    }

    /// Both at once, for those who have nothing to do in between.
    pub fn set(
        &self,
        edit: &mut Edit<'_>,
        slots: (usize, usize),
        region: Option<SlabRef>,
    ) -> Result<(), NoMemory> {
        let pairs = self.pairs();
        let plan = self.plan(&pairs, slots, region, false);
        let growth = plan.growth();
        if growth > 0 && pairs.len + growth as usize > pairs.capacity() {
            self.grow(growth as usize, edit)?;
        }
        self.carry_out(edit, &plan, slots, region);
        Ok(())
    }

    fn carry_out(
        &self,
        edit: &mut Edit<'_>,
        plan: &Plan,
        slots: (usize, usize),
        region: Option<SlabRef>,
    ) {
        let (r, m) = (self.regions, &self.regions.machine);
        m.work(Work::Region, 1);
        if plan.growth() == 0 && plan.from == plan.to {
            return;
        }
        let mut pairs = self.pairs();
        let _guard = self.node.lock(m, edit.token);
        let _change = self.change(edit.space);
        // New references first: a region that goes in one pair may come in another.
        for come in [region.filter(|_| plan.open), plan.close.flatten()].into_iter().flatten() {
            r.region(come).share();
        }
        for _ in plan.from..plan.to {
            let old = pairs.get(plan.from).region();
            pairs.remove(plan.from);
            if let Some(old) = old {
                r.drop_region(old, edit.deferred);
            }
        }
        if let Some(close) = plan.close {
            pairs.insert(plan.from, Pair::new(slots.1, close));
        }
        if plan.open {
            pairs.insert(plan.from, Pair::new(slots.0, region));
        }
        pairs.publish();
    }

    /// Exchanges what every interval in the slots `[first, end)` says for what `new` makes of it,
    /// which hands over one reference for each region it answers. `cut`: both ends become
    /// boundaries, for which room was made; without it the range is the whole node.
    pub fn rename(
        &self,
        edit: &mut Edit<'_>,
        (first, end): (usize, usize),
        cut: bool,
        mut new: impl FnMut(Option<SlabRef>) -> Option<SlabRef>,
    ) {
        let (r, m) = (self.regions, &self.regions.machine);
        m.work(Work::Region, 1);
        let _guard = self.node.lock(m, edit.token);
        let mut pairs = self.pairs();
        let _change = self.change(edit.space);
        if cut {
            for slot in [first, end] {
                if slot < ENTRIES && !pairs.begins(slot) {
                    let holds = pairs.find(slot);
                    if let Some(region) = holds {
                        r.region(region).share();
                    }
                    pairs.insert(pairs.below(slot), Pair::new(slot, holds));
                }
            }
        }
        let from = pairs.below(first);
        for i in from..pairs.below(end) {
            let pair = pairs.get(i);
            let old = pair.region();
            pairs.set(i, Pair::new(pair.slot(), new(old)));
            if let Some(old) = old {
                r.drop_region(old, edit.deferred);
            }
        }
        let to = pairs.below(end) + 1;
        self.merge(&mut pairs, from.saturating_sub(1), to, edit.deferred);
        pairs.publish();
    }

    /// Drops pairs that speak only for slots in `[first, end)`, which are empty now. Needs no
    /// memory.
    pub fn forget(&self, edit: &mut Edit<'_>, slots: (usize, usize)) {
        self.forget_slots(edit, slots);
        if edit.space.maps_objects() {
            self.forget_idle(edit);
        }
    }

    fn forget_slots(&self, edit: &mut Edit<'_>, (first, end): (usize, usize)) {
        if self.node.state().listed() == 0 {
            return;
        }
        let _guard = self.node.lock(&self.regions.machine, edit.token);
        let mut pairs = self.pairs();
        let from = pairs.below(first);
        // The last pair that begins inside may reach past the end; it stays.
        let mut to = pairs.below(end);
        if to > from && to < pairs.len && pairs.get(to).slot() > end
            || to == pairs.len && end < ENTRIES
        {
            to = to.saturating_sub(1);
        }
        if from >= to {
            return;
        }
        let _change = self.change(edit.space);
        for _ in from..to {
            if let Some(old) = pairs.get(from).region() {
                self.regions.drop_region(old, edit.deferred);
            }
            pairs.remove(from);
        }
        self.merge(&mut pairs, from.saturating_sub(1), from + 1, edit.deferred);
        pairs.publish();
    }

    /// Takes every interval of the node, which is dead, or linked nowhere: no fault installs by
    /// what they said.
    pub fn clear(&self, deferred: &mut DeferredFree) {
        let node = self.node;
        if node.state().listed() == 0 {
            return;
        }
        let pairs = self.pairs();
        let list = pairs.list.and_then(|(_, class)| {
            SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed))
                .map(|list| (list, class))
        });
        // Readers are sent away before anything they could read changes its meaning.
        {
            let _write = node.sequence().write(&self.regions.machine);
            node.set_state(node.state().with_listed(0));
        }
        for i in 0..pairs.len {
            if let Some(old) = pairs.get(i).region() {
                self.regions.drop_region(old, deferred);
            }
        }
        if let Some((list, class)) = list {
            deferred.list(self.regions, list, class as usize);
        }
    }

    /// Gives the node, which is linked nowhere yet and has none, to a region from a slot on.
    pub fn begin(&self, slot: usize, region: SlabRef) {
        self.regions.region(region).share();
        self.node.interval_word(0).store(Pair::new(slot, Some(region)).0, Ordering::Relaxed);
        self.node.set_state(self.node.state().with_listed(1));
    }

    /// Gives the node, which is linked nowhere yet and has none, the intervals of another.
    pub fn copy_from(&self, from: Node<'_>, edit: &mut Edit<'_>) -> Result<(), NoMemory> {
        if from.state().listed() == 0 {
            return Ok(());
        }
        let source = self.regions.intervals(from).pairs();
        self.grow(source.len, edit)?;
        let mut pairs = self.pairs();
        for i in 0..source.len {
            let pair = source.get(i);
            if let Some(region) = pair.region() {
                self.regions.region(region).share();
            }
            pairs.set(i, pair);
        }
        pairs.len = source.len;
        pairs.publish();
        Ok(())
    }

    /// Joins neighbours of `[from, to)` that say the same, and drops a first pair that says
    /// nothing.
    pub(super) fn merge(
        &self,
        pairs: &mut Pairs<'_>,
        from: usize,
        to: usize,
        deferred: &mut DeferredFree,
    ) {
        let mut i = from;
        let mut to = to.min(pairs.len);
        while i < to {
            let before = if i == 0 { None } else { pairs.get(i - 1).region() };
            let here = pairs.get(i).region();
            if self.regions.equivalent(here, before) {
                if let Some(region) = here {
                    self.regions.drop_region(region, deferred);
                }
                pairs.remove(i);
                to -= 1;
            } else {
                i += 1;
            }
        }
        if to < pairs.len
            && to > 0
            && self.regions.equivalent(pairs.get(to).region(), pairs.get(to - 1).region())
        {
            if let Some(region) = pairs.get(to).region() {
                self.regions.drop_region(region, deferred);
            }
            pairs.remove(to);
        }
    }
}
