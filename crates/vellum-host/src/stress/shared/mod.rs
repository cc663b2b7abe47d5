//! The stress of shared pages: every thread does every operation on the same few ranges of one
//! space.
//!
//! In [`stress`](super) each page has one owner, which knows its contents. Here no page has one:
//!
//! - [`arena`] has the ranges.
//! - [`word`] has the values: each names the thread that stored it and that thread's count of
//!   stores.
//! - [`expected`] records what threads do, and the rules that follow from it.
//! - [`history`] has the order of the stores, [`snapshot`] what a forked space must hold.
//! - [`worker`] is one thread. The operations are those of [`ops`](super::ops).
//!
//! After each round the threads meet and everything is recounted. Then the ranges become fresh
//! memory, so that first touches go on. The seed gives each thread's choices, not their
//! interleaving.

pub mod arena;
pub mod expected;
pub mod history;
pub mod snapshot;
mod state;
pub mod word;
pub mod worker;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum::entry::Codec;
use vellum::machine::Use;
use vellum::space::{Advice, Placement, Rights, Space};
use vellum::stats::Stats;

use super::meeting::{Meeting, lock, meet, watchdog};
use super::{Stress, free_and_cached};
use crate::host_vm::HostVm;
use crate::rng::Rng;
use arena::{Arena, Kind};
use expected::ExpectedState;
use worker::Worker;

pub use state::{Outcome, Shared};

/// Threads at most: each has an eighth of a page.
pub const MOST: usize = 8;

/// Runs it; what it did, and the library's counters at the end. Of the plan's spaces there is one.
///
/// # Errors
/// The machine could not be built.
///
/// # Panics
/// With the seed, if anything is wrong.
pub fn run<C: Codec>(plan: Stress) -> io::Result<(Outcome, Stats)> {
    let threads = plan.machine.cpus;
    assert!(threads <= MOST, "at most {MOST} threads");
    let host = HostVm::<C, true>::new(plan.machine, plan.config)?;
    let (vm, arena) = (&host.vm, Arena::new());
    let (before, space) = {
        let _cpu = vm.machine().bind(0);
        let before = free_and_cached(vm, &[]);
        let space = vm.create().map_err(io::Error::other)?;
        for extent in &arena.extents {
            let at = Placement::At(extent.run.start());
            let done = vm.map(&space, at, extent.run.bytes(), extent.attrs(Rights::READ_WRITE));
            done.map_err(|e| io::Error::other(e.to_string()))?;
        }
        (before, space)
    };
    let shared = Shared {
        vm,
        plan,
        space,
        expected: ExpectedState::new(&arena, threads),
        arena,
        children: Mutex::new(Vec::new()),
        meeting: Meeting::of(threads),
        moved: AtomicU64::new(0),
    };
    let over = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    let failed = std::thread::scope(|s| {
        let (shared, over) = (&shared, &over);
        s.spawn(move || watchdog(shared.vm, &shared.moved, over));
        let threads: Vec<_> = (0..threads).map(|me| s.spawn(move || thread(shared, me))).collect();
        let mut failed = None;
        for t in threads {
            match t.join() {
                Ok(part) => outcome.add(part),
                Err(panic) => failed = failed.or(Some(panic)),
            }
        }
        over.store(true, Ordering::Relaxed);
        failed
    });
    if let Some(panic) = failed {
        eprintln!("stress of shared pages failed; seed {}", plan.seed);
        std::panic::resume_unwind(panic);
    }
    let _cpu = vm.machine().bind(0);
    lock(&shared.children).drain(..).for_each(|child| vm.exit(child.space));
    vm.exit(shared.space);
    let after = free_and_cached(vm, &[]);
    assert_eq!(before, after, "frames were lost or made up; seed {}", plan.seed);
    let watch = vm.machine().watch();
    for left in [Use::Data, Use::Object, Use::Table, Use::Pending] {
        assert_eq!(
            watch.count(left),
            0,
            "{left:?} frames remain when every space is gone; seed {}",
            plan.seed
        );
    }
    Ok((outcome, vm.stats()))
}

fn thread<C: Codec>(shared: &Shared<'_, C>, me: usize) -> Outcome {
    let guard = shared.vm.machine().bind(me);
    let plan = &shared.plan;
    let rng = Rng::new(plan.seed ^ (me as u64 + 1) << 40);
    let mut worker = Worker::new(shared, &guard, me, rng);
    let rounds = plan.rounds.max(1);
    for round in 0..rounds {
        for _ in 0..plan.operations / rounds / plan.machine.cpus as u64 {
            worker.step(round + 1 == rounds);
            shared.moved.fetch_add(1, Ordering::Relaxed);
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
        if me == 0 {
            quiet(shared, round);
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
        worker.look_at_all();
        guard.park(|| meet(&shared.meeting, shared.vm));
        if me == 0 {
            freshen(shared, round);
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
    }
    shared.vm.deactivate();
    worker.outcome()
}

/// Recounts everything while nobody works.
fn quiet<C: Codec>(shared: &Shared<'_, C>, round: u64) {
    let children = lock(&shared.children);
    let all: Vec<&Space> =
        std::iter::once(&shared.space).chain(children.iter().map(|child| &child.space)).collect();
    // SAFETY: the other threads wait at the meeting.
    if let Err(e) = unsafe { shared.vm.validate(&all) } {
        panic!("validate after round {round}: {e}; seed {}", shared.plan.seed);
    }
}

/// Gives every second round fresh memory, while nobody works: never touched, readable and writable.
fn freshen<C: Codec>(shared: &Shared<'_, C>, round: u64) {
    for (n, extent) in shared.arena.extents.iter().enumerate() {
        if (round + n as u64) % 3 == 2 {
            continue;
        }
        let first = if shared.expected.is_away(n) { extent.other } else { extent.run.first };
        let run = super::owned_pages::Run { first, ..extent.run };
        let slots = || extent.slots();
        let grants: Vec<_> =
            slots().map(|slot| shared.expected.grant(slot, Rights::READ_WRITE)).collect();
        let wipes: Vec<_> = slots().map(|slot| shared.expected.wipe(slot)).collect();
        let forget = round.is_multiple_of(2) && extent.kind != Kind::Wiped;
        let done = if forget {
            let rights =
                shared.vm.protect(&shared.space, run.start(), run.bytes(), Rights::READ_WRITE);
            rights.and_then(|()| {
                shared.vm.advise(&shared.space, run.start(), run.bytes(), Advice::DontNeed)
            })
        } else {
            let at = Placement::Replace(run.start());
            shared
                .vm
                .map(&shared.space, at, run.bytes(), extent.attrs(Rights::READ_WRITE))
                .map(|_| ())
        };
        let done = done.is_ok();
        for ((slot, grant), wipe) in slots().zip(grants).zip(wipes) {
            shared.expected.granted(slot, grant, done);
            shared.expected.wipe_over(slot, wipe, done);
            if done && extent.keeps() {
                shared.expected.drop_slot(slot);
            }
        }
    }
}
