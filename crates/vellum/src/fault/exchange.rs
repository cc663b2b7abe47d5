//! Exchanging an entry that was seen for another, with the flush in between.

use crate::entry::Codec;
use crate::fault::{Faults, Seen};
use crate::machine::Machine;
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::transit::{Settled, Transit, frame_of};
use crate::sync::Token;
use crate::tlb::{Flushed, Receipt};

impl<M: Machine> Faults<M> {
    /// Exchanges the seen entry for another if everything seen still holds, and shows that no CPU
    /// uses the old translation any more, of which `receipt` speaks. `fill` runs in between, when
    /// nobody can reach either; it takes no lock. What was seen is a leaf of `zeros` or is not, as
    /// the caller has found.
    ///
    /// The entry always goes absent first, and only then it is asked who could still use it:
    /// whoever comes to the space later finds the mark, or the new entry. If that is this CPU
    /// alone, the lock is kept until the new entry is there. Rejected: asking first, and exchanging
    /// the entry at once where nobody else runs the space (two CPUs that come in between see two
    /// pages).
    #[inline(always)]
    pub fn exchange_seen(
        &self,
        seen: &Seen<'_>,
        zeros: bool,
        receipt: Receipt,
        settled: Settled,
        fill: impl FnOnce(),
    ) -> Option<Flushed> {
        let m = &self.machine;
        let Place { node, level, slot, .. } = seen.spot.at;
        let mut top = Token::top();
        let guard = node.lock(m, &mut top);
        if !self.mark_seen(seen, zeros) {
            return None;
        }
        let due = self.due(seen.space, &receipt);
        let flushed = match self.flush_local(&due) {
            Some(flushed) => {
                fill();
                self.write_entry(node.pfn, slot, level, settled.entry);
                node.add_resident(settled.resident as u64);
                flushed
            }
            None => {
                let transit = Transit::begin(seen.spot.at);
                drop(guard);
                self.settle(transit, || {
                    let flushed = self.flush_due(&due);
                    fill();
                    (settled, flushed)
                })
            }
        };
        Some(flushed)
    }

    /// Makes the seen entry busy if everything seen still holds, `zeros` as above.
    pub fn make_seen_busy<'v>(&self, seen: &Seen<'v>, zeros: bool) -> Option<Transit<'v>> {
        let mut top = Token::top();
        let _guard = seen.spot.node.lock(&self.machine, &mut top);
        self.mark_seen(seen, zeros).then(|| Transit::begin(seen.spot.at))
    }

    /// The first half of both, under the node's lock. Who saw zeros has a hold on them, and who saw
    /// data on the block: neither can have become the other.
    #[inline(always)]
    fn mark_seen(&self, seen: &Seen<'_>, zeros: bool) -> bool {
        let spot = &seen.spot;
        let entry = M::Codec::decode(spot.raw, spot.level);
        if !self.still(seen) {
            return false;
        }
        let is_zeros = |pfn| self.is_zero_leaf(pfn, spot.level);
        debug_assert_eq!(
            frame_of(entry).is_some_and(is_zeros),
            zeros,
            "{entry:?} is not what it was"
        );
        let busy = PageTables::<M>::busy(entry, zeros);
        self.write_entry(spot.node.pfn, spot.slot, spot.level, busy);
        true
    }
}
