//! Entries in transit: one CPU made them busy, flushes and works without the node's lock, and comes
//! back to them.
//!
//! Every other fault and verb waits for such an entry; the node's transit count keeps the node
//! alive until the entry is put back, so neither an epoch nor a lock has to be held in between.
//! That is also what break-before-make asks for: meanwhile the entry is absent. Whoever begins gets
//! a [`Transit`], and what it does meanwhile is a closure that says what comes into the entry, so
//! that no way out of it leaves the entry busy. An exchange of a frame leaves several entries busy,
//! and finds them again by their mark ([`Transit::leave`]).
//!
//! A fault may do so at any time, between the passes of a verb as well, so the marks of verbs
//! (`Busy::Page`) are others: no verb ends an exchange. Rejected: one mark for both, told apart by
//! the frame it names (a munmap took a fault's mark for its own, and the fault put its page back
//! where no region was any more).

use crate::addr::{Level, Pfn};
use crate::entry::{Busy, Codec, Entry};
use crate::machine::{Act, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;
use crate::platform::over;
use crate::sync::Token;

/// The frame an entry keeps mapped, if it does. A device's memory counts as such, though no record
/// says so.
#[inline]
pub(crate) fn frame_of(entry: Entry) -> Option<Pfn> {
    match entry {
        Entry::Leaf(pfn, _)
        | Entry::Shared(pfn, _)
        | Entry::Device(pfn, ..)
        | Entry::Inaccessible(pfn) => Some(pfn),
        _ => None,
    }
}

/// What comes into an entry, and what it adds to the node's count of resident pages.
#[derive(Clone, Copy)]
pub(crate) struct Settled {
    pub entry: Entry,
    pub resident: i64,
}

impl Settled {
    #[inline(always)]
    pub fn new(entry: Entry, resident: i64) -> Settled {
        Settled { entry, resident }
    }
}

/// An entry that is in transit: busy, and counted by its node. It ends by
/// [`PageTables::settle`].
#[must_use = "an entry in transit makes others wait until it is settled"]
pub(crate) struct Transit<'a> {
    at: Place<'a>,
}

impl<'a> Transit<'a> {
    /// Of an entry that is busy. Under the node's lock, or before the node is linked.
    pub fn begin(at: Place<'a>) -> Transit<'a> {
        at.node.add_transit();
        Transit { at }
    }

    /// Leaves the entry busy: its mark says who comes back to it, by [`Transit::resume`].
    pub fn leave(self) {}

    /// The transit of an entry that was [left](Transit::leave) with a mark that the caller alone
    /// makes.
    pub fn resume(at: Place<'a>) -> Transit<'a> {
        Transit { at }
    }

    /// Drops the transit with its node, which was linked nowhere.
    pub fn drop_with_node(self) {}
}

/// What stands for a leaf of a frame all of whose mappings are exchanged, or taken out.
fn migrating<M: Machine>(pfn: Pfn, level: Level) -> u64 {
    M::Codec::encode(Entry::Busy(Busy::Migrate(pfn)), level)
}

impl<M: Machine> PageTables<M> {
    /// Makes an entry busy that maps the frame it mapped when it was seen, if `still` says under
    /// the lock that it may be, and says what it was in the end (hardware may have set its marks
    /// meanwhile). `busy` makes the new entry of it. `None` if the node is dead, or the entry maps
    /// something else; then nothing changed.
    pub(crate) fn make_busy<'a>(
        &self,
        at: Place<'a>,
        still: impl FnOnce() -> bool,
        busy: impl Fn(Entry) -> u64,
    ) -> Option<(Entry, Transit<'a>)> {
        let node = at.node;
        let pfn = frame_of(M::Codec::decode(at.raw, at.level))?;
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        if node.state().dead() || !still() {
            return None;
        }
        let same = |entry| (frame_of(entry) == Some(pfn)).then(|| busy(entry));
        let taken = self.exchange(at, same)?;
        Some((taken, Transit::begin(at)))
    }

    /// What stands for an entry while it is in transit.
    #[inline(always)]
    pub fn busy(entry: Entry, zeros: bool) -> Entry {
        match frame_of(entry) {
            Some(pfn) if !zeros => Entry::Busy(Busy::Exchange(pfn)),
            _ => Entry::Busy(Busy::ExchangeNothing),
        }
    }

    /// Runs `work` while the entry is in transit, and puts what it says into the entry. `work`
    /// holds no lock of a node; what it returns beside is returned.
    #[inline(always)]
    pub(crate) fn settle<R>(&self, transit: Transit<'_>, work: impl FnOnce() -> (Settled, R)) -> R {
        let (settled, result) = work();
        self.put_back(transit.at, settled);
        result
    }

    fn put_back(&self, Place { node, level, slot, .. }: Place<'_>, settled: Settled) {
        let m = &self.machine;
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        self.write_entry(node.pfn, slot, level, settled.entry);
        node.sub_transit(1);
        node.add_resident(settled.resident as u64);
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

/// Taking every mapping of frames out: what is done with the entries of one table together.
pub(crate) struct TakeOut<'v, M: Machine>(pub &'v PageTables<M>);

over!(TakeOut, PageTables);

impl<M: Machine> TakeOut<'_, M> {
    /// Makes entries of one table busy, whose entries are of that level, which are given by their
    /// slots and the frames that they should map, and tells of each that did. They are
    /// [left](Transit::leave).
    pub fn make_busy(
        self,
        (node, level): (Node<'_>, Level),
        leaves: impl Iterator<Item = (usize, Pfn)>,
        mut taken: impl FnMut(usize),
    ) {
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        if node.state().dead() {
            return;
        }
        for (slot, pfn) in leaves {
            let at = Place { node, level, slot, raw: 0 };
            let same = |entry| (frame_of(entry) == Some(pfn)).then(|| migrating::<M>(pfn, level));
            if self.exchange(at, same).is_some() {
                Transit::begin(at).leave();
                taken(slot);
            }
        }
    }

    /// Puts an entry without a page in place of those that are busy since then, and tells of the
    /// frames that they mapped.
    pub fn settle(
        self,
        (node, level): (Node<'_>, Level),
        leaves: impl Iterator<Item = (usize, Pfn)>,
        entry: Entry,
        mut gone: impl FnMut(Pfn),
    ) {
        let m = &self.machine;
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        let (entry, mut settled) = (M::Codec::encode(entry, level), 0);
        for (slot, pfn) in leaves {
            if m.entry(node.pfn, slot) == migrating::<M>(pfn, level) {
                m.set_entry(node.pfn, slot, entry);
                settled += 1;
                gone(pfn);
            }
        }
        node.sub_transit(settled);
        node.sub_resident(settled);
        m.work(Work::Entry, settled);
    }
}
