//! The published tests as loops.

use vellum_sim::Parts;
use vellum_sim::cache::Policy;
use vellum_sim::file::Machine;

use super::shape::Shape;
use crate::error::LabError;
use crate::repro::bench::{Counted, MemoryAccess, REAL, Setting, ZERO, count};

/// Turns of test 2 as published, and of test 1.
pub const PUBLISHED_TURNS: [u64; 2] = [1_000_000, 8_000_000];
/// Turns counted here, after a quarter as many that are not.
pub const TURNS: u64 = 8_000;
/// Pages of the zero-backed area, unless L2 has more colours: then as many, so that a round of it
/// reads each.
const AREA: u64 = 64;

/// The replacement policies gone through, with their names.
pub const POLICIES: [(Policy, &str); 3] =
    [(Policy::Lru, "LRU"), (Policy::Plru, "tree-PLRU"), (Policy::Random, "random")];

/// What "read the zero-backed area once" may have meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// (i): one read a turn, a page further each time.
    Advancing,
    /// (ii): as many reads a turn as L2 has ways.
    Whole,
}

/// A run of the second test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroReads {
    /// Who leaves a full set of L1D and L2; `None`: as the machine has it.
    pub policy: Option<Policy>,
    /// The reading.
    pub reading: Reading,
    /// Frames of zeros.
    pub colours: u64,
    /// Pages from the start of a way at which the strided reads begin.
    pub align: u64,
    /// Loads whose addresses depend on the load before.
    pub dependent: bool,
    /// Turns counted.
    pub turns: u64,
    /// Seed.
    pub seed: u64,
}

impl ZeroReads {
    /// A quarter of the turns of loads that do not wait for each other, in the caches as the
    /// machine has them.
    pub fn glance(reading: Reading, (colours, align): (u64, u64), seed: u64) -> ZeroReads {
        let turns = TURNS / 4;
        ZeroReads { policy: None, reading, colours, align, dependent: false, turns, seed }
    }
}

fn parts(machine: &Machine, policy: Option<Policy>, seed: u64) -> Parts {
    let mut parts = Parts::of(machine, seed);
    if let Some(policy) = policy {
        (parts.caches.l1d.policy, parts.caches.l2.policy) = (policy, policy);
    }
    parts
}

fn setting(colours: u64, zero_pages: u64, turns: u64, seed: u64) -> Setting {
    let switches = vec![("zero.colours", colours.to_string())];
    Setting { huge_pages: 1, zero_pages, switches, turns: [turns / 4, turns], seed }
}

/// Test 1: a read at offset 0 of each of `frames` frames in a row. Per turn.
pub fn in_a_row(
    machine: &Machine,
    policy: Option<Policy>,
    frames: u64,
    dependent: bool,
    (turns, seed): (u64, u64),
) -> Result<Counted, LabError> {
    count(
        &parts(machine, policy, seed),
        &setting(1, 0, turns, seed),
        &|memory: &mut dyn MemoryAccess, _| {
            (0..frames).for_each(|n| memory.read(REAL + n * 4096, dependent));
        },
    )
}

/// Test 2: strided reads of real data, then of zeros. Per turn.
pub fn beside_zeros(
    machine: &Machine,
    shape: &Shape,
    run: &ZeroReads,
) -> Result<Counted, LabError> {
    let ZeroReads { align, dependent, .. } = *run;
    let (ways, stride) = (shape.l2_ways, shape.stride);
    let area = AREA.max(shape.colours[1]);
    let setting = setting(run.colours, area, run.turns, run.seed);
    count(
        &parts(machine, run.policy, run.seed),
        &setting,
        &|memory: &mut dyn MemoryAccess, turn| {
            (0..ways).for_each(|n| memory.read(REAL + align * 4096 + n * stride, dependent));
            match run.reading {
                Reading::Advancing => memory.read(ZERO + turn % area * 4096, dependent),
                Reading::Whole => (0..ways).for_each(|n| memory.read(ZERO + n * 4096, dependent)),
            }
        },
    )
}

/// Where the loops on this computer have their lists of addresses: in a set of the first level that
/// nothing else is in. Frames that stand for zero pages lie in the last of eight huge pages.
const LIST: u64 = REAL + (6 << 21) + 9 * 64;
const STANDS_FOR_ZERO: u64 = REAL + (7 << 21);

/// Reads what is at a place of a list, as a loop does that a compiler unrolled eight times: two
/// loads, and two more instructions every eighth time.
fn listed(memory: &mut dyn MemoryAccess, place: u64, va: u64) {
    memory.read(LIST + place * 8, false);
    memory.read(va, false);
    if place % 8 == 7 {
        memory.run(2);
    }
}

/// Test 1 as it is measured on this computer. Per turn.
pub fn in_listed_row(
    machine: &Machine,
    frames: u64,
    dependent: bool,
    (turns, seed): (u64, u64),
) -> Result<Counted, LabError> {
    let setting = Setting { huge_pages: 8, ..setting(1, 0, turns, seed) };
    count(&parts(machine, None, seed), &setting, &|memory: &mut dyn MemoryAccess, _| {
        for n in 0..frames {
            match dependent {
                true => memory.read(REAL + n * 4096, true),
                false => listed(memory, n, REAL + n * 4096),
            }
        }
    })
}

/// Test 2 as it is measured on this computer: frames of a huge page stand for zero pages. Per turn,
/// of a quarter of the turns.
pub fn beside_listed(
    machine: &Machine,
    shape: &Shape,
    reading: Reading,
    [colours, align]: [u64; 2],
    seed: u64,
) -> Result<Counted, LabError> {
    let ways = shape.l2_ways;
    let setting = Setting { huge_pages: 8, ..setting(1, 0, TURNS / 4, seed) };
    let zero = |n: u64| STANDS_FOR_ZERO + n % colours * 4096;
    count(&parts(machine, None, seed), &setting, &|memory: &mut dyn MemoryAccess, turn| {
        for n in 0..ways {
            listed(memory, n, REAL + (n * shape.stride + align * 4096) % (6 << 21));
        }
        match reading {
            Reading::Advancing => listed(memory, 64 + turn % 64, zero(turn)),
            Reading::Whole => (0..ways).for_each(|n| listed(memory, 64 + n, zero(n))),
        }
        // The loops of a turn, and the index of each zero.
        memory.run(6);
    })
}
