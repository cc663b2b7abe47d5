//! Serving a fault: attempts, until one of them ends it.

use crate::addr::{Level, Va};
use crate::config::NumaPolicy;
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::object::{DeviceFault, ObjectFault};
use crate::fault::patience::PATIENCE;
use crate::fault::reserved::Reserved;
use crate::fault::zeros::ZeroPage;
use crate::fault::{FaultOrigin, FaultRequest, Faults, Seen, Step, Unshare, ZeroTable};
use crate::frame::AllocRequest;
use crate::machine::{Machine, Use, Verb};
use crate::memory::retry::Refusal;
use crate::object::ObjectIo;
use crate::pagetable::cursor::Place;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::{Access, Edits, Fault, Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};
use crate::vma::lookup::Spot;

pub(crate) struct Serve<'v, M: Machine>(pub &'v Faults<M>);

over!(Serve, Faults);

impl<M: Machine> Serve<'_, M> {
    /// `Vm::fault`.
    pub fn fault(self, space: &Space, va: Va, access: Access) -> Result<Fault, FaultError> {
        self.verb(Verb::Fault, || {
            let served = self.serve_for(
                self.record_of(space),
                FaultRequest { va, access, origin: FaultOrigin::Program },
            );
            if !matches!(served, Ok(Fault::Zero | Fault::Base | Fault::Object)) {
                let served = served.is_ok();
                self.count(if served { Counter::Faults } else { Counter::FaultsRefused }, 1);
            }
            served
        })
    }

    #[inline(always)]
    fn serve_for(self, space: &SpaceRecord, ask: FaultRequest) -> Result<Fault, FaultError> {
        if ask.va >= self.user_end() {
            return Err(FaultError::Unmapped);
        }
        match self.attempt(space, ask, true) {
            Ok(Step::Done(fault)) => Ok(fault),
            tried => self.serve_on(space, ask, tried),
        }
    }

    /// Serves what a verb asks for, without the events of a fault.
    pub fn serve(self, space: &SpaceRecord, ask: FaultRequest) -> Result<Fault, FaultError> {
        if ask.va >= self.user_end() {
            return Err(FaultError::Unmapped);
        }
        self.serve_on(space, ask, Ok(Step::Again))
    }

    /// The attempts after the first, and all of those that are not a program's.
    #[inline(never)]
    fn serve_on(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
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
                Ok(Step::Frozen) => {
                    // Who has it frozen may look for memory, and have to wait for the turn.
                    refusal = Refusal::default();
                    self.machine.relax();
                    self.let_others_run();
                }
                Ok(Step::Split) => {
                    refusal = Refusal::default();
                    ObjectFault(self.0).split(space, ask)?;
                }
                Ok(Step::Fetch) => {
                    tried = ObjectFault(self.0).fetch(space, ask, || refusal.end_turn());
                    continue;
                }
                Ok(Step::FetchNext) => {
                    refusal.end_turn();
                    ObjectFault(self.0).fetch_next(space, ask);
                }
                Ok(Step::Reading(pfn)) => {
                    refusal = Refusal::default();
                    ObjectIo(self.0).wait_for_pager(pfn)?;
                }
                Ok(Step::Behind) => {
                    behind += 1;
                    self.machine.relax();
                }
                Ok(Step::Smaller) => huge = false,
                Ok(Step::ReplaceZeroTable) => {
                    match ZeroTable(self.0).replace_zero_table(space, ask.va, ask.access)? {
                        Step::Again => restarts += 1,
                        next => {
                            tried = Ok(next);
                            continue;
                        }
                    }
                }
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
            tried = self.patiently(space, sent_back, || self.attempt_again(space, ask, huge));
        }
    }

    /// By far the commonest faults, on a base page, are served here in as few instructions as can
    /// be: a fresh page where any memory node will do, a page of an object, and the first store to
    /// one of which writes are noted. Everything else in [`attempt_other`](Self::attempt_other),
    /// which is right for these, too.
    #[inline(always)]
    pub fn attempt(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        huge: bool,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let epoch = self.epochs.enter(m);
        let edits = space.edits();
        let Some(at) = self.descend_straight(space, ask.va) else {
            return self.attempt_above(space, (ask, huge), epoch, edits);
        };
        // Intervals are read after the entry: what was unmapped between shows an entry whose region
        // is gone.
        let Some(handle) = self.region_of(at.node, at.slot) else {
            return Self::without_region(at);
        };
        let region = self.region(handle);
        let attrs = region.packed();
        let spot = Spot { at, region: Some(handle) };
        let seen = Seen { space, va: ask.va, edits, spot, region, attrs };
        if at.raw != M::Codec::encode(Entry::Reserved, Level::ONE) {
            if attrs.is_tracked_view()
                && ask.access == Access::Write
                && attrs.allows(Access::Write)
                && let Entry::Shared(pfn, flags) = M::Codec::decode(at.raw, Level::ONE)
                && !flags.write
            {
                return ObjectFault(self.0).write_mapped(&{ seen }, ask, (pfn, flags), epoch);
            }
            return self.attempt_entry(&{ seen }, (ask, huge), epoch);
        }
        if (ask.access == Access::Write || !self.config.zero_page)
            && attrs.allows(ask.access)
            && attrs.is_private_anywhere()
            && self.config.numa == NumaPolicy::Local
        {
            return Reserved(self.0).fresh_base(
                &seen,
                ask,
                const { &AllocRequest::kernel(Use::Data) },
                &epoch,
            );
        }
        if attrs.has_object() {
            seldom();
            if attrs.maps_page(ask.writes()) && attrs.allows(ask.access) {
                return ObjectFault(self.0).serve_base(seen, ask, epoch);
            }
        } else if self.serves_zeros(space, ask)
            && attrs.allows(ask.access)
            && let Some(zeros) = self.only_zeros()
        {
            return Ok(ZeroPage(self.0).map_zero_frame(&seen, ask, zeros, &epoch));
        }
        // In memory, where the pages above are served without.
        self.attempt_reserved(&{ seen }, ask.access, ask.origin, epoch)
    }

    /// The other kinds of a base page that is not reserved.
    #[inline(never)]
    fn attempt_entry(
        self,
        seen: &Seen<'_>,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        self.attempt_other(seen, (ask, huge), epoch)
    }

    /// An attempt where the way down ends above the base pages.
    #[inline(never)]
    fn attempt_above(
        self,
        space: &SpaceRecord,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
        edits: Edits,
    ) -> Result<Step, FaultError> {
        let at = self.descend_part(space, ask.va);
        if at.level == Level::ONE {
            // A table has come since.
            return Ok(Step::Again);
        }
        let region = self.region_of(at.node, at.slot);
        let Some(handle) = region else { return Self::without_region(at) };
        let (region, spot) = (self.region(handle), Spot { at, region });
        let seen = Seen { space, va: ask.va, edits, spot, region, attrs: region.packed() };
        self.attempt_other(&seen, (ask, huge), epoch)
    }

    /// What comes of an entry about which no region decides.
    #[cold]
    fn without_region(at: Place<'_>) -> Result<Step, FaultError> {
        match M::Codec::decode(at.raw, at.level) {
            Entry::Empty => Err(FaultError::Unmapped),
            Entry::Busy(_) | Entry::Detached(_) => Ok(Step::Wait),
            _ => Ok(Step::Behind),
        }
    }

    /// The other kinds of a base page that is reserved.
    #[inline(never)]
    fn attempt_reserved(
        self,
        seen: &Seen<'_>,
        access: Access,
        origin: FaultOrigin,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        // Made where it is handed on, so that zeros do without.
        let ask = || FaultRequest { va: seen.va, access, origin };
        if !seen.attrs.allows(access) {
            return Err(FaultError::Rights);
        }
        if seen.attrs.has_object() {
            if seen.attrs.is_device() {
                return DeviceFault(self.0).serve(seen, ask());
            }
            return ObjectFault(self.0).serve(seen, (ask(), false), epoch);
        }
        if self.serves_zeros(seen.space, ask()) {
            return Ok(ZeroPage(self.0).map_zeros(seen, ask(), &epoch));
        }
        Reserved(self.0).fresh_base(seen, ask(), &self.want(seen), &epoch)
    }

    /// What [`attempt`](Self::attempt) does not do itself.
    #[inline(always)]
    fn attempt_other(
        self,
        seen: &Seen<'_>,
        (ask, huge): (FaultRequest, bool),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let Seen { space, ref spot, attrs, .. } = *seen;
        let access = ask.access;
        let entry = M::Codec::decode(spot.raw, spot.level);
        match entry {
            Entry::Empty => return Err(FaultError::Unmapped),
            Entry::Busy(_) | Entry::Detached(_) => return Ok(Step::Wait),
            _ if !attrs.allows(access) => return Err(FaultError::Rights),
            _ => {}
        }
        match entry {
            Entry::Reserved if attrs.is_device() => DeviceFault(self.0).serve(seen, ask),
            Entry::Reserved if attrs.has_object() => {
                ObjectFault(self.0).serve(seen, (ask, huge), epoch)
            }
            Entry::Reserved
                if access != Access::Write
                    && ask.origin != FaultOrigin::Owner
                    && ZeroPage(self.0).reads_huge_zeros(seen, huge) =>
            {
                ZeroPage(self.0).read_huge_zeros(seen, epoch)
            }
            Entry::Reserved => match self.leaf_order(attrs, spot.level, huge) {
                None => Reserved(self.0).populate_below(seen, (ask, huge), epoch),
                Some(order) => {
                    let want = self.want_block(seen, order);
                    drop(epoch);
                    Reserved(self.0).fresh_large(space, ask, order, &want, attrs)
                }
            },
            Entry::Leaf(pfn, flags) => {
                if gives(flags, access) {
                    Ok(self.touch_leaf(seen, access, flags))
                } else if access == Access::Write {
                    Unshare(self.0).unshare(seen, epoch, huge, (pfn, flags))
                } else {
                    // The region gives what the leaf does not: `protect` is on its way here.
                    Ok(Step::Behind)
                }
            }
            Entry::ZeroTable(_) => match access {
                Access::Read => {
                    Ok(self.touch_leaf(seen, access, Flags { accessed: true, ..Flags::default() }))
                }
                Access::Write => ZeroTable(self.0).write_zero_table(seen, epoch, huge),
                Access::Exec => Ok(Step::Behind),
            },
            _ => self.serve_other(seen, ask, entry, epoch),
        }
    }

    /// Entries that faults meet less often, as that of an object's page before the first store.
    #[cold]
    #[inline(never)]
    fn serve_other(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        entry: Entry,
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let FaultRequest { access, origin, .. } = ask;
        match entry {
            Entry::Device(..) if origin.touches_bytes() => Err(FaultError::Device),
            Entry::Shared(_, flags) | Entry::Device(_, flags, _) if gives(flags, access) => {
                Ok(self.touch_leaf(seen, access, flags))
            }
            Entry::Shared(pfn, _) if access == Access::Write && seen.attrs.is_private_view() => {
                ObjectFault(self.0).copy_mapped(seen, pfn)
            }
            Entry::Shared(pfn, flags)
                if access == Access::Write && seen.attrs.is_tracked_view() =>
            {
                ObjectFault(self.0).write_mapped(seen, ask, (pfn, flags), epoch)
            }
            // `protect` is on its way here, or the page is about to be a leaf again.
            _ => Ok(Step::Behind),
        }
    }

    /// Does `then` with the page at `va`, `None` if it is not there: to be served, and tried again.
    /// After so many restarts the page is made under the mmap lock, where no verb can undo that
    /// before `then` comes by.
    #[inline]
    pub fn with_page<R>(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        restarts: u32,
        mut then: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, FaultError> {
        let makes = restarts >= PATIENCE;
        self.patiently(space, restarts, || {
            loop {
                let done = then();
                if done.is_some() || !makes {
                    return Ok(done);
                }
                match self.attempt_again(space, ask, false) {
                    Ok(Step::Done(_) | Step::Again) => {}
                    Ok(Step::Reading(pfn)) => {
                        ObjectFrame(self.0).let_go(pfn);
                        return Ok(None);
                    }
                    // Somebody is at the entry, or gives memory back.
                    Ok(_) | Err(FaultError::NoMemory) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// [`attempt`](Self::attempt), out of line.
    #[inline(never)]
    fn attempt_again(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        huge: bool,
    ) -> Result<Step, FaultError> {
        self.attempt(space, ask, huge)
    }

    /// The leaf gives the access: the translation that did not was older, or a mark is missing that
    /// hardware does not set.
    fn touch_leaf(self, seen: &Seen<'_>, access: Access, flags: Flags) -> Step {
        let dirty = flags.dirty || access == Access::Write;
        let marked = Flags { accessed: true, dirty, ..flags };
        if !self.rules.hardware_ad && marked != flags {
            let mut top = Token::top();
            let spot = &seen.spot;
            let _guard = spot.node.lock(&self.machine, &mut top);
            if !self.still(seen) {
                return Step::Again;
            }
            let entry = M::Codec::decode(spot.raw, spot.level).with_flags(marked);
            self.store(spot.node.pfn, spot.slot, spot.level, entry);
        }
        if !self.rules.fault_invalidates {
            self.flush_here(seen.space, seen.va);
        }
        self.count_here(Counter::FaultsSpurious, 1);
        Step::Done(Fault::Spurious)
    }
}

/// Who calls it leaves the registers to the paths that do not.
#[cold]
#[inline]
fn seldom() {}

/// Whether a leaf gives an access.
#[inline(always)]
fn gives(flags: Flags, access: Access) -> bool {
    match access {
        Access::Read => true,
        Access::Write => flags.write,
        Access::Exec => flags.exec,
    }
}
