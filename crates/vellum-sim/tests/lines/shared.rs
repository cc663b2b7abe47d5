//! CPUs that fault in different table nodes of one space write no common cache line.
//!
//! Every store that a fault makes to the library's memory is caught by the host's page protection
//! ([`watch`]): records, counters, magazines, epochs, the `Vm` itself, table nodes and slabs. A
//! line that two CPUs wrote is common. Faults that went to the allocator's shared part (a magazine
//! refilled, a large block) or that made a table (which write the node above, in which both CPUs
//! then fault) are counted and printed apart; every other fault must have no common line at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use vellum_testkit::ext::VmExt;

use crate::common::beside::{Beside, Notes};
use crate::common::{MmuKind, options, parts};
use crate::watch::Watch;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Config, Thp};
use vellum::machine::{CpuId, Machine};
use vellum::space::{Access, Attrs, Fault, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Check, Meta, Parts, SimMachine};

const PAGE: u64 = 4096;
const NODE: u64 = 2 << 20;
const AT: u64 = 0x4000_0000;
/// Faults of each CPU: where the way to the allocator's shared part is to be seen, so many that
/// each CPU goes it.
const MANY: u64 = 150;
const FEW: u64 = 12;

/// The kinds of faults that are counted, and how a page is prepared for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Write,
    Zero,
    /// A write to the shared zeros.
    Unzero,
    Copied,
    Reused,
    /// The table nodes are not there yet.
    Tables,
    /// 2 MiB pages, each CPU in 1 GiB of its own.
    Huge,
    /// Writes of all CPUs to one table node.
    Crowd,
}

/// Faults of one sort, and the lines that more than one CPU wrote in them.
#[derive(Default)]
struct Tally {
    faults: u64,
    writers: BTreeMap<usize, BTreeSet<CpuId>>,
    /// Lines written in each fault, in the order of the faults.
    each: Vec<BTreeSet<usize>>,
}

impl Tally {
    fn add(&mut self, cpu: CpuId, lines: BTreeSet<usize>) {
        self.faults += 1;
        for &line in &lines {
            self.writers.entry(line).or_default().insert(cpu);
        }
        self.each.push(lines);
    }
    fn common(&self) -> Vec<usize> {
        self.writers.iter().filter(|(_, cpus)| cpus.len() > 1).map(|(&line, _)| line).collect()
    }
    /// Writes to common lines per fault, and writes to any.
    fn per_fault(&self) -> (f64, f64) {
        let common: BTreeSet<usize> = self.common().into_iter().collect();
        let shared: usize = self.each.iter().map(|lines| lines.intersection(&common).count()).sum();
        let all: usize = self.each.iter().map(BTreeSet::len).sum();
        let faults = self.faults.max(1) as f64;
        (shared as f64 / faults, all as f64 / faults)
    }
}

/// What one way of faulting came to.
struct Seen {
    own: Tally,
    allocator: Tally,
    table: Tally,
}

fn machine(mmu: MmuKind, cpus: usize, way: Way) -> Parts {
    let mut p = parts(mmu);
    p.caches.cpus = cpus;
    p.cpu_node = (0..cpus).map(|cpu| (cpu * p.numa.frames.len() / cpus) as u8).collect();
    // Room for every CPU's magazines and faults; whole blocks where they are asked for.
    let room = if way == Way::Huge { 1 << 17 } else { 1 << 14 };
    p.numa.frames.iter_mut().for_each(|frames| *frames = room);
    p.caches.lines = p.numa.frames.iter().sum::<u64>() * PAGE / 64;
    p
}

fn faults<F: Format>(parts: &Parts, way: Way, rounds: u64) -> Seen {
    let sim = SimMachine::<F>::build(parts, options(Check::Incremental)).expect("a machine");
    let notes = Notes::default();
    let config = Config {
        thp: if way == Way::Huge { Thp::Always } else { Thp::Never },
        ..Config::default()
    };
    type V<'s, F> = Vm<Beside<'s, F>>;
    let layout = V::<F>::layout(sim.topology());
    let meta = Meta::new(layout).expect("memory for metadata");
    let home = Meta::new(std::alloc::Layout::new::<V<'_, F>>()).expect("memory for the Vm");
    let place = home.start().cast::<V<'_, F>>();
    // SAFETY: zeroed memory of that layout; it and the home outlive the Vm, which lies in pages of
    // its own.
    let vm = unsafe {
        place.write(
            Vm::new(Beside { sim: &sim, notes: &notes }, config, meta.start()).expect("a Vm"),
        );
        place.as_ref()
    };
    let area = |start: NonNull<u8>, bytes: usize| {
        let start = start.as_ptr() as usize;
        start..start + bytes.next_multiple_of(4096)
    };
    let watch = Watch::new(vec![
        area(meta.start(), layout.size()),
        area(home.start(), size_of::<V<'_, F>>()),
        area(sim.direct(Pfn(0)), (sim.topology().frames_end() * PAGE) as usize),
    ]);
    let cpus = parts.caches.cpus;
    let span = match way {
        Way::Huge => 1 << 30,
        Way::Crowd => NODE / 16,
        _ => NODE,
    };
    let step = if way == Way::Huge { Order::HUGE.bytes() } else { PAGE };
    let mut seen =
        Seen { own: Tally::default(), allocator: Tally::default(), table: Tally::default() };
    let result = sim.solo(0, |cpu| {
        let space = vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(Va(AT)), span * cpus as u64, attrs).expect("a hole");
        (0..cpus).for_each(|id| cpu.script(id, |_| vm.activate(&space)));
        let va = |id: usize, n: u64| Va(AT + id as u64 * span + n * step);
        let touch = |space: &Space, id: usize, n: u64, access: Access| {
            cpu.script(id, |_| vm.fault(space, va(id, n), access)).expect("a page")
        };
        let mut child = None;
        for id in 0..cpus {
            if way != Way::Tables {
                // The table of these pages; the page itself is none of those that count.
                touch(&space, id, rounds, Access::Write);
            }
            if matches!(way, Way::Copied | Way::Reused | Way::Unzero) {
                let access = if way == Way::Unzero { Access::Read } else { Access::Write };
                for n in 0..rounds {
                    touch(&space, id, n, access);
                }
            }
        }
        if matches!(way, Way::Copied | Way::Reused) {
            child = Some(vm.fork(&space).expect("memory"));
        }
        if way == Way::Reused {
            vm.exit(child.take().expect("a child"));
        }
        let access = if way == Way::Zero { Access::Read } else { Access::Write };
        for n in 0..rounds {
            for id in 0..cpus {
                notes.allocator.set(false);
                notes.table.set(false);
                let mut fault = None;
                let stores = watch.stores(|| fault = Some(touch(&space, id, n, access)));
                let fits = matches!(
                    (way, fault.expect("a fault")),
                    (Way::Write | Way::Tables | Way::Crowd, Fault::Base)
                        | (Way::Zero, Fault::Zero)
                        | (Way::Huge, Fault::Huge)
                        | (Way::Copied | Way::Unzero, Fault::Copied(_))
                        | (Way::Reused, Fault::Reused(_))
                );
                assert!(
                    fits && !stores.is_empty(),
                    "{way:?} ended as {fault:?} with {} stores",
                    stores.len()
                );
                let tally = match (notes.table.get(), notes.allocator.get()) {
                    (true, _) => &mut seen.table,
                    (_, true) => &mut seen.allocator,
                    _ => &mut seen.own,
                };
                tally.add(id, stores.into_iter().map(|at| at / 64).collect());
            }
        }
        (0..cpus).for_each(|id| cpu.script(id, |_| vm.deactivate()));
        let spaces: Vec<&Space> = [&space].into_iter().chain(&child).collect();
        vm.audit(&spaces).expect("sound");
        child.into_iter().for_each(|child| vm.exit(child));
        vm.exit(space);
    });
    result.unwrap_or_else(|stop| panic!("{way:?}: {stop}"));
    drop(watch);
    // SAFETY: written above, and not used after.
    unsafe { place.drop_in_place() }
    seen
}

fn report(name: &str, cpus: usize, way: Way, seen: &Seen) {
    for (what, tally) in [
        ("", &seen.own),
        (", through the allocator", &seen.allocator),
        (", a table made", &seen.table),
    ] {
        if tally.faults != 0 {
            let (shared, all) = tally.per_fault();
            println!(
                "{name}, {cpus:>2} CPUs, {way:?}{what}: {} faults, {all:.1} lines written each, \
                 {shared:.2} of them common",
                tally.faults
            );
        }
    }
}

/// Runs a way of faulting and holds what has to hold.
fn holds(mmu: MmuKind, cpus: usize, way: Way, rounds: u64) {
    let parts = machine(mmu, cpus, way);
    let seen = if mmu == MmuKind::Arm {
        faults::<Arm>(&parts, way, rounds)
    } else {
        faults::<X86>(&parts, way, rounds)
    };
    report(&format!("{mmu:?}"), cpus, way, &seen);
    let all = rounds * cpus as u64;
    match way {
        Way::Tables => assert_eq!(seen.table.faults, all, "each of these faults makes a table"),
        Way::Huge => assert_eq!(seen.allocator.faults, all, "each of these faults takes a block"),
        _ => assert!(
            seen.own.faults >= all * 9 / 10 && seen.table.faults == 0,
            "most faults stay with their own CPU"
        ),
    }
    if rounds == MANY {
        assert!(seen.allocator.faults >= cpus as u64, "every CPU's magazine was filled");
    }
    let common = seen.own.common();
    assert!(common.is_empty(), "{mmu:?}, {cpus} CPUs, {way:?}: {} common lines", common.len());
}

#[test]
fn faults_in_different_nodes_of_one_space_write_no_common_line() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for cpus in [2, 64] {
            for way in [Way::Zero, Way::Unzero, Way::Copied, Way::Reused] {
                holds(mmu, cpus, way, FEW);
            }
            holds(mmu, cpus, Way::Write, if mmu == MmuKind::X86 { MANY } else { FEW });
        }
    }
    for cpus in [2, 64] {
        holds(MmuKind::X86, cpus, Way::Tables, 1);
        holds(MmuKind::X86, cpus, Way::Huge, 3);
    }
}

#[test]
fn faults_in_one_node_do_write_common_lines() {
    // The watch sees what it should: two CPUs in one node share its lock and counts.
    let parts = machine(MmuKind::X86, 2, Way::Crowd);
    let seen = faults::<X86>(&parts, Way::Crowd, FEW);
    report("X86", 2, Way::Crowd, &seen);
    assert!(!seen.own.common().is_empty());
}
