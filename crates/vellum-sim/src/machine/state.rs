//! The state of a simulated machine.
//!
//! Files of all folders implement rules as methods of [`SimState`]. The types of its fields do not
//! use it, so that this file depends on none of those rules.

use vellum::config::Preemption;

use super::fills::FillNote;
use super::parts::{Costs, Mmu};
use super::ram::Ram;
use crate::cache::Hierarchy;
use crate::contents::Contents;
use crate::cpu::CpuState;
use crate::disk::Disk;
use crate::format::Format;
use crate::memory::{Memory, NestedTables, Ticks};
use crate::mmu::in_flight::InFlight;
use crate::oracle::bug::Bug;
use crate::oracle::notes::Oracle;
use crate::oracle::stop::{Note, Rule, Stop};
use crate::schedule::{Earliest, Rng};

/// Everything that changes.
pub(crate) struct SimState<F: Format> {
    pub cpus: Vec<CpuState>,
    pub caches: Hierarchy,
    pub memory: Memory,
    /// The hypervisor's tables, if this machine is a guest.
    pub nested: Option<NestedTables>,
    pub ram: Ram,
    pub contents: Contents,
    pub disk: Disk,
    pub oracle: Oracle,
    pub mmu: Mmu,
    pub costs: Costs,
    pub user_end: u64,
    pub hunting: bool,
    pub walk_check: bool,
    pub count_clears: bool,
    pub quantum: Ticks,
    pub rng: Rng,
    pub in_flight: Vec<InFlight>,
    /// Rounds of waiting since anything else happened.
    pub idle_rounds: u64,
    pub last_cpu: usize,
    /// CPUs on which a coroutine is alive, in ascending order: large machines are mostly idle, and
    /// their CPUs far apart in memory.
    pub live: Vec<usize>,
    /// The clock of each of them at the end of its last turn.
    pub clocks: Earliest,
    /// One past the highest CPU that ever loaded a root.
    pub woken: usize,
    /// The kernel's preemption model, if anyone said.
    pub preemption: Option<Preemption>,
    pub clock_hz: u64,
    /// What long clears did, where that is watched.
    pub fills: Option<Vec<(u64, FillNote)>>,
    pub bug: Option<Bug>,
    pub planted: u64,
    pub stop: Option<Box<Stop>>,
    /// A stop was reported: what still comes is not checked.
    pub dead: bool,
    pub seed: u64,
    pub format: core::marker::PhantomData<F>,
}

impl<F: Format> SimState<F> {
    #[inline]
    pub(crate) fn note(&mut self, c: usize, note: Note) {
        self.oracle.ring.push(c, self.cpus[c].core.now(), note);
    }

    #[inline]
    pub(crate) fn note_fill(&mut self, c: usize, note: FillNote) {
        if let Some(fills) = &mut self.fills {
            fills.push((self.cpus[c].core.now().cycles(), note));
        }
    }

    /// Stops the run, unless it is stopped already.
    #[cold]
    pub(crate) fn fail(
        &mut self,
        c: usize,
        rule: Rule,
        va: Option<u64>,
        pfn: Option<u64>,
        explanation: String,
    ) {
        if self.stop.is_some() || self.dead {
            return;
        }
        let (clock, events) = (self.cpus[c].core.now().cycles(), self.oracle.ring.lines());
        self.stop = Some(Box::new(Stop {
            rule,
            cpu: c,
            va,
            pfn,
            explanation,
            clock,
            seed: self.seed,
            events,
        }));
    }
}
