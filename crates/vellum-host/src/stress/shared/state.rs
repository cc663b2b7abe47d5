//! What the threads share, and what a run did.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use vellum::entry::Codec;
use vellum::space::Space;
use vellum::vm::Vm;

use super::arena::Arena;
use super::expected::ExpectedState;
use super::snapshot::Child;
use crate::machine::Host;
use crate::stress::meeting::Meeting;
use crate::stress::state::Stress;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations done.
    pub operations: u64,
    /// Stores that were made.
    pub stores: u64,
    /// Words read and held against the rules.
    pub looks: u64,
    /// Accesses refused by the rights, or because nothing was mapped.
    pub denied: u64,
    /// Faults handed to the library.
    pub faults: u64,
    /// Wipes.
    pub wipes: u64,
    /// Forks.
    pub forks: u64,
    /// Stores beside a fork that its child was checked for.
    pub beside: u64,
    /// What the library refused for want of memory.
    pub refused: u64,
}

impl Outcome {
    /// Both together.
    pub fn add(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.stores += other.stores;
        self.looks += other.looks;
        self.denied += other.denied;
        self.faults += other.faults;
        self.wipes += other.wipes;
        self.forks += other.forks;
        self.beside += other.beside;
        self.refused += other.refused;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} stores, {} words looked at, {} accesses denied, {} faults, {} \
             wipes, {} forks beside {} stores, {} refused for memory",
            self.operations,
            self.stores,
            self.looks,
            self.denied,
            self.faults,
            self.wipes,
            self.forks,
            self.beside,
            self.refused
        )
    }
}

/// What the threads share.
pub struct Shared<'a, C: Codec> {
    /// The subsystem.
    pub vm: &'a Vm<Host<C, true>>,
    /// The run.
    pub plan: Stress,
    /// The space everybody works in.
    pub space: Space,
    /// Its ranges.
    pub arena: Arena,
    /// What is known of them.
    pub expected: ExpectedState,
    /// Forked spaces that nobody holds.
    pub children: Mutex<Vec<Child>>,
    pub(super) meeting: Meeting,
    pub(super) moved: AtomicU64,
}
