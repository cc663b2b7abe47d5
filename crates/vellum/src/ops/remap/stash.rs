//! Making a range absent in a way that can be taken back to the bit.
//!
//! A remap has to know what lies in a range before it can say what memory it takes, and what lies
//! there must not change any more once it has said so. So everything is made absent first (`Busy`,
//! one flush), and each mark remembers in spare bits what it stands for: the flags of a leaf, which
//! zeros, or nothing more than a reserved entry. If memory runs out the entries come back exactly
//! as they were, marks that hardware had set included; all that a program can notice is that a
//! fault took longer.
//!
//! ```text
//!   note, in bits 52 to 63 of a `Busy` entry:
//!     | 0 | slot of the zeros (4) | kind (2) | dirty | accessed | exec | write |
//!   kind 0: an inaccessible page, or where none is named a reserved entry
//!        1: a page, or where none is named a device's memory;  2: zeros;  3: a table of them
//! ```
//! Rejected: counting first and stashing afterwards (a fault in between needs one table more, and
//! by then leaves are split).

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry, Flags, NOTE_SHIFT};
use crate::fault::Faults;
use crate::machine::{Act, Machine, Work};
use crate::ops::remap::leaving::Leaving;
use crate::ops::remap::plan::RemapPlan;
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::preallocated::Preallocated;
use crate::platform::{Platform, over};
use crate::rmap::map_count::smaller;
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::Receipt;

pub(super) const PAGE: u64 = 1 << 4;
const ZERO: u64 = 2 << 4;
const TABLE: u64 = 3 << 4;
pub(super) const KIND: u64 = 3 << 4;
const SLOT_SHIFT: u32 = 6;

const _: () =
    assert!(crate::machine::MAX_NODES <= 16, "a note has four bits for the slot of the zeros");

fn note(kind: u64, flags: Flags, slot: usize) -> u64 {
    (kind | flags.bits() | (slot as u64) << SLOT_SHIFT) << NOTE_SHIFT
}

pub(crate) struct Stash<'v, M: Machine>(pub &'v Faults<M>);

over!(Stash, Faults);

impl<M: Machine> Stash<'_, M> {
    /// Makes everything in the range absent, reserved entries too; entries that reach beyond the
    /// range as a whole, and tables that leave instead of what is in them. Waits for faults that
    /// have entries in transit. Under the mmap lock.
    pub(super) fn stash(self, space: &SpaceRecord, plan: &RemapPlan, receipt: &mut Receipt) {
        let zeros = self.zero_span();
        // A leaf without its frame (none yet: no leaf has all bits), and its note: most leaves of a
        // range are alike.
        let (mut alike, mut noted) = (u64::MAX, 0);
        // Through `self` the closure would load it again for each entry.
        let platform: &Platform<M> = &self;
        let mut mark = |receipt: &mut Receipt, at: &Cursor<'_>, slot, raw| {
            let (level, va) = (at.level, Va(at.va(slot)));
            let pfn = Pfn((raw & M::Codec::FRAME) >> PAGE_SHIFT);
            let known = level == Level::ONE && raw & !M::Codec::FRAME == alike;
            if known
                && pfn.0.wrapping_sub(zeros.0.0) >= zeros.1
                && platform
                    .replace_entry(
                        at.node.pfn,
                        slot,
                        raw,
                        M::Codec::encode(Entry::Busy(Busy::Page(pfn)), level) | noted,
                    )
                    .is_ok()
            {
                receipt.leaf(va, level);
                return true;
            }
            let mark = |entry| self.mark(entry, level);
            match self.exchange(at.place(slot, raw), mark) {
                Some(Entry::Leaf(pfn, flags)) => {
                    receipt.leaf(va, level);
                    if level == Level::ONE && !self.is_base_zero(pfn) {
                        let leaf = M::Codec::encode(Entry::Leaf(pfn, flags), level);
                        (alike, noted) = (leaf & !M::Codec::FRAME, note(PAGE, flags, 0));
                    }
                    true
                }
                Some(entry) => {
                    match entry {
                        Entry::ZeroTable(_) => receipt.span(va, level.entry_bytes()),
                        Entry::Shared(..) | Entry::Device(..) => receipt.leaf(va, level),
                        _ => {}
                    }
                    true
                }
                None => false,
            }
        };
        self.stash_node(plan, self.root(space), receipt, &mut mark);
    }

    /// A fault may make a table where none was seen a moment ago, so each slot is either marked,
    /// under the node's lock, or has a table.
    fn stash_node(
        self,
        plan: &RemapPlan,
        at: Cursor<'_>,
        receipt: &mut Receipt,
        mark: &mut dyn FnMut(&mut Receipt, &Cursor<'_>, usize, u64) -> bool,
    ) {
        let p = at.part(plan.all);
        let mut slot = p.first;
        while slot < p.end {
            let entry = self.load(at.node.pfn, slot, at.level);
            if let (Entry::Table(child), true) = (entry, at.level > Level::ONE) {
                let below = at.below(slot, self.node(child));
                if !Leaving(self.0).detach(plan, (at, slot), below, receipt) {
                    self.stash_node(plan, below, receipt, mark);
                }
                slot += 1;
            } else {
                slot = self.alter_run(at, (slot, p.end), &mut |at: &Cursor<'_>, (slot, _), raw| {
                    slot + usize::from(mark(receipt, at, slot, raw))
                });
            }
        }
    }

    /// What stands for an entry while it is stashed; `None` if someone else has it in transit.
    fn mark(self, entry: Entry, level: Level) -> Option<u64> {
        let page = |pfn| M::Codec::encode(Entry::Busy(Busy::Page(pfn)), level);
        let nothing = M::Codec::encode(Entry::Busy(Busy::Nothing), level);
        Some(match entry {
            Entry::Leaf(pfn, flags) if self.is_zero_leaf(pfn, level) => {
                nothing | note(ZERO, flags, self.zero_slot(pfn))
            }
            Entry::Shared(pfn, flags) => {
                let busy = M::Codec::encode(Entry::Busy(Busy::Shared(pfn)), level);
                busy | note(PAGE, flags, 0)
            }
            Entry::Leaf(pfn, flags) => page(pfn) | note(PAGE, flags, 0),
            Entry::Device(_, flags, _) => nothing | note(PAGE, flags, 0),
            Entry::Inaccessible(pfn) => page(pfn),
            Entry::Reserved => nothing,
            Entry::ZeroTable(table) => {
                nothing | note(TABLE, Flags::default(), self.zero_table_slot(table))
            }
            _ => return None,
        })
    }

    /// What a mark stands for.
    fn unmark(self, space: &SpaceRecord, raw: u64, level: Level, va: Va) -> Option<Entry> {
        let note = raw >> NOTE_SHIFT;
        let flags = Flags::from_bits(note);
        let page = match M::Codec::decode(raw, level) {
            Entry::Busy(Busy::Page(pfn)) => Some(pfn),
            Entry::Busy(Busy::Shared(pfn)) => return Some(Entry::Shared(pfn, flags)),
            Entry::Busy(Busy::Nothing) => None,
            _ => return None,
        };
        let slot = (note >> SLOT_SHIFT) as usize;
        match note & KIND {
            PAGE if page.is_none() => {
                let region = self.region(self.0.descend(space, va).region?);
                Some(self.device_leaf(region, va, level, flags).unwrap_or(Entry::Reserved))
            }
            PAGE => page.map(|pfn| Entry::Leaf(pfn, flags)),
            ZERO if level == Level::ONE => Some(Entry::Leaf(self.zero_in(slot, va), flags)),
            ZERO => self.huge_zero().map(|page| Entry::Leaf(page, flags)),
            TABLE => self.zero_table_in(slot, level).map(Entry::ZeroTable),
            _ => Some(page.map_or(Entry::Reserved, Entry::Inaccessible)),
        }
    }

    /// The opposite of [`stash`](Self::stash).
    pub(super) fn unstash(self, space: &SpaceRecord, range: VaRange) {
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, raw| {
            if let Some(entry) = self.unmark(space, raw, at.level, Va(at.va(slot))) {
                self.write_entry(at.node.pfn, slot, at.level, entry);
            }
            true
        });
    }

    /// Makes an address in a stashed range a boundary between slots, with frames that were counted
    /// for it.
    pub(super) fn make_boundary_stashed(
        self,
        space: &SpaceRecord,
        va: Va,
        tables: &mut Preallocated,
    ) {
        let (mut node, mut level) = (self.node(space.root()), self.top());
        while !va.is_aligned(level.entry_bytes()) {
            let slot = level.slot(va);
            let raw = self.machine.entry(node.pfn, slot);
            if let Entry::Table(child) = M::Codec::decode(raw, level) {
                (node, level) = (self.node(child), level.child());
                continue;
            }
            // What has left as a whole is not cut.
            if matches!(M::Codec::decode(raw, level), Entry::Empty | Entry::Detached(_)) {
                return;
            }
            let base = va.align_down(level.entry_bytes());
            let cut = self.unmark(space, raw, level, base).zip(tables.take(self.0).ok());
            debug_assert!(cut.is_some(), "what is opened is stashed, and its tables were counted");
            let Some((entry, frame)) = cut else { return };
            self.split_stashed(Place { node, level, slot, raw }, entry, base, frame);
        }
    }

    /// Puts a table in `frame` where a stashed `entry` is, whose slots are stashed, too. No
    /// translation is left of it, so none is flushed.
    fn split_stashed(
        self,
        Place { node, level, slot, .. }: Place<'_>,
        entry: Entry,
        base: Va,
        frame: Pfn,
    ) {
        let m = &self.machine;
        let below = level.child();
        let reserved = M::Codec::encode(Entry::Busy(Busy::Nothing), below);
        let child = self.init_node(frame, below, Some((node.pfn, slot)), reserved);
        let page = match entry {
            Entry::Leaf(pfn, _) => (!self.is_zero_leaf(pfn, level)).then_some(pfn),
            Entry::Inaccessible(pfn) => Some(pfn),
            _ => None,
        };
        if let (Some(pfn), Some(order)) = (page, level.leaf_order()) {
            self.split_block(pfn, order);
            self.count_pages(order, -1);
            self.count_pages(smaller(order), ENTRIES as i64);
            if order == Order::HUGE {
                self.count(Counter::ThpSplit, 1);
            }
        }
        let words = m.direct(child.pfn).cast::<u64>();
        for i in 0..ENTRIES {
            let sub_block = |pfn: Pfn| pfn.add((i as u64) << (below.shift() - PAGE_SHIFT));
            let below_it = match entry {
                Entry::Leaf(_, flags) if page.is_none() => {
                    let va = Va(base.0 + ((i as u64) << below.shift()));
                    Entry::Leaf(self.zero_block_here().frame(va), Flags { accessed: true, ..flags })
                }
                Entry::Leaf(pfn, flags) => Entry::Leaf(sub_block(pfn), flags),
                Entry::Inaccessible(pfn) => Entry::Inaccessible(sub_block(pfn)),
                Entry::Device(pfn, flags, cache) => Entry::Device(sub_block(pfn), flags, cache),
                Entry::ZeroTable(table) => self.load(table, i, below),
                _ => break,
            };
            let Some(mark) = self.mark(below_it, below) else { continue };
            // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
            unsafe { words.add(i).write(mark) };
        }
        m.work(Work::Entry, ENTRIES as u64);
        let pages = u64::from(page.is_some());
        child.set_state(child.state().with_resident(pages * ENTRIES as u64));
        match entry {
            Entry::ZeroTable(_) => self.count(Counter::ZeroTableUnshare, 1),
            Entry::Leaf(..) if page.is_none() => self.count(Counter::ThpZeroSplit, 1),
            _ => {}
        }
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        self.store(node.pfn, slot, level, Entry::Table(child.pfn));
        node.sub_resident(pages);
        // Of a block of an object nothing is mapped after that: faults map its pages anew.
        if let Entry::Shared(block, _) = entry {
            node.sub_resident(1);
            self.sub_shared_mapping(block, level);
        }
    }
}
