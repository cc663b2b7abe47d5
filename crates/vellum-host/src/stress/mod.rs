//! The concurrent stress test: several threads, shared and private spaces, every operation,
//! contents checked all the time.
//!
//! [`ops`] says what is done and how often, [`lane`] what a thread owns and therefore knows
//! exactly, [`board`] tells it to the others, [`worker`] does it and checks, [`variants`] are the
//! machines it is run on. The sequential sister, which shrinks what fails, is `vellum-proof`. After
//! each round all CPUs meet, parked, and one of them recounts everything with `Vm::validate`. At
//! the end every space is gone and the free frames are what they were.
//!
//! A run is named by its seed: each thread's operations follow from it, the interleaving does not,
//! since real cores do as they like; a seed that fails usually fails again within a few runs.
//! Thread-exact replay is the simulator's business.

pub mod board;
pub mod lane;
pub mod ops;
pub mod shared;
pub mod variants;
pub mod worker;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use vellum::config::Config;
use vellum::entry::Codec;
use vellum::machine::{Machine, MmuRules, Use};
use vellum::space::Space;
use vellum::stats::Stats;
use vellum::vm::Vm;

use crate::machine::{Host, Plan};
use crate::memory::Memory;
use crate::mmu::buffer::Shape;
use crate::rng::Rng;
use board::Board;
use lane::Window;
use worker::{Child, Worker};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    /// The machine. Its CPUs are the threads.
    pub machine: Plan,
    /// The library's switches.
    pub config: Config,
    /// Spaces every thread shares. 1 and up.
    pub spaces: usize,
    /// Times the CPUs meet for a recount.
    pub rounds: u64,
    /// Operations of all threads together.
    pub operations: u64,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

impl Stress {
    /// A few seconds' worth on a small machine.
    pub fn short(seed: u64) -> Stress {
        let machine = Plan {
            stir: 500,
            seed,
            tlb: Shape::USUAL,
            rules: MmuRules::X86_64,
            huge: false,
            scribble: true,
            ..Plan::new(3, 160 << 20)
        };
        Stress {
            machine,
            config: Config::default(),
            spaces: 2,
            rounds: 4,
            operations: 120_000,
            seed,
        }
    }
}

/// What a run did. Printed, so that "nothing failed" can be told from "nothing happened".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations done.
    pub operations: u64,
    /// Words whose value was compared with what it had to be.
    pub compared: u64,
    /// Faults handed to the library.
    pub faults: u64,
    /// Words of other threads that were looked at.
    pub peeked: u64,
    /// Pages of other threads compared with what their owner had published.
    pub stood: u64,
    /// Forks.
    pub forks: u64,
    /// Verbs the library refused for want of memory.
    pub refused: u64,
}

impl Outcome {
    /// Both together.
    pub fn add(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.compared += other.compared;
        self.faults += other.faults;
        self.peeked += other.peeked;
        self.stood += other.stood;
        self.forks += other.forks;
        self.refused += other.refused;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} words compared, {} of others looked at ({} exactly), {} faults, {} \
             forks, {} refused for memory",
            self.operations,
            self.compared,
            self.peeked,
            self.stood,
            self.faults,
            self.forks,
            self.refused
        )
    }
}

/// A `Vm` on a host machine, with the memory it lives in.
pub struct HostVm<C: Codec, const WATCH: bool> {
    /// The subsystem.
    pub vm: Vm<Host<C, WATCH>>,
    /// What `vm` lives in; it goes last.
    metadata: Memory,
}

impl<C: Codec, const WATCH: bool> HostVm<C, WATCH> {
    /// Builds the machine and the subsystem on it.
    ///
    /// # Errors
    /// A plan that makes no machine, switches the machine cannot follow, or memory the system
    /// refuses.
    pub fn new(plan: Plan, config: Config) -> io::Result<Self> {
        let machine = Host::new(plan)?;
        // On huge pages, whatever the plan says of the frames: it is read all the time.
        let metadata = Memory::new(Vm::<Host<C, WATCH>>::layout(machine.topology()).size(), true)?;
        // SAFETY: zeroed, long enough, aligned to 2 MiB, and it outlives the value beside it.
        let vm = unsafe { Vm::new(machine, config, metadata.base()) };
        let vm = vm.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
        Ok(HostVm { vm, metadata })
    }
    /// Touches all memory and all metadata, so that nothing measured afterwards contains a fault of
    /// the host.
    pub fn warm(&self) {
        self.metadata.warm();
        self.vm.machine().memory().warm();
    }
    /// What `vm` lives in.
    pub fn metadata(&self) -> &Memory {
        &self.metadata
    }
}

/// What the threads of a run share.
pub struct Shared<'a, C: Codec> {
    /// The subsystem.
    pub vm: &'a Vm<Host<C, true>>,
    /// The run.
    pub plan: Stress,
    /// The spaces everybody works in.
    pub spaces: Vec<Space>,
    /// What each shared space's pages hold, by their owners.
    pub boards: Vec<Board>,
    /// Each thread's forks. Locked by its thread while it works, by the leader at a recount.
    pub children: Vec<Mutex<Vec<Child>>>,
    meeting: Meeting,
    /// Moves with every operation: the watchdog looks at it.
    pub moved: AtomicU64,
}

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
    let lanes = plan.machine.cpus;
    let (before, spaces) = {
        let _cpu = vm.machine().sit(0);
        let before = free_and_kept(vm, &[]);
        let spaces: Result<Vec<Space>, _> = (0..plan.spaces.max(1)).map(|_| vm.create()).collect();
        (before, spaces.map_err(io::Error::other)?)
    };
    let shared = Shared {
        vm,
        plan,
        boards: spaces.iter().map(|_| Board::new(Window { lanes: lanes as u64 })).collect(),
        spaces,
        children: (0..lanes).map(|_| Mutex::new(Vec::new())).collect(),
        meeting: Meeting::of(lanes),
        moved: AtomicU64::new(0),
    };
    let over = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    let failed = std::thread::scope(|s| {
        let (shared, over) = (&shared, &over);
        s.spawn(move || watchdog(shared.vm, &shared.moved, over));
        let threads: Vec<_> =
            (0..lanes).map(|lane| s.spawn(move || thread(shared, lane))).collect();
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
        eprintln!(
            "stress failed; seed {}: set VELLUM_STRESS_SEED={} to run it again",
            plan.seed, plan.seed
        );
        std::panic::resume_unwind(panic);
    }
    let _cpu = vm.machine().sit(0);
    for space in shared.spaces {
        vm.exit(space);
    }
    let after = free_and_kept(vm, &[]);
    assert_eq!(before, after, "frames were lost or made up; seed {}", plan.seed);
    let watch = vm.machine().watch();
    for left in [Use::Data, Use::Table, Use::Pending] {
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
fn free_and_kept<C: Codec>(vm: &Vm<Host<C, true>>, spaces: &[&Space]) -> u64 {
    // SAFETY: no worker runs yet, or any more.
    let audit = unsafe { vm.validate(spaces) }.unwrap_or_else(|e| panic!("validate: {e}"));
    audit.free_frames + audit.slab_frames + audit.zero_frames + audit.poisoned_frames
}

fn thread<C: Codec>(shared: &Shared<'_, C>, lane: usize) -> Outcome {
    let seat = shared.vm.machine().sit(lane);
    let plan = &shared.plan;
    let window = Window { lanes: plan.machine.cpus as u64 };
    let rng = Rng::new(plan.seed ^ (lane as u64 + 1) << 40);
    let mut worker = Worker::new(shared, &seat, window, lane, rng);
    let each = plan.operations / plan.rounds.max(1) / plan.machine.cpus as u64;
    for _ in 0..plan.rounds.max(1) {
        {
            let mut children = seat.park(|| lock(&shared.children[lane]));
            for _ in 0..each {
                worker.step(&mut children);
                shared.moved.fetch_add(1, Ordering::Relaxed);
            }
            worker.give_blocks();
        }
        seat.park(|| meet(&shared.meeting, shared.vm));
        if lane == 0 {
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
        seat.park(|| meet(&shared.meeting, shared.vm));
    }
    let mut children = lock(&shared.children[lane]);
    worker.finish(&mut children);
    shared.vm.idle();
    worker.outcome()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier that gives up when another thread has panicked.
struct Meeting {
    threads: usize,
    arrived: Mutex<usize>,
    moved: Condvar,
}

impl Meeting {
    fn of(threads: usize) -> Meeting {
        Meeting { threads, arrived: Mutex::new(0), moved: Condvar::new() }
    }
}

fn meet<C: Codec>(meeting: &Meeting, vm: &Vm<Host<C, true>>) {
    let mut arrived = lock(&meeting.arrived);
    *arrived += 1;
    let all = arrived.next_multiple_of(meeting.threads);
    meeting.moved.notify_all();
    while *arrived < all {
        let waited = meeting.moved.wait_timeout(arrived, Duration::from_millis(20));
        arrived = waited.unwrap_or_else(PoisonError::into_inner).0;
        assert!(!vm.machine().is_poisoned(), "another thread failed, so there is nobody to meet");
    }
}

/// If nothing moves for five minutes, something waits for ever: the waits are told to give up,
/// which names the place.
fn watchdog<C: Codec>(vm: &Vm<Host<C, true>>, moved: &AtomicU64, over: &AtomicBool) {
    let mut last = (0, 0);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        let now = moved.load(Ordering::Relaxed);
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        if last.1 > 15_000 {
            vm.machine().poison();
        }
    }
}
