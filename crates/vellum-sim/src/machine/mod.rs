//! The simulated machine as a value.
//!
//! [`SimMachine`] is what the library uses. It holds the topology, the bytes of simulated memory
//! and one `SimState`, reached through `own::Own`. Time, hardware and the oracle's rules are
//! methods of `SimState`, in the folders of this crate by topic. They never call the library and
//! never suspend. Suspending is done here and in [`schedule`](crate::schedule), between two visits
//! of the state.

mod build;
mod charge;
pub mod fills;
mod flush;
mod impl_machine;
pub mod lazy;
mod meta;
pub(crate) mod own;
pub mod parts;
pub mod ram;
mod root;
mod state;
mod watch;

use std::cell::Cell;

use corosensei::Yielder;
use vellum::machine::Topology;

use crate::cpu::Counters;
use crate::format::Format;
use crate::memory::Traffic;
use crate::oracle::{Bug, Stop};
use crate::schedule::Wait;
use own::Own;

pub use build::BuildError;
pub use meta::Meta;
pub(crate) use state::SimState;

/// How CPUs take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By their clocks: the CPU that is behind runs.
    #[default]
    Timing,
    /// By seed, at every machine call; MMUs speculate. For finding races.
    Hunting,
}

/// How TLB hits are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Check {
    /// By marks that entry stores leave on cached entries.
    #[default]
    Incremental,
    /// By a full walk at each hit, as well; contents are kept by line.
    Walk,
}

/// How a machine runs, apart from what it is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How CPUs take turns.
    pub mode: Mode,
    /// How hits are checked.
    pub check: Check,
    /// Lines that the kernel clears are counted and charged as if no cache held them, but not put
    /// through the caches one by one: tens of GiB in a second. What a clear drives out of the
    /// caches is then missing, so this is for footprints of that size alone.
    pub count_clears: bool,
    /// Cycles by which a CPU may run ahead of the next one before it gives way, in timing mode.
    pub quantum: u64,
    /// Frames of a device, behind those of the memory nodes: no node has them, and only programs
    /// access them, which takes as long as an access to memory.
    pub device_frames: u64,
    /// One request to the disk in so many fails, drawn by the seed; 0 for none.
    pub disk_fails: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            mode: Mode::Timing,
            check: Check::Incremental,
            quantum: 500,
            device_frames: 0,
            disk_fails: 0,
            count_clears: false,
        }
    }
}

/// A machine made of numbers. One OS thread may use it; several machines in several threads know
/// nothing of each other.
pub struct SimMachine<F: Format> {
    pub(crate) topology: Topology,
    pub(crate) state: Own<SimState<F>>,
    /// The coroutine that runs, null outside [`run`](SimMachine::run).
    pub(crate) yielder: Cell<*const Yielder<(), ()>>,
    /// What the coroutine that suspends itself waits for.
    pub(crate) wait: Cell<Option<Wait>>,
    /// The CPU whose code runs.
    pub(crate) current: Cell<usize>,
}

impl<F: Format> SimMachine<F> {
    /// Visits the state on behalf of the running code, then halts it if the run was stopped there.
    #[inline]
    pub(crate) fn act<R>(&self, f: impl FnOnce(&mut SimState<F>, usize) -> R) -> R {
        let c = self.current.get();
        let (r, stopped) = self.state.with(|s| {
            let r = f(s, c);
            (r, s.stop.is_some())
        });
        if stopped {
            self.halt();
        }
        r
    }

    /// The running code goes no further: a coroutine is suspended for good, other code panics with
    /// the report.
    #[cold]
    pub(crate) fn halt(&self) {
        while !self.yielder.get().is_null() {
            self.suspend();
        }
        let stop = self.state.with(|s| {
            s.dead = true;
            s.stop.take()
        });
        if let Some(stop) = stop {
            panic!("{stop}");
        }
    }

    /// The machine's CPUs, nodes and distances (also through [`vellum::machine::Machine`]).
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Counters of one CPU.
    pub fn counters(&self, cpu: usize) -> Counters {
        self.state.with(|s| Counters::of(s, cpu))
    }

    /// Counters of all CPUs together.
    pub fn total(&self) -> Counters {
        self.state.with(|s| {
            let mut all = Counters::of(s, 0);
            (1..s.cpus.len()).for_each(|c| all.add(&Counters::of(s, c)));
            all
        })
    }

    /// TLB hits that were checked.
    pub fn checked(&self) -> u64 {
        self.state.with(|s| s.cpus.iter().map(|c| c.counts.hits_checked).sum())
    }

    /// A CPU's clock, in cycles.
    pub fn clock(&self, cpu: usize) -> u64 {
        self.state.with(|s| s.cpus[cpu].core.now().cycles())
    }

    /// What a memory node has moved.
    pub fn traffic(&self, node: usize) -> Traffic {
        self.state.with(|s| s.memory.traffic(node))
    }

    /// Frames in a use now.
    pub fn frames_in(&self, used: vellum::machine::Use) -> u64 {
        self.state.with(|s| s.oracle.in_use[used as usize])
    }

    /// Most frames that were in a use at once.
    pub fn peak(&self, used: vellum::machine::Use) -> u64 {
        self.state.with(|s| s.oracle.peak[used as usize])
    }

    /// Plants a bug, for tests of the oracle. `None` takes it out.
    pub fn plant(&self, bug: Option<Bug>) {
        self.state.with(|s| s.bug = bug);
    }

    /// How often a planted bug had its chance.
    pub fn planted(&self) -> u64 {
        self.state.with(|s| s.planted)
    }

    /// Looks at the whole machine while nothing runs: frames in one state each and the sums right,
    /// map counts equal to the entries found in every tree that was loaded, zero frames zero, every
    /// cached translation legal. `unmapped`: data frames that no loaded tree may map (parked pages,
    /// spaces never loaded), `None` if unknown.
    pub fn audit(&self, unmapped: Option<u64>) -> Result<(), Stop> {
        self.state.with(|s| s.audit(unmapped.unwrap_or(u64::MAX)))
    }

    /// From here machine calls outside of [`run`](SimMachine::run) act as this CPU.
    pub fn act_as(&self, cpu: usize) {
        assert!(cpu < self.topology.cpus, "CPU {cpu} of {}", self.topology.cpus);
        self.current.set(cpu);
    }
}
