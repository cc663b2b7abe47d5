//! Entries in transit: one CPU made them busy, flushes and works without the node's lock, and comes
//! back to them.
//!
//! Every other fault and verb waits for such an entry; the node's transit count keeps the node
//! alive until the entry is put back, so neither an epoch nor a lock has to be held in between.
//! That is also what break-before-make asks for: meanwhile the entry is absent.
//!
//! A fault may do so at any time, between the passes of a verb as well, so the marks of verbs
//! (`Busy::Page`) are others: no verb ends an exchange. Rejected: one mark for both, told apart by
//! the frame it names (a munmap took a fault's mark for its own, and the fault put its page back
//! where no region was any more).

use crate::addr::Pfn;
use crate::entry::{Busy, Codec, Entry};
use crate::machine::{Act, Machine};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::sync::Token;

/// The frame an entry keeps mapped, if it does.
#[inline]
pub(crate) fn frame_of(entry: Entry) -> Option<Pfn> {
    match entry {
        Entry::Leaf(pfn, _) | Entry::Inaccessible(pfn) => Some(pfn),
        _ => None,
    }
}

impl<M: Machine> PageTables<M> {
    /// Makes an entry busy that maps the frame it mapped when it was seen, if `still` says under
    /// the lock that it may be, and says what it was in the end (hardware may have set its marks
    /// meanwhile). `busy` makes the new entry of it. `None` if the node is dead, or the entry maps
    /// something else; then nothing changed.
    pub(crate) fn make_busy(
        &self,
        at: Place<'_>,
        still: impl FnOnce() -> bool,
        busy: impl Fn(Entry) -> u64,
    ) -> Option<Entry> {
        let node = at.node;
        let pfn = frame_of(M::Codec::decode(at.raw, at.level))?;
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        if node.state().dead() || !still() {
            return None;
        }
        let same = |entry| (frame_of(entry) == Some(pfn)).then(|| busy(entry));
        let taken = self.exchange(at, same)?;
        node.add_transit();
        Some(taken)
    }

    /// What stands for an entry while it is in transit.
    #[inline(always)]
    pub fn busy(entry: Entry, zeros: bool) -> Entry {
        match frame_of(entry) {
            Some(pfn) if !zeros => Entry::Busy(Busy::Exchange(pfn)),
            _ => Entry::Busy(Busy::ExchangeNothing),
        }
    }

    /// Puts an entry back that was in transit, or what takes its place. `resident` is added to the
    /// node's count of resident pages.
    pub(crate) fn put_back(&self, at: Place<'_>, entry: Entry, resident: i64) {
        let m = &self.machine;
        let Place { node, level, slot, .. } = at;
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        self.write_entry(node.pfn, slot, level, entry);
        node.sub_transit();
        node.add_resident(resident as u64);
    }

    /// Exchanges an entry for what `new` makes of it, again for each mark hardware sets meanwhile,
    /// and says what it took out. `None` from `new` leaves the entry. Under the node's lock.
    #[inline]
    pub(crate) fn exchange(
        &self,
        Place { node, level, slot, .. }: Place<'_>,
        new: impl Fn(Entry) -> Option<u64>,
    ) -> Option<Entry> {
        let mut seen = self.machine.entry(node.pfn, slot);
        loop {
            let entry = M::Codec::decode(seen, level);
            match self.replace_entry(node.pfn, slot, seen, new(entry)?) {
                Ok(()) => return Some(entry),
                Err(now) => seen = now,
            }
        }
    }
}
