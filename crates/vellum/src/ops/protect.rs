//! Changing rights.
//!
//! Regions first, then leaves under their nodes' locks: a fault that still reads the old region
//! locks its node before this verb comes by, and is set right, or after, and sees that regions were
//! edited. Rights taken away are flushed before the call returns; rights given need no flush, a
//! stale translation only faults once more.
//!
//! Where some are taken and others given, faults wait meanwhile, and what is taken goes first:
//! nothing is given before that is flushed. So nobody finds a page that may be written and executed
//! where each came without the other.
//!
//! Pages of a region without rights stay resident as *inaccessible* entries, which hardware does
//! not see. Mappings of the shared zeros become reserved entries again; shared tables of them after
//! the flush, as `forbid_zeros` does it. Pages that objects have stay in the object alone, and so
//! does a device's memory.

use crate::addr::{Level, PAGE_SHIFT, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry, Flags};
use crate::error::SpaceError;
use crate::fault::Faults;
use crate::frame::Frames;
use crate::machine::{Act, Machine, Verb, Work};
use crate::ops::forbid_zeros::ForbidZeros;
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::single_table::InTable;
use crate::platform::over;
use crate::rmap::map_count::BasePage;
use crate::space::{Attrs, Rights, Space, SpaceRecord};
use crate::tlb::{Flushed, Receipt};
use crate::vma::edit::Edit;
use crate::vma::interval::undo::Undo;

pub(crate) struct Protect<'v, M: Machine>(pub &'v Faults<M>);

over!(Protect, Faults);

impl<'v, M: Machine> Protect<'v, M> {
    /// `Vm::protect`.
    pub fn protect(
        self,
        space: &Space,
        start: Va,
        bytes: u64,
        rights: Rights,
    ) -> Result<(), SpaceError> {
        self.verb_with_memory(Verb::Protect, || {
            let range = VaRange::new(start, bytes, self.user_end())?;
            let record = self.record_of(space);
            self.edit(record, |edit| {
                let change = |attrs| Attrs { rights, ..attrs };
                let done = self.change_regions(edit, range, &change).map(|part| {
                    if record.faults_stopped() {
                        self.take_rights(record, range, rights);
                    }
                    // Tables of zeros stand above lowest nodes.
                    let hides = part.is_none() && self.has_zero_tables();
                    let receipt = self.change_leaves(record, range, part, rights);
                    let flushed = self.flush(record, receipt);
                    if hides {
                        ForbidZeros(self.0).reserve_hidden(record, range);
                    }
                    if rights.is_none() && record.maps_objects() {
                        self.drop_shared(record, range, &flushed);
                    }
                });
                if record.faults_stopped() {
                    record.let_faults_go();
                }
                done
            })
        })
    }

    /// Changes the attributes of every region in a range that has no hole. Says which node the
    /// range is a part of, if it was done there. Where rights are taken and others given, the
    /// space's faults are stopped, also if it fails.
    #[inline(always)]
    pub(super) fn change_regions(
        self,
        edit: &mut Edit<'_>,
        range: VaRange,
        change: &dyn Fn(Attrs) -> Attrs,
    ) -> Result<Option<InTable<'v>>, SpaceError> {
        if let Some(part) = self.0.in_table(edit.space, range)
            && self.change_in_table(edit, part, change)?
        {
            return Ok(Some(part));
        }
        self.change_anywhere(edit, range, change).map(|()| None)
    }

    /// The same in any range.
    #[inline(never)]
    fn change_anywhere(
        self,
        edit: &mut Edit<'_>,
        range: VaRange,
        change: &dyn Fn(Attrs) -> Attrs,
    ) -> Result<(), SpaceError> {
        let space = edit.space;
        if !self.is_mapped(space, range) {
            return Err(SpaceError::Unmapped);
        }
        let mut undo = Undo::new();
        let ready =
            self.prepare_change(edit, range, change, &mut undo).and_then(|fresh| {
                match self.make_boundaries(space, range, false) {
                    Ok(()) => Ok(fresh),
                    Err(error) => {
                        self.drop_fresh(fresh, edit.deferred);
                        Err(error.into())
                    }
                }
            });
        self.end_exchanges(undo, ready.is_ok(), edit);
        let fresh = ready?;
        if self.takes_and_gives(&fresh) {
            space.stop_faults();
        }
        self.commit_change(edit, range, fresh);
        Ok(())
    }

    /// Takes the rights from the leaves of a range that are not among `rights`, and gives none.
    #[cold]
    #[inline(never)]
    fn take_rights(self, space: &SpaceRecord, range: VaRange, rights: Rights) {
        let mut receipt = Receipt::new();
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, raw| {
            let less = |entry: Entry| {
                let flags = entry.flags()?;
                let (write, exec) = (flags.write && rights.write, flags.exec && rights.exec);
                let less = entry.with_flags(Flags { write, exec, ..flags });
                Some(M::Codec::encode(less, at.level))
            };
            if let Some(flags) = self.exchange(at.place(slot, raw), less).and_then(Entry::flags)
                && (flags.write && !rights.write || flags.exec && !rights.exec)
            {
                receipt.leaf(Va(at.va(slot)), at.level);
            }
            !matches!(M::Codec::decode(raw, at.level), Entry::Busy(_))
        });
        let _flushed = self.flush(space, receipt);
    }

    /// What a resident page's entry is in a region with those rights. `flags` are the leaf's so
    /// far, if it was one.
    #[inline(always)]
    pub(super) fn page_entry(
        self,
        rights: Rights,
        pfn: Pfn,
        level: Level,
        flags: Option<Flags>,
    ) -> Entry {
        let Some(order) = level.leaf_order() else { return Entry::Empty };
        if rights.is_none() {
            return Entry::Inaccessible(pfn);
        }
        let wrote = flags.is_some_and(|flags| flags.write);
        let write = rights.write && (wrote || self.is_exclusive(pfn, order));
        // Whether an inaccessible or moved page was written is not kept; that it may have been is
        // the safe side.
        let dirty = write && flags.is_none_or(|flags| flags.dirty);
        Entry::Leaf(
            pfn,
            Flags { write, exec: rights.exec, accessed: flags.is_none_or(|f| f.accessed), dirty },
        )
    }

    /// What was made busy of pages that objects have becomes reserved: the object has the page, so
    /// no entry need keep it where nobody may access it.
    #[cold]
    fn drop_shared(self, space: &SpaceRecord, range: VaRange, flushed: &Flushed) {
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, raw| {
            let busy = M::Codec::decode(raw, at.level);
            if let Entry::Busy(Busy::Shared(_) | Busy::Nothing) = busy {
                self.write_entry(at.node.pfn, slot, at.level, Entry::Reserved);
            }
            if let Entry::Busy(Busy::Shared(pfn)) = busy {
                at.node.sub_resident(1);
                self.release_shared(flushed, pfn, at.level);
            }
            true
        });
    }

    fn change_leaves(
        self,
        space: &SpaceRecord,
        range: VaRange,
        part: Option<InTable<'_>>,
        rights: Rights,
    ) -> Receipt {
        let mut change = Change { space, rights, receipt: Receipt::new(), last: Same::NONE };
        let mut visit = |at: &Cursor<'_>, (slot, end), raw: u64| {
            // Most leaves of a range differ in nothing but their frame.
            if raw & !M::Codec::FRAME == change.last.but_frame && at.level == Level::ONE {
                let next = self.change_alike(&mut change, at, (slot, end));
                if next != slot {
                    return next;
                }
            }
            let place = at.place(slot, raw);
            slot + usize::from(self.change_entry(&mut change, place, Va(at.va(slot))))
        };
        match part {
            Some(InTable { at, slots }) => self.alter_leaves(at, slots, &mut visit),
            None => self.alter_node(self.root(space), range, &mut visit),
        }
        change.receipt
    }

    /// Changes leaves of a lowest node that differ from the last one that was changed in nothing
    /// but their frame, from a slot on. Says where they end.
    fn change_alike(
        self,
        change: &mut Change<'_>,
        at: &Cursor<'_>,
        (first, end): (usize, usize),
    ) -> usize {
        // Through `self` and `change` the loop would load them again for each entry.
        let (m, frames, table): (&M, &Frames, _) = (&self.machine, &self.frames, at.node.pfn);
        let (zeros, owner) = (self.zero_span(), change.space.owner());
        let (zeros_at, zeros) = (zeros.0.addr(), zeros.1 << PAGE_SHIFT);
        let Same { but_frame, change: bits, stale, gains } = change.last;
        let mut slot = first;
        while slot < end {
            let raw = m.entry(table, slot);
            let frame = raw & M::Codec::FRAME;
            if raw - frame != but_frame || frame.wrapping_sub(zeros_at) < zeros {
                break;
            }
            let page = gains.then(|| BasePage::of(frames.record(Pfn(frame >> PAGE_SHIFT))));
            if page.is_some_and(|page| !page.is_exclusive(m))
                || bits != 0 && m.swap_entry(table, slot, raw, raw ^ bits).is_err()
            {
                break;
            }
            if let Some(page) = page {
                page.set_owner(owner);
            }
            slot += 1;
        }
        if slot != first {
            m.work(Work::Entry, if bits == 0 { 0 } else { (slot - first) as u64 });
            if stale {
                change.receipt.leaf(Va(at.va(first)), Level::ONE);
                change.receipt.leaf(Va(at.va(slot - 1)), Level::ONE);
            }
        }
        slot
    }

    /// Any entry; `false` if a fault has it in transit.
    #[inline(never)]
    fn change_entry(self, change: &mut Change<'_>, at: Place<'_>, va: Va) -> bool {
        let rights = change.rights;
        let Place { node, level, slot, raw: mut seen } = at;
        // Once more for each mark hardware sets meanwhile.
        loop {
            let old = M::Codec::decode(seen, level);
            let new = match old {
                Entry::Leaf(pfn, _) if rights.is_none() && self.is_zero(pfn) => Entry::Reserved,
                Entry::Leaf(pfn, flags) if self.is_zero(pfn) => {
                    Entry::Leaf(pfn, Flags { exec: rights.exec, ..flags })
                }
                Entry::Leaf(pfn, flags) => self.page_entry(rights, pfn, level, Some(flags)),
                Entry::Inaccessible(pfn) => self.page_entry(rights, pfn, level, None),
                // The shared tables give no more and no less than to read. Absent until the flush,
                // or a fault made a page here while other CPUs still read the zeros.
                Entry::ZeroTable(_) if rights.is_none() || rights.exec => {
                    Entry::Busy(Busy::Nothing)
                }
                Entry::Busy(busy) if busy.is_transit() => return false,
                Entry::Shared(..) | Entry::Device(..) => {
                    self.change_shared(change, at, va);
                    return true;
                }
                _ => return true,
            };
            let raw = M::Codec::encode(new, level);
            if raw != seen
                && let Err(now) = self.replace_entry(node.pfn, slot, seen, raw)
            {
                seen = now;
                continue;
            }
            let (had, has) = (flags_of(old), flags_of(new));
            let stale = raw != seen
                && (had.write && !has.write
                    || had.exec && !has.exec
                    || !matches!(new, Entry::Leaf(..)));
            let gains = has.write && !had.write;
            if matches!(old, Entry::ZeroTable(_)) {
                change.receipt.span(va, level.entry_bytes());
            } else if stale {
                change.receipt.leaf(va, level);
            }
            if let (Entry::Leaf(pfn, _), Entry::Leaf(..)) = (new, old) {
                // A leaf that was not writable and stays so may be another's page: that says
                // nothing of the next one.
                let known = !self.is_zero(pfn) && level == Level::ONE && has.write == rights.write;
                let but_frame = seen & !M::Codec::FRAME;
                change.last = if known {
                    Same { but_frame, change: raw ^ seen, stale, gains }
                } else {
                    Same::NONE
                };
            }
            if gains && let (Entry::Leaf(pfn, _), Some(order)) = (new, level.leaf_order()) {
                self.set_block_owner(pfn, order, change.space.owner());
            }
            return true;
        }
    }

    /// The entry of a page that an object has, or of a device.
    #[cold]
    #[inline(never)]
    fn change_shared(self, change: &mut Change<'_>, at: Place<'_>, va: Va) {
        // Its region has the new rights already.
        let region = self.0.descend(change.space, va).region;
        let region = region.map(|handle| self.region(handle).packed());
        let rights = region.map_or(change.rights, |region| region.object_rights());
        let new = |entry| shared_entry(rights, entry).map(|new| M::Codec::encode(new, at.level));
        if let Some(had) = self.exchange(at, new).and_then(Entry::flags)
            && (rights.is_none() || had.write && !rights.write || had.exec && !rights.exec)
        {
            change.receipt.leaf(va, at.level);
        }
    }
}

/// What the entry of a page that an object has, or of a device, is in a region with those rights.
/// `None` for another entry.
pub(super) fn shared_entry(rights: Rights, entry: Entry) -> Option<Entry> {
    let Rights { write, exec, .. } = rights;
    match entry {
        Entry::Shared(pfn, _) if rights.is_none() => Some(Entry::Busy(Busy::Shared(pfn))),
        Entry::Device(..) if rights.is_none() => Some(Entry::Busy(Busy::Nothing)),
        Entry::Shared(_, flags) | Entry::Device(_, flags, _) => {
            Some(entry.with_flags(Flags { write, exec, dirty: flags.dirty && write, ..flags }))
        }
        _ => None,
    }
}

/// A change of leaves under way.
struct Change<'c> {
    space: &'c SpaceRecord,
    rights: Rights,
    receipt: Receipt,
    last: Same,
}

/// What was done to the last leaf, for those that are alike.
struct Same {
    /// The leaf without its frame. All bits, frame included, is no leaf's.
    but_frame: u64,
    /// The bits that changed.
    change: u64,
    /// It gives less than translations of it may.
    stale: bool,
    /// It became writable, which only a page of this space's alone may.
    gains: bool,
}

impl Same {
    const NONE: Same = Same { but_frame: u64::MAX, change: 0, stale: false, gains: false };
}

/// What an entry gives the hardware.
fn flags_of(entry: Entry) -> Flags {
    match entry {
        Entry::Leaf(_, flags) => flags,
        _ => Flags::default(),
    }
}
