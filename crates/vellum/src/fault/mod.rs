//! A page fault.
//!
//! ```text
//! enter the epoch; remember the space's edit count; descend without locks to the entry
//! decide: refuse, wait, map zeros, a fresh page, a huge one, a copy; which tables are missing
//! allocate and clear, no lock held
//! lock the node; does it live, is the entry as seen, no region edited? install, else start over
//! ```
//! A verb that edits regions raises the edit count before it visits the nodes below, each under its
//! lock. So a fault that finds the count unchanged under the node's lock installs by a region that
//! is right, or the verb has yet to come by and will set right what it finds. If the count changed,
//! the fault descends once more and compares the region's name, which cannot have been reused: the
//! epoch keeps it.
//!
//! While a fork is copying, or `protect` takes rights and gives others, no fault changes an entry
//! (both say why): it finds the count changed, and waits for the end with nothing held. A fault
//! that finds what it wants goes on.
//!
//! Tables that are missing are made with the page and linked with it (`chain.rs`), so a fault that
//! finds no memory changed nothing.
//!
//! A fault that was sent back 16 times looks again under the layout lock, so that a thread which
//! edits the space in a loop cannot keep it for ever. What is not counted is a wait for an entry in
//! transit: each ends, and the fault gets on unless the next has begun whenever it looks.
//!
//! For blocks of 2 MiB and up the epoch is left while the block is cleared, since others may wait
//! for the epoch, and the descent is repeated.

mod cow;
mod exchange;
mod patience;
mod plant;
pub(crate) mod populate;
mod reserved;
mod zero_page;
mod zero_table;

use crate::addr::{Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::clear::fresh_block::{Bytes, Short};
use crate::config::{NumaPolicy, Thp};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::patience::PATIENCE;
use crate::frame::{AllocRequest, Data, SlabRef};
use crate::machine::{Act, Event, Machine, Use, Verb, Work};
use crate::memory::retry::Refusal;
use crate::pagetable::cursor::Place;
use crate::pagetable::unlinked::leaf_level;
use crate::platform::above;
use crate::space::attrs::Packed;
use crate::space::{Access, Edits, Fault, HugeAdvice, LeafSize, Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::vma::Regions;
use crate::vma::lookup::Spot;
use crate::vma::region::Region;

/// The layer that serves faults.
pub(crate) struct Faults<M: Machine> {
    regions: Regions<M>,
}

above!(Faults, regions: Regions);

/// How an attempt ended that did not fail.
pub(crate) enum Step {
    Done(Fault),
    /// Something changed, or was prepared: look again.
    Again,
    /// Someone else is at this entry: give way, then look again.
    Wait,
    /// A verb is about to change this entry, which its region no longer describes: the same, but
    /// not for ever, since the verb after it may do so again.
    Behind,
    /// No huge block was to be had: look again, for a base page.
    Smaller,
    /// A private table of zeros is to give way to a huge page, which takes the layout lock.
    GiveWay,
}

/// What is asked of a fault.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub va: Va,
    pub access: Access,
    pub by: By,
}

impl Ask {
    /// For a page of the space's own, which any rights at all give: each of them gives a read.
    pub fn own(va: Va) -> Self {
        Self { va, access: Access::Read, by: By::Owner }
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A verb that wants the page.
    Verb,
    /// A program, whose faults are counted.
    Program,
    /// A verb that wants a page of the space's own: zeros will not do even where the access is none
    /// to write.
    Owner,
}

impl<M: Machine> Faults<M> {
    pub fn new(regions: Regions<M>) -> Faults<M> {
        Faults { regions }
    }

    /// `Vm::fault`.
    pub fn fault(&self, space: &Space, va: Va, access: Access) -> Result<Fault, FaultError> {
        let m = &self.machine;
        m.hook(Event::Begin(Verb::Fault));
        m.hook(Event::Work(Work::Fault, 1));
        let served = self.serve_for(self.record_of(space), Ask { va, access, by: By::Program });
        // A fresh base page is counted where it is installed.
        if served != Ok(Fault::Base) {
            self.count(if served.is_ok() { Counter::Faults } else { Counter::FaultsRefused }, 1);
        }
        m.hook(Event::End(Verb::Fault));
        served
    }

    #[inline(always)]
    fn serve_for(&self, space: &SpaceRecord, ask: Ask) -> Result<Fault, FaultError> {
        if ask.va >= self.user_end() {
            return Err(FaultError::Unmapped);
        }
        match self.attempt(space, ask, true) {
            Ok(Step::Done(fault)) => Ok(fault),
            tried => self.serve_on(space, ask, tried),
        }
    }

    /// Makes `va` accessible, without the events of a fault.
    pub(crate) fn serve(
        &self,
        space: &SpaceRecord,
        va: Va,
        access: Access,
    ) -> Result<Fault, FaultError> {
        if va >= self.user_end() {
            return Err(FaultError::Unmapped);
        }
        self.serve_on(space, Ask { va, access, by: By::Verb }, Ok(Step::Again))
    }

    /// Makes the page at `va` the space's own, if the region there has any rights at all.
    pub(crate) fn serve_own(&self, space: &SpaceRecord, va: Va) -> Result<Fault, FaultError> {
        self.serve_on(space, Ask::own(va), Ok(Step::Again))
    }

    /// The attempts after the first, and all of those that are not a program's.
    #[inline(never)]
    fn serve_on(
        &self,
        space: &SpaceRecord,
        ask: Ask,
        mut tried: Result<Step, FaultError>,
    ) -> Result<Fault, FaultError> {
        let (mut huge, mut restarts, mut behind, mut sent_back) = (true, 0, 0, 0);
        let mut refusal = Refusal::<M>::default();
        loop {
            match tried {
                Ok(Step::Done(fault)) => return Ok(fault),
                Ok(Step::Again) => {
                    restarts += 1;
                    self.wait_while_stopped(space);
                }
                Ok(Step::Wait) => self.machine.relax(),
                Ok(Step::Behind) => {
                    behind += 1;
                    self.machine.relax();
                }
                Ok(Step::Smaller) => huge = false,
                Ok(Step::GiveWay) => match self.give_way(space, ask.va, ask.access)? {
                    Step::Again => restarts += 1,
                    next => {
                        tried = Ok(next);
                        continue;
                    }
                },
                Err(error) => {
                    self.confirm(space, ask, error, sent_back, &mut refusal)?;
                    restarts += 1;
                    // What there was no memory for before may want less than a base page now.
                    huge = true;
                }
            }
            // A page of 4 KiB comes fastest, and needs no table to give way.
            huge &= restarts < PATIENCE;
            sent_back = restarts + behind;
            tried = self.patiently(space, sent_back, || self.attempt(space, ask, huge));
        }
    }

    /// By far the commonest fault, a base page where one was promised and any node will do, is
    /// served here in as few instructions as can be; everything else in
    /// [`attempt_other`](Vm::attempt_other), which is right for this one, too.
    #[inline(always)]
    pub(crate) fn attempt(
        &self,
        space: &SpaceRecord,
        ask: Ask,
        huge: bool,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let epoch = self.epochs.enter(m);
        let edits = space.edits();
        let at = self.descend_entry(space, ask.va);
        let name = self.region_of(at.node, at.slot);
        if at.level == Level::ONE
            && at.raw == M::Codec::encode(Entry::Reserved, Level::ONE)
            && (ask.access == Access::Write || !self.config.zero_page)
            && let Some(name) = name
        {
            let region = self.region(name);
            let attrs = region.packed();
            if attrs.allows(ask.access)
                && attrs.numa().is_none()
                && self.config.numa == NumaPolicy::Local
            {
                let spot = Spot { at: Place { level: Level::ONE, ..at }, region: Some(name) };
                let seen = Seen { space, va: ask.va, edits, spot, region, attrs };
                return self.fresh_base(
                    &seen,
                    ask,
                    &AllocRequest { policy: NumaPolicy::Local, index: 0, use_: Use::Data },
                    &epoch,
                );
            }
        }
        self.attempt_other(space, (ask, huge), epoch, edits, Spot { at, region: name })
    }

    /// What [`attempt`](Vm::attempt) does not do itself.
    #[inline(never)]
    fn attempt_other(
        &self,
        space: &SpaceRecord,
        (ask, huge): (Ask, bool),
        epoch: EpochGuard<'_, M>,
        edits: Edits,
        spot: Spot<'_>,
    ) -> Result<Step, FaultError> {
        let Ask { va, access, .. } = ask;
        let entry = M::Codec::decode(spot.raw, spot.level);
        match entry {
            Entry::Empty | Entry::Gone(_) => return Err(FaultError::Unmapped),
            Entry::Moving(_) | Entry::Busy(_) | Entry::Detached(_) => return Ok(Step::Wait),
            _ => {}
        }
        // Intervals are read after the entry: what was unmapped between shows an entry whose region
        // is gone.
        let Some(name) = spot.region else { return Ok(Step::Behind) };
        let region = self.region(name);
        let attrs = region.packed();
        if !attrs.allows(access) {
            return Err(FaultError::Rights);
        }
        let seen = Seen { space, va, edits, spot, region, attrs };
        match entry {
            Entry::Reserved
                if access != Access::Write
                    && ask.by != By::Owner
                    && self.reads_huge_zeros(&seen, huge) =>
            {
                self.read_huge_zeros(&seen, epoch)
            }
            Entry::Reserved => match self.leaf_order(attrs, spot.level, huge) {
                None => self.redeem_below(&seen, (ask, huge), epoch),
                Some(Order::BASE) if self.zeros_will_do(&seen, ask) => Ok(self.map_zeros(&seen)),
                Some(Order::BASE) => self.fresh_base(&seen, ask, &self.want(&seen), &epoch),
                Some(order) => {
                    let want = self.want(&seen);
                    drop(epoch);
                    self.fresh_large(space, ask, order, &want, attrs)
                }
            },
            Entry::Leaf(pfn, flags) => {
                let gives = match access {
                    Access::Read => true,
                    Access::Write => flags.write,
                    Access::Exec => flags.exec,
                };
                if gives {
                    Ok(self.touch_leaf(&seen, access, flags))
                } else if access == Access::Write {
                    self.unshare(&seen, epoch, huge, (pfn, flags))
                } else {
                    // The region gives what the leaf does not: `protect` is on its way here.
                    Ok(Step::Behind)
                }
            }
            Entry::ZeroTable(_) => match access {
                Access::Read => {
                    Ok(self.touch_leaf(&seen, access, Flags { accessed: true, ..Flags::default() }))
                }
                Access::Write => self.write_zero_table(&seen, epoch, huge),
                Access::Exec => Ok(Step::Behind),
            },
            // As above: the page is about to be a leaf again.
            _ => Ok(Step::Behind),
        }
    }

    /// Whether a base page of shared zeros serves the access to a promise.
    #[inline]
    pub(crate) fn zeros_will_do(&self, seen: &Seen<'_>, ask: Ask) -> bool {
        ask.access != Access::Write
            && self.config.zero_page
            && seen.space.takes_zeros()
            && ask.by != By::Owner
    }

    /// The size of leaf a promise at `level` is redeemed with, `None` if that is below the slot's.
    #[inline]
    pub(crate) fn leaf_order(&self, attrs: Packed, level: Level, huge: bool) -> Option<Order> {
        let here = level.leaf_order()?;
        if here == Order::BASE { Some(here) } else { self.large_order(attrs, here, huge) }
    }

    pub(crate) fn large_order(&self, attrs: Packed, here: Order, huge: bool) -> Option<Order> {
        if here > self.rules.max_leaf {
            return None;
        }
        let wanted = match attrs.leaf() {
            LeafSize::Exactly(order) => order,
            LeafSize::Policy => {
                let allowed = match (self.config.thp, attrs.thp()) {
                    (Thp::Never, _) | (_, Some(HugeAdvice::NoHuge)) => false,
                    (Thp::Always, _) | (Thp::Advise, Some(HugeAdvice::Huge)) => true,
                    (Thp::Advise, None) => false,
                };
                if huge && allowed { Order::HUGE } else { Order::BASE }
            }
        };
        (wanted == here).then_some(here)
    }

    /// What the allocator is asked for a page at the address.
    #[inline]
    pub(crate) fn want(&self, seen: &Seen<'_>) -> AllocRequest {
        AllocRequest {
            policy: seen.attrs.numa().unwrap_or(self.config.numa),
            index: seen.index(Order::BASE),
            use_: Use::Data,
        }
    }

    /// Whether what was seen still holds. Under the node's lock, inside the epoch of the descent.
    #[inline(always)]
    pub(crate) fn still(&self, seen: &Seen<'_>) -> bool {
        let spot = &seen.spot;
        !spot.node.state().dead()
            && self.machine.entry(spot.node.pfn, spot.slot) == spot.raw
            && (seen.space.is_unedited(seen.edits)
                || self.still_region(seen.space, seen.va, (spot.node.pfn, spot.region)))
    }

    #[cold]
    fn still_region(&self, space: &SpaceRecord, va: Va, seen: (Pfn, Option<SlabRef>)) -> bool {
        let now = self.descend(space, va);
        !space.faults_stopped() && (now.node.pfn, now.region) == seen
    }

    /// What lies at `va`, if a region says what may be done there. Within an epoch, or under the
    /// layout lock.
    pub(crate) fn seen<'s>(&'s self, space: &'s SpaceRecord, va: Va) -> Option<Seen<'s>> {
        let edits = space.edits();
        let spot = self.descend(space, va);
        let region = spot.region.map(|name| self.region(name))?;
        Some(Seen { space, va, edits, spot, region, attrs: region.packed() })
    }

    /// Maps the shared zeros, read-only.
    fn map_zeros(&self, seen: &Seen<'_>) -> Step {
        match self.only_zeros() {
            Some(pfn) => self.map_zero_frame(seen, pfn),
            None => self.map_coloured(seen),
        }
    }

    /// As [`map_zeros`](Vm::map_zeros) where there are several: in the address's colour.
    #[inline(never)]
    fn map_coloured(&self, seen: &Seen<'_>) -> Step {
        let block = self.zero_block_here();
        let step = self.map_zero_frame(seen, block.frame(seen.va));
        if matches!(step, Step::Done(_)) {
            self.count_colour(block, seen.va);
        }
        step
    }

    #[inline(always)]
    fn map_zero_frame(&self, seen: &Seen<'_>, pfn: Pfn) -> Step {
        let m = &self.machine;
        let spot = &seen.spot;
        let flags =
            Flags { write: false, exec: seen.attrs.rights().exec, accessed: true, dirty: false };
        let mut top = Token::top();
        let _guard = spot.node.lock(m, &mut top);
        // Whether zeros are forbidden is asked again under the lock: whoever forbids them comes by
        // here.
        if !self.still(seen) || !seen.space.takes_zeros() {
            return Step::Again;
        }
        self.store(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
        m.hook(Event::Work(Work::Entry, 1));
        self.count_here(Counter::FaultsZero, 1);
        Step::Done(Fault::Zero)
    }

    /// A fresh 4 KiB page, cleared before the node is locked.
    #[inline(always)]
    fn fresh_base(
        &self,
        seen: &Seen<'_>,
        ask: Ask,
        want: &AllocRequest,
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let pfn = self.frames.alloc(m, Order::BASE, want)?;
        self.clear_page(pfn, seen.va);
        if self.install(seen, pfn, Order::BASE, ask.access, epoch) {
            let counters = self.counters_here();
            counters.add(Counter::AnonPages, 1);
            counters.add(Counter::Faults, i64::from(ask.by == By::Program));
            return Ok(Step::Done(Fault::Base));
        }
        self.untake(pfn, Order::BASE);
        Ok(Step::Again)
    }

    /// A fresh page of 2 MiB or 1 GiB. Called outside of epochs.
    #[cold]
    pub(crate) fn fresh_large(
        &self,
        space: &SpaceRecord,
        ask: Ask,
        order: Order,
        want: &AllocRequest,
        attrs: Packed,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let Ask { va, access, .. } = ask;
        let exact = attrs.leaf() != LeafSize::Policy;
        let _in_hand = self.hands.begin(m);
        let (pfn, bytes) = match self.take_block(order, want, exact) {
            Ok(taken) => taken,
            Err(Short::Stopped) => return Err(FaultError::Stopped),
            Err(Short::Memory) if exact => return Err(FaultError::NoMemory),
            Err(Short::Memory) => {
                self.count(Counter::ThpFaultFallback, 1);
                return Ok(Step::Smaller);
            }
        };
        // What the allocator cleared, it cleared by another address than the program's.
        if (bytes == Bytes::Old || m.aliases())
            && let Err(stopped) = self.clear_block(&Extent::of_leaf(pfn, order, va))
        {
            self.untake_block(pfn, order);
            return Err(stopped.into());
        }
        let epoch = self.epochs.enter(m);
        let leaf = leaf_level(order);
        if let Some(seen) = self.seen(space, va)
            && seen.spot.level >= leaf
            && seen.spot.raw == M::Codec::encode(Entry::Reserved, seen.spot.level)
            && seen.attrs == attrs
        {
            let done = if seen.spot.level == leaf {
                self.install(&seen, pfn, order, access, &epoch)
            } else {
                match self.plant_large(&seen, pfn, order, access) {
                    Ok(done) => done,
                    Err(error) => {
                        self.untake_block(pfn, order);
                        // With the block given back there may be enough for a base page and its
                        // tables.
                        if exact {
                            return Err(error.into());
                        }
                        self.count_here(Counter::ThpFaultFallback, 1);
                        return Ok(Step::Smaller);
                    }
                }
            };
            if !done {
                self.untake_block(pfn, order);
                return Ok(Step::Again);
            }
            m.hook(Event::Work(Work::Large, 1));
            self.count_pages(order, 1);
            if order == Order::HUGE {
                self.count_here(Counter::ThpFaultAlloc, 1);
            }
            return Ok(Step::Done(if order == Order::HUGE { Fault::Huge } else { Fault::Giant }));
        }
        self.untake_block(pfn, order);
        Ok(Step::Again)
    }

    /// Puts a fresh, cleared block where the promise was seen; `false` if it is not there any more.
    #[inline(always)]
    fn install(
        &self,
        seen: &Seen<'_>,
        pfn: Pfn,
        order: Order,
        access: Access,
        epoch: &EpochGuard<'_, M>,
    ) -> bool {
        let m = &self.machine;
        let spot = &seen.spot;
        Data::init(self.frames.record(pfn), order, seen.space.owner(), seen.index(order));
        let rights = seen.attrs.rights();
        // The marks the retried access would set, so that the walker need not.
        let flags = Flags {
            write: rights.write,
            exec: rights.exec,
            accessed: true,
            dirty: access == Access::Write,
        };
        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if !self.still(seen) {
            return false;
        }
        self.store(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, flags));
        spot.node.add_resident(1);
        m.hook(Event::Work(Work::Entry, 1));
        true
    }

    /// The leaf gives the access: the translation that did not was older, or a mark is missing that
    /// hardware does not set.
    fn touch_leaf(&self, seen: &Seen<'_>, access: Access, flags: Flags) -> Step {
        let dirty = flags.dirty || access == Access::Write;
        let marked = Flags { accessed: true, dirty, ..flags };
        if !self.rules.hardware_ad && marked != flags {
            let mut top = Token::top();
            let spot = &seen.spot;
            let _guard = spot.node.lock(&self.machine, &mut top);
            if !self.still(seen) {
                return Step::Again;
            }
            if let Some(pfn) =
                crate::pagetable::transit::frame_of(M::Codec::decode(spot.raw, spot.level))
            {
                self.store(spot.node.pfn, spot.slot, spot.level, Entry::Leaf(pfn, marked));
            }
        }
        if !self.rules.fault_invalidates {
            self.flush_here(seen.space, seen.va);
        }
        self.count_here(Counter::FaultsSpurious, 1);
        Step::Done(Fault::Spurious)
    }
}

/// What a descent found, and the region that decides.
pub(crate) struct Seen<'a> {
    pub space: &'a SpaceRecord,
    pub va: Va,
    /// The space's edits before the descent.
    pub edits: Edits,
    pub spot: Spot<'a>,
    pub region: &'a Region,
    pub attrs: Packed,
}

impl Seen<'_> {
    /// The index of the first page of a leaf of that size at the address.
    #[inline]
    pub fn index(&self, order: Order) -> u64 {
        (self.va.page() & !(order.frames() - 1)).wrapping_add(self.region.shift())
    }
}
