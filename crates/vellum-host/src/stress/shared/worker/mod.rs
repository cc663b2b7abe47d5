//! One thread: draws operations, does them on the shared ranges, and compares with the expected
//! state.
//!
//! `bytes` has loads and stores, `verbs` changes mappings, `forks` has the forked spaces.

mod bytes;
mod forks;
mod verbs;

use vellum::addr::{Order, Va};
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::machine::Use;
use vellum::space::{Access, Space};
use vellum::unstable::AllocRequest;

use super::arena::{Extent, Kind};
use super::state::{Outcome, Shared};
use crate::machine::CpuGuard;
use crate::rng::Rng;
use crate::stress::alone;
use crate::stress::ops::{Op, TABLE};
use bytes::AccessOrigin;
use verbs::WipeMethod;

/// Faults at one address without getting anywhere before that is an error.
const PATIENCE: u32 = 100_000;

/// The thread.
pub struct Worker<'a, C: Codec> {
    shared: &'a Shared<'a, C>,
    guard: &'a CpuGuard<'a, C, true>,
    me: usize,
    rng: Rng,
    /// Stores tried.
    count: u64,
    outcome: Outcome,
}

impl<'a, C: Codec> Worker<'a, C> {
    /// A thread that has done nothing yet.
    pub fn new(
        shared: &'a Shared<'a, C>,
        guard: &'a CpuGuard<'a, C, true>,
        me: usize,
        rng: Rng,
    ) -> Worker<'a, C> {
        Worker { shared, guard, me, rng, count: 0, outcome: Outcome::default() }
    }

    /// What it did.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// One operation; `last` in the last round.
    pub fn step(&mut self, last: bool) {
        // By weight, or each alike often: the rare ones are those that meet.
        let op = if self.rng.once_in(4) {
            TABLE[self.rng.below(TABLE.len() as u64) as usize].0
        } else {
            Op::draw(&mut self.rng)
        };
        self.outcome.operations += 1;
        match op {
            Op::Map => self.wipe(WipeMethod::UnmapMap),
            Op::Replace => self.wipe(WipeMethod::Replace),
            Op::Unmap => self.wipe(WipeMethod::UnmapLookMap),
            Op::DontNeed => self.wipe(WipeMethod::Forget),
            Op::MapAnywhere => self.stray(),
            Op::Protect => self.protect(),
            Op::Remap => self.relocate(),
            Op::Huge => self.advise(false),
            Op::Populate => self.advise(true),
            Op::Touch => self.look(AccessOrigin::Program(Access::Read)),
            Op::Fetch => self.look(AccessOrigin::Program(Access::Exec)),
            Op::Write => self.store(AccessOrigin::Program(Access::Write)),
            Op::CopyIn => self.store(AccessOrigin::Kernel),
            Op::CopyOut => self.look(AccessOrigin::Kernel),
            Op::Force => self.store(AccessOrigin::Force),
            Op::Query => self.query(),
            Op::Fork => self.fork(),
            Op::Exit => self.end_child(),
            Op::Switch => self.switch(),
            Op::Peek => self.look_around(),
            Op::Frame => self.frame(),
            Op::Rest => self.rest(),
            Op::Poison => self.poison(),
            Op::Forbid => self.forbid(last),
            Op::MapObject
            | Op::MapPrivate
            | Op::ReadObject
            | Op::WriteObject
            | Op::Resize
            | Op::Punch
            | Op::Sync
            | Op::Evict
            | Op::WriteBack
            | Op::Ahead
            | Op::Grab
            | Op::Harvest
            | Op::Seek
            | Op::Seal
            | Op::MapDevice
            | Op::Block => {
                self.play_alone(op);
            }
            Op::Shrink => {
                self.shared.vm.shrink_zeros();
            }
        }
    }

    /// Runs in the space that everybody works in.
    fn home(&self) {
        self.shared.vm.activate(&self.shared.space);
    }

    fn slot(&mut self) -> usize {
        self.rng.below(self.shared.arena.slots() as u64) as usize
    }

    fn extent(&mut self, kinds: &[Kind]) -> (usize, &'a Extent) {
        let shared = self.shared;
        let n = shared.arena.any(kinds, &mut self.rng);
        (n, &shared.arena.extents[n])
    }

    /// At which place to look for a range: usually where it is.
    fn other(&mut self, slot: usize) -> bool {
        let n = self.shared.arena.number(slot);
        self.shared.arena.extents[n].kind == Kind::Moved
            && self.shared.expected.is_away(n) != self.rng.once_in(12)
    }

    /// A program's access, faults included. This CPU runs the space.
    fn access(
        &mut self,
        space: &Space,
        va: Va,
        access: Access,
        store: u64,
    ) -> Result<u64, FaultError> {
        for _ in 0..PATIENCE {
            let tried = match access {
                Access::Read => self.guard.load(va),
                Access::Write => self.guard.store(va, store).map(|()| store),
                Access::Exec => self.guard.fetch(va),
            };
            match tried {
                Ok(word) => return Ok(word),
                Err(_) => {
                    self.outcome.faults += 1;
                    self.shared.vm.fault(space, va, access)?;
                }
            }
        }
        self.fail(format!("{access:?} at {va:?} faults for ever"))
    }

    fn fail(&self, what: String) -> ! {
        panic!(
            "{what}; thread {}, operation {} of seed {}",
            self.me, self.outcome.operations, self.shared.plan.seed
        )
    }

    fn refused(&mut self) {
        self.outcome.refused += 1;
    }

    /// An object of this thread alone, mapped beside the ranges.
    fn play_alone(&mut self, op: Op) {
        let shared = self.shared;
        self.home();
        let access = |va, access, store| self.access(&shared.space, va, access, store);
        match alone::play(shared.vm, &shared.space, op, access) {
            Ok(true) => {}
            Ok(false) => self.refused(),
            Err(what) => self.fail(what),
        }
    }

    /// A block of frames, taken and given back.
    fn frame(&mut self) {
        let (m, frames) = (self.shared.vm.machine(), self.shared.vm.frames());
        let order = Order::new(self.rng.below(10) as u8).unwrap_or(Order::BASE);
        match frames.alloc(m, order, &AllocRequest::kernel(Use::Slab)) {
            // SAFETY: just taken, and mapped nowhere.
            Ok(first) => unsafe { frames.free(m, first, order) },
            Err(_) => self.refused(),
        }
    }

    fn rest(&mut self) {
        self.guard.yield_core();
    }

    /// Each takes a frame away for good, so few pages are.
    fn poison(&mut self) {
        if self.rng.once_in(16) {
            let slot = self.slot();
            let page = self.shared.arena.extent(slot).page(slot, self.other(slot));
            // What it says depends on what faults made; that no store is lost later looks will
            // tell.
            let _ = self.shared.vm.poison(&self.shared.space, Va(page << 12));
        }
    }

    /// For good, so not before the last round; forked spaces at any time.
    fn forbid(&mut self, last: bool) {
        if last && self.rng.once_in(20) {
            self.shared.vm.forbid_zeros(&self.shared.space);
        } else if let Some(child) = self.take_child() {
            self.shared.vm.forbid_zeros(&child.space);
            self.give_child(child);
        }
    }

    /// Leaves the space for a moment, or works in a forked one.
    fn switch(&mut self) {
        if self.rng.once_in(2) {
            return self.shared.vm.deactivate();
        }
        if let Some(child) = self.take_child() {
            self.work_in(child);
        }
    }
}
