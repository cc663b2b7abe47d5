//! Counters as users see them: names and numbers, in a fixed order.
//!
//! Time is kept in ticks and shown in cycles, rounded so that the cycles of the accounts still add
//! up to the clock exactly.

use super::price::{self, PRICES, Price};
use super::{ACCOUNTS, Account, Counts, CpuState};
use crate::cache::{Agent, CpuCounters, Level, Structure};
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::{Ticks, Waits};

const COUNTS: usize = 28;
const CACHES: usize = 24;

const NAMES: [&str; COUNTS + CACHES + ACCOUNTS + 1] = [
    "instructions",
    "loads",
    "stores",
    "fetches",
    "hits_checked",
    "dtlb_l1_misses",
    "itlb_l1_misses",
    "stlb_hits",
    "walks_data",
    "walks_fetch",
    "walk_steps",
    "walk_cycles",
    "nested_steps",
    "page_faults",
    "dirty_assists",
    "speculative_walks",
    "ipi_sent",
    "ipi_received",
    "broadcasts",
    "flush_page",
    "flush_range",
    "flush_space",
    "flush_all",
    "root_loads",
    "lines_cleared",
    "lines_copied",
    "prefetches",
    "prefetch_hits",
    "l1d_demand_access",
    "l1d_demand_miss",
    "l1d_walk_access",
    "l1d_walk_miss",
    "l1d_kernel_access",
    "l1d_kernel_miss",
    "l1i_demand_access",
    "l1i_demand_miss",
    "l1i_walk_access",
    "l1i_walk_miss",
    "l1i_kernel_access",
    "l1i_kernel_miss",
    "l2_demand_access",
    "l2_demand_miss",
    "l2_walk_access",
    "l2_walk_miss",
    "l2_kernel_access",
    "l2_kernel_miss",
    "llc_demand_access",
    "llc_demand_miss",
    "llc_walk_access",
    "llc_walk_miss",
    "llc_kernel_access",
    "llc_kernel_miss",
    "cycles_program",
    "cycles_stlb",
    "cycles_walk",
    "cycles_fault",
    "cycles_clear",
    "cycles_flush",
    "cycles_call",
    "cycles_idle",
    "cycles_io",
    "cycles",
];

/// A reading of counters, of one CPU or summed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    counts: [u64; COUNTS],
    caches: [u64; CACHES],
    walk_time: Ticks,
    time: [Ticks; ACCOUNTS],
    /// The program's, and the kernel's.
    charged: [[Ticks; PRICES]; 2],
}

impl Counters {
    /// The names, in the order of [`Counters::iter`].
    pub const NAMES: &'static [&'static str] = &NAMES;

    pub(crate) fn of<F: Format>(s: &SimState<F>, c: usize) -> Counters {
        let cpu = &s.cpus[c];
        let mut time = cpu.spent;
        let mut open = cpu.core.now() - cpu.marked;
        if cpu.account == Account::Program {
            let translating = cpu.core.translating();
            open -= translating.second_level + translating.walks;
            time[Account::SecondLevelTlb as usize] += translating.second_level;
            time[Account::Walk as usize] += translating.walks;
        }
        time[cpu.account as usize] += open;
        let n = &cpu.counts;
        Counters {
            counts: counts(n, cpu.core.instructions()),
            caches: caches(s.caches.counters(c), n),
            walk_time: n.walk_time,
            time,
            charged: charged(cpu),
        }
    }

    /// Cycles by the constant that they were charged by, as machine files name it. `waiting` stands
    /// for none: other CPUs or the disk were waited for. They add up to `cycles`, but for
    /// roundings. The program's come first, then the
    /// kernel's.
    pub fn charges(&self) -> impl Iterator<Item = (&'static str, [u64; 2])> + '_ {
        let [program, kernel] = &self.charged;
        let both = program.iter().zip(kernel).map(|(p, k)| [p.cycles(), k.cycles()]);
        price::keys().zip(both)
    }

    /// Adds another CPU's reading.
    pub fn add(&mut self, other: &Counters) {
        let pairs = self
            .counts
            .iter_mut()
            .zip(&other.counts)
            .chain(self.caches.iter_mut().zip(&other.caches));
        pairs.for_each(|(a, b)| *a += b);
        self.time.iter_mut().zip(&other.time).for_each(|(a, b)| *a += *b);
        let pairs = self.charged.as_flattened_mut().iter_mut();
        pairs.zip(other.charged.as_flattened()).for_each(|(a, b)| *a += *b);
        self.walk_time += other.walk_time;
    }

    /// What was counted between an earlier reading and this one.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut d = self.clone();
        let pairs = d
            .counts
            .iter_mut()
            .zip(&earlier.counts)
            .chain(d.caches.iter_mut().zip(&earlier.caches));
        pairs.for_each(|(a, b)| *a -= b);
        d.time.iter_mut().zip(&earlier.time).for_each(|(a, b)| *a -= *b);
        let pairs = d.charged.as_flattened_mut().iter_mut();
        pairs.zip(earlier.charged.as_flattened()).for_each(|(a, b)| *a = a.saturating_sub(*b));
        d.walk_time -= earlier.walk_time;
        d
    }

    /// Names and values. The `cycles_*` add up to `cycles` exactly.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let mut total = Ticks::ZERO;
        let cycles = self.time.iter().map(move |&t| {
            let before = total;
            total += t;
            total.cycles() - before.cycles()
        });
        let clock = self.time.iter().copied().sum::<Ticks>().cycles();
        let counts = self.counts.iter().copied().chain(self.caches.iter().copied());
        let values = counts.chain(cycles).chain(core::iter::once(clock));
        NAMES.iter().zip(values).map(|(name, v)| {
            (*name, if *name == "walk_cycles" { self.walk_time.cycles() } else { v })
        })
    }

    /// One value by its name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// In the order of their numbers.
const LEVELS: [Level; 4] = [Level::L1, Level::L2, Level::Llc, Level::Memory];

/// All charges of a CPU: those of the program, its core's waits included, and those of the kernel.
fn charged(cpu: &CpuState) -> [[Ticks; PRICES]; 2] {
    let all = cpu.core.waits();
    let mut kernel = cpu.charges.elsewhere;
    if cpu.account != Account::Program {
        kernel.add(&all.since(&cpu.charges.marked));
    }
    let mut charged = cpu.charges.sums;
    charged[0][Price::Instruction as usize] += cpu.core.retiring();
    waited(&mut charged[0], &all.since(&kernel), &cpu.counts);
    waited(&mut charged[1], &kernel, &cpu.counts);
    charged
}

/// Adds waits to charges. Those for walks are divided as all walks of the CPU are.
fn waited(charged: &mut [Ticks; PRICES], waits: &Waits, counts: &Counts) {
    charged[Price::LoadPort as usize] += waits.port;
    charged[Price::TlbL2 as usize] += waits.translating.second_level;
    for (level, wait) in LEVELS.into_iter().zip(waits.sources) {
        charged[Price::of_level(level) as usize] += wait;
    }
    let whole = counts.walk_reads.iter().copied().sum::<Ticks>() + counts.walk_starts;
    let mut rest = waits.translating.walks;
    for (level, part) in LEVELS.into_iter().zip(counts.walk_reads) {
        let share = u128::from(waits.translating.walks.0) * u128::from(part.0);
        let share = Ticks(share.checked_div(u128::from(whole.0)).unwrap_or(0) as u64);
        charged[Price::of_level(level) as usize] += share;
        rest -= share;
    }
    charged[Price::WalkStart as usize] += rest;
}

fn counts(n: &Counts, instructions: u64) -> [u64; COUNTS] {
    [
        instructions,
        n.loads,
        n.stores,
        n.fetches,
        n.hits_checked,
        n.dtlb_l1_misses,
        n.itlb_l1_misses,
        n.stlb_hits,
        n.walks_data,
        n.walks_fetch,
        n.walk_steps,
        0, // walk_cycles: kept as ticks
        n.nested_steps,
        n.page_faults,
        n.dirty_assists,
        n.speculative_walks,
        n.ipi_sent,
        n.ipi_received,
        n.broadcasts,
        n.flush_page,
        n.flush_range,
        n.flush_space,
        n.flush_all,
        n.root_loads,
        n.lines_cleared,
        n.lines_copied,
        n.prefetches,
        n.prefetch_hits,
    ]
}

fn caches(from: &CpuCounters, n: &Counts) -> [u64; CACHES] {
    let mut all = [0; CACHES];
    let structures = [Structure::L1d, Structure::L1i, Structure::L2, Structure::Llc];
    for (i, structure) in structures.into_iter().enumerate() {
        for (j, agent) in Agent::ALL.into_iter().enumerate() {
            let at = i * 6 + j * 2;
            (all[at], all[at + 1]) =
                (from.accesses(agent, structure), from.misses(agent, structure));
        }
    }
    // Accesses to the line used last never reached the caches: they are hits.
    all[0] += n.quick_lines;
    all[6] += n.quick_fetches;
    all
}
