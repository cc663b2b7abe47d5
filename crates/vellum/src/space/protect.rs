//! Changing rights.
//!
//! Regions first, then leaves under their nodes' locks: a fault that still reads the old region locks its node before this verb
//! comes by, and is set right, or after, and sees that regions were edited. Rights taken away are flushed before the call
//! returns; rights given need no flush, a stale translation only faults once more.
//!
//! Pages of a region without rights stay resident as *parked* entries, which hardware does not see. Mappings of the shared zeros
//! go back to the promise they stood for.

use crate::addr::{Level, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry, Flags};
use crate::error::SpaceError;
use crate::machine::{Event, Machine, Verb, Work};
use crate::space::near::Near;
use crate::space::node::Node;
use crate::space::{Attrs, Rights, Space, SpaceRecord, Trash};
use crate::sync::Token;
use crate::tlb::Receipt;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// Gives every page of the range the rights `rights`. When it returns no CPU can use a right that was taken. Takes the layout
    /// lock.
    ///
    /// # Errors
    /// [`SpaceError::Range`], [`SpaceError::Unmapped`] if part of the range lies in no region, [`SpaceError::NoMemory`]. Nothing
    /// changed.
    pub fn protect(&self, space: &Space, start: Va, bytes: u64, rights: Rights) -> Result<(), SpaceError> {
        self.verb(Verb::Protect, || {
            let range = VaRange::new(start, bytes, self.user_end())?;
            let record = space.record();
            let mut top = Token::top();
            let mut trash = Trash::default();
            let done = {
                let mut layout = record.layout().lock(&self.machine, &mut top, space.id());
                let change = |attrs| Attrs { rights, ..attrs };
                self.change_regions(record, range, &change, layout.token(), &mut trash).map(|near| {
                    let receipt = self.change_leaves(record, range, near, rights);
                    let _flushed = self.redeem(record, receipt);
                })
            };
            self.empty_trash(trash, &mut top);
            done
        })
    }

    /// Changes the attributes of every region in a range that has no hole. Says which node the range is a part of, if it was done there.
    pub(crate) fn change_regions<'v>(
        &'v self,
        space: &SpaceRecord,
        range: VaRange,
        change: &dyn Fn(Attrs) -> Attrs,
        token: &mut Token<crate::sync::Layout>,
        trash: &mut Trash,
    ) -> Result<Option<Near<'v>>, SpaceError> {
        if let Some(near) = self.near(space, range)
            && self.change_near(space, near, change, token, trash)?
        {
            return Ok(Some(near));
        }
        if !self.is_mapped(space, range) {
            return Err(SpaceError::Unmapped);
        }
        self.open(space, range, false)?;
        let fresh = self.prepare_change(space, range, change, token, trash)?;
        self.commit_change(space, range, fresh, token, trash);
        Ok(None)
    }

    /// What a resident page's entry is in a region with those rights. `flags` are the leaf's so far, if it was one.
    #[inline]
    pub(crate) fn page_entry(&self, rights: Rights, pfn: Pfn, level: Level, flags: Option<Flags>) -> Entry {
        let Some(order) = level.leaf_order() else { return Entry::Empty };
        if rights.is_none() {
            return Entry::Parked(pfn);
        }
        let wrote = flags.is_some_and(|flags| flags.write);
        let write = rights.write && (wrote || self.is_mine(pfn, order));
        // Whether a parked or moved page was written is not kept; that it may have been is the safe side.
        let dirty = write && flags.is_none_or(|flags| flags.dirty);
        Entry::Leaf(pfn, Flags { write, exec: rights.exec, accessed: flags.is_none_or(|f| f.accessed), dirty })
    }

    fn change_leaves(&self, space: &SpaceRecord, range: VaRange, near: Option<Near<'_>>, rights: Rights) -> Receipt {
        let m = &self.machine;
        let zeros = self.zeros();
        let is_zero = |pfn: Pfn| pfn.0.wrapping_sub(zeros.0.0) < zeros.1;
        let mut receipt = Receipt::new();
        let mut change = |node: Node<'_>, level: Level, slot: usize, va: Va, mut seen: u64| {
            // Once more for each mark hardware sets meanwhile.
            loop {
                let old = M::Codec::decode(seen, level);
                let new = match old {
                    Entry::Leaf(pfn, flags) if is_zero(pfn) => match rights.is_none() {
                        true => Entry::Reserved,
                        false => Entry::Leaf(pfn, Flags { exec: rights.exec, ..flags }),
                    },
                    Entry::Leaf(pfn, flags) => self.page_entry(rights, pfn, level, Some(flags)),
                    Entry::Parked(pfn) => self.page_entry(rights, pfn, level, None),
                    Entry::Moving(_) | Entry::Detached(_) => return false,
                    _ => return true,
                };
                let raw = M::Codec::encode(new, level);
                if raw == seen {
                    return true;
                }
                if let Err(now) = m.entry_cas(node.pfn, slot, seen, raw) {
                    seen = now;
                    continue;
                }
                m.hook(Event::Work(Work::Entry, 1));
                let (had, has) = (flags_of(old), flags_of(new));
                if had.write && !has.write || had.exec && !has.exec || !matches!(new, Entry::Leaf(..)) {
                    receipt.leaf(va, level);
                }
                if has.write
                    && !had.write
                    && let (Entry::Leaf(pfn, _), Some(order)) = (new, level.leaf_order())
                {
                    self.own(pfn, order, space.owner());
                }
                return true;
            }
        };
        match near {
            Some(Near { node, slots, base }) => self.alter_leaves(node, base, slots, &mut change),
            None => self.alter(space, range, &mut change),
        }
        receipt
    }
}

/// What an entry gives the hardware.
fn flags_of(entry: Entry) -> Flags {
    match entry {
        Entry::Leaf(_, flags) => flags,
        _ => Flags::default(),
    }
}
