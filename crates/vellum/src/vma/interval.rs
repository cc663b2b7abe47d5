//! Intervals: which region the slots of a table node belong to.
//!
//! A sorted list of (first slot, region); each holds up to the next one's first slot, and a slot
//! before the first or under a pair without region asks the node above. An interval may be wider
//! than the truth, never narrower: whether a slot is mapped at all its entry says, so unmapping
//! needs no memory here. Up to three pairs stand in the node's record, more in a list object of 16,
//! 128 or 512 pairs.
//!
//! Changed under the layout lock and the node's lock, read without any under the node's sequence
//! count. A reader checks the count once more before it follows a list's address: words read across
//! a change are not an address.
//!
//! Every change of what a node's intervals say raises the space's edit count (`Change`), also one
//! that only drops what nothing is mapped by any more: a mapping that comes there afterwards may
//! find that its neighbours say what it wants and change nothing, and a fault that read the dropped
//! interval must find out all the same. Rejected: the verbs raise the count (unmapping did not, and
//! a fault installed a writable page in the read-only mapping that came after).
//!
//! Each pair with a region holds one of the region's names. Room is made first
//! ([`Vm::interval_room`], which may fail); the changes themselves cannot.

use crate::addr::ENTRIES;
use crate::entry::Entry;
use crate::error::NoMemory;
use crate::frame::SlabRef;
use crate::machine::{Event, Machine, Work};
use crate::pagetable::node::{IN_LIST, Node};
use crate::space::SpaceRecord;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Above, SeqWrite, Token, touch};
use crate::vma::Regions;
use crate::vma::deferred_free::Trash;
use crate::vma::interval_undo::Grown;
use crate::vma::pairs::{LIST_PAIRS, Pair, Pairs, Plan, list_class};

/// A change of what a node's intervals say. Before readers get on, faults that read them before
/// learn of it.
struct Change<'a, M: Machine> {
    space: &'a SpaceRecord,
    _write: SeqWrite<'a, M>,
}

impl<M: Machine> Drop for Change<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.space.edited();
    }
}

impl<M: Machine> Regions<M> {
    /// Starts a change, which ends when the guard is dropped. Under the layout lock and the node's.
    #[inline]
    fn change<'a>(&'a self, space: &'a SpaceRecord, node: Node<'a>) -> Change<'a, M> {
        let change = Change { space, _write: node.sequence().write(&self.machine) };
        touch(&self.machine, node.interval_word(0), true);
        change
    }

    pub(crate) fn list_words(&self, list: SlabRef, class: u64) -> &[AtomicU64] {
        let words = list.ptr(&self.machine).cast::<AtomicU64>();
        // SAFETY: list objects of a class are that many zero-initialised words, live while a node
        // names them or an epoch lasts.
        unsafe { core::slice::from_raw_parts(words.as_ptr(), LIST_PAIRS[class as usize]) }
    }

    /// A node's pairs; the caller holds the layout lock.
    fn pairs<'a>(&'a self, node: Node<'a>) -> Pairs<'a> {
        let listed = node.state().listed();
        if listed < IN_LIST {
            return Pairs { node, list: None, len: listed as usize };
        }
        let about = node.interval_word(1).load(Ordering::Relaxed);
        let list = SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed));
        let words = list.map_or(&[] as &[AtomicU64], |list| self.list_words(list, about >> 16));
        Pairs { node, list: Some((words, about >> 16)), len: (about & 0xffff) as usize }
    }

    /// The region this node's own intervals give a slot, if any; by a reader inside an epoch, or
    /// under the layout lock.
    #[inline(always)]
    pub(crate) fn region_at(&self, node: Node<'_>, slot: usize) -> Option<SlabRef> {
        let m = &self.machine;
        m.hook(Event::Work(Work::Region, 1));
        let seen = node.sequence().begin(m);
        // The commonest node has one pair.
        if node.state().listed() == 1 {
            touch(m, node.interval_word(0), false);
            let pair = Pair(node.interval_word(0).load(Ordering::Relaxed));
            if !node.sequence().changed(m, seen) {
                return if pair.slot() <= slot { pair.region() } else { None };
            }
        }
        self.region_among(node, slot)
    }

    #[inline(never)]
    fn region_among(&self, node: Node<'_>, slot: usize) -> Option<SlabRef> {
        let m = &self.machine;
        loop {
            let seen = node.sequence().begin(m);
            let listed = node.state().listed();
            touch(m, node.interval_word(0), false);
            if listed < IN_LIST {
                let mut found = Pair(0);
                for i in 0..listed as usize {
                    let pair = Pair(node.interval_word(i).load(Ordering::Relaxed));
                    if pair.slot() > slot {
                        break;
                    }
                    found = pair;
                }
                if !node.sequence().changed(m, seen) {
                    return found.region();
                }
                continue;
            }
            let about = node.interval_word(1).load(Ordering::Relaxed);
            touch(m, node.interval_word(0), false);
            let list = SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed));
            if node.sequence().changed(m, seen) {
                continue;
            }
            let words = list.map_or(&[] as &[AtomicU64], |list| self.list_words(list, about >> 16));
            let pairs =
                Pairs { node, list: Some((words, about >> 16)), len: (about & 0xffff) as usize };
            let found = pairs.find(slot);
            if !node.sequence().changed(m, seen) {
                return found;
            }
        }
    }

    /// The slot after the last one that shares `slot`'s interval, and the interval's region. Under
    /// the layout lock.
    pub(crate) fn interval_from(&self, node: Node<'_>, slot: usize) -> (usize, Option<SlabRef>) {
        let pairs = self.pairs(node);
        let next = pairs.below(slot + 1);
        let end = if next < pairs.len { pairs.get(next).slot() } else { ENTRIES };
        (end, if next == 0 { None } else { pairs.get(next - 1).region() })
    }

    /// Whether an interval begins at a slot of the node: only such a one can speak for that slot
    /// alone. Under the layout lock.
    #[inline(never)]
    pub(crate) fn interval_begins(&self, node: Node<'_>, slot: usize) -> bool {
        self.pairs(node).begins(slot)
    }

    /// Makes sure that `extra` pairs more would fit; what it exchanged for that is noted. Under the
    /// layout lock.
    pub(crate) fn interval_room<H: Above<sync::Node>>(
        &self,
        node: Node<'_>,
        extra: usize,
        token: &mut Token<H>,
        grown: &mut Grown,
    ) -> Result<(), NoMemory> {
        let pairs = self.pairs(node);
        let need = pairs.len + extra;
        if need <= pairs.capacity() {
            return Ok(());
        }
        let m = &self.machine;
        let class = list_class(need);
        let mut guard = node.lock(m, token);
        let list = self.lists[class].alloc(m, &self.frames, guard.token())?;
        self.interval_move(node, list, class, grown);
        Ok(())
    }

    /// Moves a node's pairs to an empty list of that class, which has room for them; they say what
    /// they said. Under the node's lock.
    pub(crate) fn interval_move(
        &self,
        node: Node<'_>,
        list: SlabRef,
        class: usize,
        grown: &mut Grown,
    ) {
        let pairs = self.pairs(node);
        let words = self.list_words(list, class as u64);
        for (i, word) in words.iter().enumerate().take(pairs.len) {
            word.store(pairs.get(i).0, Ordering::Relaxed);
        }
        let was = [0, 1].map(|i| node.interval_word(i).load(Ordering::Relaxed));
        grown.note(node.pfn, was, node.state().listed());
        let _write = node.sequence().write(&self.machine);
        touch(&self.machine, node.interval_word(0), true);
        node.interval_word(0).store(list.raw(), Ordering::Relaxed);
        Pairs { node, list: Some((words, class as u64)), len: pairs.len }.publish();
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
        let open = !self.alike(region, says(from));
        let mut close = None;
        if to < pairs.len && pairs.get(to).slot() == end {
            to += usize::from(self.alike(region, pairs.get(to).region()));
        } else if end < ENTRIES && !self.alike(region, says(to)) {
            let kept = says(to);
            let next = if to < pairs.len { pairs.get(to).slot() } else { ENTRIES };
            let count = pairs.node.state().count();
            let fits = pairs.len + usize::from(open) + from < pairs.capacity() + to;
            close = (opens || count != 0 && (fits || self.any_mapped(pairs.node, end, next)))
                .then_some(kept);
        }
        Plan { from, to, open, close }
    }

    /// Whether anything is mapped in the slots `[slot, end)` of a node.
    #[cold]
    fn any_mapped(&self, node: Node<'_>, slot: usize, end: usize) -> bool {
        self.machine.hook(Event::Work(Work::Scan, (end - slot) as u64));
        let level = node.state().level();
        (slot..end)
            .any(|slot| !matches!(self.load(node.pfn, slot, level), Entry::Empty | Entry::Gone(_)))
    }

    /// Makes room for giving the slots to `region`; `opens`: the slot behind will have been opened
    /// by then. Under the layout lock.
    pub(crate) fn interval_prepare<H: Above<sync::Node>>(
        &self,
        node: Node<'_>,
        slots: (usize, usize),
        region: Option<SlabRef>,
        opens: bool,
        token: &mut Token<H>,
        grown: &mut Grown,
    ) -> Result<(), NoMemory> {
        let growth = self.plan(&self.pairs(node), slots, region, opens).growth();
        if growth <= 0 { Ok(()) } else { self.interval_room(node, growth as usize, token, grown) }
    }

    /// Whether there is no room for that.
    pub(crate) fn interval_lacks(
        &self,
        node: Node<'_>,
        slots: (usize, usize),
        region: Option<SlabRef>,
        opens: bool,
    ) -> bool {
        let pairs = self.pairs(node);
        let growth = self.plan(&pairs, slots, region, opens).growth();
        growth > 0 && pairs.len + growth as usize > pairs.capacity()
    }

    /// Gives slots to a region, or to what the nodes above say; a pair takes a name of its own.
    /// What is mapped in other slots keeps what it has. Room was made.
    pub(crate) fn interval_assign<H: Above<sync::Node>>(
        &self,
        space: &SpaceRecord,
        node: Node<'_>,
        slots: (usize, usize),
        region: Option<SlabRef>,
        token: &mut Token<H>,
        trash: &mut Trash,
    ) {
        let plan = self.plan(&self.pairs(node), slots, region, false);
        self.carry_out((space, node), &plan, slots, region, token, trash);
    }

    /// Both at once, for those who have nothing to do in between.
    pub(crate) fn interval_set<H: Above<sync::Node>>(
        &self,
        space: &SpaceRecord,
        node: Node<'_>,
        slots: (usize, usize),
        region: Option<SlabRef>,
        token: &mut Token<H>,
        trash: &mut Trash,
    ) -> Result<(), NoMemory> {
        let pairs = self.pairs(node);
        let plan = self.plan(&pairs, slots, region, false);
        let growth = plan.growth();
        if growth > 0 && pairs.len + growth as usize > pairs.capacity() {
            self.interval_grow(node, growth as usize, token, trash)?;
        }
        self.carry_out((space, node), &plan, slots, region, token, trash);
        Ok(())
    }

    fn carry_out<H: Above<sync::Node>>(
        &self,
        (space, node): (&SpaceRecord, Node<'_>),
        plan: &Plan,
        slots: (usize, usize),
        region: Option<SlabRef>,
        token: &mut Token<H>,
        trash: &mut Trash,
    ) {
        let m = &self.machine;
        m.hook(Event::Work(Work::Region, 1));
        if plan.growth() == 0 && plan.from == plan.to {
            return;
        }
        let mut pairs = self.pairs(node);
        let _guard = node.lock(m, token);
        let _change = self.change(space, node);
        // New names first: a region that goes in one pair may come in another.
        for come in [region.filter(|_| plan.open), plan.close.flatten()].into_iter().flatten() {
            self.region(come).share();
        }
        for _ in plan.from..plan.to {
            let old = pairs.get(plan.from).region();
            pairs.remove(plan.from);
            if let Some(old) = old {
                self.drop_region(old, trash);
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
    /// which hands over one name for each region it answers. `cut`: both ends become boundaries,
    /// for which room was made; without it the range is the whole node.
    pub(crate) fn interval_rename<H: Above<sync::Node>>(
        &self,
        (space, node): (&SpaceRecord, Node<'_>),
        (first, end): (usize, usize),
        cut: bool,
        mut new: impl FnMut(Option<SlabRef>) -> Option<SlabRef>,
        token: &mut Token<H>,
        trash: &mut Trash,
    ) {
        let m = &self.machine;
        m.hook(Event::Work(Work::Region, 1));
        let _guard = node.lock(m, token);
        let mut pairs = self.pairs(node);
        let _change = self.change(space, node);
        if cut {
            for slot in [first, end] {
                if slot < ENTRIES && !pairs.begins(slot) {
                    let holds = pairs.find(slot);
                    if let Some(region) = holds {
                        self.region(region).share();
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
                self.drop_region(old, trash);
            }
        }
        let to = pairs.below(end) + 1;
        self.merge(&mut pairs, from.saturating_sub(1), to, trash);
        pairs.publish();
    }

    /// Drops pairs that speak only for slots in `[first, end)`, which are empty now. Needs no
    /// memory.
    pub(crate) fn interval_forget<H: Above<sync::Node>>(
        &self,
        space: &SpaceRecord,
        node: Node<'_>,
        (first, end): (usize, usize),
        token: &mut Token<H>,
        trash: &mut Trash,
    ) {
        if node.state().listed() == 0 {
            return;
        }
        let _guard = node.lock(&self.machine, token);
        let mut pairs = self.pairs(node);
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
        let _change = self.change(space, node);
        for _ in from..to {
            if let Some(old) = pairs.get(from).region() {
                self.drop_region(old, trash);
            }
            pairs.remove(from);
        }
        self.merge(&mut pairs, from.saturating_sub(1), from + 1, trash);
        pairs.publish();
    }

    /// Takes every interval of a node that is dead, or linked nowhere: no fault installs by what
    /// they said.
    pub(crate) fn interval_clear(&self, node: Node<'_>, trash: &mut Trash) {
        if node.state().listed() == 0 {
            return;
        }
        let pairs = self.pairs(node);
        let list = pairs.list.and_then(|(_, class)| {
            SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed))
                .map(|list| (list, class))
        });
        // Readers are sent away before anything they could read changes its meaning.
        {
            let _write = node.sequence().write(&self.machine);
            node.set_state(node.state().with_listed(0));
        }
        for i in 0..pairs.len {
            if let Some(old) = pairs.get(i).region() {
                self.drop_region(old, trash);
            }
        }
        if let Some((list, class)) = list {
            trash.list(self, list, class as usize);
        }
    }

    /// Gives a fresh, unlinked node the intervals of another.
    pub(crate) fn interval_copy<H: Above<sync::Node>>(
        &self,
        from: Node<'_>,
        to: Node<'_>,
        token: &mut Token<H>,
        trash: &mut Trash,
    ) -> Result<(), NoMemory> {
        if from.state().listed() == 0 {
            return Ok(());
        }
        let source = self.pairs(from);
        self.interval_grow(to, source.len, token, trash)?;
        let mut pairs = self.pairs(to);
        for i in 0..source.len {
            let pair = source.get(i);
            if let Some(region) = pair.region() {
                self.region(region).share();
            }
            pairs.set(i, pair);
        }
        pairs.len = source.len;
        pairs.publish();
        Ok(())
    }

    /// Whether two intervals say the same: by name, or by what the regions hold.
    pub(crate) fn alike(&self, a: Option<SlabRef>, b: Option<SlabRef>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => a == b || self.region(a).says_as(self.region(b)),
            _ => a == b,
        }
    }

    /// Joins neighbours of `[from, to)` that say the same, and drops a first pair that says
    /// nothing.
    fn merge(&self, pairs: &mut Pairs<'_>, from: usize, to: usize, trash: &mut Trash) {
        let mut i = from;
        let mut to = to.min(pairs.len);
        while i < to {
            let before = if i == 0 { None } else { pairs.get(i - 1).region() };
            let here = pairs.get(i).region();
            if self.alike(here, before) {
                if let Some(region) = here {
                    self.drop_region(region, trash);
                }
                pairs.remove(i);
                to -= 1;
            } else {
                i += 1;
            }
        }
        if to < pairs.len
            && to > 0
            && self.alike(pairs.get(to).region(), pairs.get(to - 1).region())
        {
            if let Some(region) = pairs.get(to).region() {
                self.drop_region(region, trash);
            }
            pairs.remove(to);
        }
    }

    /// Whether a node's pairs are in order, and the names it holds, for `validate`.
    pub(crate) fn interval_check(&self, node: Node<'_>, mut name: impl FnMut(SlabRef)) -> bool {
        let (listed, about) =
            (node.state().listed(), node.interval_word(1).load(Ordering::Relaxed));
        let fits = |&most: &usize| about & 0xffff <= most as u64;
        let in_list = |class| LIST_PAIRS.get(class as usize).is_some_and(fits);
        if listed > IN_LIST || listed == IN_LIST && !in_list(about >> 16) {
            return false;
        }
        let pairs = self.pairs(node);
        let mut last = None;
        for i in 0..pairs.len {
            let pair = pairs.get(i);
            if last.is_some_and(|last| last >= pair.slot()) {
                return false;
            }
            last = Some(pair.slot());
            if let Some(region) = pair.region() {
                name(region);
            }
        }
        true
    }
}
