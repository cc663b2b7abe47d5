//! Verbs that change what is mapped, over one another's ranges.

use vellum::addr::Va;
use vellum::entry::Codec;
use vellum::error::{FaultError, SpaceError};
use vellum::space::{Access, Advice, Attrs, HugeAdvice, LeafSize, Placement, Rights};

use super::Worker;
use crate::stress::owned_pages::Run;
use crate::stress::shared::arena::{Extent, Kind, address};

/// Ways to drop contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WipeMethod {
    /// Forget contents.
    Forget,
    /// Map over what is there.
    Replace,
    /// Unmap, then map.
    UnmapMap,
    /// Unmap, look whether it is gone, then map.
    UnmapLookMap,
}

/// Tries to map again before that is an error.
const TRIES: u32 = 100_000;

const RW: Rights = Rights::READ_WRITE;

impl<C: Codec> Worker<'_, C> {
    /// Drops the contents of a part of a range, whatever others do there.
    pub(super) fn wipe(&mut self, how: WipeMethod) {
        let (_, extent) = self.extent(&[Kind::Wiped]);
        let run = extent.part(&mut self.rng);
        let expected = &self.shared.expected;
        let rights = if self.rng.once_in(4) { Rights::READ } else { RW };
        let thp = [extent.thp, Some(HugeAdvice::Huge), Some(HugeAdvice::NoHuge)]
            [self.rng.below(3) as usize];
        let attrs = Attrs { rights, thp, numa: None, leaf: LeafSize::Policy };
        let wipes: Vec<_> = extent.slots_in(run).map(|slot| (slot, expected.wipe(slot))).collect();
        let granting = how != WipeMethod::Forget;
        let slots = extent.slots_in(run).filter(|_| granting);
        let grants: Vec<_> = slots.map(|slot| (slot, expected.grant(slot, rights))).collect();
        let done = match how {
            WipeMethod::Forget => self.forget(run),
            WipeMethod::Replace => self.replace(run, attrs),
            WipeMethod::UnmapMap | WipeMethod::UnmapLookMap => {
                self.unmap_map(extent, run, attrs, &wipes, how)
            }
        };
        grants.into_iter().for_each(|(slot, grant)| expected.granted(slot, grant, done));
        wipes.into_iter().for_each(|(slot, wipe)| expected.wipe_over(slot, wipe, done));
        self.outcome.wipes += 1;
    }

    fn forget(&mut self, run: Run) -> bool {
        match self.shared.vm.advise(&self.shared.space, run.start(), run.bytes(), Advice::DontNeed)
        {
            Ok(()) => true,
            // Another thread has just unmapped some of it.
            Err(SpaceError::Unmapped) => false,
            Err(SpaceError::NoMemory) => {
                self.refused();
                false
            }
            Err(error) => self.fail(format!("dontneed of {run:?} gave {error:?}")),
        }
    }

    fn replace(&mut self, run: Run, attrs: Attrs) -> bool {
        match self.shared.vm.map(
            &self.shared.space,
            Placement::Replace(run.start()),
            run.bytes(),
            attrs,
        ) {
            Ok(va) if va == run.start() => true,
            Err(SpaceError::NoMemory) => {
                self.refused();
                false
            }
            got => self.fail(format!("replacing {run:?} gave {got:?}")),
        }
    }

    /// Ends with all of it mapped: between two verbs of any threads there are no holes.
    fn unmap_map(
        &mut self,
        extent: &Extent,
        run: Run,
        attrs: Attrs,
        wipes: &[(usize, u64)],
        how: WipeMethod,
    ) -> bool {
        let shared = self.shared;
        let alone = |&&(slot, wipe): &&(usize, u64)| shared.expected.is_only(slot, wipe);
        let alone: Vec<_> = wipes.iter().filter(alone).copied().collect();
        match shared.vm.unmap(&shared.space, run.start(), run.bytes()) {
            Ok(()) => {}
            Err(SpaceError::NoMemory) => {
                self.refused();
                return false;
            }
            Err(error) => self.fail(format!("unmapping {run:?} gave {error:?}")),
        }
        if how == WipeMethod::UnmapLookMap {
            self.home();
            for (slot, wipe) in alone {
                let va = address(extent.page(slot, false), self.me, slot);
                if !shared.expected.is_only(slot, wipe) {
                    break;
                }
                let got = self.access(&shared.space, va, Access::Read, 0);
                if got != Err(FaultError::Unmapped) && shared.expected.is_only(slot, wipe) {
                    self.fail_at(va, &format!("a load after an unmap gave {got:x?}"));
                }
            }
        }
        let at = Placement::At(run.start());
        for _ in 0..TRIES {
            match shared.vm.map(&shared.space, at, run.bytes(), attrs) {
                Ok(va) if va == run.start() => return true,
                // Another thread has mapped some of it.
                Err(SpaceError::Occupied) if self.replace(run, attrs) => return true,
                Err(SpaceError::Occupied | SpaceError::NoMemory) => {
                    self.refused();
                    self.end_child();
                    self.guard.yield_core();
                }
                got => self.fail(format!("mapping {run:?} gave {got:?}")),
            }
        }
        self.fail(format!("{run:?} cannot be mapped for want of memory"))
    }

    /// Changes rights.
    pub(super) fn protect(&mut self) {
        let (_, extent) = self.extent(&[Kind::Rights, Kind::Rights, Kind::Wiped, Kind::Kept]);
        let run = extent.part(&mut self.rng);
        let rights = match (extent.kind, self.rng.below(8)) {
            (_, 0..3) => RW,
            (Kind::Kept | Kind::Moved, _) | (_, 3) => Rights::ALL,
            (Kind::Wiped, _) | (_, 4..6) => Rights::READ,
            (Kind::Rights, 6) => Rights::READ_EXEC,
            (Kind::Rights, _) => Rights::NONE,
        };
        let expected = &self.shared.expected;
        let grants: Vec<_> =
            extent.slots_in(run).map(|slot| (slot, expected.grant(slot, rights))).collect();
        let got = self.shared.vm.protect(&self.shared.space, run.start(), run.bytes(), rights);
        grants.into_iter().for_each(|(slot, grant)| expected.granted(slot, grant, got.is_ok()));
        match got {
            Ok(()) => {}
            Err(SpaceError::Unmapped) if extent.kind == Kind::Wiped => {}
            Err(SpaceError::NoMemory) => self.refused(),
            Err(error) => self.fail(format!("protecting {run:?} gave {error:?}")),
        }
    }

    /// Moves a range to its other place.
    pub(super) fn relocate(&mut self) {
        let (n, extent) = self.extent(&[Kind::Moved]);
        let Some(away) = self.shared.expected.move_begins(n) else { return };
        let (from, to) =
            if away { (extent.other, extent.run.first) } else { (extent.run.first, extent.other) };
        let (from, to) = (Run { first: from, ..extent.run }, Run { first: to, ..extent.run });
        let at = if self.rng.once_in(3) {
            Placement::Replace(to.start())
        } else {
            Placement::At(to.start())
        };
        let got =
            self.shared.vm.remap(&self.shared.space, from.start(), from.bytes(), to.bytes(), at);
        self.shared.expected.move_ends(n, got.is_ok());
        match got {
            Ok(va) if va == to.start() => {}
            Err(SpaceError::NoMemory) => self.refused(),
            got => self.fail(format!("moving {from:?} to {to:?} gave {got:?}")),
        }
    }

    /// Advice that changes no contents.
    pub(super) fn advise(&mut self, populate: bool) {
        let (n, extent) = self.extent(&[Kind::Kept, Kind::Rights, Kind::Moved, Kind::Wiped]);
        let mut run = extent.part(&mut self.rng);
        if extent.kind == Kind::Moved && self.shared.expected.is_away(n) {
            run.first = run.first - extent.run.first + extent.other;
        }
        let advice = match self.rng.below(4) {
            n if populate => Advice::Populate { write: n < 2 },
            0 => Advice::Huge,
            1 => Advice::NoHuge,
            _ => Advice::Collapse,
        };
        let changes = matches!(extent.kind, Kind::Moved | Kind::Wiped);
        let rights = matches!(extent.kind, Kind::Rights | Kind::Wiped);
        match self.shared.vm.advise(&self.shared.space, run.start(), run.bytes(), advice) {
            Ok(()) => {}
            Err(SpaceError::NoMemory) => self.refused(),
            Err(SpaceError::Unmapped) if changes => {}
            Err(SpaceError::Rights) if rights => {}
            Err(error) => self.fail(format!("{advice:?} of {run:?} gave {error:?}")),
        }
    }

    /// Maps where there is room, stores there, and unmaps it. It is longer than any hole among the
    /// ranges.
    pub(super) fn stray(&mut self) {
        const BYTES: u64 = 16 << 20;
        let attrs = Attrs { thp: Some(HugeAdvice::NoHuge), ..Attrs::anonymous(RW) };
        let va = match self.shared.vm.map(&self.shared.space, Placement::Anywhere, BYTES, attrs) {
            Ok(va) => va,
            Err(SpaceError::NoMemory) => return self.refused(),
            Err(error) => self.fail(format!("mapping wherever there is room gave {error:?}")),
        };
        self.home();
        for n in 0..4 {
            let at = Va(va.0 + n * (BYTES / 4) + 8 * n);
            let stored = self.access(&self.shared.space, at, Access::Write, n + 1);
            let found = stored.and_then(|_| self.access(&self.shared.space, at, Access::Read, 0));
            match found {
                Ok(word) if word == n + 1 => {}
                Err(FaultError::NoMemory) => self.refused(),
                got => self.fail_at(at, &format!("a place of its own gave {got:?}")),
            }
        }
        match self.shared.vm.unmap(&self.shared.space, va, BYTES) {
            Ok(()) => {}
            Err(error) => self.fail(format!("unmapping what was mapped at {va:?} gave {error:?}")),
        }
    }
}
