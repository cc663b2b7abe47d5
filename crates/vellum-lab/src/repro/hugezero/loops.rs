//! The two published microbenchmarks: 4 GiB compared with the next 4 GiB, line by line and page by
//! page.
//!
//! Each loop of the posting is like the others, so that few are enough; the memory is all of it.
//! Before counting every page is touched once, which is the state the posting measured 100 or 1000
//! loops of: the tables of 4096 huge pages lie in the last-level cache. Counting begins anew
//! half-way, so that each run says what half of it would have said.

use vellum::addr::Va;
use vellum::space::{Access, Advice, Attrs, Placement, Rights, Usage};
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts, Program};

use crate::error::LabError;
use crate::repro::fixture::{Fixture, Workload, boot};

/// Half of the memory compared.
pub const HALF: u64 = 4 << 30;
const AT: u64 = 16 << 30;
/// A huge page, and how many a half has.
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = HALF / BLOCK;

/// A microbenchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Benchmark {
    /// Its number in the posting.
    pub number: u8,
    /// Bytes from one comparison to the next.
    pub step: u64,
    /// Loads of a comparison beside its first two: lines are compared 16 bytes at a time, as far as
    /// a load of that time reached.
    pub more: u64,
    /// Instructions beside the loads, from the counts published with the page: 20.0 a pair of lines
    /// of the first benchmark, 9.05 an iteration of the second.
    pub beside: u64,
    /// Loops of the posting.
    pub published_loops: u64,
    /// Loops here.
    pub loops: u64,
}

/// `memcmp` of the halves.
pub const LINES: Benchmark =
    Benchmark { number: 1, step: 64, more: 6, beside: 12, published_loops: 100, loops: 1 };
/// A byte of each page.
pub const PAGES: Benchmark =
    Benchmark { number: 2, step: 4096, more: 0, beside: 7, published_loops: 1000, loops: 2 };

/// What a comparison took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Each {
    /// Cycles.
    pub cycles: f64,
    /// Loads that walked.
    pub walks: f64,
    /// First-level misses, of the program and of walks.
    pub l1: f64,
    /// Reads of the last level, of the program and of walks.
    pub llc: f64,
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Taken {
    /// Over all loops.
    pub all: Each,
    /// Over the first half of them.
    pub half: Each,
    /// What the space had after the run.
    pub usage: Usage,
    /// TLB hits the oracle compared.
    pub checked: u64,
}

/// What is run of a benchmark.
#[derive(Clone, Copy)]
struct Part {
    benchmark: Benchmark,
    /// Every so manieth huge page of the halves is gone over in a loop.
    every: u64,
    loops: u64,
}

/// A benchmark with zeros of a form, as many loops as it has here.
pub fn compare(
    machine: &Machine,
    seed: u64,
    form: &str,
    benchmark: Benchmark,
) -> Result<Taken, LabError> {
    let [taken] = run(machine, seed, form, [Part { benchmark, every: 1, loops: benchmark.loops }])?;
    Ok(taken)
}

/// Both benchmarks over a part of what is mapped, for a look at a machine with another constant, or
/// where time is short: every 16th huge page of the halves by pages, every 32nd by lines. What that
/// needs of tables still exceeds the second level, and what it needs of the TLB the TLB.
pub fn glance(machine: &Machine, seed: u64, form: &str) -> Result<Glance, LabError> {
    let parts = [
        Part { benchmark: PAGES, every: 16, loops: 1 },
        Part { benchmark: LINES, every: 32, loops: 1 },
    ];
    let [pages, lines] = run(machine, seed, form, parts)?;
    Ok(Glance { pages: pages.all.cycles, lines: lines.all.cycles })
}

/// Cycles of a comparison, by a short look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Glance {
    /// Of benchmark 2.
    pub pages: f64,
    /// Of benchmark 1.
    pub lines: f64,
}

fn run<const N: usize>(
    machine: &Machine,
    seed: u64,
    form: &str,
    parts: [Part; N],
) -> Result<[Taken; N], LabError> {
    let options = Options { seed, ..Options::default() };
    boot(
        &Parts::of(machine, seed),
        options,
        &[("thp", "always"), ("zero.huge", form)],
        Compare(parts),
    )
}

struct Compare<const N: usize>([Part; N]);

impl<const N: usize> Workload for Compare<N> {
    type Out = [Taken; N];
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<[Taken; N], LabError> {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture
            .vm
            .map(fixture.space, Placement::At(Va(AT)), 2 * HALF, attrs)
            .map_err(LabError::failed)?;
        let mut taken = [Taken::default(); N];
        for (part, taken) in self.0.iter().zip(&mut taken) {
            *taken = part.run(fixture)?;
        }
        Ok(taken)
    }
}

impl Part {
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<Taken, LabError> {
        let Fixture { vm, cpu, space } = *fixture;
        let Part { benchmark: Benchmark { step, more, beside, .. }, every, loops } = self;
        for block in (0..BLOCKS / every).map(|n| n * every * BLOCK) {
            for at in [AT + block, AT + HALF + block] {
                vm.advise(space, Va(at), BLOCK, Advice::Populate { write: false })
                    .map_err(LabError::failed)?;
            }
        }
        let mut program =
            Program::new(cpu, |va, _| vm.fault(space, Va(va), Access::Read).map(|_| ()));
        let mut pass = |blocks: std::ops::Range<u64>, step: u64| {
            for block in blocks.map(|n| n * every % BLOCKS * BLOCK) {
                for at in (AT + block..AT + block + BLOCK).step_by(step as usize) {
                    program
                        .load(at, 8, false)
                        .and_then(|_| program.load(at + HALF, 8, false))
                        .map_err(LabError::failed)?;
                    cpu.reload(more);
                    cpu.retire(beside);
                }
            }
            Ok::<(), LabError>(())
        };
        let counted = loops * BLOCKS / every;
        pass(0..BLOCKS / every, 4096)?;
        pass(0..8, step)?;
        let start = (vm.machine().counters(0), cpu.now());
        let each = |blocks: u64| {
            let done = vm.machine().counters(0).since(&start.0);
            let times = (blocks * (BLOCK / step)) as f64;
            let sum = |names: [&str; 2]| {
                names.iter().map(|n| done.get(n).unwrap_or(0)).sum::<u64>() as f64 / times
            };
            Each {
                cycles: (cpu.now() - start.1) as f64 / times,
                walks: done.get("walks_data").map_or(f64::NAN, |n| n as f64 / times),
                l1: sum(["l1d_demand_miss", "l1d_walk_miss"]),
                llc: sum(["llc_demand_access", "llc_walk_access"]),
            }
        };
        pass(0..counted / 2, step)?;
        let half = each(counted / 2);
        pass(counted / 2..counted, step)?;
        let all = each(counted);
        Ok(Taken { all, half, usage: vm.usage(space), checked: vm.machine().checked() })
    }
}
