//! Spaces without shared zeros.
//!
//! Some spaces must not share a frame with anyone, be it only zeros: guests whose memory carries
//! keys or is encrypted. From the moment this verb returns no entry of the space maps zeros, and
//! none ever will: reads of untouched memory get pages of their own. Children of the space inherit
//! it. It cannot be taken back, since nobody has asked for that.
//!
//! Mappings of zeros become reserved entries again. So the verb needs no memory and cannot
//! fail; who wants the pages there at once populates them afterwards. Rejected: a private page for
//! each of them here, which would have to leave half of them behind when memory runs out.
//!
//! A fault that maps zeros asks under the lock of the node it writes to. The mark is set before the
//! first node is visited, and each node is visited under its lock: the fault came before, and is
//! found, or comes after, and sees the mark. While the old translation is being flushed the entry
//! is absent (`Busy`), or another CPU could read old zeros beside a page already written here.

use crate::addr::{Va, VaRange};
use crate::entry::{Busy, Codec, Entry};
use crate::fault::Faults;
use crate::machine::{Machine, Verb};
use crate::pagetable::cursor::Cursor;
use crate::platform::over;
use crate::space::{Space, SpaceRecord};
use crate::sync::Token;
use crate::tlb::Receipt;

pub(crate) struct ForbidZeros<'v, M: Machine>(pub &'v Faults<M>);

over!(ForbidZeros, Faults);

impl<M: Machine> ForbidZeros<'_, M> {
    /// `Vm::forbid_zeros`.
    pub fn forbid_zeros(self, space: &Space) {
        self.verb(Verb::Forbid, || {
            let record = self.record_of(space);
            let mut top = Token::top();
            let _layout = record.mmap_lock().lock(&self.machine, &mut top, space.id());
            record.forbid_zeros();
            let Ok(all) = VaRange::new(Va(0), self.user_end().0, self.user_end()) else { return };
            let receipt = self.hide_zeros(record, all);
            if receipt.is_empty() {
                return;
            }
            let _flushed = self.flush(record, receipt);
            self.reserve_hidden(record, all);
        });
    }

    /// Makes every mapping of zeros absent. What it says meanwhile is what a remap's reserved
    /// entries say: no frame, do wait.
    fn hide_zeros(self, space: &SpaceRecord, range: VaRange) -> Receipt {
        let hidden = Entry::Busy(Busy::Nothing);
        let mut receipt = Receipt::new();
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, mut seen| {
            let (node, level) = (at.node, at.level);
            // Once more for each mark hardware sets meanwhile.
            loop {
                match M::Codec::decode(seen, level) {
                    Entry::Leaf(pfn, _) if self.is_zero_leaf(pfn, level) => {}
                    Entry::ZeroTable(_) => {}
                    Entry::Busy(busy) if busy.is_transit() => return false,
                    _ => return true,
                }
                let hidden = M::Codec::encode(hidden, level);
                let Err(now) = self.replace_entry(node.pfn, slot, seen, hidden) else { break };
                seen = now;
            }
            // A leaf, or everything below a table of zeros.
            receipt.span(Va(at.va(slot)), level.entry_bytes());
            true
        });
        receipt
    }

    /// What was hidden becomes reserved. The flush is over.
    pub(super) fn reserve_hidden(self, space: &SpaceRecord, range: VaRange) {
        let hidden = Entry::Busy(Busy::Nothing);
        self.alter(space, range, &mut |at: &Cursor<'_>, slot, raw| {
            if raw == M::Codec::encode(hidden, at.level) {
                self.write_entry(at.node.pfn, slot, at.level, Entry::Reserved);
            }
            true
        });
    }
}
