//! Building a machine from its parts.

use std::cell::Cell;

use vellum::addr::Pfn;
use vellum::machine::{MAX_CPUS, MAX_NODES, NodeInfo, Topology};

use super::own::Own;
use super::parts::Parts;
use super::ram::Ram;
use super::{Check, Mode, Options, SimMachine, SimState};
use crate::cache::{GeometryError, Hierarchy, Shape};
use crate::contents::Contents;
use crate::cpu::CpuState;
use crate::disk::Disk;
use crate::format::Format;
use crate::memory::{Memory, NestedTables, Ticks};
use crate::oracle::notes::Oracle;
use crate::schedule::{Earliest, Rng};

/// Why a machine cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The parts are for another entry format than the type's.
    #[error("this machine's entries are {0}, and it is built as {1}: choose the other type")]
    Format(String, &'static str),
    /// Too many CPUs or nodes, or none.
    #[error(
        "{0} CPUs in {1} memory nodes: at most {MAX_CPUS} and {MAX_NODES}, at least 1 of each, \
         can be simulated"
    )]
    Size(usize, usize),
    /// The parts contradict each other.
    #[error("{0}")]
    Parts(&'static str),
    /// A cache cannot be built.
    #[error("{0}")]
    Cache(#[from] GeometryError),
    /// The host has no address space left for simulated memory.
    #[error(
        "the host has no address space for {0} MiB of simulated memory: make the machine's memory \
         smaller"
    )]
    Host(u64),
}

impl<F: Format> SimMachine<F> {
    /// The machine a file describes, all memory zero, all frames free, no root loaded.
    pub fn new(file: &crate::file::Machine, options: Options) -> Result<SimMachine<F>, BuildError> {
        SimMachine::build(&Parts::of(file, options.seed), options)
    }

    /// A machine of these parts, all memory zero, all frames free, no root loaded.
    pub fn build(parts: &Parts, options: Options) -> Result<SimMachine<F>, BuildError> {
        if parts.format != F::NAME {
            return Err(BuildError::Format(parts.format.clone(), F::NAME));
        }
        let (cpus, memory) = (parts.caches.cpus, Memory::new(&parts.numa));
        if cpus == 0 || cpus > MAX_CPUS || memory.nodes() == 0 || memory.nodes() > MAX_NODES {
            return Err(BuildError::Size(cpus, memory.nodes()));
        }
        if parts.cpu_node.len() != cpus
            || parts.cpu_node.iter().any(|&n| usize::from(n) >= memory.nodes())
        {
            return Err(BuildError::Parts("each CPU needs one memory node that exists"));
        }
        if !(4..=5).contains(&parts.mmu.levels) {
            return Err(BuildError::Parts("page tables have 4 or 5 levels"));
        }
        if parts.nested.is_some_and(|n| !(4..=5).contains(&n.levels)) {
            return Err(BuildError::Parts("a hypervisor's page tables have 4 or 5 levels"));
        }
        if parts.prefetch.is_some_and(|p| p.streams == 0 || p.train == 0 || p.depth == 0) {
            return Err(BuildError::Parts("a prefetcher has streams, a train and a depth above 0"));
        }
        if parts.nested.is_some_and(|n| n.entries == 0 || n.ways == 0) {
            return Err(BuildError::Parts("nested translations have entries and ways above 0"));
        }
        let topology = topology(parts, &memory);
        let own = memory.frames();
        let frames = own + options.device_frames;
        let host = || BuildError::Host(frames >> 8);
        let nested = parts.nested.map(|n| NestedTables::new(frames, n.leaf(), n.levels));
        let own_lines = (frames * 64).max(parts.caches.lines);
        let lines = nested.map_or(own_lines, |tables| tables.end().max(own_lines));
        let caches = Hierarchy::new(&Shape { lines, ..parts.caches })?;
        let walk_check = options.check == Check::Walk;
        let state = SimState {
            cpus: (0..cpus).map(|c| CpuState::new(parts, c)).collect(),
            caches,
            memory,
            nested,
            ram: Ram::new(own, options.device_frames).ok_or_else(host)?,
            contents: Contents::new(frames, walk_check).ok_or_else(host)?,
            disk: Disk::new(parts.disk, options.disk_fails),
            oracle: Oracle::new((own, frames), cpus).ok_or_else(host)?,
            mmu: parts.mmu,
            costs: parts.costs.clone(),
            user_end: F::user_end(parts.mmu.levels),
            hunting: options.mode == Mode::Hunting,
            walk_check,
            count_clears: options.count_clears,
            quantum: Ticks::from_cycles(options.quantum),
            rng: Rng::new(options.seed),
            in_flight: Vec::new(),
            idle_rounds: 0,
            last_cpu: 0,
            live: Vec::new(),
            clocks: Earliest::default(),
            woken: 0,
            preemption: None,
            clock_hz: parts.clock_hz,
            fills: None,
            bug: None,
            planted: 0,
            stop: None,
            dead: false,
            seed: options.seed,
            format: core::marker::PhantomData,
        };
        Ok(SimMachine {
            topology,
            state: Own::new(state),
            yielder: Cell::new(core::ptr::null()),
            wait: Cell::new(None),
            current: Cell::new(0),
        })
    }
}

fn topology(parts: &Parts, memory: &Memory) -> Topology {
    let mut t = Topology::flat(parts.caches.cpus, Pfn(0), 0);
    t.nodes = memory.nodes();
    for n in 0..t.nodes {
        let range = memory.node(n);
        t.node[n] = NodeInfo { first: Pfn(range.first_frame), frames: range.frames };
    }
    for (cpu, &node) in parts.cpu_node.iter().enumerate() {
        t.cpu_node[cpu] = node;
    }
    // SLIT distances: 10 for a node's own latency, others in proportion. A node without CPUs has no
    // row of its own and takes the column of the nodes that see it.
    let latency = &parts.numa.latency;
    let at = |from: usize, to: usize| {
        latency.get(from).and_then(|row| row.get(to)).map(|t| t.0).filter(|&t| t > 0)
    };
    for from in 0..t.nodes {
        for to in 0..t.nodes {
            let own = at(from, from).or_else(|| at(to, to)).unwrap_or(1);
            let there = at(from, to).or_else(|| at(to, from)).unwrap_or(own);
            let scaled = (10 * there).div_ceil(own).clamp(11, 254) as u8;
            t.distance[from][to] = if from == to { 10 } else { scaled };
        }
    }
    t
}
