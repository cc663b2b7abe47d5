//! B-12: with one colour every counter is what it was before there were colours.
//!
//! The snapshot was taken from commit 29d6db0, the last one with a single frame of zeros; this very
//! file ran there. It is a list of every counter of the library and the machine, but for those that
//! are time: they follow how much work the kernel does for a fault, which others change for other
//! reasons (they were compared, too, when colours were added: no difference). Since then the zeros
//! are made after the first space's own frames, so they lie elsewhere: one miss less. A change that
//! moves a counter for a good reason replaces the file with what the failing test prints, and says
//! why in its commit message.

use std::fmt::Write as _;

use crate::common::{MmuKind, parts};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::space::{Access, Advice, Attrs, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Kind, Meta, Options, Parts, Program, SimMachine, file};

const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);
const AT: u64 = 0x4000_0000;

fn handler<'v, F: Format>(
    vm: &'v Vm<SimMachine<F>>,
    space: &'v Space,
) -> impl FnMut(u64, Kind) -> Result<(), String> + 'v {
    move |va, kind| {
        let access = match kind {
            Kind::Load => Access::Read,
            Kind::Store => Access::Write,
            Kind::Fetch => Access::Exec,
        };
        vm.fault(space, Va(va), access).map(|_| ()).map_err(|e| format!("{e} at {va:#x}"))
    }
}

/// Every verb that meets zeros, on the first CPU and on the last.
fn work<F: Format>(vm: &Vm<SimMachine<F>>, cpu: usize) {
    let page = |n: u64| AT + n * 4096;
    vm.machine()
        .solo(cpu, |cpu| {
            let parent = vm.create().expect("memory");
            vm.activate(&parent);
            vm.map(&parent, Placement::At(Va(AT)), 1024 * 4096, RW).expect("a hole");
            let mut p = Program::new(cpu, handler(vm, &parent));
            for n in 0..600 {
                p.load(page(n) + n % 64 * 64, 8, n % 5 == 0).expect("mapped");
            }
            (0..600).step_by(3).for_each(|n| assert!(p.store(page(n), 8, false).is_ok()));
            let child = vm.fork(&parent).expect("memory");
            vm.activate(&child);
            let mut c = Program::new(cpu, handler(vm, &child));
            for n in 0..700 {
                assert!(
                    c.access(page(n), 8, if n % 7 == 0 { Kind::Store } else { Kind::Load }, false)
                        .is_ok()
                );
            }
            vm.protect(&child, Va(page(10)), 50 * 4096, Rights::NONE).expect("mapped");
            vm.protect(&child, Va(page(10)), 50 * 4096, Rights::READ).expect("mapped");
            vm.advise(&child, Va(page(100)), 60 * 4096, Advice::DontNeed).expect("mapped");
            vm.advise(&child, Va(page(90)), 80 * 4096, Advice::Populate { write: false })
                .expect("mapped");
            vm.remap(&child, Va(page(200)), 16 * 4096, 32 * 4096, Placement::Anywhere)
                .expect("mapped");
            let _ = vm.advise(&child, Va(AT), 512 * 4096, Advice::Collapse);
            (0..200).for_each(|n| drop(c.load(page(n), 8, true)));
            drop(c);
            vm.activate(&parent);
            vm.exit(child);
            vm.unmap(&parent, Va(page(30)), 4096).expect("mapped");
            vm.unmap(&parent, Va(page(31)), 100 * 4096).expect("mapped");
            (131..600).for_each(|n| assert!(p.load(page(n) + 128, 8, false).is_ok()));
            drop(p);
            vm.exit(parent);
        })
        .unwrap_or_else(|stop| panic!("{stop}"));
}

fn counted<F: Format>(parts: &Parts) -> String {
    let sim = SimMachine::<F>::build(parts, Options::default()).expect("it can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory for metadata");
    let mut config = Config::default();
    config.set("thp", "never").expect("a switch");
    // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let mut out = String::new();
    for cpu in [0, vm.machine().topology().cpus - 1] {
        work(&vm, cpu);
        let (stats, machine) = (vm.stats(), vm.machine().total());
        let names = Counter::ALL.iter().map(|&c| (c.name(), stats.get(c)));
        for (name, value) in names.chain(machine.iter().map(|(name, value)| (name, value as i64))) {
            if name.contains("cycles") {
                continue;
            }
            // A counter that came later belongs to a mechanism that is off here: it has nothing to
            // count.
            let later = !BEFORE.contains(&format!(" {name} "));
            assert!(!later || value == 0, "{name} counts {value} while its mechanism is off");
            if !later {
                writeln!(out, "{} {} cpu={cpu} {name} {value}", parts.name, parts.format)
                    .expect("a string");
            }
        }
    }
    vm.machine().audit(Some(0)).unwrap_or_else(|stop| panic!("{stop}"));
    out
}

/// Taken before there were colours, and before there were huge zeros (`zero.huge` is off here).
const BEFORE: &str = include_str!("one_colour.txt");

#[test]
fn b_12_with_one_colour_every_counter_is_what_it_was_before_there_were_colours() {
    let mut now = String::new();
    for mmu in [MmuKind::X86, MmuKind::Pcid] {
        now += &counted::<X86>(&parts(mmu));
    }
    now += &counted::<Arm>(&parts(MmuKind::Arm));
    now += &counted::<X86>(&Parts::of(&file::preset("milan").expect("a preset"), 1));
    now += &counted::<Arm>(&Parts::of(&file::preset("thunderx2").expect("a preset"), 1));
    let before = BEFORE;
    if now != before {
        let differences: Vec<_> =
            before.lines().zip(now.lines()).filter(|(b, n)| b != n).take(8).collect();
        eprintln!("{now}");
        panic!(
            "{} lines before, {} now; the first that differ: {differences:#?}",
            before.lines().count(),
            now.lines().count()
        );
    }
}
