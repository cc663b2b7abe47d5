//! Taking pages out of a range, without memory for it.
//!
//! Two passes with one flush between. The first (`mark`) makes what must go absent: leaves become
//! `Busy`, whole subtrees `Detached` with every node in them dead, so no fault can add to what is
//! going; a node whose last entries go is cut off with them. The flush follows. The second (`reap`)
//! finds the marks in the table itself, frees the frames and writes what shall stand there from now
//! on. Dead nodes are freed after a wait for lock-free readers.
//!
//! Both marks are written under the mmap lock alone, so every one that is met is this verb's own.
//! Where reserved entries stay they are marked like the rest (`Busy::Nothing`): a page that a fault
//! makes there before the flush would be new while others still read the old one beside it.
//!
//! Only splitting a large leaf or a reserved entry at the range's ragged ends can fail, and that
//! comes before everything.

use core::ops::Range;

use crate::addr::{ENTRIES, Level, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry};
use crate::error::{NoMemory, SpaceError};
use crate::fault::Faults;
use crate::machine::{Act, Machine, Verb, Work};
use crate::ops::unmap_page::UnmapPage;
use crate::ops::unmap_table::UnmapTable;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::{Node, full_run, raised};
use crate::pagetable::single_table::InTable;
use crate::platform::over;
use crate::space::{Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::{Flushed, Receipt};
use crate::vma::deferred_free::DeferredFree;
use crate::vma::edit::Edit;

/// What stands in the range afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing: the addresses are unmapped, and table nodes without entries go.
    Nothing,
    /// Nothing, but nodes along the edges stay, for a mapping that comes at once.
    Edges,
    /// Reserved entries.
    Reserved,
}

impl Leftover {
    fn entry(self) -> Entry {
        if self == Leftover::Reserved { Entry::Reserved } else { Entry::Empty }
    }
}

/// The first pass in progress.
struct MarkPass<'c> {
    space: &'c SpaceRecord,
    range: VaRange,
    leftover: Leftover,
    receipt: Receipt,
}

pub(crate) struct Unmap<'v, M: Machine>(pub &'v Faults<M>);

over!(Unmap, Faults);

impl<M: Machine> Unmap<'_, M> {
    /// `Vm::unmap`.
    pub fn unmap(self, space: &Space, start: Va, bytes: u64) -> Result<(), SpaceError> {
        self.verb(Verb::Unmap, || {
            self.with_memory(|| {
                let range = VaRange::new(start, bytes, self.user_end())?;
                let record = self.record_of(space);
                let mut top = Token::top();
                let mut layout = record.mmap_lock().lock(&self.machine, &mut top, space.id());
                // A copy may be the last page by which an interval keeps an object: the passes
                // look.
                if range.pages() == 1
                    && !record.maps_objects()
                    && UnmapPage(self.0).take_out_page(record, start, layout.token())
                {
                    return Ok(());
                }
                // What goes is in hand until the deferred frees are done.
                let _in_hand = self.hands.begin(&self.machine);
                let mut deferred = DeferredFree::default();
                let token = layout.token();
                self.take_out_range(
                    &mut Edit { space: record, token, deferred: &mut deferred },
                    range,
                )?;
                drop(layout);
                self.free_deferred(deferred, &mut top);
                Ok(())
            })
        })
    }

    /// More than a page, or a page that takes its table along.
    #[inline(never)]
    fn take_out_range(self, edit: &mut Edit<'_>, range: VaRange) -> Result<(), NoMemory> {
        if !self.take_out_in_table(edit, range, Leftover::Nothing)
            && !UnmapTable(self.0).take_out_table(edit, range)
        {
            self.make_boundaries(edit.space, range, false)
                .inspect_err(|_| self.hands.gave_back(&self.machine))?;
            self.take_out(edit, range, Leftover::Nothing);
        }
        Ok(())
    }

    /// Both passes and the flush. The range is open; the caller holds the mmap lock.
    pub(super) fn take_out(self, edit: &mut Edit<'_>, range: VaRange, leftover: Leftover) {
        let space = edit.space;
        if leftover != Leftover::Reserved {
            space.note_hole(range.end(), self.user_end());
        }
        let mut pass = MarkPass { space, range, leftover, receipt: Receipt::new() };
        self.mark_node(&mut pass, self.root(space));
        let flushed = self.flush(space, pass.receipt);
        self.reap_node(&mut Reap { edit, range, leftover, flushed }, self.root(space));
    }

    /// The second pass alone, of a range in which all that goes is marked, and was flushed.
    pub(super) fn reap_marked(self, edit: &mut Edit<'_>, range: VaRange, flushed: Flushed) {
        edit.space.note_hole(range.end(), self.user_end());
        let root = self.root(edit.space);
        let leftover = Leftover::Nothing;
        self.reap_node(&mut Reap { edit, range, leftover, flushed }, root);
    }

    /// [`take_out`](Self::take_out) for a part of one lowest node that keeps other entries, which
    /// nothing has to be opened or cut off for: one descent instead of three. `false` if the range
    /// is another, and nothing was done.
    pub(super) fn take_out_in_table(
        self,
        edit: &mut Edit<'_>,
        range: VaRange,
        leftover: Leftover,
    ) -> bool {
        let space = edit.space;
        let Some(InTable { at, slots }) = self.in_table(space, range) else { return false };
        let node = at.node;
        if leftover == Leftover::Nothing && node.state().count() <= range.pages() {
            return false;
        }
        if leftover != Leftover::Reserved {
            space.note_hole(range.end(), self.user_end());
        }
        let mut pass = MarkPass { space, range, leftover, receipt: Receipt::new() };
        self.mark_leaves(&mut pass, at, slots);
        let flushed = self.flush(space, pass.receipt);
        self.reap_leaves(&mut Reap { edit, range, leftover, flushed }, node, slots);
        if leftover != Leftover::Reserved {
            self.raise_above(node, range.pages());
        }
        true
    }

    /// Tells the nodes above one in which `freed` pages became a hole.
    #[inline]
    pub(super) fn raise_above(self, node: Node<'_>, freed: u64) {
        let mut at = node;
        while let Some((parent, _)) = at.parent() {
            at = self.node(parent);
            let state = at.state();
            if state.run() < full_run(state.level()) {
                let mut top = Token::top();
                let _guard = at.lock(&self.machine, &mut top);
                at.set_state(raised(at.state(), freed));
            }
        }
    }

    /// First pass over a node that the range touches. `true` if nothing but what goes was in it.
    fn mark_node(self, pass: &mut MarkPass<'_>, at: Cursor<'_>) -> bool {
        let p = at.visit(&self.machine, pass.range);
        let going = if at.level == Level::ONE {
            self.mark_leaves(pass, at, (p.first, p.end))
        } else {
            let mut going = 0;
            for slot in p.first..p.end {
                going += u64::from(self.mark_slot(pass, at, slot, p.covers(slot)));
            }
            going
        };
        pass.leftover == Leftover::Nothing && going == at.node.state().count()
    }

    /// `true` if the slot had something and will have nothing.
    fn mark_slot(self, pass: &mut MarkPass<'_>, at: Cursor<'_>, slot: usize, whole: bool) -> bool {
        let m = &self.machine;
        let (node, level, va) = (at.node, at.level, at.va(slot));
        loop {
            let raw = m.entry(node.pfn, slot);
            match M::Codec::decode(raw, level) {
                Entry::Empty => return false,
                // Tables stay where they are while the mmap lock is held, so this needs no lock
                // yet.
                Entry::Table(child) => {
                    let detach = if whole && self.may_detach(pass.leftover, child) {
                        true
                    } else if self.mark_node(pass, at.below(slot, self.node(child))) {
                        // Its leaves are marked already, and nobody can add to them.
                        false
                    } else {
                        return false;
                    };
                    let mut top = Token::top();
                    {
                        let _guard = node.lock(m, &mut top);
                        self.store(node.pfn, slot, level, Entry::Detached(child));
                    }
                    m.work(Work::Entry, 1);
                    if detach {
                        self.mark_subtree_dead(child, level.child())
                    } else {
                        self.mark_dead(self.node(child))
                    }
                    let end = va + level.entry_bytes();
                    pass.receipt
                        .table(Va(va.max(pass.range.start().0)), Va(end.min(pass.range.end().0)));
                    self.flush_early(pass);
                    return true;
                }
                // What is no transit is this very verb's: a remap took away what it stood for.
                Entry::Busy(busy) if busy.is_transit() => m.relax(),
                Entry::Busy(_) | Entry::Detached(_) => return true,
                _ => {
                    let mut top = Token::top();
                    let _guard = node.lock(m, &mut top);
                    let stays = pass.leftover == Leftover::Reserved;
                    let zeros = |pfn| self.is_zero_leaf(pfn, level);
                    let new = |now: Entry| match now {
                        // Zeros have no frame to free.
                        Entry::Leaf(pfn, _) if zeros(pfn) => Some(Entry::Busy(Busy::Nothing)),
                        Entry::Shared(pfn, _) => Some(Entry::Busy(Busy::Shared(pfn))),
                        Entry::Leaf(pfn, _) | Entry::Inaccessible(pfn) => {
                            Some(Entry::Busy(Busy::Page(pfn)))
                        }
                        Entry::Reserved if !stays => Some(Entry::Empty),
                        Entry::ZeroTable(_) | Entry::Reserved | Entry::Device(..) => {
                            Some(Entry::Busy(Busy::Nothing))
                        }
                        _ => None,
                    };
                    let new = |now| new(now).map(|entry| M::Codec::encode(entry, level));
                    let Some(taken) = self.exchange(at.place(slot, raw), new) else { continue };
                    match taken {
                        Entry::Reserved if !stays => {
                            node.set_state(node.state().with_count(node.state().count() - 1));
                            return false;
                        }
                        Entry::Leaf(..) | Entry::Shared(..) | Entry::Device(..) => {
                            pass.receipt.leaf(Va(va), level)
                        }
                        Entry::ZeroTable(_) => pass.receipt.span(Va(va), level.entry_bytes()),
                        _ => {}
                    }
                    return !stays;
                }
            }
        }
    }

    /// Marks the leaves of a lowest node; the number of slots that will be empty.
    fn mark_leaves(
        self,
        pass: &mut MarkPass<'_>,
        at: Cursor<'_>,
        (first, end): (usize, usize),
    ) -> u64 {
        let m = &self.machine;
        let at = Cursor { level: Level::ONE, ..at };
        let (node, level) = (at.node, at.level);
        let reserved = pass.leftover == Leftover::Reserved;
        let mut going = 0;
        let Range { start: mut slot, end } = self.scanned(first, end);
        while slot < end {
            let mut top = Token::top();
            let _guard = node.lock(m, &mut top);
            let mut dropped = 0;
            while slot < end {
                let raw = m.entry(node.pfn, slot);
                match M::Codec::decode(raw, level) {
                    Entry::Reserved if reserved => {
                        self.store(node.pfn, slot, level, Entry::Busy(Busy::Nothing));
                    }
                    Entry::Reserved => {
                        self.store(node.pfn, slot, level, Entry::Empty);
                        dropped += 1;
                    }
                    entry @ (Entry::Leaf(pfn, _)
                    | Entry::Shared(pfn, _)
                    | Entry::Device(pfn, ..)
                    | Entry::Inaccessible(pfn)) => {
                        // A mapping of zeros, or of a device, has no frame to free; the mark only
                        // keeps faults away until the flush.
                        let busy = match entry {
                            Entry::Shared(..) => Busy::Shared(pfn),
                            Entry::Device(..) => Busy::Nothing,
                            _ if self.is_zero(pfn) => Busy::Nothing,
                            _ => Busy::Page(pfn),
                        };
                        let mark = M::Codec::encode(Entry::Busy(busy), level);
                        if self.replace_entry(node.pfn, slot, raw, mark).is_err() {
                            continue;
                        }
                        if entry.flags().is_some() {
                            pass.receipt.leaf(Va(at.va(slot)), level);
                        }
                        going += u64::from(!reserved);
                    }
                    Entry::Busy(busy) if busy.is_transit() => break,
                    // This very verb's: a remap took away what it stood for.
                    Entry::Busy(_) => going += u64::from(!reserved),
                    _ => {}
                }
                slot += 1;
            }
            if dropped != 0 {
                node.set_state(node.state().with_count(node.state().count() - dropped));
            }
            drop(_guard);
            if slot < end {
                m.relax();
            }
        }
        self.flush_early(pass);
        going
    }

    /// With `tlb.batch=off`, flushes what this node's change asks for at once.
    fn flush_early(self, pass: &mut MarkPass<'_>) {
        if !self.config.tlb_batch {
            let receipt = core::mem::replace(&mut pass.receipt, Receipt::new());
            let _flushed = self.flush(pass.space, receipt);
        }
    }

    /// Whether a subtree that the range covers whole may go as a whole: if something is to remain
    /// there, only when the slot above can say the same.
    fn may_detach(self, leftover: Leftover, child: Pfn) -> bool {
        let state = self.node(child).state();
        leftover != Leftover::Reserved
            || state.level() == Level::ONE && state.listed() == 0 && state.count() == ENTRIES as u64
    }

    /// Second pass: the marks become what shall stand there.
    fn reap_node(self, reap: &mut Reap<'_, '_>, at: Cursor<'_>) {
        let (node, level) = (at.node, at.level);
        if level == Level::ONE {
            let p = at.part(reap.range);
            return self.reap_leaves(reap, node, (p.first, p.end));
        }
        let p = at.visit(&self.machine, reap.range);
        let order = level.leaf_order();
        let (mut gone, mut pages, mut shared) = (0, 0, 0);
        for slot in p.first..p.end {
            match self.load(node.pfn, slot, level) {
                Entry::Table(child) => {
                    self.reap_node(reap, at.below(slot, self.node(child)));
                    continue;
                }
                Entry::Busy(Busy::Page(pfn)) => {
                    if let Some(order) = order {
                        self.release(&reap.flushed, pfn, order);
                        pages += 1;
                    }
                }
                Entry::Busy(Busy::Nothing) => {}
                Entry::Busy(Busy::Shared(pfn)) => {
                    self.release_shared(&reap.flushed, pfn, level);
                    shared += 1;
                }
                Entry::Detached(child) => {
                    let below = at.below(slot, self.node(child));
                    self.free_tree(&reap.flushed, below, reap.range, reap.edit.deferred);
                }
                _ => continue,
            }
            // Nobody but the holder of the mmap lock touches a mark.
            self.write_entry(node.pfn, slot, level, reap.leftover.entry());
            gone += 1;
        }
        if reap.leftover != Leftover::Reserved {
            self.intervals(node).forget(reap.edit, (p.whole_first, p.whole_end));
        }
        if let Some(order) = order
            && pages != 0
        {
            self.count_pages(order, -(pages as i64));
        }
        self.close_slots(reap, node, gone, pages + shared);
    }

    /// The second pass over slots of a lowest node.
    fn reap_leaves(self, reap: &mut Reap<'_, '_>, node: Node<'_>, slots: (usize, usize)) {
        let level = Level::ONE;
        self.machine.work(Work::Descend, 1);
        let (mut gone, mut pages, mut shared) = (0, 0, 0);
        for slot in slots.0..slots.1 {
            match self.load(node.pfn, slot, level) {
                Entry::Busy(Busy::Page(pfn)) => {
                    self.release_base(&reap.flushed, pfn);
                    pages += 1;
                }
                Entry::Busy(Busy::Nothing) => {}
                Entry::Busy(Busy::Shared(pfn)) => {
                    self.release_shared(&reap.flushed, pfn, level);
                    shared += 1;
                }
                _ => continue,
            }
            self.write_entry(node.pfn, slot, level, reap.leftover.entry());
            gone += 1;
        }
        if reap.leftover != Leftover::Reserved && node.state().listed() != 0 {
            self.intervals(node).forget(reap.edit, slots);
        }
        if pages != 0 {
            self.count(Counter::AnonPages, -(pages as i64));
        }
        self.close_slots(reap, node, gone, pages + shared);
    }

    /// Writes down what the second pass did to a node: entries gone, and how many of them were
    /// pages.
    #[inline]
    fn close_slots(self, reap: &mut Reap<'_, '_>, node: Node<'_>, gone: u64, pages: u64) {
        let reserved = reap.leftover == Leftover::Reserved;
        if gone == 0 && reserved {
            return;
        }
        let _guard = node.lock(&self.machine, reap.edit.token);
        let state = node.state();
        let pages_freed = reap.range.pages();
        node.set_state(if reserved {
            state.without(0, pages)
        } else {
            raised(state.without(gone, pages), pages_freed)
        });
    }
}

/// The second pass in progress.
struct Reap<'r, 'e> {
    edit: &'r mut Edit<'e>,
    range: VaRange,
    leftover: Leftover,
    flushed: Flushed,
}
