//! One thread: draws operations, does them on the objects and on their mappings, and compares with
//! what is known.
//!
//! `bytes` has loads, stores and copies, `objects` the verbs on objects, `verbs` changes mappings,
//! `forks` has the forked spaces.

mod bytes;
mod forks;
mod objects;
mod verbs;

use vellum::addr::{Order, Pfn, Va};
use vellum::entry::Codec;
use vellum::error::{FaultError, NoMemory};
use vellum::machine::Use;
use vellum::space::{Access, Space};
use vellum::unstable::AllocRequest;

use super::place::{Place, Spot, WINDOWS};
use super::state::{Outcome, Shared};
use crate::machine::CpuGuard;
use crate::rng::Rng;
use crate::stress::ops::{Op, TABLE};
use bytes::By;

pub use verbs::first_place;

/// Faults at one address without getting anywhere before that is an error.
const PATIENCE: u32 = 100_000;

/// A page that is made, mapped and taken out more often than others, and its window.
const HOT_PAGE: u64 = 3;
const HOT_WINDOW: usize = 5;

/// The thread.
pub struct Worker<'a, C: Codec> {
    shared: &'a Shared<'a, C>,
    guard: &'a CpuGuard<'a, C, true>,
    me: usize,
    rng: Rng,
    /// Which of the spaces that everybody works in it works in.
    at: usize,
    /// Stores tried.
    count: u64,
    /// Frames taken for themselves.
    blocks: Vec<(Pfn, Order)>,
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
        let (blocks, outcome) = (Vec::new(), Outcome::default());
        Worker { shared, guard, me, rng, at: 0, count: 0, blocks, outcome }
    }

    /// What it did.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// One operation.
    pub fn step(&mut self) {
        let op = self.op();
        match op {
            Op::Fork => self.fork(),
            Op::Exit => self.end_child(),
            Op::Switch => self.switch(),
            _ => self.step_in(op, &self.shared.places[self.at]),
        }
    }

    fn op(&mut self) -> Op {
        // By weight, or each alike often: the rare ones are those that meet.
        if self.rng.once_in(2) {
            TABLE[self.rng.below(TABLE.len() as u64) as usize].0
        } else {
            Op::draw(&mut self.rng)
        }
    }

    /// One operation in some space.
    fn step_in(&mut self, op: Op, place: &Place) {
        self.outcome.operations += 1;
        match op {
            Op::Map => self.map(place, false),
            Op::Replace | Op::MapObject => self.map(place, true),
            // No object here has a pager.
            Op::Sync | Op::Evict | Op::WriteBack | Op::Ahead | Op::Harvest => {
                self.play_alone(place);
            }
            Op::Grab => self.grab(),
            Op::MapAnywhere | Op::MapPrivate | Op::Seal | Op::MapDevice | Op::Block => {
                self.play_alone(place);
            }
            Op::Unmap => self.unmap(place),
            Op::Protect => self.protect(place),
            Op::Remap => self.relocate(place),
            Op::DontNeed => self.forget(place),
            Op::Huge => self.advise(place, false),
            Op::Populate => self.advise(place, true),
            Op::Touch => self.look(place, By::Program(Access::Read)),
            Op::Fetch => self.look(place, By::Program(Access::Exec)),
            Op::Write => self.store(place, By::Program(Access::Write)),
            Op::CopyIn => self.store(place, By::Kernel),
            Op::CopyOut => self.look(place, By::Kernel),
            Op::Force => self.store(place, By::Force),
            Op::Query => self.query(place),
            Op::Peek => self.look_around(place),
            Op::Frame => self.frame(),
            Op::Rest => self.guard.yield_core(),
            Op::Poison => self.poison(place),
            Op::ReadObject => self.read_object(),
            Op::WriteObject => self.write_object(),
            Op::Resize => self.resize(),
            Op::Punch => self.punch(),
            Op::Seek => self.seek(),
            Op::Shrink => {
                self.shared.vm.shrink_zeros();
            }
            // These are of the thread, or for good.
            Op::Fork | Op::Exit | Op::Switch | Op::Forbid => {}
        }
    }

    fn spot(&mut self) -> Spot {
        if self.rng.once_in(3) {
            return Spot { window: HOT_WINDOW, page: HOT_PAGE };
        }
        let window = self.rng.below(WINDOWS.len() as u64) as usize;
        Spot { window, page: self.rng.below(WINDOWS[window].run.pages) }
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

    fn fail_at(&self, place: &Place, spot: Spot, what: &str) -> ! {
        let (va, id) = (spot.va(), place.space.id());
        let seen = self.shared.vm.query(&place.space, va);
        self.fail(format!("{va:?} of space {id}, {spot:?}: {what}; the library says {seen:?}"))
    }

    fn refused(&mut self) {
        self.outcome.refused += 1;
    }

    /// Gives back the frames taken for themselves, which no space can account for.
    pub fn give_blocks(&mut self) {
        for (first, order) in std::mem::take(&mut self.blocks) {
            // SAFETY: the worker had the block, and mapped it nowhere.
            unsafe { self.shared.vm.frames().free(self.shared.vm.machine(), first, order) };
        }
    }

    /// Takes a block of frames, so that there are fewer, or gives some back.
    fn frame(&mut self) {
        let (m, frames) = (self.shared.vm.machine(), self.shared.vm.frames());
        if self.blocks.len() > 8 || self.rng.once_in(3) {
            return self.give_blocks();
        }
        let order = Order::new(self.rng.below(10) as u8).unwrap_or(Order::BASE);
        match frames.alloc(m, order, &AllocRequest::kernel(Use::Slab)) {
            Ok(first) => self.blocks.push((first, order)),
            Err(NoMemory) => self.refused(),
        }
    }
}
