//! Changing rights.
//!
//! Regions first, then leaves under their nodes' locks: a fault that still reads the old region locks its node before this verb
//! comes by, and is set right, or after, and sees that regions were edited. Rights taken away are flushed before the call
//! returns; rights given need no flush, a stale translation only faults once more.
//!
//! Pages of a region without rights stay resident as *parked* entries, which hardware does not see. Mappings of the shared zeros
//! go back to the promise they stood for.

use crate::addr::{Level, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::SpaceError;
use crate::machine::{Machine, Verb};
use crate::space::node::Node;
use crate::space::{Attrs, Rights, Space, SpaceRecord, Trash};
use crate::sync::Token;
use crate::tlb::Receipt;
use crate::vm::Vm;

use crate::addr::{Pfn, VaRange};

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
                self.change_regions(record, range, &|attrs| Attrs { rights, ..attrs }, layout.token(), &mut trash).map(
                    |()| {
                        let receipt = self.change_leaves(record, range, rights);
                        let _flushed = self.redeem(record, receipt);
                    },
                )
            };
            self.empty_trash(trash, &mut top);
            done
        })
    }

    /// Changes the attributes of every region in a range that has no hole.
    pub(crate) fn change_regions(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        change: &dyn Fn(Attrs) -> Attrs,
        token: &mut Token<crate::sync::Layout>,
        trash: &mut Trash,
    ) -> Result<(), SpaceError> {
        if !self.is_mapped(space, range) {
            return Err(SpaceError::Unmapped);
        }
        self.open(space, range, false)?;
        let fresh = self.prepare_change(space, range, change, token, trash)?;
        self.commit_change(space, range, fresh, token, trash);
        Ok(())
    }

    /// What a resident page's entry is in a region with those rights. `flags` are the leaf's so far, if it was one.
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

    fn change_leaves(&self, space: &SpaceRecord, range: VaRange, rights: Rights) -> Receipt {
        let mut receipt = Receipt::new();
        self.alter(space, range, &mut |node: Node<'_>, level, slot, va, _| {
            let new = |entry: Entry| {
                let new = match entry {
                    Entry::Leaf(pfn, flags) if self.is_zero(pfn) => {
                        if rights.is_none() {
                            Entry::Reserved
                        } else {
                            Entry::Leaf(pfn, Flags { exec: rights.exec, ..flags })
                        }
                    }
                    Entry::Leaf(pfn, flags) => self.page_entry(rights, pfn, level, Some(flags)),
                    Entry::Parked(pfn) => self.page_entry(rights, pfn, level, None),
                    Entry::Moving(_) | Entry::Detached(_) => return None,
                    other => other,
                };
                (new != entry).then(|| M::Codec::encode(new, level))
            };
            let Some(old) = self.exchange(node, level, slot, new) else {
                let entry = self.load(node.pfn, slot, level);
                return !matches!(entry, Entry::Moving(_) | Entry::Detached(_));
            };
            if let Entry::Leaf(pfn, flags) = old {
                let less = match self.load(node.pfn, slot, level) {
                    Entry::Leaf(_, now) => flags.write && !now.write || flags.exec && !now.exec,
                    _ => true,
                };
                if less {
                    receipt.leaf(va, level);
                }
                if let Entry::Leaf(_, now) = self.load(node.pfn, slot, level)
                    && now.write
                    && !flags.write
                    && let Some(order) = level.leaf_order()
                {
                    self.own(pfn, order, space.owner());
                }
            } else if let Entry::Parked(pfn) = old
                && let Entry::Leaf(_, Flags { write: true, .. }) = self.load(node.pfn, slot, level)
                && let Some(order) = level.leaf_order()
            {
                self.own(pfn, order, space.owner());
            }
            true
        });
        receipt
    }
}
