//! What the threads share, and what a run did.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use vellum::entry::Codec;

use vellum::vm::{Object, Vm};

use super::contents::Contents;
use super::place::Place;
use crate::machine::Host;
use crate::stress::meeting::Meeting;
use crate::stress::state::Stress;

/// Threads at most: each has an eighth of a page.
pub const MOST: usize = 8;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations done.
    pub operations: u64,
    /// Stores that were made.
    pub stores: u64,
    /// Words read and held against the rules.
    pub looks: u64,
    /// Stores found where nothing else could have been there.
    pub kept: u64,
    /// Zeros found where nothing else could have been there.
    pub zeros: u64,
    /// Accesses refused past an object's end.
    pub beyond: u64,
    /// Accesses refused by the rights, or because nothing was mapped.
    pub denied: u64,
    /// Faults handed to the library.
    pub faults: u64,
    /// Changes of a size.
    pub resizes: u64,
    /// Holes made.
    pub holes: u64,
    /// Objects of one thread alone, from first to last.
    pub own: u64,
    /// Forks.
    pub forks: u64,
    /// What the library refused for want of memory.
    pub refused: u64,
}

impl Outcome {
    /// Both together.
    pub fn add(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.stores += other.stores;
        self.looks += other.looks;
        self.kept += other.kept;
        self.zeros += other.zeros;
        self.beyond += other.beyond;
        self.denied += other.denied;
        self.faults += other.faults;
        self.resizes += other.resizes;
        self.holes += other.holes;
        self.own += other.own;
        self.forks += other.forks;
        self.refused += other.refused;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} stores, {} words looked at ({} stores and {} zeros exactly), {} \
             accesses past an end, {} denied, {} faults, {} sizes, {} holes, {} objects of one \
             thread, {} forks, {} refused for memory",
            self.operations,
            self.stores,
            self.looks,
            self.kept,
            self.zeros,
            self.beyond,
            self.denied,
            self.faults,
            self.resizes,
            self.holes,
            self.own,
            self.forks,
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
    /// The objects.
    pub objects: Vec<Object>,
    /// What is known of what is in them.
    pub contents: Contents,
    /// The spaces everybody works in.
    pub places: Vec<Place>,
    /// Forked spaces that nobody holds.
    pub children: Mutex<Vec<Place>>,
    pub(super) meeting: Meeting,
    pub(super) moved: AtomicU64,
}
