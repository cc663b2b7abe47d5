//! Faults in regions that map an object.
//!
//! ```text
//!   fault, inside one epoch              who takes a page out, or changes it
//!   find the page; is it frozen?         freeze the page, under the object's guard
//!   lock the node; still as seen?        wait until every CPU has left the epoch it is in
//!   count the mapping, store the entry   visit the attachments, until no entry maps the page
//! ```
//! So a page that is present is mapped without the object's guard: whoever found it has stored
//! its entry when the visits begin, and nobody finds it any more. Rejected: looking again under the
//! node's lock whether the page still is the object's (every fault pays for it).
//!
//! Where no page is present one of zeros is made and put into the object, inside the same epoch,
//! where the lookup ended (`alloc.cursor`). Where that has to wait for memory or for the guard, the
//! epoch is left, and everything is looked up anew.

use core::iter;

use crate::addr::{Level, Order, Pfn};
use crate::entry::{Codec, Entry, Flags};
use crate::error::{FaultError, NoMemory};
use crate::fault::object::around::{Around, FoundPage, SizedObject};
use crate::fault::object::{BlockFault, Split};
use crate::fault::reserved::Reserved;
use crate::fault::{FaultOrigin, FaultRequest, Faults, Seen, Step};
use crate::frame::{AllocRequest, Record, SlabRef};
use crate::machine::{Act, Machine, Use};
use crate::object::{AtPlace, Fetch, FindPage, ObjectIo, Present, TriePlace};
use crate::pagetable::transit::Settled;
use crate::pagetable::unlinked::UnlinkedPath;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::attrs::Packed;
use crate::space::{Access, Fault, SpaceRecord};
use crate::stats::{Counter, CpuCounters};
use crate::sync::{EpochGuard, Token};
use crate::tlb::Receipt;

/// A page that is wanted from a pager; its object is kept.
struct Wanted {
    object: SlabRef,
    index: u64,
    want: AllocRequest,
}

pub(crate) struct ObjectFault<'v, M: Machine>(pub &'v Faults<M>);

over!(ObjectFault, Faults);

impl<'v, M: Machine> ObjectFault<'v, M> {
    /// Serves a fault on a base page that is reserved: the commonest kinds in line, and the others
    /// by [`serve`](Self::serve), which is right for these, too.
    #[inline(always)]
    pub fn serve_base(
        self,
        seen: Seen<'_>,
        ask: FaultRequest,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        if let Some((object, index)) = seen.region.object_at(seen.va) {
            let (record, counters) = (self.object(object), self.counters_here());
            match FindPage(self.0).present_in(record, index, &epoch, counters) {
                Present::Page { pfn, frame, dirty, place } => {
                    // One size for all that is mapped, which is asked after the page was found.
                    if let Some(bytes) = record.size_beyond(index) {
                        if !ask.writes() && self.maps_around(ask) {
                            let page = FoundPage { pfn, frame, dirty, place };
                            let at = (SizedObject { object: record, bytes }, index);
                            let step = Around(self.0).map(seen, at, page, &epoch, counters);
                            return self.counted(step, ask, counters);
                        }
                        let attrs = if dirty { seen.attrs.noted() } else { seen.attrs };
                        let flags = flags_by(attrs, ask.access);
                        let step = self.map_found(&seen, (pfn, frame), flags, &epoch, counters);
                        return self.counted(step, ask, counters);
                    }
                }
                Present::Ahead => return Ok(Step::FetchNext),
                Present::Absent(place) if record.pager().is_none() => {
                    let policy = seen.attrs.numa().unwrap_or(self.config.numa);
                    let want = AllocRequest { policy, index, use_: Use::Object, optional: false };
                    let (at, zeros) = ((object, record), (&want, ask.va));
                    if let Some(page) = self.make_page_near(at, place, zeros, counters, &epoch) {
                        let flags = entry_flags(&seen, ask.access, false);
                        let step = self.map_found(&seen, page, flags, &epoch, counters);
                        return self.counted(step, ask, counters);
                    }
                }
                _ => {}
            }
        }
        self.serve(&{ seen }, (ask, false), epoch)
    }

    /// Counts the fault, if it is served.
    #[inline(always)]
    fn counted(
        self,
        step: Result<Step, FaultError>,
        ask: FaultRequest,
        counters: &CpuCounters,
    ) -> Result<Step, FaultError> {
        if let Ok(Step::Done(_)) = step {
            self.count_fault(ask, counters);
        }
        step
    }

    /// Whether pages around that of a read fault are mapped.
    #[inline(always)]
    fn maps_around(self, ask: FaultRequest) -> bool {
        self.config.file_around != Order::BASE && ask.origin == FaultOrigin::Program
    }

    /// Serves a fault on a reserved entry of a region that maps an object. `huge`: a block of 2 MiB
    /// will do.
    #[inline(never)]
    pub fn serve(
        self,
        seen: &Seen<'_>,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let step = self.serve_uncounted(seen, (ask, huge), epoch)?;
        if let Step::Done(Fault::Object) = step {
            self.count(Counter::Faults, i64::from(ask.origin == FaultOrigin::Program));
        }
        Ok(step)
    }

    #[inline(always)]
    fn serve_uncounted(
        self,
        seen: &Seen<'_>,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        // A region on its way out has no object any more.
        let Some((object, index)) = seen.region.object_at(seen.va) else {
            return Ok(Step::Again);
        };
        let found = FindPage(self.0).present(object, index, &epoch);
        // Asked after the page was found. A page that was read meanwhile, and lies past the end by
        // now, is thawed after the size was lowered.
        if index >= self.object(object).pages() {
            return Err(FaultError::Beyond);
        }
        let writes = ask.writes();
        let copies = writes && seen.attrs.is_private_view();
        let is_noted = !(writes && seen.attrs.is_tracked_view());
        let paged = self.object(object).pager().is_some();
        match found {
            Present::Page { pfn, .. } | Present::Block(pfn) if copies => self.copy_page(seen, pfn),
            Present::Block(_) if !is_noted => Ok(Step::Split),
            Present::Block(pfn) => {
                let flags = entry_flags(seen, ask.access, false);
                if BlockFault(self.0).fits(seen, (object, index)) {
                    return BlockFault(self.0).map(seen, pfn, flags);
                }
                BlockFault(self.0).cut(pfn);
                self.map_and_around(seen, ask, (object, index), (pfn, flags), &epoch)
            }
            Present::Page { pfn, dirty, .. } if dirty || is_noted => {
                let page = (pfn, entry_flags(seen, ask.access, dirty));
                self.map_and_around(seen, ask, (object, index), page, &epoch)
            }
            Present::Page { frame, pfn, place, .. } => {
                if !self.at((object, index), place).mark_dirty(frame, self.counters_here(), &epoch)
                {
                    return Ok(self.note_write((object, index), epoch));
                }
                self.map_page(seen, pfn, entry_flags(seen, ask.access, true), &epoch)
            }
            Present::Frozen => Ok(Step::Frozen),
            Present::Reading(pfn) => {
                ObjectFrame(self.0).keep(pfn);
                Ok(Step::Reading(pfn))
            }
            Present::Ahead => Ok(Step::FetchNext),
            Present::Absent(_) if paged => Ok(Step::Fetch),
            // A copy of zeros, which is all that the object has there.
            Present::Absent(_) if copies => {
                Reserved(self.0).populate_below(seen, (ask, false), epoch)
            }
            Present::Absent(_) if huge && BlockFault(self.0).wants(seen, (object, index)) => {
                BlockFault(self.0).make(seen, ask, (object, index), epoch)
            }
            Present::Absent(_) => self.make_and_map(seen, ask, epoch, (object, index)),
        }
    }

    /// Maps a page that was found inside this epoch, and what is around it.
    fn map_and_around(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        (object, index): (SlabRef, u64),
        (pfn, flags): (Pfn, Flags),
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let step = self.map_page(seen, pfn, flags, epoch)?;
        // The table is there now.
        if !ask.writes()
            && self.maps_around(ask)
            && let Step::Done(_) = step
            && let Some(seen) = self.0.seen(seen.space, ask.va)
            && seen.spot.level == Level::ONE
            && seen.region.object_at(ask.va) == Some((object, index))
            && seen.attrs.allows(ask.access)
        {
            let record = self.object(object);
            if let Some(bytes) = record.size_beyond(index) {
                Around(self.0).map_others(
                    seen,
                    (SizedObject { object: record, bytes }, index),
                    epoch,
                );
            }
        }
        Ok(step)
    }

    /// Has the pager fill the page at an address. The caller holds no lock and is in no epoch; it
    /// gives up the turn to look for memory, if it has it, when `end_turn` is called.
    #[cold]
    pub fn fetch(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        end_turn: impl FnOnce(),
    ) -> Result<Step, FaultError> {
        let Some(Wanted { object, index, want }) = self.keep_paged(space, ask) else {
            return Ok(Step::Again);
        };
        let mut top = Token::top();
        let step = match ObjectIo(self.0).fetch_page(object, index, &want, &mut top) {
            Ok(Fetch::Begun(begun)) => {
                end_turn();
                self.count(Counter::MajorFaults, i64::from(ask.origin == FaultOrigin::Program));
                Ok(Step::Reading(ObjectIo(self.0).ask_pager(object, begun, &want, &mut top)))
            }
            // It is there, or lies past the end.
            Ok(Fetch::There | Fetch::Beyond) => Ok(Step::Again),
            Err(error) => Err(error.into()),
        };
        self.let_go_of(object);
        step
    }

    /// Has the pager fill the pages after those of the last fetch. As [`fetch`](Self::fetch),
    /// without the turn.
    #[cold]
    pub fn fetch_next(self, space: &SpaceRecord, ask: FaultRequest) {
        if let Some(Wanted { object, index, want }) = self.keep_paged(space, ask) {
            ObjectIo(self.0).fetch_next(object, index, &want, &mut Token::top());
            self.let_go_of(object);
        }
    }

    /// The object with a pager that is mapped at an address, which is kept, the index, and which
    /// frame is wanted.
    fn keep_paged(self, space: &SpaceRecord, ask: FaultRequest) -> Option<Wanted> {
        let _epoch = self.epochs.enter(&self.machine);
        let seen = self.0.seen(space, ask.va)?;
        let (object, index) = seen.region.object_at(ask.va)?;
        let record = self.object(object);
        record.pager()?;
        record.attachments.keep();
        Some(Wanted { object, index, want: self.want(&seen) })
    }

    /// Makes pages of the block at an address, of whose pages somebody has to know which are
    /// written. As [`fetch`](Self::fetch).
    ///
    /// # Errors
    /// There is no memory for that; nothing changed.
    #[cold]
    pub fn split(self, space: &SpaceRecord, ask: FaultRequest) -> Result<(), FaultError> {
        let kept = {
            let _epoch = self.epochs.enter(&self.machine);
            let page = self.0.seen(space, ask.va).and_then(|seen| seen.region.object_at(ask.va));
            page.inspect(|page| self.object(page.0).attachments.keep())
        };
        let Some((object, index)) = kept else { return Ok(()) };
        let done = Split(self.0).split(object, index);
        self.let_go_of(object);
        Ok(done?)
    }

    fn at<'e>(self, (object, index): (SlabRef, u64), place: TriePlace<'e>) -> AtPlace<'e, M>
    where
        'v: 'e,
    {
        AtPlace { objects: self.0, record: self.0.object(object), index, place }
    }

    /// Marks a page that is about to be written, for its pager, where that cannot be done inside
    /// the epoch.
    #[cold]
    fn note_write(self, (object, index): (SlabRef, u64), epoch: EpochGuard<'_, M>) -> Step {
        self.object(object).attachments.keep();
        drop(epoch);
        ObjectIo(self.0).mark_dirty(object, iter::once(index));
        self.let_go_of(object);
        Step::Again
    }

    /// Gives the right to write to the entry of a page of which writes are noted.
    #[inline(always)]
    pub fn write_mapped(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        (pfn, flags): (Pfn, Flags),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let Some((object, index)) = seen.region.object_at(seen.va) else {
            return Ok(Step::Again);
        };
        let (record, counters) = (self.object(object), self.counters_here());
        match FindPage(self.0).present_in(record, index, &epoch, counters) {
            Present::Page { pfn: there, frame, dirty, place }
                if there == pfn && seen.spot.level == Level::ONE =>
            {
                let at = AtPlace { objects: self.0, record, index, place };
                if !dirty && !at.mark_dirty(frame, counters, &epoch) {
                    return Ok(self.note_write((object, index), epoch));
                }
            }
            Present::Block(_) => return Ok(Step::Split),
            Present::Frozen => return Ok(Step::Frozen),
            _ => return Ok(Step::Behind),
        }
        let spot = &seen.spot;
        {
            let mut top = Token::top();
            let _guard = spot.node.lock_inside(&epoch, &mut top);
            if !self.still(seen) {
                return Ok(Step::Again);
            }
            let flags = Flags { write: true, accessed: true, dirty: true, ..flags };
            self.write_entry(spot.node.pfn, spot.slot, Level::ONE, Entry::Shared(pfn, flags));
        }
        if !self.rules.fault_invalidates {
            self.flush_here(seen.space, seen.va);
        }
        self.count_fault(ask, counters);
        drop(epoch);
        Ok(Step::Done(Fault::Object))
    }

    /// A copy of the object's page where none is mapped. Inside the epoch in which the page was
    /// found: who freezes it, to change or free it, waits for that.
    #[cold]
    fn copy_page(self, seen: &Seen<'_>, old: Pfn) -> Result<Step, FaultError> {
        let path = self.0.unlinked_path(seen.spot.at, seen.va, Level::ONE)?;
        let new = match self.fresh_copy(seen) {
            Ok(new) => new,
            Err(error) => {
                self.free_path(path);
                return Err(error.into());
            }
        };
        self.machine.copy_frame(new, old);
        if !self.plant(seen, path, Entry::Leaf(new, seen.own_flags()), true) {
            self.untake(new, Order::BASE);
            return Ok(Step::Again);
        }
        Ok(self.copied())
    }

    /// A copy of the object's page in place of the page, which a private view shows.
    #[cold]
    pub fn copy_mapped(self, seen: &Seen<'_>, old: Pfn) -> Result<Step, FaultError> {
        let new = self.fresh_copy(seen)?;
        let settled = Settled::new(Entry::Leaf(new, seen.own_flags()), 0);
        let mut receipt = Receipt::new();
        receipt.leaf(seen.va, Level::ONE);
        let copy = || self.machine.copy_frame(new, old);
        let Some(flushed) = self.exchange_seen(seen, false, receipt, settled, copy) else {
            self.untake(new, Order::BASE);
            return Ok(Step::Again);
        };
        self.release_shared(&flushed, old, Level::ONE);
        Ok(self.copied())
    }

    /// A frame for a copy, of the space's own.
    fn fresh_copy(self, seen: &Seen<'_>) -> Result<Pfn, NoMemory> {
        let new = self.frames.alloc(&self.machine, Order::BASE, &self.want(seen))?;
        if self.config.alloc_zero {
            self.clear_page(new, seen.va);
        }
        self.init_page(seen, new, Order::BASE);
        Ok(new)
    }

    fn copied(self) -> Step {
        self.count_here(Counter::AnonPages, 1);
        self.count_here(Counter::CowCopies, 1);
        Step::Done(Fault::Copied(Level::ONE))
    }

    /// A page where the object has none, if it is not to be had inside the epoch: tables are
    /// missing, memory is short, or somebody has the guard. Tables are taken first, so that a fault
    /// which finds no memory for them leaves no page in the object.
    fn make_and_map(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        epoch: EpochGuard<'_, M>,
        (object, index): (SlabRef, u64),
    ) -> Result<Step, FaultError> {
        // Nodes take turns by the index in the object, which all spaces have in common.
        let (space, want) = (seen.space, AllocRequest { index, ..self.want(seen) });
        let _in_hand = self.hands.begin(&self.machine);
        let path = self.0.unlinked_path(seen.spot.at, ask.va, Level::ONE)?;
        // The attachment may go with the epoch, and the object with it.
        self.object(object).attachments.keep();
        drop(epoch);
        let made = self.make_page(object, index, (&want, ask.va), &mut Token::top());
        let step = match made {
            Ok(true) => self.map_made(space, ask, (object, index), path),
            Ok(false) => {
                self.free_path(path);
                Err(FaultError::Beyond)
            }
            Err(error) => {
                self.free_path(path);
                Err(error.into())
            }
        };
        self.let_go_of(object);
        step
    }

    /// Maps the page that is there by now, below the tables if they are what is missing.
    fn map_made(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        (object, index): (SlabRef, u64),
        path: Option<UnlinkedPath<'v>>,
    ) -> Result<Step, FaultError> {
        let epoch = self.epochs.enter(&self.machine);
        let seen = self.seen_again(space, ask, (object, index), (path.as_ref(), Level::ONE));
        match (seen, FindPage(self.0).present(object, index, &epoch)) {
            (Some(seen), Present::Page { pfn, frame, dirty, place })
                if dirty
                    || !is_to_be_noted(&seen, ask)
                    || self.at((object, index), place).mark_dirty(
                        frame,
                        self.counters_here(),
                        &epoch,
                    ) =>
            {
                let flags = entry_flags(&seen, ask.access, dirty || is_to_be_noted(&seen, ask));
                self.map_below(&seen, (pfn, flags), path, &epoch)
            }
            _ => {
                self.free_path(path);
                Ok(Step::Again)
            }
        }
    }

    /// What is at an address, if that is still where a leaf of a level may come for a page of the
    /// object, below the tables of the path. Inside an epoch.
    pub fn seen_again<'s>(
        self,
        space: &'s SpaceRecord,
        ask: FaultRequest,
        page: (SlabRef, u64),
        (path, leaf): (Option<&UnlinkedPath<'_>>, Level),
    ) -> Option<Seen<'s>>
    where
        'v: 's,
    {
        self.0.seen(space, ask.va).filter(|seen| {
            let spot = &seen.spot;
            spot.raw == M::Codec::encode(Entry::Reserved, spot.level)
                && path.map_or(spot.level == leaf, |path| path.is_below(spot.at))
                && seen.region.object_at(ask.va) == Some(page)
                && seen.attrs.allows(ask.access)
        })
    }

    /// Maps a page that was found inside this epoch.
    fn map_page(
        self,
        seen: &Seen<'_>,
        pfn: Pfn,
        flags: Flags,
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        if seen.spot.level == Level::ONE {
            return self.map_here(seen, (pfn, flags), epoch);
        }
        let path = self.0.unlinked_path(seen.spot.at, seen.va, Level::ONE)?;
        self.map_below(seen, (pfn, flags), path, epoch)
    }

    /// The same with the tables that are missing.
    fn map_below(
        self,
        seen: &Seen<'_>,
        (pfn, flags): (Pfn, Flags),
        path: Option<UnlinkedPath<'_>>,
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        if path.is_none() {
            return self.map_here(seen, (pfn, flags), epoch);
        }
        if let Err(error) = self.add_shared_mapping(pfn, Level::ONE) {
            self.free_path(path);
            return Err(error.into());
        }
        if !self.plant(seen, path, Entry::Shared(pfn, flags), true) {
            self.sub_shared_mapping(pfn, Level::ONE);
            return Ok(Step::Again);
        }
        Ok(Step::Done(Fault::Object))
    }

    /// The same where all tables are there.
    #[inline(never)]
    fn map_here(
        self,
        seen: &Seen<'_>,
        (pfn, flags): (Pfn, Flags),
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let page = (pfn, self.frames.record(pfn));
        self.map_found(seen, page, flags, epoch, self.counters_here())
    }

    /// [`map_here`](Self::map_here) in line. `counters` are this CPU's.
    #[inline(always)]
    fn map_found(
        self,
        seen: &Seen<'_>,
        (pfn, frame): (Pfn, &Record),
        flags: Flags,
        epoch: &EpochGuard<'_, M>,
        counters: &CpuCounters,
    ) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if !self.still(seen) {
            return Ok(Step::Again);
        }
        let is_first = ObjectFrame(self.0).add_mapping_in(frame)?;
        counters.add(Counter::ObjectRss, 1);
        counters.add(Counter::Mapped, i64::from(is_first));
        self.write_entry(spot.node.pfn, spot.slot, Level::ONE, Entry::Shared(pfn, flags));
        spot.node.add_resident(1);
        Ok(Step::Done(Fault::Object))
    }
}

/// Whether the fault writes to a page of which that has to be known before.
fn is_to_be_noted(seen: &Seen<'_>, ask: FaultRequest) -> bool {
    ask.writes() && seen.attrs.is_tracked_view()
}

/// The flags of an entry that maps the object's page. `noted`: the pager knows that the page is
/// written.
#[inline(always)]
pub(super) fn entry_flags(seen: &Seen<'_>, access: Access, noted: bool) -> Flags {
    flags_by(if noted { seen.attrs.noted() } else { seen.attrs }, access)
}

/// The same by the attributes that decide about the page.
#[inline(always)]
pub(super) fn flags_by(attrs: Packed, access: Access) -> Flags {
    let (write, exec) = (attrs.gives_writes(), attrs.rights().exec);
    Flags { write, exec, accessed: true, dirty: write && access == Access::Write }
}
