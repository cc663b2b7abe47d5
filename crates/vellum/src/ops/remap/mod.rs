//! Moving a mapping, making it longer or shorter.
//!
//! Pages never move, entries do. Everything in the old range is stashed first (`stash.rs`, one
//! flush), so nothing can appear there that the new place has no table for; then the tables are
//! counted and taken, and if they cannot be had the old range is what it was to the bit
//! (`relocate.rs`). The new range holds the same mark until it is complete. A frame keeps its
//! index; the distance goes into the new regions' shift and the space's list of index shifts.
//!
//! A huge leaf stays one if its new place is aligned for it, else it arrives as base pages.

mod relocate;
mod single_table;
mod stash;

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry, Flags};
use crate::error::{NoMemory, SpaceError};
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Verb};
use crate::ops::map::Map;
use crate::ops::protect::{Protect, shared_entry};
use crate::ops::remap::relocate::{Relocate, RemapPlan};
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::node::Node;
use crate::pagetable::preallocated::Preallocated;
use crate::platform::over;
use crate::rmap::map_count::smaller;
use crate::space::{LeafSize, Placement, Rights, Space, SpaceRecord};
use crate::sync::Token;
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

pub(crate) struct Remap<'v, M: Machine>(pub &'v Faults<M>);

over!(Remap, Faults);

impl<'v, M: Machine> Remap<'v, M> {
    /// `Vm::remap`.
    pub fn remap(
        self,
        space: &Space,
        old: Va,
        old_bytes: u64,
        new_bytes: u64,
        to: Placement,
    ) -> Result<Va, SpaceError> {
        self.verb_with_memory(Verb::Remap, || {
            let end = self.user_end();
            let range = VaRange::new(old, old_bytes, end)?;
            VaRange::new(Va(0), new_bytes, end)?;
            self.edit(self.record_of(space), |edit| self.remap_range(edit, range, new_bytes, to))
        })
    }

    fn remap_range(
        self,
        edit: &mut Edit<'_>,
        old: VaRange,
        new_bytes: u64,
        to: Placement,
    ) -> Result<Va, SpaceError> {
        let end = self.user_end();
        let space = edit.space;
        if !self.is_mapped(space, old) {
            return Err(SpaceError::Unmapped);
        }
        let last = self.descend(space, Va(old.end().0 - 1)).region.ok_or(SpaceError::Unmapped)?;
        let align = match self.region(last).packed().leaf() {
            LeafSize::Exactly(order) => order.bytes(),
            LeafSize::Policy => Order::BASE.bytes(),
        };
        if new_bytes & (align - 1) != 0 {
            return Err(SpaceError::LeafSize);
        }
        let may_stay = matches!(to, Placement::Anywhere) || to == Placement::At(old.start());
        if may_stay && new_bytes <= old.bytes() {
            self.cut_tail(edit, old, new_bytes)?;
            return Ok(old.start());
        }
        if may_stay {
            let tail = VaRange::new(old.end(), new_bytes - old.bytes(), end);
            if let Ok(tail) = tail
                && self.is_hole(space, tail)
            {
                Map(self.0).map_range(edit, tail, last, Placement::At(tail.start()))?;
                return Ok(old.start());
            }
            if matches!(to, Placement::At(_)) {
                tail?;
                return Err(SpaceError::Occupied);
            }
        }
        let new = Map(self.0).place(space, to, new_bytes, align)?;
        if new.intersect(old).is_some() {
            return Err(SpaceError::Occupied);
        }
        let moved = VaRange::new(old.start(), old.bytes().min(new_bytes), end)?;
        Relocate(self.0).relocate(
            edit,
            &RemapPlan { all: old, moved, new, replace: matches!(to, Placement::Replace(_)) },
        )?;
        Ok(new.start())
    }

    /// Unmaps what is past the first `keep` bytes of a range.
    fn cut_tail(self, edit: &mut Edit<'_>, range: VaRange, keep: u64) -> Result<(), SpaceError> {
        if keep < range.bytes() {
            let tail =
                VaRange::new(Va(range.start().0 + keep), range.bytes() - keep, self.user_end())?;
            self.make_boundaries(edit.space, tail, false)?;
            Unmap(self.0).take_out(edit, tail, Leftover::Nothing);
        }
        Ok(())
    }

    /// Where the run of pages from `va` on ends, inside `range`, that are of one region, and the
    /// region.
    pub(crate) fn same_region(
        self,
        space: &SpaceRecord,
        va: Va,
        range: VaRange,
    ) -> Option<(Va, SlabRef)> {
        let first = self.descend(space, va);
        let mut end = va;
        while end < range.end() {
            let spot = self.descend(space, end);
            if spot.region != first.region {
                break;
            }
            // As far as this node's interval goes, if no table comes first.
            let (last, _) = self.intervals(spot.node).from(spot.slot);
            let is_table = |slot: &usize| {
                matches!(self.load(spot.node.pfn, *slot, spot.level), Entry::Table(_))
            };
            let stop = (spot.slot..last).find(is_table).unwrap_or(last);
            let base = end.align_down(spot.level.entry_bytes() << 9).0;
            end = Va(base + ((stop as u64) << spot.level.shift()));
        }
        first.region.map(|handle| (end.min(range.end()), handle))
    }

    /// Makes an entry absent; `false` if a fault has it in transit. Under the node's lock.
    #[inline(always)]
    pub(super) fn stash_entry(self, at: Place<'_>, va: Va, receipt: &mut Receipt) -> bool {
        let (level, zeros) = (at.level, self.zero_span());
        let new = |entry| match entry {
            Entry::Leaf(pfn, _)
                if (level > Level::ONE || pfn.0.wrapping_sub(zeros.0.0) < zeros.1)
                    && self.is_zero_leaf(pfn, level) =>
            {
                Some(Entry::Busy(Busy::Nothing))
            }
            Entry::Leaf(pfn, _) | Entry::Inaccessible(pfn) => Some(Entry::Busy(Busy::Page(pfn))),
            Entry::Reserved | Entry::ZeroTable(_) => Some(Entry::Busy(Busy::Nothing)),
            _ => None,
        };
        let old = self.exchange(at, |e| new(e).map(|e| M::Codec::encode(e, level)));
        match old {
            Some(Entry::Leaf(..)) => receipt.leaf(va, level),
            Some(Entry::ZeroTable(_)) => receipt.span(va, level.entry_bytes()),
            _ => {}
        }
        old.is_some()
    }

    /// What a remap made busy without a page becomes reserved.
    pub(super) fn restore_reserved(self, space: &SpaceRecord, range: VaRange) {
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, raw| {
            if M::Codec::decode(raw, at.level) == Entry::Busy(Busy::Nothing) {
                self.store(at.node.pfn, slot, at.level, Entry::Reserved);
            }
            true
        });
    }

    /// Makes every table the stashed pages need at the new place.
    pub(super) fn make_tables(
        self,
        space: &SpaceRecord,
        old: VaRange,
        delta: u64,
        tables: &mut Preallocated,
    ) -> Result<(), NoMemory> {
        let mut done = Ok(());
        let mut have = u64::MAX;
        self.scan(space, old, &mut |va, level, entry| {
            if let Entry::Busy(busy @ (Busy::Page(_) | Busy::Shared(_))) = entry {
                let to = va.0.wrapping_add(delta);
                if matches!(busy, Busy::Shared(_)) && !Va(to).is_aligned(level.entry_bytes()) {
                    // A block of an object, which does not move.
                    return true;
                }
                if level == Level::ONE && to & !(Order::HUGE.bytes() - 1) == have {
                    return true;
                }
                let fits = |level: Level| to & (level.entry_bytes() - 1) == 0;
                let small = [level, Level::TWO]
                    .into_iter()
                    .find(|&small| fits(small))
                    .unwrap_or(Level::ONE);
                let mut at = to;
                while at < to + level.entry_bytes() && done.is_ok() {
                    // One table serves all pages of its span.
                    let span = small.entry_bytes() << 9;
                    if small != Level::ONE || at & !(span - 1) != have {
                        done = self.make_way(space, Va(at), small, tables);
                        have = if small == Level::ONE { at & !(span - 1) } else { u64::MAX };
                    }
                    at = (at & !(span - 1)) + span;
                }
            }
            done.is_ok()
        });
        done
    }

    /// Makes the node of `level` that covers `va` in a stashed range, if there is none.
    fn make_way(
        self,
        space: &SpaceRecord,
        va: Va,
        level: Level,
        tables: &mut Preallocated,
    ) -> Result<(), NoMemory> {
        let mut node = self.node(space.root());
        let mut at = self.top();
        loop {
            let slot = at.slot(va);
            match self.load(node.pfn, slot, at) {
                Entry::Table(child) => {
                    node = self.node(child);
                    at = at.child();
                }
                _ if at == level => return Ok(()),
                _ => {
                    let below = at.child();
                    let hold = M::Codec::encode(Entry::Busy(Busy::Nothing), below);
                    let child =
                        self.init_node(tables.take(self.0)?, below, Some((node.pfn, slot)), hold);
                    let mut top = Token::top();
                    let _guard = node.lock(&self.machine, &mut top);
                    self.store(node.pfn, slot, at, Entry::Table(child.pfn));
                }
            }
        }
    }

    /// Puts the stashed pages of the old range into the new one's tables, and leaves entries
    /// without a page behind. What is marked is this verb's alone, so the entries need no lock; the
    /// nodes' counts do, once per node.
    pub(super) fn transfer(self, space: &SpaceRecord, old: VaRange, delta: u64) {
        let mut destination = Destination::default();
        self.transfer_node(space, self.0.root(space), old, delta, &mut destination);
        self.count_put(&mut destination);
    }

    fn transfer_node(
        self,
        space: &SpaceRecord,
        at: Cursor<'_>,
        old: VaRange,
        delta: u64,
        destination: &mut Destination<'v>,
    ) {
        let (table, level) = (at.node.pfn, at.level);
        let p = at.part(old);
        let mut left = 0;
        for slot in p.first..p.end {
            match self.load(table, slot, level) {
                Entry::Table(child) => {
                    let below = at.below(slot, self.node(child));
                    self.transfer_node(space, below, old, delta, destination)
                }
                Entry::Busy(busy @ (Busy::Page(pfn) | Busy::Shared(pfn))) => {
                    let to = Va(at.va(slot).wrapping_add(delta));
                    if busy == Busy::Shared(pfn) {
                        self.put_shared(space, (to, level), pfn, destination);
                    } else {
                        self.put_page(space, to, level, pfn, destination);
                    }
                    self.store(table, slot, level, Entry::Busy(Busy::Nothing));
                    left += 1;
                }
                _ => {}
            }
        }
        if left != 0 {
            let node = self.node(table);
            let mut top = Token::top();
            let _guard = node.lock(&self.machine, &mut top);
            node.sub_resident(left);
        }
    }

    /// Puts a page of an object in place. The tables are there. A block for which there is no place
    /// as a whole is left out: faults map its pages.
    fn put_shared(
        self,
        space: &SpaceRecord,
        (va, level): (Va, Level),
        pfn: Pfn,
        destination: &mut Destination<'v>,
    ) {
        let spot = self.0.descend(space, va);
        if spot.level != level || !va.is_aligned(level.entry_bytes()) {
            return self.sub_shared_mapping(pfn, level);
        }
        let region = spot.region.map(|handle| self.region(handle).packed());
        let rights = region.map_or(Rights::NONE, |region| region.object_rights());
        let flags = Flags { accessed: true, dirty: rights.write, ..Flags::default() };
        // Counted at once: a visit to the object's mappings may take it out from here on.
        let mut top = Token::top();
        let _guard = spot.node.lock(&self.machine, &mut top);
        let entry = shared_entry(rights, Entry::Shared(pfn, flags)).unwrap_or(Entry::Reserved);
        self.store(spot.node.pfn, spot.slot, spot.level, entry);
        spot.node.add_resident(1);
        // What follows may be private.
        destination.bytes = 0;
    }

    /// Puts one page, or its sub-blocks, in place. The tables are there.
    fn put_page(
        self,
        space: &SpaceRecord,
        va: Va,
        level: Level,
        pfn: Pfn,
        destination: &mut Destination<'v>,
    ) {
        let Some(order) = level.leaf_order() else { return };
        // Most pages land in the node where the last one did, and nearly all of those in the same
        // region.
        if let Some(node) = destination.node
            && level == Level::ONE
            && va.0.wrapping_sub(destination.first) < destination.bytes
        {
            let entry =
                if self.is_exclusive(pfn, order) { destination.mine } else { destination.shared };
            self.machine.set_entry(node.pfn, level.slot(va), entry | pfn.addr());
            destination.arrived += 1;
            return;
        }
        let spot = self.0.descend(space, va);
        if destination.node.is_none_or(|node| node.pfn != spot.node.pfn) {
            self.count_put(destination);
            destination.node = Some(spot.node);
        }
        let rights =
            spot.region.map_or(Rights::NONE, |handle| self.region(handle).packed().rights());
        if spot.level == level && va.is_aligned(level.entry_bytes()) {
            let slot = level.slot(va);
            self.store(
                spot.node.pfn,
                slot,
                level,
                Protect(self.0).page_entry(rights, pfn, level, None),
            );
            destination.arrived += 1;
            // What the pages become that follow in this interval. Inaccessible ones are written one
            // by one.
            let (end, _) = self.intervals(spot.node).from(slot);
            let alike = if level == Level::ONE && !rights.is_none() { end - slot } else { 0 };
            (destination.first, destination.bytes) = (va.0, (alike as u64) << PAGE_SHIFT);
            let leaf = |write| {
                let flags = Flags { write, exec: rights.exec, accessed: true, dirty: write };
                M::Codec::encode(Entry::Leaf(Pfn(0), flags), level)
            };
            (destination.mine, destination.shared) = (leaf(rights.write), leaf(false));
            return;
        }
        self.split_block(pfn, order);
        let size = smaller(order);
        self.count_pages(order, -1);
        self.count_pages(size, ENTRIES as i64);
        for i in 0..ENTRIES as u64 {
            self.put_page(
                space,
                Va(va.0 + i * size.bytes()),
                level.child(),
                pfn.add(i * size.frames()),
                destination,
            );
        }
    }

    /// Counts what arrived in a node.
    fn count_put(self, destination: &mut Destination<'_>) {
        if let Some(node) = destination.node.take()
            && destination.arrived != 0
        {
            let mut top = Token::top();
            let _guard = node.lock(&self.machine, &mut top);
            node.add_resident(destination.arrived);
        }
        (destination.arrived, destination.bytes) = (0, 0);
    }
}

/// Where pages arrive.
#[derive(Default)]
struct Destination<'v> {
    node: Option<Node<'v>>,
    /// What the node's count has yet to learn.
    arrived: u64,
    /// Addresses whose pages become the same but for their frames: `mine` if they are this space's
    /// alone, `shared` otherwise.
    first: u64,
    bytes: u64,
    mine: u64,
    shared: u64,
}
