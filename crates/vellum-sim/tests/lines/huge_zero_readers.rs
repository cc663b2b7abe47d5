//! Statement D-13: with the zeros kept for good, 72 readers at once cause no counter traffic, the
//! shrinker never frees, and a read costs what it costs a single reader.
//!
//! "Counter traffic" is what it is on hardware: a cache line that several CPUs write. Every store
//! of the library is caught ([`watch`]), as in `shared.rs`. The simulator charges nothing for lines
//! of the library's own memory that go from CPU to CPU, so its cycles alone would be linear
//! whatever the library did. They are therefore taken twice: as they are, and with each write to a
//! common line delayed until the line has come over, one CPU after the other, at the least it can
//! cost: a hit in the last level. The control is the same readers without [`Vm::keep_zeros`], each
//! of whose spaces is counted at its first read.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use vellum_testkit::ext::VmExt;

use crate::common::beside::{Beside, Notes};
use crate::common::{MmuKind, options, parts};
use crate::watch::Watch;
use vellum::addr::{Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::machine::Machine;
use vellum::space::{Access, Attrs, Fault, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::format::X86;
use vellum_sim::{Check, Cpu, Kind, Meta, Parts, Program, SimMachine, file};

const PAGE: u64 = 4096;
const SLOT: u64 = 2 << 20;
const AT: u64 = 0x4000_0000;
/// Huge mappings a reader makes in a space.
const SLOTS: u64 = 4;
const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

type V<'s> = Vm<Beside<'s, X86>>;

/// Tiny, with that many CPUs and one more for the shrinker.
fn machine(readers: usize) -> Parts {
    let mut p = parts(MmuKind::Pcid);
    p.caches.cpus = readers + 1;
    p.cpu_node = vec![0; readers + 1];
    p.numa.frames.iter_mut().for_each(|frames| *frames = 1 << 14);
    p.caches.lines = p.numa.frames.iter().sum::<u64>() * PAGE / 64;
    p
}

/// Runs `work` with a `Vm` and a watch over all of the library's memory.
fn watched<R>(readers: usize, work: impl FnOnce(&V<'_>, &Watch) -> R) -> R {
    let sim = SimMachine::<X86>::build(&machine(readers), options(Check::Incremental))
        .expect("a machine");
    let notes = Notes::default();
    let layout = V::layout(sim.topology());
    let meta = Meta::new(layout).expect("memory for metadata");
    let home = Meta::new(std::alloc::Layout::new::<V<'_>>()).expect("memory for the Vm");
    let place = home.start().cast::<V<'_>>();
    let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
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
        area(home.start(), size_of::<V<'_>>()),
        area(sim.direct(Pfn(0)), (sim.topology().frames_end() * PAGE) as usize),
    ]);
    let result = work(vm, &watch);
    drop(watch);
    // SAFETY: written above, and not used after.
    unsafe { place.drop_in_place() }
    result
}

/// A space whose tables above the huge mappings are there, so that a read of zeros stores its entry
/// and nothing for the allocator.
fn space(vm: &V<'_>) -> Space {
    let space = vm.create().expect("memory");
    vm.map(&space, Placement::At(Va(AT)), (SLOTS + 1) * SLOT, RW).expect("a hole");
    vm.fault(&space, Va(AT + SLOTS * SLOT), Access::Write).expect("memory");
    space
}

/// What a read took: its CPU, cycles, and the lines it wrote.
type Read = (usize, u64, BTreeSet<usize>);

/// Reads of `readers` CPUs in spaces of their own, in turns; whether each was its space's first.
fn reads(readers: usize, kept: bool) -> Vec<(Read, bool)> {
    watched(readers, |vm, watch| {
        let sim = vm.machine().sim;
        let mut all = Vec::new();
        sim.solo(0, |cpu| {
            if kept {
                vm.keep_zeros().expect("memory");
            } else {
                // The page is there: what is measured is reading it, not making it.
                let first = space(vm);
                vm.fault(&first, Va(AT), Access::Read).expect("memory");
                vm.exit(first);
            }
            let spaces: Vec<Space> = (0..readers).map(|id| cpu.script(id, |_| space(vm))).collect();
            (0..readers).for_each(|id| cpu.script(id, |_| vm.activate(&spaces[id])));
            for slot in 0..SLOTS {
                for (id, space) in spaces.iter().enumerate() {
                    let mut took = 0;
                    let stores = watch.stores(|| {
                        cpu.script(id, |cpu| {
                            let before = cpu.now();
                            assert_eq!(
                                vm.fault(space, Va(AT + slot * SLOT), Access::Read),
                                Ok(Fault::ZeroHuge)
                            );
                            took = cpu.now() - before;
                        })
                    });
                    assert!(!stores.is_empty() && took > 0);
                    all.push((
                        (id, took, stores.into_iter().map(|at| at / 64).collect()),
                        slot == 0,
                    ));
                }
                assert_eq!(cpu.script(readers, |_| vm.shrink_zeros()), 0, "somebody reads it");
            }
            let holders = vm.huge_zero_references();
            assert_eq!(holders, if kept { 1 } else { readers as u64 + 1 });
            (0..readers).for_each(|id| cpu.script(id, |_| vm.deactivate()));
            vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("sound");
            spaces.into_iter().for_each(|space| vm.exit(space));
            assert_eq!(vm.shrink_zeros(), if kept { 0 } else { 512 }, "kept for good, or not");
            assert_eq!(vm.stats().get(Counter::ThpZeroAlloc), 1);
        })
        .unwrap_or_else(|stop| panic!("{stop}"));
        all
    })
}

/// Lines that several CPUs wrote.
fn common_lines(reads: &[(Read, bool)]) -> BTreeSet<usize> {
    let mut writers: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for ((cpu, _, lines), _) in reads {
        lines.iter().for_each(|&line| _ = writers.entry(line).or_default().insert(*cpu));
    }
    writers.into_iter().filter(|(_, cpus)| cpus.len() > 1).map(|(line, _)| line).collect()
}

/// Cycles until all CPUs have done their reads, beginning at once, where a write to a common line
/// waits until it has come over.
fn makespan(reads: &[(Read, bool)], common: &BTreeSet<usize>, transfer: u64) -> u64 {
    let cpus = reads.iter().map(|r| r.0.0).max().expect("a read") + 1;
    let mut queues: Vec<Vec<&Read>> = vec![Vec::new(); cpus];
    reads.iter().rev().for_each(|(read, _)| queues[read.0].push(read));
    let (mut now, mut free) = (vec![0u64; cpus], BTreeMap::<usize, u64>::new());
    while let Some(cpu) =
        (0..cpus).filter(|&cpu| !queues[cpu].is_empty()).min_by_key(|&cpu| now[cpu])
    {
        let (_, cycles, lines) = queues[cpu].pop().expect("not empty");
        now[cpu] += cycles;
        for line in lines.intersection(common) {
            let free = free.entry(*line).or_default();
            *free = (*free).max(now[cpu]) + transfer;
            now[cpu] = *free;
        }
    }
    now.into_iter().max().unwrap_or(0)
}

#[test]
fn d_13_readers_of_kept_zeros_write_no_common_line_and_others_write_one_once() {
    let tiny = file::preset("tiny").expect("a preset");
    let transfer = tiny.ticks(&tiny.llc.latency).cycles();
    let first_reads =
        |reads: &[(Read, bool)]| reads.iter().filter(|r| r.1).cloned().collect::<Vec<_>>();
    let kept = reads(72, true);
    assert_eq!(common_lines(&kept), BTreeSet::new(), "counter traffic");
    let one = makespan(&reads(1, true), &BTreeSet::new(), transfer);
    let all = makespan(&kept, &common_lines(&kept), transfer);
    assert!(
        all.abs_diff(one) * 100 <= one,
        "one reader takes {one} cycles for its reads, 72 take {all}"
    );

    let counted = reads(72, false);
    let common = common_lines(&counted);
    assert_eq!(common.len(), 1, "the count");
    assert!(
        counted.iter().all(|((_, _, lines), first)| lines.is_disjoint(&common) != *first),
        "at first reads and no others"
    );
    let (counted, kept) = (first_reads(&counted), first_reads(&kept));
    let (slow, quick) =
        (makespan(&counted, &common, transfer), makespan(&kept, &BTreeSet::new(), transfer));
    println!(
        "first reads of 72 spaces at once: {quick} cycles with zeros kept, {slow} with each space \
         counted"
    );
    assert!(slow > 2 * quick, "the control scales: {slow} and {quick} cycles");
}

/// Cycles a read, faults included, of readers that all run at once; one more CPU asks the shrinker
/// all the while.
fn at_once(readers: usize) -> f64 {
    // Milan's caches and memory, which 72 readers of 2 MiB do not fill: what they have in common
    // beyond them is the library.
    let mut milan = Parts::of(&file::preset("milan").expect("a preset"), 1);
    milan.caches.cpus = readers + 1;
    milan.cpu_node = vec![0; readers + 1];
    let sim = SimMachine::<X86>::build(&milan, options(Check::Walk)).expect("a machine");
    let meta = Meta::new(Vm::<SimMachine<X86>>::layout(sim.topology())).expect("memory");
    let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
    // SAFETY: zeroed memory of the layout asked for, which outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let spaces: Vec<Space> = sim
        .solo(0, |cpu| {
            vm.keep_zeros().expect("memory");
            let space = |_: &Cpu<'_, X86>| {
                let space = vm.create().expect("memory");
                vm.map(&space, Placement::At(Va(AT)), (SLOTS + 1) * SLOT, RW).expect("a hole");
                vm.fault(&space, Va(AT + SLOTS * SLOT), Access::Write).expect("memory");
                space
            };
            (0..readers).map(|id| cpu.script(id, space)).collect()
        })
        .unwrap_or_else(|stop| panic!("{stop}"));
    let (taken, reading) = (Cell::new(0), Cell::new(readers));
    // Clocks stand where setting up left them.
    let start = (0..=readers).map(|id| sim.clock(id)).max().expect("a CPU") + 1000;
    let done = sim.run(|run| {
        for (id, space) in spaces.iter().enumerate() {
            let (vm, taken, reading) = (&vm, &taken, &reading);
            run.spawn(id, move |cpu| {
                vm.activate(space);
                let mut p =
                    Program::new(cpu, |va, _| vm.fault(space, Va(va), Access::Read).map(|_| ()));
                while cpu.now() < start {
                    cpu.retire(start - cpu.now());
                }
                let before = cpu.now();
                for at in (0..SLOTS * SLOT).step_by(16 * PAGE as usize) {
                    let seen = p.access(AT + at, 8, Kind::Load, false).expect("memory");
                    assert_eq!(seen.0, 1, "zeros");
                }
                taken.set(taken.get() + cpu.now() - before);
                vm.deactivate();
                reading.set(reading.get() - 1);
            });
        }
        let (vm, reading) = (&vm, &reading);
        run.spawn(readers, move |cpu| {
            while reading.get() != 0 {
                if vm.shrink_zeros() != 0 {
                    cpu.stop("kept zeros were freed".into());
                }
                cpu.relax();
            }
        });
    });
    done.unwrap_or_else(|stop| panic!("{readers} readers: {stop}"));
    assert_eq!((vm.stats().get(Counter::ThpZeroAlloc), vm.huge_zero_references()), (1, 1));
    sim.solo(0, |_| {
        vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("sound");
        spaces.into_iter().for_each(|space| vm.exit(space));
        assert_eq!(vm.shrink_zeros(), 0);
    })
    .unwrap_or_else(|stop| panic!("{stop}"));
    taken.get() as f64 / (readers as u64 * SLOTS * SLOT / (16 * PAGE)) as f64
}

#[test]
fn d_13_a_read_of_kept_zeros_takes_as_many_cycles_beside_71_readers_as_alone() {
    let [one, eight, all] = [1, 8, 72].map(at_once);
    println!("cycles a read: {one:.2} alone, {eight:.2} of 8 readers, {all:.2} of 72");
    for many in [eight, all] {
        assert!(
            (many / one - 1.0).abs() < 0.05,
            "{one:.2} cycles a read alone, {many:.2} beside others"
        );
    }
}
