//! The machines and switches that the concurrent stress runs on: one list for its tests and for
//! long runs.

use std::io;
use vellum::machine::MmuRules;

use vellum::config::{Config, NumaPolicy, Thp, ZeroHuge};
use vellum::entry::{Aarch64, X86_64};
use vellum::stats::Stats;

use super::{Outcome, Stress, objects, run, shared};
use crate::machine::{Plan, X86_PCID};
use crate::mmu::buffer::Shape;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// What it is called.
    pub name: &'static str,
    arm: bool,
    change: fn(&mut Stress),
}

/// All of them.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "x86", arm: false, change: |_| {} },
    Variant { name: "x86 with contexts", arm: false, change: |s| s.machine.rules = X86_PCID },
    Variant { name: "aarch64", arm: true, change: |s| s.machine.rules = MmuRules::AARCH64 },
    Variant {
        name: "8 CPUs, tiny TLBs",
        arm: false,
        change: |s| s.machine = Plan { cpus: 8, tlb: Shape::TINY, ..s.machine },
    },
    Variant {
        name: "little memory",
        arm: false,
        change: |s| {
            s.machine.bytes = 12 << 20;
            s.spaces = 1;
        },
    },
    Variant {
        name: "thp=never zero.page=off tlb.batch=off",
        arm: false,
        change: |s| {
            s.config =
                Config { thp: Thp::Never, zero_page: false, tlb_batch: false, ..Config::default() }
        },
    },
    Variant { name: "zero.huge=off", arm: false, change: |s| s.config.zero_huge = ZeroHuge::Off },
    Variant {
        name: "zero.huge=table",
        arm: true,
        change: |s| (s.machine.rules, s.config.zero_huge) = (MmuRules::AARCH64, ZeroHuge::Table),
    },
    Variant {
        name: "zero.huge=table-private",
        arm: false,
        change: |s| s.config.zero_huge = ZeroHuge::TablePrivate,
    },
    Variant {
        name: "five levels, four nodes",
        arm: false,
        change: |s| {
            s.machine.rules.levels = 5;
            s.machine.nodes = 4;
            s.config.numa = NumaPolicy::Interleave;
        },
    },
];

impl Variant {
    /// Runs it; `operations` `None` is a few seconds' worth.
    ///
    /// # Errors
    /// The machine could not be built.
    ///
    /// # Panics
    /// With the seed, if anything is wrong.
    pub fn run(&self, seed: u64, operations: Option<u64>) -> io::Result<(Outcome, Stats)> {
        let mut stress = Stress::short(seed);
        (self.change)(&mut stress);
        if let Some(operations) = operations {
            stress.operations = operations;
            stress.rounds = (operations / 50_000).max(stress.rounds);
        }
        if self.arm { run::<Aarch64>(stress) } else { run::<X86_64>(stress) }
    }

    /// Runs the stress of shared pages on it.
    ///
    /// # Errors
    /// The machine could not be built.
    ///
    /// # Panics
    /// With the seed, if anything is wrong.
    pub fn run_shared(&self, seed: u64, operations: u64) -> io::Result<(shared::Outcome, Stats)> {
        let mut stress = self.close(seed, shared::MOST);
        // Ranges of huge pages, and forks of them, take more than the other test.
        stress.machine.bytes = stress.machine.bytes.max(32 << 20);
        (stress.operations, stress.rounds) = (operations, (operations / 8000).max(2));
        if self.arm { shared::run::<Aarch64>(stress) } else { shared::run::<X86_64>(stress) }
    }

    /// Runs the stress of objects on it.
    ///
    /// # Errors
    /// The machine could not be built.
    ///
    /// # Panics
    /// With the seed, if anything is wrong.
    pub fn run_objects(&self, seed: u64, operations: u64) -> io::Result<(objects::Outcome, Stats)> {
        let mut stress = self.close(seed, objects::MOST);
        // Who finds a page and maps it a moment later meets who takes the page out only if
        // something holds it up in between.
        if !seed.is_multiple_of(2) {
            stress.machine.jitter = 300;
        }
        (stress.operations, stress.rounds) = (operations, (operations / 8000).max(2));
        if self.arm { objects::run::<Aarch64>(stress) } else { objects::run::<X86_64>(stress) }
    }

    /// For threads that meet on every page.
    fn close(&self, seed: u64, most: usize) -> Stress {
        let mut stress = Stress::short(seed);
        stress.machine.cpus = 4;
        // Such threads vary the schedule by themselves; what yields on a busy host waits for long.
        stress.machine.jitter = 5000;
        // Usually as many run as there are cores, now and then all of them: flushes then wait for
        // the host.
        stress.machine.running = seed.is_multiple_of(4).then_some(most);
        (self.change)(&mut stress);
        stress
    }
}
