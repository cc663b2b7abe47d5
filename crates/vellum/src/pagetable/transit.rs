//! Entries set aside by one CPU while it flushes, and works, without the node's lock.
//!
//! `Busy` in an entry makes every other fault and verb wait for it; the node's transit count keeps
//! the node alive until the entry is put back, so neither an epoch nor a lock has to be held
//! between. Also what break-before-make asks for: while it is set aside, the entry is absent.
//!
//! A fault may set an entry aside at any time, between the passes of a verb as well. So this mark
//! is not the verbs' own (`Moving`): no verb ends a `Busy`. Rejected: one mark for both, told apart
//! by the frame it names (a munmap took a fault's mark for its own, and the fault put its page back
//! where no region was any more).

use crate::addr::Pfn;
use crate::entry::{Codec, Entry};
use crate::machine::{Act, Event, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;
use crate::sync::Token;

/// The frame an entry keeps mapped, if it does.
#[inline]
pub(crate) fn frame_of(entry: Entry) -> Option<Pfn> {
    match entry {
        Entry::Leaf(pfn, _) | Entry::Parked(pfn) => Some(pfn),
        _ => None,
    }
}

impl<M: Machine> PageTables<M> {
    /// Sets an entry aside that maps the frame it mapped when it was seen, and says what it was
    /// in the end (hardware may have set its marks meanwhile). `None` if the node is dead or the
    /// entry maps something else; then nothing changed.
    pub(crate) fn set_aside(&self, at: Place<'_>) -> Option<Entry> {
        let m = &self.machine;
        let Place { node, level, raw, .. } = at;
        let mut top = Token::top();
        let entry = M::Codec::decode(raw, level);
        let pfn = frame_of(entry)?;
        let _guard = node.lock(m, &mut top);
        if node.state().dead() {
            return None;
        }
        let busy = M::Codec::encode(Self::busy(node, entry, self.is_zero_leaf(pfn, level)), level);
        let taken = self.exchange(at, |entry| (frame_of(entry) == Some(pfn)).then_some(busy))?;
        node.add_transit();
        Some(taken)
    }

    /// What stands for an entry while it is set aside.
    #[inline(always)]
    pub fn busy(node: Node<'_>, entry: Entry, zeros: bool) -> Entry {
        Entry::Busy(frame_of(entry).filter(|_| !zeros).unwrap_or(node.pfn))
    }

    /// Puts an entry back that was set aside, or what takes its place. `resident` is added to the
    /// node's count of resident pages.
    pub(crate) fn put_back(&self, at: Place<'_>, entry: Entry, resident: i64) {
        let m = &self.machine;
        let Place { node, level, slot, .. } = at;
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        self.store(node.pfn, slot, level, entry);
        m.hook(Event::Work(Work::Entry, 1));
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
        let m = &self.machine;
        let mut seen = m.entry(node.pfn, slot);
        loop {
            let entry = M::Codec::decode(seen, level);
            match m.swap_entry(node.pfn, slot, seen, new(entry)?) {
                Ok(()) => {
                    m.hook(Event::Work(Work::Entry, 1));
                    return Some(entry);
                }
                Err(now) => seen = now,
            }
        }
    }
}
