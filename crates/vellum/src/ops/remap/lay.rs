//! Laying out the new place: what of the old one comes into each of its slots.
//!
//! One walk along the new place does it, and the same walk counts beforehand what tables it takes,
//! so it takes as many as it counted. In a slot that one region covers comes, if source and target
//! meet at its boundaries, what is in the slot of the old place: a table that has left moves as it
//! is, with every entry in it. Where they do not meet a table is made and the entries come one by
//! one; a table that is new is filled before it is linked. An entry that is written is what it
//! will be: a fault may use it at once.
//!
//! A page's entry is copied with all its bits: its region gives the same rights. What an object
//! has arrives without the right to write that a fault must note first.

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry, Flags, NOTE_SHIFT};
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Work};
use crate::ops::protect::shared_entry;
use crate::ops::remap::leaving::Leaving;
use crate::ops::remap::plan::{Cuts, RemapPlan};
use crate::ops::remap::stash::{KIND, PAGE};
use crate::pagetable::cursor::{Cursor, Place, part};
use crate::pagetable::node::Node;
use crate::pagetable::preallocated::Preallocated;
use crate::platform::over;
use crate::rmap::map_count::smaller;
use crate::space::SpaceRecord;
use crate::space::attrs::Packed;
use crate::stats::Counter;
use crate::sync::Token;
use crate::vma::edit::Edit;

/// The walk in progress.
pub(super) struct Layout<'p> {
    pub plan: &'p RemapPlan,
    /// The region of the part that does not end before where the walk is; its end is in
    /// `replaces`.
    pub part: Option<SlabRef>,
    pub tables: Tables<'p>,
}

/// Where tables come from.
pub(super) enum Tables<'p> {
    /// They are counted: nothing changes. Those that the old place's cuts make are there then.
    Counted(usize, &'p Cuts),
    Taken(&'p mut Preallocated),
}

impl Layout<'_> {
    fn counts(&self) -> bool {
        matches!(self.tables, Tables::Counted(..))
    }
}

/// A node of the new place; while tables are counted it need not be there.
#[derive(Clone, Copy)]
struct Target<'v> {
    node: Option<Node<'v>>,
    level: Level,
    base: u64,
}

/// What comes into a slot.
enum Arrival<'v> {
    /// Nothing.
    Nothing,
    /// A reserved entry.
    Reserved,
    /// What stands at a place of the same level.
    Entry(Place<'v>),
    /// A part of a larger leaf.
    Part(Place<'v>),
    /// The table below a place of the same level.
    Table(Place<'v>, Node<'v>),
    /// Not one entry.
    Several,
}

pub(crate) struct Lay<'v, M: Machine>(pub &'v Faults<M>);

over!(Lay, Faults);

impl<'v, M: Machine> Lay<'v, M> {
    /// Lays out the new place, or counts what it takes.
    pub(super) fn lay(self, edit: &mut Edit<'_>, layout: &mut Layout<'_>) {
        let root = self.0.root(edit.space);
        let to = Target { node: Some(root.node), level: root.level, base: root.base };
        self.lay_node(edit, layout, to);
    }

    fn lay_node(self, edit: &mut Edit<'_>, layout: &mut Layout<'_>, to: Target<'v>) {
        let level = to.level;
        let p = part(level, to.base, layout.plan.new);
        if level == Level::ONE {
            if let (false, Some(node)) = (layout.counts(), to.node) {
                let at = Cursor { node, level, base: to.base };
                self.lay_leaves(edit.space, layout, at, (p.first, p.end));
            }
            return;
        }
        for slot in p.first..p.end {
            let va = Va(to.base + ((slot as u64) << level.shift()));
            let covered = p.covers(slot);
            let there = match to.node.map(|node| self.load(node.pfn, slot, level)) {
                // What a slot holds that is replaced as a whole will be gone.
                Some(Entry::Table(child)) if !(covered && layout.counts()) => Some(child),
                _ => None,
            };
            self.advance(layout, va);
            if there.is_none() && covered && !self.is_cut(layout, va.0 + level.entry_bytes()) {
                let arrival = self.arrival(edit.space, layout, va, level);
                if !matches!(arrival, Arrival::Several) {
                    if let (false, Some(node)) = (layout.counts(), to.node) {
                        let place = Place { node, level, slot, raw: 0 };
                        self.put(edit, layout, arrival, place, va);
                    }
                    continue;
                }
            }
            let below = match there {
                Some(child) => Some(self.0.node(child)),
                None => self.new_table(layout, to.node, (level, slot), va),
            };
            self.lay_node(edit, layout, Target { node: below, level: level.child(), base: va.0 });
            if let (None, Some(node), Some(below)) = (there, to.node, below) {
                debug_assert_ne!(below.state().count(), 0, "a table for nothing");
                let place = Place { node, level, slot, raw: 0 };
                self.link(place, Entry::Table(below.pfn), 0);
            }
        }
    }

    /// Goes on to the part that an address is in.
    fn advance(self, layout: &mut Layout<'_>, va: Va) {
        while let Some(region) = layout.part.map(|handle| self.region(handle))
            && region.part_end() <= va.0
            && let Some(next) = region.next_part()
        {
            layout.part = Some(next);
        }
    }

    /// Whether the part ends before an address.
    fn is_cut(self, layout: &Layout<'_>, end: u64) -> bool {
        layout.part.is_some_and(|handle| self.region(handle).part_end() < end)
    }

    /// What the region of the part allows.
    fn attrs(self, layout: &Layout<'_>) -> Option<Packed> {
        layout.part.map(|handle| self.region(handle).packed())
    }

    /// A table of nothing below a slot, linked nowhere yet, or one more that is counted.
    fn new_table(
        self,
        layout: &mut Layout<'_>,
        node: Option<Node<'v>>,
        (level, slot): (Level, usize),
        va: Va,
    ) -> Option<Node<'v>> {
        match &mut layout.tables {
            Tables::Counted(tables, cuts) => {
                *tables += usize::from(!cuts.make(va, level.child()));
                None
            }
            Tables::Taken(frames) => {
                let frame = frames.take(self.0);
                debug_assert!(frame.is_ok(), "a remap takes no more than it counted");
                let parent = node.map(|node| (node.pfn, slot));
                Some(self.0.init_node(frame.ok()?, level.child(), parent, 0))
            }
        }
    }

    /// Where the way to an old address ends, at a level or above. Nodes that have left are on it.
    fn source(self, space: &SpaceRecord, va: u64, level: Level) -> Place<'v> {
        let mut at = self.0.root(space);
        loop {
            let slot = at.level.slot(Va(va));
            let raw = self.machine.entry(at.node.pfn, slot);
            match M::Codec::decode(raw, at.level) {
                Entry::Table(child) | Entry::Detached(child) if at.level > level => {
                    at = at.below(slot, self.0.node(child));
                }
                _ => return at.place(slot, raw),
            }
        }
    }

    /// What comes into a slot of that level which one part covers.
    fn arrival(
        self,
        space: &SpaceRecord,
        layout: &Layout<'_>,
        va: Va,
        level: Level,
    ) -> Arrival<'v> {
        let (plan, bytes) = (layout.plan, level.entry_bytes());
        let from = va.0.wrapping_sub(plan.delta);
        let (start, end) = (plan.moved.start().0, plan.moved.end().0);
        if from >= end || from + bytes <= start {
            return if plan.grows() { Arrival::Reserved } else { Arrival::Nothing };
        }
        let meets = plan.delta & (bytes - 1) == 0;
        let inside = start <= from && from + bytes <= end;
        if !meets || plan.grows() && !inside {
            let some = VaRange::new(Va(from), bytes, self.user_end());
            let some = some.ok().and_then(|range| range.intersect(plan.moved));
            let pages = some.is_none_or(|some| self.has_page(plan, self.0.root(space), some));
            return match pages || !inside && !plan.grows() {
                true => Arrival::Several,
                false => Arrival::Reserved,
            };
        }
        let at = self.source(space, from, level);
        match M::Codec::decode(at.raw, at.level) {
            Entry::Table(child) | Entry::Detached(child) => {
                let child = self.0.node(child);
                // What a fault must note before a store is noted at the new place.
                let moves = |attrs: Packed| !attrs.is_tracked_view();
                match child.state().dead() && self.attrs(layout).is_some_and(moves) {
                    true => Arrival::Table(at, child),
                    false => Arrival::Several,
                }
            }
            Entry::Empty => Arrival::Nothing,
            _ if !inside => Arrival::Several,
            entry if self.is_page(plan, entry, (from, at.level)) => match at.level == level {
                true => Arrival::Entry(at),
                false => Arrival::Part(at),
            },
            _ => Arrival::Reserved,
        }
    }

    /// Whether an entry that leaves keeps a page that arrives.
    fn is_page(self, plan: &RemapPlan, entry: Entry, (va, level): (u64, Level)) -> bool {
        match entry {
            Entry::Leaf(pfn, _) => !self.is_zero_leaf(pfn, level),
            Entry::Inaccessible(_) | Entry::Busy(Busy::Page(_)) => true,
            // A block of an object moves as a whole, or not at all.
            Entry::Shared(..) | Entry::Busy(Busy::Shared(_)) => {
                level == Level::ONE
                    || plan.moves_whole(Va(va).align_down(level.entry_bytes()), level)
            }
            _ => false,
        }
    }

    /// Whether any page of a part of the old place arrives.
    fn has_page(self, plan: &RemapPlan, at: Cursor<'_>, range: VaRange) -> bool {
        let (p, level) = (at.part(range), at.level);
        if level == Level::ONE && at.node.state().resident() == 0 {
            return false;
        }
        self.scanned(p.first, p.end).any(|slot| match self.load(at.node.pfn, slot, level) {
            Entry::Table(child) | Entry::Detached(child) => {
                self.has_page(plan, at.below(slot, self.node(child)), range)
            }
            entry => self.is_page(plan, entry, (at.va(slot), level)),
        })
    }

    /// What an entry that leaves is at the new place.
    #[inline(never)]
    pub(super) fn arriving(self, raw: u64, level: Level, attrs: Option<Packed>) -> Entry {
        let note = raw >> NOTE_SHIFT;
        let shared = |pfn| {
            let rights = attrs.map(Packed::object_rights).unwrap_or_default();
            let flags = Flags { accessed: true, dirty: rights.write, ..Flags::default() };
            shared_entry(rights, Entry::Shared(pfn, flags)).unwrap_or(Entry::Reserved)
        };
        match M::Codec::decode(raw, level) {
            Entry::Leaf(pfn, _) if self.is_zero_leaf(pfn, level) => Entry::Reserved,
            entry @ (Entry::Leaf(..) | Entry::Inaccessible(_)) => entry,
            Entry::Busy(Busy::Page(pfn)) if note & KIND == PAGE => {
                Entry::Leaf(pfn, Flags::from_bits(note))
            }
            Entry::Busy(Busy::Page(pfn)) => Entry::Inaccessible(pfn),
            Entry::Shared(pfn, _) | Entry::Busy(Busy::Shared(pfn)) => shared(pfn),
            _ => Entry::Reserved,
        }
    }

    /// Puts what arrives into a slot.
    fn put(
        self,
        edit: &mut Edit<'_>,
        layout: &Layout<'_>,
        arrival: Arrival<'v>,
        to: Place<'_>,
        va: Va,
    ) {
        let level = to.level;
        match arrival {
            Arrival::Nothing | Arrival::Several => {}
            Arrival::Reserved => self.link(to, Entry::Reserved, 0),
            Arrival::Entry(at) => {
                let entry = self.arriving(at.raw, level, self.attrs(layout));
                self.vacate(at, 1);
                self.link(to, entry, 1);
            }
            Arrival::Part(at) => {
                let from = va.0.wrapping_sub(layout.plan.delta);
                let part = self.cut_leaf(at, from, level);
                self.link(to, part, 1);
                self.end_leaf(at, from + level.entry_bytes());
            }
            Arrival::Table(at, child) => {
                Leaving(self.0).clear_intervals(child.pfn, level.child(), edit.deferred);
                {
                    let mut top = Token::top();
                    let _guard = child.lock(&self.machine, &mut top);
                    child.set_parent(Some((to.node.pfn, to.slot)));
                }
                Leaving(self.0).revive_subtree(child.pfn, level.child());
                self.vacate(at, 0);
                self.link(to, Entry::Table(child.pfn), 0);
            }
        }
    }

    /// Writes an entry into an empty slot. `pages` is 1 if it keeps one.
    fn link(self, Place { node, level, slot, .. }: Place<'_>, entry: Entry, pages: u64) {
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        self.write_entry(node.pfn, slot, level, entry);
        node.set_state(with_more(node, 1, pages));
    }

    /// Leaves nothing at an old place, of which `pages` arrived.
    fn vacate(self, Place { node, level, slot, .. }: Place<'_>, pages: u64) {
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        let state = node.state();
        let gone = u64::from(state.dead());
        self.store(node.pfn, slot, level, left(state.dead()));
        node.set_state(state.without(gone, pages));
    }

    /// The part of a large leaf at an old address, as a leaf of a lower level. Where a block begins
    /// it becomes blocks of the next size; parts are asked for from the first to the last.
    fn cut_leaf(self, at: Place<'_>, from: u64, level: Level) -> Entry {
        let mut above = at.level;
        let part = |pfn: Pfn, level: Level| {
            pfn.add(
                (from & (at.level.entry_bytes() - 1) & !(level.entry_bytes() - 1)) >> PAGE_SHIFT,
            )
        };
        let whole = self.arriving(at.raw, at.level, None);
        let (Entry::Leaf(pfn, _) | Entry::Inaccessible(pfn)) = whole else {
            return Entry::Reserved;
        };
        while above > level {
            if let Some(order) = above.leaf_order()
                && from & (above.entry_bytes() - 1) == 0
            {
                self.split_block(part(pfn, above), order);
                self.count_pages(order, -1);
                self.count_pages(smaller(order), ENTRIES as i64);
                if order == Order::HUGE {
                    self.count(Counter::ThpSplit, 1);
                }
            }
            above = above.child();
        }
        match whole {
            Entry::Leaf(pfn, flags) => Entry::Leaf(part(pfn, level), flags),
            _ => Entry::Inaccessible(part(pfn, level)),
        }
    }

    /// Leaves nothing of a large leaf all of whose parts have arrived.
    fn end_leaf(self, at: Place<'_>, end: u64) {
        if end & (at.level.entry_bytes() - 1) == 0 {
            self.vacate(at, 1);
        }
    }

    /// What comes into slots of a lowest node.
    fn lay_leaves(
        self,
        space: &SpaceRecord,
        layout: &mut Layout<'_>,
        at: Cursor<'v>,
        (first, end): (usize, usize),
    ) {
        let (plan, node) = (layout.plan, at.node);
        let pages = |from: u64, to: u64| (to.saturating_sub(from) >> PAGE_SHIFT) as usize;
        let mut slot = first;
        while slot < end {
            let va = Va(at.va(slot));
            self.advance(layout, va);
            let of_part = layout.part.map_or(u64::MAX, |handle| self.region(handle).part_end());
            let most = (end - slot).min(pages(va.0, of_part));
            let from = va.0.wrapping_sub(plan.delta);
            let run = if from < plan.moved.start().0 {
                pages(from, plan.moved.start().0)
            } else if from >= plan.moved.end().0 {
                if plan.grows() {
                    self.put_reserved(node, (slot, most));
                }
                most
            } else {
                let most = most.min(pages(from, plan.moved.end().0));
                let at = self.source(space, from, Level::ONE);
                if at.level == Level::ONE {
                    let run = most.min(ENTRIES - at.slot);
                    self.put_run(layout, node, (slot, run), at);
                    run
                } else {
                    // A block of 2 MiB, or a part of one, at once.
                    let block = Order::HUGE.bytes();
                    let run = most.min(pages(from & (block - 1), block));
                    let keeps = M::Codec::decode(at.raw, at.level);
                    match self.is_page(plan, keeps, (from, at.level)) {
                        true => self.put_parts(node, (slot, run), at, from),
                        false => self.put_reserved(node, (slot, run)),
                    }
                    run
                }
            };
            slot += run.min(end - slot);
        }
    }

    fn put_reserved(self, node: Node<'_>, (first, run): (usize, usize)) {
        let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        (first..first + run).for_each(|slot| self.machine.set_entry(node.pfn, slot, reserved));
        self.machine.work(Work::Entry, run as u64);
        node.set_state(with_more(node, run as u64, 0));
    }

    /// Pages of one block that was a large leaf.
    fn put_parts(self, node: Node<'_>, (first, run): (usize, usize), at: Place<'_>, from: u64) {
        let part = self.cut_leaf(at, from, Level::ONE);
        let entry = |i: usize| match part {
            Entry::Leaf(pfn, flags) => Entry::Leaf(pfn.add(i as u64), flags),
            Entry::Inaccessible(pfn) => Entry::Inaccessible(pfn.add(i as u64)),
            other => other,
        };
        {
            let mut top = Token::top();
            let _guard = node.lock(&self.machine, &mut top);
            (0..run).for_each(|i| self.store(node.pfn, first + i, Level::ONE, entry(i)));
            self.machine.work(Work::Entry, run as u64);
            node.set_state(with_more(node, run as u64, run as u64));
        }
        self.end_leaf(at, from + ((run as u64) << PAGE_SHIFT));
    }

    /// What stands in as many slots from a place on, which is this verb's alone.
    #[inline(never)]
    fn put_run(
        self,
        layout: &Layout<'_>,
        node: Node<'_>,
        (first, run): (usize, usize),
        at: Place<'_>,
    ) {
        let (plan, attrs) = (layout.plan, self.attrs(layout));
        // Through `self` the loop would load them again for each entry.
        let (m, zeros, source): (&M, _, _) = (&self.machine, self.zero_span(), at.node);
        let dead = source.state().dead();
        // A dead node that has nothing beside this run needs not be emptied. One that has is freed
        // by its count, from its first entry on.
        let rest = source.state().count().wrapping_sub(run as u64);
        let stays = !(dead && plan.moved == plan.all && rest == 0);
        let left = M::Codec::encode(left(dead), Level::ONE);
        let zeros = (zeros.0.addr(), zeros.1 << PAGE_SHIFT);
        let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
        // Slots in which nothing was, and all in which no page was.
        let (mut empty, mut without) = (0, 0);
        {
            let mut top = Token::top();
            let _guard = node.lock(m, &mut top);
            // A leaf without its frame (none yet: no leaf has all bits) that arrives as it is: most
            // leaves of a run are alike.
            let (mut alike, mut i) = (u64::MAX, 0);
            while i < run {
                let mut raw = m.entry(source.pfn, at.slot + i);
                let frame = raw & M::Codec::FRAME;
                if raw - frame != alike || frame.wrapping_sub(zeros.0) < zeros.1 {
                    raw = self.arriving_at_once(raw, attrs, &mut alike);
                    without += u64::from(raw == 0 || raw == reserved);
                    if raw == 0 {
                        (empty, i) = (empty + 1, i + 1);
                        continue;
                    }
                }
                m.set_entry(node.pfn, first + i, raw);
                if stays {
                    m.set_entry(source.pfn, at.slot + i, left);
                }
                i += 1;
            }
            let (count, pages) = (run as u64 - empty, run as u64 - without);
            m.work(Work::Entry, 2 * count);
            node.set_state(with_more(node, count, pages));
        }
        debug_assert!(stays || empty == 0, "what the node counts is not what has left");
        let (count, pages) = (run as u64 - empty, run as u64 - without);
        let mut top = Token::top();
        let _guard = source.lock(m, &mut top);
        source.set_state(source.state().without(if dead { count } else { 0 }, pages));
    }

    /// As [`arriving`](Self::arriving), of an entry of a lowest node; nothing arrives as nothing. A
    /// leaf that stays as it is says which are alike.
    #[inline(never)]
    fn arriving_at_once(self, raw: u64, attrs: Option<Packed>, alike: &mut u64) -> u64 {
        if raw == 0 {
            return 0;
        }
        let entry = self.arriving(raw, Level::ONE, attrs);
        let now = M::Codec::encode(entry, Level::ONE);
        if now == raw && matches!(entry, Entry::Leaf(..)) {
            *alike = raw & !M::Codec::FRAME;
        }
        now
    }
}

/// What stays where something has left: nothing in a dead node, else the verb's mark.
fn left(dead: bool) -> Entry {
    if dead { Entry::Empty } else { Entry::Busy(Busy::Nothing) }
}

/// The state of a node with more entries.
fn with_more(node: Node<'_>, entries: u64, pages: u64) -> crate::pagetable::node::NodeState {
    let state = node.state();
    state.with_count(state.count() + entries).with_resident(state.resident() + pages)
}
