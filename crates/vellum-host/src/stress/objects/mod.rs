//! The stress of objects: every thread maps parts of the same two objects, in several spaces and at
//! several addresses, and does every operation on them.
//!
//! - [`contents`] has the words of the objects, each of which one thread stores to, and the rules
//!   of what a look may find. [`size`] has their sizes.
//! - [`place`] is a space with its windows, where it maps which part of an object.
//! - [`worker`] is one thread. The operations are those of [`ops`](super::ops).
//!
//! Words are stored through mappings, by the kernel's copies and by the object's own verbs, and
//! looked at in every other way, by every other thread. After each round the threads meet and
//! everything is recounted. The seed gives each thread's choices, not their interleaving.

pub mod contents;
pub mod place;
pub mod size;
mod state;
pub mod worker;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum::entry::Codec;
use vellum::machine::Use;

use vellum::space::Space;
use vellum::stats::{Counter, Stats};
use vellum::vm::{Object, Vm};

use super::meeting::{Meeting, lock, meet, watchdog};
use super::{Stress, free_and_cached};
use crate::host_vm::HostVm;
use crate::machine::Host;
use crate::rng::Rng;
use contents::{Contents, PAGE, PAGES};
use worker::Worker;

pub use state::{MOST, Outcome, Shared};

/// Runs it; what it did, and the library's counters at the end.
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
    let vm = &host.vm;
    let (before, objects, places) = {
        let _cpu = vm.machine().bind(0);
        let before = free_and_cached(vm, &[]);
        let objects = PAGES.map(|pages| vm.objects().create(pages * PAGE));
        let objects: Result<Vec<_>, _> = objects.into_iter().collect();
        let objects = objects.map_err(|e| io::Error::other(e.to_string()))?;
        let places = (0..plan.spaces.max(1)).map(|_| worker::first_place(vm, &objects));
        let places: Result<Vec<_>, _> = places.collect();
        (before, objects, places.map_err(io::Error::other)?)
    };
    let shared = Shared {
        vm,
        plan,
        objects,
        contents: Contents::new(threads),
        places,
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
        eprintln!("stress of objects failed; seed {}", plan.seed);
        std::panic::resume_unwind(panic);
    }
    let _cpu = vm.machine().bind(0);
    let Shared { objects, places, children, .. } = shared;
    let places = places.into_iter().chain(children.into_inner().unwrap_or_default());
    end(vm, plan, objects, places.map(|place| place.space).collect());
    let after = free_and_cached(vm, &[]);
    assert_eq!(before, after, "frames were lost or made up; seed {}", plan.seed);
    Ok((outcome, vm.stats()))
}

/// Ends everything, handles or spaces first, and looks whether anything is left.
fn end<C: Codec>(
    vm: &Vm<Host<C, true>>,
    plan: Stress,
    objects: Vec<Object>,
    mut spaces: Vec<Space>,
) {
    let kept = if plan.seed.is_multiple_of(2) { Vec::new() } else { std::mem::take(&mut spaces) };
    spaces.into_iter().for_each(|space| vm.exit(space));
    objects.into_iter().for_each(|object| vm.objects().discard(object));
    kept.into_iter().for_each(|space| vm.exit(space));
    let watch = vm.machine().watch();
    for left in [Use::Data, Use::Object, Use::Table, Use::Pending] {
        let count = watch.count(left);
        assert_eq!(count, 0, "{left:?} frames remain at the end; seed {}", plan.seed);
    }
    for left in [Counter::ShmemPages, Counter::Mapped, Counter::ObjectNodes] {
        let count = vm.stats().get(left);
        assert_eq!(count, 0, "{} at the end; seed {}", left.name(), plan.seed);
    }
}

fn thread<C: Codec>(shared: &Shared<'_, C>, me: usize) -> Outcome {
    let guard = shared.vm.machine().bind(me);
    let plan = &shared.plan;
    let rng = Rng::new(plan.seed ^ (me as u64 + 1) << 40);
    let mut worker = Worker::new(shared, &guard, me, rng);
    let rounds = plan.rounds.max(1);
    for round in 0..rounds {
        for _ in 0..plan.operations / rounds / plan.machine.cpus as u64 {
            worker.step();
            shared.moved.fetch_add(1, Ordering::Relaxed);
        }
        worker.give_blocks();
        guard.park(|| meet(&shared.meeting, shared.vm));
        if me == 0 {
            quiet(shared, round);
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
        worker.look_at_all();
        guard.park(|| meet(&shared.meeting, shared.vm));
    }
    shared.vm.deactivate();
    worker.outcome()
}

/// Recounts everything while nobody works.
fn quiet<C: Codec>(shared: &Shared<'_, C>, round: u64) {
    let children = lock(&shared.children);
    let all: Vec<&Space> =
        shared.places.iter().chain(children.iter()).map(|place| &place.space).collect();
    // SAFETY: the other threads wait at the meeting.
    if let Err(e) = unsafe { shared.vm.validate(&all) } {
        panic!("validate after round {round}: {e}; seed {}", shared.plan.seed);
    }
}
