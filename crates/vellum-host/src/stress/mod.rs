//! The concurrent stress test: several threads, shared and private spaces, every operation, and
//! contents compared all the time.
//!
//! - [`ops`]: the operations and how often each is drawn.
//! - [`owned_pages`]: the pages that one thread owns and therefore knows exactly.
//! - [`published`]: the same, published for other threads.
//! - [`worker`]: one thread, which operates and compares.
//! - [`variants`]: the machines it runs on.
//! - [`shared`]: the same for pages that all threads change.
//! - [`objects`]: the same for objects that several spaces map.
//!
//! After each round all CPUs park, and one recounts everything with `Vm::validate`. At the end
//! every space is gone, and as many frames are free as before.
//!
//! A run is named by its seed. The seed fixes each thread's operations but not their interleaving;
//! a seed that fails usually fails again within a few runs. The simulator replays exactly, and
//! `vellum-proof` shortens sequential runs that fail.

mod alone;
mod meeting;
pub mod objects;
pub mod ops;
pub mod owned_pages;
pub mod published;
pub mod shared;
mod state;
pub mod variants;
pub mod worker;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum::entry::Codec;
use vellum::machine::Use;
use vellum::space::Space;
use vellum::stats::Stats;
use vellum::vm::Vm;

use crate::host_vm::HostVm;
use crate::machine::Host;
use crate::rng::Rng;
use meeting::{Meeting, lock, meet, watchdog};
use owned_pages::Window;
use published::PublishedState;
use worker::Worker;

pub use state::{Child, Outcome, Shared, Stress};

/// Runs it; what it did, and the library's counters at the end.
///
/// # Errors
/// The machine could not be built.
///
/// # Panics
/// With the seed, if anything is wrong.
pub fn run<C: Codec>(plan: Stress) -> io::Result<(Outcome, Stats)> {
    let host = HostVm::<C, true>::new(plan.machine, plan.config)?;
    let vm = &host.vm;
    let threads = plan.machine.cpus;
    let (before, spaces) = {
        let _cpu = vm.machine().bind(0);
        let before = free_and_cached(vm, &[]);
        let spaces: Result<Vec<Space>, _> = (0..plan.spaces.max(1)).map(|_| vm.create()).collect();
        (before, spaces.map_err(io::Error::other)?)
    };
    let shared = Shared {
        vm,
        plan,
        published: spaces
            .iter()
            .map(|_| PublishedState::new(Window { threads: threads as u64 }))
            .collect(),
        spaces,
        children: (0..threads).map(|_| Mutex::new(Vec::new())).collect(),
        meeting: Meeting::of(threads),
        moved: AtomicU64::new(0),
    };
    let over = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    let failed = std::thread::scope(|s| {
        let (shared, over) = (&shared, &over);
        s.spawn(move || watchdog(shared.vm, &shared.moved, over));
        let running: Vec<_> = (0..threads).map(|me| s.spawn(move || thread(shared, me))).collect();
        let mut failed = None;
        for t in running {
            match t.join() {
                Ok(part) => outcome.add(part),
                Err(panic) => failed = failed.or(Some(panic)),
            }
        }
        over.store(true, Ordering::Relaxed);
        failed
    });
    if let Some(panic) = failed {
        eprintln!(
            "stress failed; seed {}: set VELLUM_STRESS_SEED={} to run it again",
            plan.seed, plan.seed
        );
        std::panic::resume_unwind(panic);
    }
    let _cpu = vm.machine().bind(0);
    for space in shared.spaces {
        vm.exit(space);
    }
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

/// Frames that are free, or kept for good or for later: what must not change over a run.
fn free_and_cached<C: Codec>(vm: &Vm<Host<C, true>>, spaces: &[&Space]) -> u64 {
    // SAFETY: no worker runs yet, or any more.
    let audit = unsafe { vm.validate(spaces) }.unwrap_or_else(|e| panic!("validate: {e}"));
    audit.free_frames + audit.slab_frames + audit.zero_frames + audit.poisoned_frames
}

fn thread<C: Codec>(shared: &Shared<'_, C>, me: usize) -> Outcome {
    let guard = shared.vm.machine().bind(me);
    let plan = &shared.plan;
    let window = Window { threads: plan.machine.cpus as u64 };
    let rng = Rng::new(plan.seed ^ (me as u64 + 1) << 40);
    let mut worker = Worker::new(shared, &guard, window, me, rng);
    let each = plan.operations / plan.rounds.max(1) / plan.machine.cpus as u64;
    for _ in 0..plan.rounds.max(1) {
        {
            let mut children = guard.park(|| lock(&shared.children[me]));
            for _ in 0..each {
                worker.step(&mut children);
                shared.moved.fetch_add(1, Ordering::Relaxed);
            }
            worker.give_blocks();
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
        if me == 0 {
            let children: Vec<_> = shared.children.iter().map(lock).collect();
            let all: Vec<&Space> = shared
                .spaces
                .iter()
                .chain(children.iter().flat_map(|c| c.iter().map(|c| &c.space)))
                .collect();
            // SAFETY: the other workers wait at the meeting.
            if let Err(e) = unsafe { shared.vm.validate(&all) } {
                panic!("validate at a quiescent point: {e}; seed {}", plan.seed);
            }
        }
        guard.park(|| meet(&shared.meeting, shared.vm));
    }
    let mut children = lock(&shared.children[me]);
    worker.finish(&mut children);
    shared.vm.deactivate();
    worker.outcome()
}
