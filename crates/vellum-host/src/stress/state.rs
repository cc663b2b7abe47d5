//! What a run is, what its threads share, and what comes of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use vellum::addr::Va;
use vellum::config::Config;
use vellum::entry::Codec;
use vellum::machine::MmuRules;
use vellum::space::Space;
use vellum::vm::Vm;

use super::meeting::Meeting;
use super::owned_pages::OwnedPages;
use super::published::PublishedState;
use crate::machine::{Host, Plan};
use crate::mmu::buffer::Shape;

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
            jitter: 500,
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

/// What the threads of a run share.
pub struct Shared<'a, C: Codec> {
    /// The subsystem.
    pub vm: &'a Vm<Host<C, true>>,
    /// The run.
    pub plan: Stress,
    /// The spaces everybody works in.
    pub spaces: Vec<Space>,
    /// What each shared space's pages hold, by their owners.
    pub published: Vec<PublishedState>,
    /// Each thread's forks. Locked by its thread while it works, by the leader at a recount.
    pub children: Vec<Mutex<Vec<Child>>>,
    pub(super) meeting: Meeting,
    /// Moves with every operation: the watchdog looks at it.
    pub moved: AtomicU64,
}

/// A space of one thread's own, made by fork.
#[derive(Debug)]
pub struct Child {
    /// The space.
    pub space: Space,
    /// The pages of it that its thread owns.
    pub(super) owned: OwnedPages,
    /// Words of other owners when first seen: nobody works there any more, so they stay.
    pub(super) frozen: BTreeMap<Va, Option<u64>>,
}
