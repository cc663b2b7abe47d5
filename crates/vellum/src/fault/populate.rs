//! Many fresh pages at once.
//!
//! Who populates a range, or has the kernel write into one that was never touched, needs dozens of
//! base pages in a row. Faulting them one by one clears each by itself: with stores through the
//! caches, or with a fence for each page. Here the reserved entries of one table that follow each
//! other are counted, as many frames taken, cleared as one batch without lock or epoch, and
//! installed under one lock: two descents and one fence for up to [`BATCH`] pages.
//!
//! Between counting and installing anything may happen. The entries are therefore counted again,
//! and under the node's lock each entry must still be one and no region may have been edited; a
//! frame whose entry is not reserved any more goes back, and the caller's own fault, which knows
//! all cases, serves what is left. So a batch is never more than a head start.
//!
//! A page at a time is also what the ends of memory are reached with: a batch takes the frames
//! there are, and the fault after it reports that there are none.

use crate::addr::{ENTRIES, Level, Order, PAGE_SIZE, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::{FaultError, SpaceError};
use crate::fault::{FaultOrigin, FaultRequest, Faults, Seen, Serve};
use crate::frame::{AllocRequest, Data};
use crate::machine::{Act, Machine, Stores, Work};
use crate::platform::over;
use crate::space::{Access, SpaceRecord};
use crate::stats::Counter;
use crate::sync::Token;

/// Pages of a batch, at most: the bits of a word, and a KiB of the stack. A fence is long amortised
/// by then.
const BATCH: usize = 64;

/// A batch: frames, and where they will be.
type Frames = [(Pfn, Va); BATCH];

pub(crate) struct Populate<'v, M: Machine>(pub &'v Faults<M>);

over!(Populate, Faults);

impl<'v, M: Machine> Populate<'v, M> {
    /// Faults every page of the range in that is not there, or not as it is wanted. `done` is how
    /// many bytes from the start have been.
    pub fn populate(
        self,
        space: &SpaceRecord,
        range: VaRange,
        write: bool,
        done: &mut u64,
    ) -> Result<(), SpaceError> {
        let access = if write { Access::Write } else { Access::Read };
        // Whoever populates a range longer than the caches will not find its beginning there.
        let stores = self.stores(range.bytes() / PAGE_SIZE as u64);
        let mut va = range.start();
        while va < range.end() {
            let (level, there) = {
                let _epoch = self.epochs.enter(&self.machine);
                let spot = self.descend(space, va);
                let there = match M::Codec::decode(spot.raw, spot.level) {
                    Entry::Leaf(_, flags)
                    | Entry::Shared(_, flags)
                    | Entry::Device(_, flags, _) => !write || flags.write,
                    Entry::ZeroTable(_) => !write,
                    _ => false,
                };
                (spot.level, there)
            };
            if there {
                let bytes = level.entry_bytes();
                va = Va(va.align_down(bytes).0 + bytes);
                continue;
            }
            *done = va.0 - range.start().0;
            let ask = FaultRequest { va, access, origin: FaultOrigin::Verb };
            let made = if level == Level::ONE {
                self.make_pages(space, va, range.end(), (access, stores))
            } else {
                Ok(0)
            };
            let pages = match made {
                Ok(0) => Serve(self.0).serve(space, ask).map(|_| 1),
                made => made,
            };
            // It was there, whatever other threads do to it.
            let pages = pages.map_err(|error| match error {
                FaultError::Unmapped => SpaceError::Unmapped,
                FaultError::Rights => SpaceError::Rights,
                FaultError::NoMemory => SpaceError::NoMemory,
                FaultError::Beyond => SpaceError::Beyond,
                FaultError::Io => SpaceError::Io,
                FaultError::Device => SpaceError::Device,
                FaultError::Stopped => SpaceError::Stopped,
            })?;
            va = Va(va.0 + pages * PAGE_SIZE as u64);
        }
        Ok(())
    }

    /// Makes fresh pages where base pages are reserved from `va` on, below `end`, as many as one
    /// batch holds. Says how many of them follow each other from `va` on: 0 where there is another
    /// case, or no memory, and a fault has to see to it. Called without lock or epoch.
    ///
    /// # Errors
    /// [`FaultError::Stopped`]; nothing changed.
    pub fn make_pages(
        self,
        space: &SpaceRecord,
        va: Va,
        end: Va,
        (access, stores): (Access, Stores),
    ) -> Result<u64, FaultError> {
        let m = &self.machine;
        let mut frames: Frames = [(Pfn(0), va); BATCH];
        let (attrs, want, index, pages) = {
            let _epoch = self.epochs.enter(m);
            let Some((seen, pages)) = self.reserved_at(space, va, end, access) else {
                return Ok(0);
            };
            (seen.attrs, self.want(&seen), seen.index(Order::BASE), pages)
        };
        let _in_hand = self.hands.begin(m);
        let mut taken = 0;
        for (i, frame) in frames[..pages].iter_mut().enumerate() {
            let want = AllocRequest { index: index.wrapping_add(i as u64), ..want };
            let Ok(pfn) = self.frames.alloc(m, Order::BASE, &want) else { break };
            *frame = (pfn, Va(va.0 + (i * PAGE_SIZE) as u64));
            taken += 1;
        }
        let frames = &frames[..taken];
        if let Err(stopped) = self.clear_each(frames, stores) {
            frames.iter().for_each(|f| self.untake(f.0, Order::BASE));
            return Err(stopped.into());
        }
        let installed = {
            let epoch = self.epochs.enter(m);
            match self.reserved_at(space, va, end, access) {
                Some((seen, pages)) if seen.attrs == attrs && seen.index(Order::BASE) == index => {
                    let frames = &frames[..pages.min(taken)];
                    for (i, f) in frames.iter().enumerate() {
                        let index = index.wrapping_add(i as u64);
                        Data::init(self.frames.record(f.0), Order::BASE, space.owner(), index);
                    }
                    let mut top = Token::top();
                    let _guard = seen.spot.node.lock_inside(&epoch, &mut top);
                    self.install_pages(&seen, frames, access)
                }
                _ => 0,
            }
        };
        for (i, f) in frames.iter().enumerate() {
            if installed & 1 << i == 0 {
                self.untake(f.0, Order::BASE);
            }
        }
        if installed != 0 {
            self.count(Counter::AnonPages, i64::from(installed.count_ones()));
        }
        Ok(u64::from(installed.trailing_ones()))
    }

    /// What a descent to `va` finds, and how many base pages from there on are reserved in the same
    /// table, by the same region, with that access: at least two. Inside an epoch.
    fn reserved_at(
        self,
        space: &'v SpaceRecord,
        va: Va,
        end: Va,
        access: Access,
    ) -> Option<(Seen<'v>, usize)> {
        let m = &self.machine;
        let seen = self.0.seen(space, va)?;
        let spot = &seen.spot;
        let reserved = M::Codec::encode(Entry::Reserved, Level::ONE);
        // The shared zeros are one store; there is nothing to make.
        let zeros = access != Access::Write && self.config.zero_page && space.takes_zeros();
        if spot.level != Level::ONE || spot.raw != reserved || zeros {
            return None;
        }
        if !seen.attrs.allows(access) || seen.attrs.has_object() {
            return None;
        }
        let most = (ENTRIES - spot.slot)
            .min(BATCH)
            .min((end.0.saturating_sub(va.0) / PAGE_SIZE as u64) as usize);
        // A table that lists no regions is of one that an ancestor lists.
        let one = spot.node.state().listed() == 0;
        let alike = |slot: &usize| {
            m.entry(spot.node.pfn, *slot) == reserved
                && (one || self.region_of(spot.node, *slot) == spot.region)
        };
        let pages = 1 + (spot.slot + 1..spot.slot + most).take_while(alike).count();
        m.work(Work::Scan, pages as u64);
        (most > 1 && pages > 1).then_some((seen, pages))
    }

    /// Puts frames where entries still are reserved, under the node's lock. Says which, by bits.
    fn install_pages(self, seen: &Seen<'_>, frames: &[(Pfn, Va)], access: Access) -> u64 {
        let m = &self.machine;
        let spot = &seen.spot;
        if spot.node.state().dead() || !seen.space.is_unedited(seen.edits) {
            return 0;
        }
        let flags = seen.fresh_flags(access);
        let mut installed = 0u64;
        for (i, f) in frames.iter().enumerate() {
            let slot = spot.slot + i;
            if m.entry(spot.node.pfn, slot) == spot.raw {
                self.store(spot.node.pfn, slot, Level::ONE, Entry::Leaf(f.0, flags));
                installed |= 1 << i;
            }
        }
        let pages = u64::from(installed.count_ones());
        spot.node.add_resident(pages);
        m.work(Work::Entry, pages);
        installed
    }
}
