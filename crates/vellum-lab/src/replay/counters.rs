//! Everything a replay counted, under the names of `docs/json.md`.
//!
//! Three sources, each with its own view: the machine (what its CPUs did and how long it took), the
//! library (`vmstat`), and the replay itself (what the trace asked for). Names of the machine are
//! translated here, once.

use vellum::machine::Use;
use vellum::space::Space;
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::SimMachine;
use vellum_sim::format::Format;

use super::files::Before;
use crate::report::Counters;

/// What the replay itself counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Program and kernel accesses done.
    pub accesses: u64,
    /// Accesses that the recorder's windows left out.
    pub skipped_accesses: u64,
    /// Instructions that the recorder's windows left out.
    pub skipped_instructions: u64,
    /// Most pages that the program had mapped at once.
    pub resident_peak: u64,
    /// Pages present because a mapping wanted them at once.
    pub populated: u64,
    /// Accesses refused.
    pub refused: u64,
    /// Calls refused.
    pub calls_refused: u64,
    /// The program came to its end.
    pub ended: bool,
    /// What was done inside the recorder's windows, once warm; everything, in a trace without.
    pub windows: Part,
    /// What was done there before: it stands for nothing, as if it had been left out.
    pub warming: Part,
}

impl Tally {
    /// Cycles of what the recorder's windows left out, as the windows took them.
    pub fn left_out(&self) -> u64 {
        if self.skipped_instructions == 0 {
            return 0;
        }
        let w = &self.windows;
        let cycles = w.program + w.stlb + w.walk;
        scaled(cycles, w.instructions, self.skipped_instructions) - cycles
    }
}

/// A part of what CPUs did for the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Instructions.
    instructions: u64,
    /// Cycles of the program.
    program: u64,
    /// Cycles lost to second-level TLB hits.
    stlb: u64,
    /// Cycles lost to walks.
    walk: u64,
}

impl Part {
    /// All that a CPU has done.
    pub fn of(counters: &vellum_sim::Counters) -> Part {
        let get = |name| counters.get(name).unwrap_or(0);
        Part {
            instructions: get("instructions"),
            program: get("cycles_program"),
            stlb: get("cycles_stlb"),
            walk: get("cycles_walk"),
        }
    }
    /// What was done since `before`.
    pub fn since(&self, before: &Part) -> Part {
        Part {
            instructions: self.instructions.saturating_sub(before.instructions),
            program: self.program.saturating_sub(before.program),
            stlb: self.stlb.saturating_sub(before.stlb),
            walk: self.walk.saturating_sub(before.walk),
        }
    }
    /// Adds another part.
    pub fn add(&mut self, other: &Part) {
        self.instructions += other.instructions;
        self.program += other.program;
        self.stlb += other.stlb;
        self.walk += other.walk;
    }
}

/// What `cycles` of a window would be with the `skipped` instructions beside its own: in
/// proportion.
fn scaled(cycles: u64, window: u64, skipped: u64) -> u64 {
    let all = u128::from(cycles) * (u128::from(window) + u128::from(skipped));
    all.checked_div(u128::from(window)).map_or(cycles, |n| u64::try_from(n).unwrap_or(u64::MAX))
}

/// Counters of the machine that appear under another name: (ours, the machine's).
const MACHINE: &[(&str, &str)] = &[
    ("instructions", "instructions"),
    ("loads", "loads"),
    ("stores", "stores"),
    ("fetches", "fetches"),
    ("dtlb_misses", "dtlb_l1_misses"),
    ("itlb_misses", "itlb_l1_misses"),
    ("stlb_hits", "stlb_hits"),
    ("tlb_walks_data", "walks_data"),
    ("tlb_walks_code", "walks_fetch"),
    ("walk_reads", "walk_steps"),
    ("nested_reads", "nested_steps"),
    ("walk_latency", "walk_cycles"),
    ("dirty_assists", "dirty_assists"),
    ("interrupts", "ipi_received"),
    ("broadcasts", "broadcasts"),
    ("root_loads", "root_loads"),
    ("lines_cleared", "lines_cleared"),
    ("lines_copied", "lines_copied"),
    ("prefetches", "prefetches"),
    ("prefetch_hits", "prefetch_hits"),
];

const CACHES: &[(&str, &str)] = &[
    ("l1d_misses_demand", "l1d_demand_miss"),
    ("l1d_misses_walk", "l1d_walk_miss"),
    ("l1d_misses_kernel", "l1d_kernel_miss"),
    ("l1i_misses_demand", "l1i_demand_miss"),
    ("l2_misses_demand", "l2_demand_miss"),
    ("l2_misses_walk", "l2_walk_miss"),
    ("l2_misses_kernel", "l2_kernel_miss"),
    ("llc_misses_demand", "llc_demand_miss"),
    ("llc_misses_walk", "llc_walk_miss"),
    ("llc_misses_kernel", "llc_kernel_miss"),
];

const CYCLES: &[(&str, &str)] = &[
    ("cycles_program", "cycles_program"),
    ("cycles_stlb", "cycles_stlb"),
    ("cycles_walk", "cycles_walk"),
    ("cycles_fault", "cycles_fault"),
    ("cycles_clear", "cycles_clear"),
    ("cycles_flush", "cycles_flush"),
    ("cycles_calls", "cycles_call"),
];

/// Cycles that all CPUs have spent so far.
pub fn spent<F: Format>(vm: &Vm<SimMachine<F>>) -> u64 {
    let total = vm.machine().total();
    CYCLES.iter().map(|(_, source)| total.get(source).unwrap_or(0)).sum()
}

/// All counters of a replay that has come to its end, its space still there.
pub fn collect<F: Format>(
    vm: &Vm<SimMachine<F>>,
    space: &Space,
    (tally, before): (&Tally, &Before),
    elapsed: u64,
) -> Counters {
    let mut out = Counters::new();
    let stats = vm.stats();
    let total = vm.machine().total();
    let sim = |name: &str| total.get(name).unwrap_or(0);
    let usage = vm.usage(space);

    for c in Counter::ALL {
        out.put(c.name(), stats.get(*c) - before.of(*c));
    }
    // A page of MAP_POPULATE is a minor fault in a native run's accounts, though the program never
    // takes it.
    let minor = stats.get(Counter::Faults) - stats.get(Counter::MajorFaults);
    out.put("minor_faults", minor + tally.populated as i64);
    out.count("populated_pages", tally.populated);
    out.count("accesses", tally.accesses);
    out.count("accesses_refused", tally.refused);
    out.count("calls_refused", tally.calls_refused);
    out.count("accesses_skipped", tally.skipped_accesses);
    out.count("instructions_skipped", tally.skipped_instructions);
    for (name, source) in MACHINE {
        out.count(name, sim(source));
    }
    out.count("tlb_walks", sim("walks_data") + sim("walks_fetch"));
    for (name, source) in CACHES {
        out.count(name, sim(source));
    }
    let traffic = (0..vm.machine().topology().nodes).map(|node| vm.machine().traffic(node));
    let [reads, remote] =
        traffic.fold([0, 0], |[reads, remote], t| [reads + t.lines_read, remote + t.read_remotely]);
    if vm.machine().topology().nodes > 1 {
        out.count("memory_reads_local", reads - remote);
        out.count("memory_reads_remote", remote);
    }
    out.count("rss_peak_bytes", tally.resident_peak * 4096);
    out.put("file_cache_bytes", stats.get(Counter::FilePages) * 4096);
    out.count("rss_end_bytes", usage.rss_pages * 4096);
    out.count("page_table_peak_bytes", vm.machine().peak(Use::Table) * 4096);
    let huge = usage.huge_leaves * 512 + usage.giant_leaves * (512 * 512);
    out.count("huge_coverage", (huge * 10_000).checked_div(usage.rss_pages).unwrap_or(0));
    let mut sum = 0;
    for (name, source) in CYCLES {
        sum += sim(source);
        out.count(name, sim(source));
    }
    out.count("cycles_total", sum);
    // Time of the whole program, had everything been kept: windows stand for what was left out,
    // faults and calls are complete anyway.
    let (w, cold, skipped) = (&tally.windows, &tally.warming, tally.skipped_instructions);
    let estimate = |all: u64, inside: u64, warming: u64| {
        let outside = all - (inside + warming).min(all);
        outside + scaled(inside, w.instructions, skipped + cold.instructions)
    };
    let mut whole = sum;
    for (name, counter, inside, warming) in [
        ("estimate_program", "cycles_program", w.program, cold.program),
        ("estimate_stlb", "cycles_stlb", w.stlb, cold.stlb),
        ("estimate_walk", "cycles_walk", w.walk, cold.walk),
    ] {
        let (kept, all) = (sim(counter), estimate(sim(counter), inside, warming));
        out.count(name, all);
        whole = whole - kept + all;
    }
    out.count("estimate_total", whole);
    // Of a part of the program these would stand beside a total of the whole.
    if skipped == 0 {
        out.count("cycles_io", sim("cycles_io"));
        out.count("cycles_idle", sim("cycles_idle"));
        out.count("cycles_elapsed", elapsed);
    }
    out
}

/// Cycles by the constant of the machine file that they were charged by. What the recorder's
/// windows stand for is scaled up as the estimates are.
pub fn charges<F: Format>(vm: &Vm<SimMachine<F>>, counters: &Counters) -> Counters {
    let all = |names: [&str; 3]| {
        names.iter().map(|name| counters.get(name).unwrap_or(0).max(0) as u128).sum::<u128>()
    };
    let simulated = all(["cycles_program", "cycles_stlb", "cycles_walk"]);
    let estimate = all(["estimate_program", "estimate_stlb", "estimate_walk"]);
    let scaled = |cycles: u64| {
        let all = (u128::from(cycles) * estimate).checked_div(simulated);
        all.map_or(cycles, |n| u64::try_from(n).unwrap_or(u64::MAX))
    };
    let mut out = Counters::new();
    for (key, [program, kernel]) in vm.machine().total().charges() {
        out.count(key, scaled(program).saturating_add(kernel));
    }
    out
}

/// Adds what it took to take the program's space apart, and what is left over once all are gone:
/// frames still held as data or tables, which nobody can reach any more.
pub fn with_end<F: Format>(mut counters: Counters, vm: &Vm<SimMachine<F>>, exit: u64) -> Counters {
    let machine = vm.machine();
    counters.count("cycles_exit", exit);
    for name in ["cycles_total", "estimate_total", "cycles_elapsed"] {
        if let Some(before) = counters.get(name) {
            counters.put(name, before.saturating_add_unsigned(exit));
        }
    }
    counters.count(
        "frames_lost",
        machine.frames_in(Use::Data)
            + machine.frames_in(Use::Table)
            + machine.frames_in(Use::Object)
            + machine.frames_in(Use::Pending),
    );
    counters
}
