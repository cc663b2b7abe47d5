//! The two published microbenchmarks on the simulated machine they were run on (part D.3), the footprint of 8 GiB unscaled, loops scaled.
//!
//! D-11's counts per iteration are judged here. What the model says of time is printed beside the published figures and judged only where
//! the model lands in the band; `docs/hugezero.md` says what it lacks where it does not.

use vellum::addr::Va;
use vellum::config::Config;
use vellum::space::{Access, Advice, Attrs, Placement, Rights, Usage};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::format::X86;
use vellum_sim::{Cpu, Meta, Options, Program, SimMachine, file};

const GIB: u64 = 1 << 30;
const AT: u64 = 16 * GIB;
const HALF: u64 = 4 * GIB;

/// What one loop took, once everything is mapped.
#[derive(Clone, Copy, Debug)]
struct Taken {
    cycles: f64,
    walks: f64,
    l1: f64,
    llc: f64,
    usage: Usage,
    allocated: i64,
}

/// Instructions a pass of the loop has beside its two loads, from the counts published with the page: 9.05 an iteration of the
/// second benchmark, 20.0 a pair of lines of the first (D.3).
const BESIDE: [u64; 2] = [18, 7];

/// `loops` loops of a benchmark (1 or 2) with a form of zeros; what one took.
fn taken(form: &str, benchmark: usize, step: u64, loops: u64) -> Taken {
    let machine = file::preset("westmere-ex").expect("a preset");
    let sim = SimMachine::<X86>::new(&machine, Options::default()).expect("it can be built");
    let meta = Meta::new(Vm::<SimMachine<X86>>::layout(sim.topology())).expect("address space");
    let mut config = Config::default();
    config.set("zero.huge", form).expect("a form");
    // SAFETY: zeroed memory of the layout asked for, declared before the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let space = sim.solo(0, |_| vm.create().expect("memory")).expect("no stop");
    sim.solo(0, |cpu: &Cpu<'_, X86>| {
        vm.activate(&space);
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(Va(AT)), 2 * HALF, attrs).expect("a hole");
        vm.advise(&space, Va(AT), 2 * HALF, Advice::Populate { write: false }).expect("zeros");
        let mut program = Program::new(cpu, |va, _| vm.fault(&space, Va(va), Access::Read).map(|_| ()));
        let mut pass = |bytes: u64| {
            for at in (0..bytes).step_by(step as usize) {
                program.load(AT + at, 8, false).expect("mapped");
                program.load(AT + HALF + at, 8, false).expect("mapped");
                cpu.retire(BESIDE[benchmark - 1]);
            }
        };
        // Caches and TLBs as in the middle of the run.
        pass(if benchmark == 1 { HALF / 64 } else { HALF });
        let before = (sim.counters(0), cpu.now());
        for _ in 0..loops {
            pass(HALF);
        }
        let done = sim.counters(0).since(&before.0);
        let iterations = (loops * (HALF / step)) as f64;
        let each =
            |names: &[&str]| names.iter().map(|n| done.get(n).expect("a counter")).sum::<u64>() as f64 / iterations;
        Taken {
            cycles: (cpu.now() - before.1) as f64 / iterations,
            walks: each(&["walks_data"]),
            l1: each(&["l1d_demand_miss", "l1d_walk_miss"]),
            llc: each(&["llc_demand_access", "llc_walk_access"]),
            usage: vm.usage(&space),
            allocated: vm.stats().get(Counter::AnonPages),
        }
    })
    .expect("no stop")
}

fn within(value: f64, low: f64, high: f64) -> bool {
    (low..=high).contains(&value)
}

#[test]
fn d_11_benchmark_2_misses_what_was_published_an_iteration() {
    let [page, private, shared] = ["page", "table-private", "table"].map(|form| taken(form, 2, 4096, 1));
    for (name, t) in [("page", &page), ("table-private", &private), ("table", &shared)] {
        println!(
            "benchmark 2, {name}: {:.2} cycles, {:.5} walks, {:.3} L1 misses, {:.3} LLC loads an iteration",
            t.cycles, t.walks, t.l1, t.llc
        );
        assert_eq!((t.usage.rss_pages, t.allocated), (0, 0));
    }
    println!(
        "cycles, table-private/page {:.2}, table/page {:.2}",
        private.cycles / page.cycles,
        shared.cycles / page.cycles
    );
    // 1000 loops of 1,048,576 iterations were published.
    let scaled = page.walks * 1000.0 * 1_048_576.0;
    assert!(within(scaled, 4.1e6 * 0.95, 4.1e6 * 1.05), "page: {scaled} dTLB misses");
    assert!(within(page.l1, 0.98, 1.02) && within(page.llc, 0.98, 1.02), "page: {page:?}");
    assert!(within(private.walks, 1.98, 2.02), "table-private: {private:?}");
    assert!(within(private.l1, 0.23, 0.27), "table-private: {private:?}");
    assert!(shared.l1 < private.l1, "lines of one table stay in the first level: {shared:?}");
}

#[test]
fn d_11_doubling_the_loops_of_benchmark_2_moves_no_ratio_by_more_than_2_percent() {
    let ratio = |loops| taken("table-private", 2, 4096, loops).cycles / taken("page", 2, 4096, loops).cycles;
    let (one, two) = (ratio(1), ratio(2));
    assert!((two / one - 1.0).abs() < 0.02, "{one} {two}");
}

#[test]
fn d_12_8_gib_read_cost_4096_private_tables_or_none() {
    let tables = |form| taken(form, 2, 1 << 21, 1).usage.table_nodes;
    let shared = tables("table");
    assert!(shared <= 2 + 2, "root, one of 512 GiB, at most 8 KiB: {shared}");
    assert!(tables("table-private") >= 4096);
}

#[test]
fn d_11_benchmark_1_is_faster_by_tables_than_by_the_page() {
    let [page, private, shared] = ["page", "table-private", "table"].map(|form| taken(form, 1, 64, 1));
    for (name, t) in [("page", &page), ("table-private", &private), ("table", &shared)] {
        println!(
            "benchmark 1, {name}: {:.2} cycles, {:.5} walks, {:.3} L1 misses, {:.3} LLC loads a pair of lines",
            t.cycles, t.walks, t.l1, t.llc
        );
    }
    println!(
        "cycles saved: table-private {:.1} %, table {:.1} %",
        100.0 * (1.0 - private.cycles / page.cycles),
        100.0 * (1.0 - shared.cycles / page.cycles)
    );
    assert!(private.cycles < page.cycles, "{private:?} {page:?}");
}
