//! With clearing in extents off, what a run counts is what it counted before there was such a
//! thing.
//!
//! The numbers were written down at the last commit before clearing in extents, by this same
//! workload. They are the counters that clearing decides; what the fault path and the allocator
//! cost beside it may change without telling this file.

use super::fixture::{MIB, anonymous, handler, with_vm};
use crate::common::{MmuKind, parts};
use vellum::addr::{Order, Va};
use vellum::space::Advice;
use vellum_sim::memory::Ticks;
use vellum_sim::{Options, Program, file};

/// Tiny, with memory quick enough that its bandwidth, which depends on when things happen, never
/// decides.
fn tiny() -> vellum_sim::Parts {
    let mut parts = parts(MmuKind::Pcid);
    parts.numa.line_time.fill(Ticks(64));
    parts
}

/// Huge pages touched in an order of their own, base pages, zeros that are written, a fork and its
/// copies.
fn counted(parts: &vellum_sim::Parts, switches: &[(&str, &str)]) -> String {
    with_vm(parts, Options::default(), switches, |vm| {
        vm.machine()
            .solo(0, |cpu| {
                let space = vm.create().expect("memory");
                vm.activate(&space);
                let huge = anonymous(vm, &space, 8 * MIB, Some(Order::HUGE));
                let base = anonymous(vm, &space, MIB, Some(Order::BASE));
                let mut p = Program::new(cpu, handler(vm, &space));
                for n in [2, 0, 3, 1] {
                    p.store(huge + n * 2 * MIB + n * 77 * 4096, 8, false).expect("mapped");
                }
                for n in 0..256 {
                    p.load(base + n * 4096, 8, false).expect("mapped");
                    p.store(base + n * 4096 + 64, 8, false).expect("mapped");
                }
                drop(p);
                vm.advise(&space, Va(huge), 2 * MIB, Advice::DontNeed).expect("mapped");
                let child = vm.fork(&space).expect("memory");
                vm.activate(&child);
                let mut p = Program::new(cpu, handler(vm, &child));
                p.store(huge, 8, false).expect("mapped");
                p.store(base, 8, false).expect("mapped");
                drop(p);
                vm.exit(child);
                vm.exit(space);
            })
            .unwrap_or_else(|stop| panic!("{stop}"));
        let total = vm.machine().total();
        let names = ["loads", "stores", "page_faults", "lines_cleared", "lines_copied"];
        let caches = ["l1d_kernel_access", "l1d_kernel_miss", "l2_kernel_access", "l2_kernel_miss"];
        let all = names.into_iter().chain(caches).chain(["cycles_clear"]);
        all.map(|name| format!("{name} {}\n", total.get(name).expect("a counter"))).collect()
    })
}

const OFF: &[(&str, &str)] = &[("clear.unit", "page"), ("clear.order", "ascending")];

const TINY: &str = "loads 512
stores 524
page_faults 518
lines_cleared 180288
lines_copied 64
l1d_kernel_access 180416
l1d_kernel_miss 180416
l2_kernel_access 180416
l2_kernel_miss 180416
cycles_clear 1442944
";

/// The same on a machine whose constants of clearing have been told apart since: then a line of any
/// page took 12.20 cycles.
const MILAN_CYCLES: u64 = 2_200_269;

#[test]
fn with_pages_cleared_one_by_one_upwards_counters_equal_the_snapshot() {
    assert_eq!(counted(&tiny(), OFF), TINY);
}

#[test]
fn the_snapshot_differs_where_only_time_by_the_machine_file_may_and_by_exactly_that() {
    let milan = file::preset("milan").expect("a preset");
    let mut parts = vellum_sim::Parts::of(&milan, 1);
    let (page, next) = (parts.costs.clear_line, parts.costs.clear_line_next);
    assert!(page != next);
    // The constants of then.
    (parts.costs.clear_line, parts.costs.clear_line_next) = (Ticks(3123), Ticks(3123));
    let now = counted(&parts, OFF);
    assert_eq!(now, TINY.replace("cycles_clear 1442944", &format!("cycles_clear {MILAN_CYCLES}")));
}

#[test]
fn with_extents_on_the_same_lines_are_cleared_and_copied() {
    let lines = |text: &str| {
        text.lines().filter(|l| l.starts_with("lines_")).map(str::to_owned).collect::<Vec<_>>()
    };
    let on = counted(&tiny(), &[]);
    assert_eq!(lines(&on), lines(TINY));
    assert_ne!(on, TINY);
}
