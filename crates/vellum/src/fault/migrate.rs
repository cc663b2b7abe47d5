//! Exchanging the frame of a page behind every entry that maps it.
//!
//! ```text
//! lock the family; split the large leaves that cover the page
//! make each entry that maps the frame busy, and flush it
//! as many as the frame has uses? copy the bytes, and let each busy entry map the copy
//! else let each map the frame again, unlock, start over
//! ```
//! A mapping can only be copied from another one, and nobody copies a busy entry. So when as many
//! entries are busy as the frame has uses, there is no further mapping and none can come. A use
//! that was not found is a fork that has not finished its child, a fault that has the entry in
//! transit or copies the page, a verb that moves it, or an exit on its way. Each of them ends, but
//! perhaps not before the locks held here are given back: so nobody is waited for in between.
//!
//! The family's lock keeps its spaces there; `exit` leaves the family before it takes a space
//! apart. Of other spaces no mmap lock is held. An entry needs no look at its region: what it gives
//! stays as it is, and a verb that changes it waits for what is in transit.

use crate::addr::{Level, Order, Pfn, Va};
use crate::entry::{Busy, Codec, Entry, Flags, NOTE_SHIFT};
use crate::error::NoMemory;
use crate::fault::{Faults, Seen};
use crate::frame::Data;
use crate::machine::{Act, Machine};
use crate::pagetable::cursor::{Cursor, Place};
use crate::pagetable::preallocated::Preallocated;
use crate::pagetable::transit::{Settled, Transit, frame_of};
use crate::platform::over;
use crate::rmap::mappings::Mappings;
use crate::space::SpaceRecord;
use crate::sync::{Above, Family, Token};
use crate::tlb::{Flushed, Receipt};

/// How an exchange ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Migrated {
    Done,
    /// Nothing changed; the caller gives back its locks, lets others go on, and tries again.
    Again,
}

/// What is at a place where an entry may map the frame.
enum Found {
    /// The entry, which is busy from here on.
    Taken(Flushed),
    /// No entry that maps the frame.
    Nothing,
    /// Someone else is at work there.
    Others,
}

/// The note of a leaf that a busy entry stands for, beside its flags; of a page that nobody may
/// access there is none.
const LEAF: u64 = 1 << 4;

pub(crate) struct Migrate<'v, M: Machine>(pub &'v Faults<M>);

over!(Migrate, Faults);

impl<'v, M: Machine> Migrate<'v, M> {
    /// Puts a copy of the page that was seen into `new`, and lets every entry that maps the page
    /// map `new`. `gone` is called with the old frame when no entry and no translation names it any
    /// more. Under the mmap lock of the space where it was seen.
    ///
    /// # Errors
    /// [`NoMemory`] for the tables below large leaves. Some may have been split.
    pub fn exchange_frame<H: Above<Family>>(
        self,
        seen: &Seen<'_>,
        new: Pfn,
        token: &mut Token<H>,
        gone: impl FnOnce(&Flushed, Pfn),
    ) -> Result<Migrated, NoMemory> {
        self.with_mappings(seen.space, seen.index(Order::BASE), token, |mappings| {
            let Some(old) = self.page_behind(seen) else { return Ok(Migrated::Again) };
            if self.split_leaves(mappings, old)? == Migrated::Again {
                return Ok(Migrated::Again);
            }
            let (mut taken, mut flushed, mut others) = (0, None, false);
            mappings.for_each_mapping(|space, va| {
                match self.take(space, va, old) {
                    Found::Taken(proof) => (taken, flushed) = (taken + 1, Some(proof)),
                    Found::Nothing => {}
                    Found::Others => others = true,
                }
                !others
            });
            // Busy entries keep the frame what it is; of one that none was found of nothing is
            // read.
            let data = |_: &Flushed| Data::of(self.frames.record(old));
            let all = |proof: &Flushed| !others && data(proof).uses() == taken;
            let Some(proof) = flushed.filter(all) else {
                self.put_all(mappings, old, old);
                return Ok(Migrated::Again);
            };
            if self.config.alloc_zero {
                self.clear_page(new, seen.va);
            }
            self.machine.copy_frame(new, old);
            let owner = data(&proof).owner();
            Data::init(self.frames.record(new), Order::BASE, owner, mappings.index())
                .set_uses(taken);
            self.put_all(mappings, old, new);
            gone(&proof, old);
            Ok(Migrated::Done)
        })
    }

    /// The frame that is behind an address by now.
    fn page_behind(self, seen: &Seen<'_>) -> Option<Pfn> {
        let _epoch = self.epochs.enter(&self.machine);
        let at = self.descend_entry(seen.space, seen.va);
        let pfn = frame_of(M::Codec::decode(at.raw, at.level))?;
        let order = at.level.leaf_order()?;
        Some(pfn.add(seen.va.page() & (order.frames() - 1))).filter(|&pfn| !self.is_zero(pfn))
    }

    /// The large leaf that maps the page, if there is one at that address. Inside an epoch.
    fn large_leaf<'s>(&'s self, space: &'s SpaceRecord, va: Va, page: Pfn) -> Option<Seen<'s>> {
        self.0.seen(space, va).filter(|seen| {
            let spot = &seen.spot;
            let leaf = frame_of(M::Codec::decode(spot.raw, spot.level));
            let leaf = spot.level.leaf_order().filter(|&order| order > Order::BASE).zip(leaf);
            leaf.is_some_and(|(order, leaf)| leaf.add(va.page() & (order.frames() - 1)) == page)
        })
    }

    /// Splits every large leaf that maps the page, down to it. All tables are taken first.
    fn split_leaves(self, mappings: &Mappings<'_, M>, page: Pfn) -> Result<Migrated, NoMemory> {
        let mut tables = 0;
        mappings.for_each_mapping(|space, va| {
            let _epoch = self.epochs.enter(&self.machine);
            if let Some(seen) = self.large_leaf(space, va, page) {
                tables += (seen.spot.level.0 - Level::ONE.0) as usize;
            }
            true
        });
        let mut tables = Preallocated::new(self.0, tables)?;
        let mut done = Ok(Migrated::Done);
        mappings.for_each_mapping(|space, va| {
            done = self.split_down(space, va, page, &mut tables);
            done == Ok(Migrated::Done)
        });
        tables.free(self.0);
        done
    }

    fn split_down(
        self,
        space: &SpaceRecord,
        va: Va,
        page: Pfn,
        tables: &mut Preallocated,
    ) -> Result<Migrated, NoMemory> {
        let _epoch = self.epochs.enter(&self.machine);
        while let Some(seen) = self.large_leaf(space, va, page) {
            let frame = tables.take(self.0)?;
            let still = || self.same_region(&seen);
            if !self.split_leaf(space, seen.spot.at, va, frame, still) {
                tables.put(&self.machine, frame);
                return Ok(Migrated::Again);
            }
        }
        Ok(Migrated::Done)
    }

    /// Makes the entry at an address busy if it maps the frame, and flushes it.
    fn take(self, space: &SpaceRecord, va: Va, pfn: Pfn) -> Found {
        let _epoch = self.epochs.enter(&self.machine);
        let Some(seen) = self.0.seen(space, va) else { return Found::Nothing };
        let spot = &seen.spot;
        match M::Codec::decode(spot.raw, spot.level) {
            entry if frame_of(entry) == Some(pfn) && spot.level == Level::ONE => {}
            Entry::Busy(_) | Entry::Detached(_) => return Found::Others,
            _ => return Found::Nothing,
        }
        let busy = M::Codec::encode(Entry::Busy(Busy::Migrate(pfn)), spot.level);
        let note = |entry| match entry {
            Entry::Leaf(_, flags) => busy | (LEAF | flags.bits()) << NOTE_SHIFT,
            _ => busy,
        };
        let made = self.make_busy(spot.at, || true, note);
        let Some((_, transit)) = made else { return Found::Others };
        transit.leave();
        let mut receipt = Receipt::new();
        receipt.leaf(va, spot.level);
        Found::Taken(self.flush(space, receipt))
    }

    /// Lets every entry that [`take`](Self::take) made busy map `new`.
    fn put_all(self, mappings: &Mappings<'_, M>, old: Pfn, new: Pfn) {
        mappings.for_each_mapping(|space, va| {
            let _epoch = self.epochs.enter(&self.machine);
            if let Some(at) = self.exchanged_at(space, va, old) {
                let note = at.raw >> NOTE_SHIFT;
                let entry = match note & LEAF {
                    0 => Entry::Inaccessible(new),
                    _ => Entry::Leaf(new, Flags::from_bits(note)),
                };
                self.settle(Transit::resume(at), || (Settled::new(entry, 0), ()));
            }
            true
        });
    }
}

impl<M: Machine> Faults<M> {
    /// The entry at an address that a CPU made busy which exchanges every mapping of a frame, or
    /// takes all of them out. Its table may have been detached meanwhile; that it dies the entry
    /// itself delays. Inside an epoch.
    fn exchanged_at(&self, space: &SpaceRecord, va: Va, pfn: Pfn) -> Option<Place<'_>> {
        let at = self.exchanged_in(space, va);
        let raw = self.machine.entry(at.node.pfn, at.level.slot(va));
        let is_exchanged = M::Codec::decode(raw, at.level) == Entry::Busy(Busy::Migrate(pfn));
        is_exchanged.then(|| at.place(at.level.slot(va), raw))
    }

    /// The table that has such an entry.
    pub(super) fn exchanged_in(&self, space: &SpaceRecord, va: Va) -> Cursor<'_> {
        let mut at = self.root(space);
        loop {
            let slot = at.level.slot(va);
            match self.load(at.node.pfn, slot, at.level) {
                Entry::Table(child) | Entry::Detached(child) => {
                    at = at.below(slot, self.node(child));
                }
                _ => return at,
            }
        }
    }
}
