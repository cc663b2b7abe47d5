//! The forms of `zero.huge` beside one another: the cycles, memory, tables and faults of the
//! simulated machines. Footprints are a part of the published ones.

use vellum::addr::Va;
use vellum::config::Config;
use vellum::space::{Access, Attrs, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::file::Codec;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Cpu, Kind, Meta, Options, Program, SimMachine, file};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const AT: u64 = 16 * GIB;
const HALF: u64 = 4 * GIB;

/// What a load does with: loads or stores at an offset, and instructions beside them.
struct Hand<'h> {
    access: &'h mut dyn FnMut(u64, Kind),
    retire: &'h dyn Fn(u64),
}

impl Hand<'_> {
    /// Two loads half the memory apart in each `step` of `bytes`, with the instructions of the
    /// published loops.
    fn pairs(&mut self, bytes: u64, step: u64, beside: u64) {
        for at in (0..bytes).step_by(step as usize) {
            (self.access)(at, Kind::Load);
            (self.access)(HALF + at, Kind::Load);
            (self.retire)(beside);
        }
    }
    /// What a program does that reads before it writes.
    fn read_then_write(&mut self, bytes: u64, step: u64) {
        self.walk(bytes, step, Kind::Load);
        self.walk(bytes, step, Kind::Store);
    }
    fn walk(&mut self, bytes: u64, step: u64, kind: Kind) {
        for at in (0..bytes).step_by(step as usize) {
            (self.access)(at, kind);
            (self.retire)(7);
        }
    }
}

type Load = fn(&mut Hand<'_>);

/// What a load took.
struct Ran {
    /// Cycles, faults included.
    cycles: u64,
    /// KiB of the program's memory and of its tables in the end.
    kib: u64,
    tables_kib: u64,
    faults: u64,
}

fn ran(preset: &str, bytes: u64, form: &str, load: Load) -> Ran {
    let machine = file::preset(preset).expect("a preset");
    match *machine.mmu.codec {
        Codec::X86_64 => ran_on::<X86>(&machine, bytes, form, load),
        Codec::Aarch64 => ran_on::<Arm>(&machine, bytes, form, load),
    }
}

fn ran_on<F: Format>(machine: &file::Machine, bytes: u64, form: &str, load: Load) -> Ran {
    let sim = SimMachine::<F>::new(machine, Options::default()).expect("it can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("address space");
    let mut config = Config::default();
    config.set("zero.huge", form).expect("a form");
    // SAFETY: zeroed memory of the layout asked for, declared before the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let space: Space = sim.solo(0, |_| vm.create().expect("memory")).expect("no stop");
    sim.solo(0, |cpu: &Cpu<'_, F>| {
        vm.activate(&space);
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(Va(AT)), bytes, attrs).expect("a hole");
        let mut program = Program::new(cpu, |va, kind| {
            let access = if kind == Kind::Store { Access::Write } else { Access::Read };
            vm.fault(&space, Va(va), access).map(|_| ())
        });
        // The page of zeros is the machine's: whoever read first has paid for it.
        vm.keep_zeros().expect("memory");
        let before = cpu.now();
        load(&mut Hand {
            access: &mut |at, kind| {
                program.access(AT + at, 8, kind, false).expect("mapped");
            },
            retire: &|n| cpu.retire(n),
        });
        let cycles = cpu.now() - before;
        // SAFETY: the load is at its end.
        unsafe { vm.validate(&[&space]) }.expect("everything adds up");
        let (usage, faults) = (vm.usage(&space), vm.stats().get(Counter::Faults) as u64);
        Ran { cycles, kib: usage.rss_pages * 4, tables_kib: usage.table_nodes * 4, faults }
    })
    .expect("no stop")
}

/// What the default of the switch is decided by: a part of each published load, and the one that
/// huge zeros cannot help.
#[test]
fn no_form_takes_more_memory_than_none_and_what_each_form_takes_is_printed() {
    let loads: [(&str, Load); 5] = [
        ("200 MiB read, a byte of each 4 KiB", |hand| hand.walk(200 * MIB, 4 * KIB, Kind::Load)),
        ("benchmark 2, 64 MiB of each half, 4 loops", |hand| {
            (0..4).for_each(|_| hand.pairs(64 * MIB, 4 * KIB, 7))
        }),
        ("benchmark 1, 64 MiB of each half, 1 loop", |hand| hand.pairs(64 * MIB, 64, 18)),
        ("64 MiB, a byte of each 4 KiB read, then written", |hand| {
            hand.read_then_write(64 * MIB, 4 * KIB)
        }),
        ("64 MiB, a byte of each 2 MiB read, then written", |hand| {
            hand.read_then_write(64 * MIB, 2 * MIB)
        }),
    ];
    for (name, load) in loads {
        for preset in ["westmere-ex", "milan", "icelake-x", "thunderx2", "tiered"] {
            let forms =
                ["off", "page", "table"].map(|form| (form, ran(preset, 2 * HALF, form, load)));
            let off = &forms[0].1;
            for (form, ran) in &forms {
                let ratio = ran.cycles as f64 / off.cycles as f64;
                let (kib, tables, faults) = (ran.kib, ran.tables_kib, ran.faults);
                println!(
                    "| {name} | {preset} | {form} | {ratio:.3} | {} | {tables} | {faults} |",
                    kib / 1024
                );
                assert!(kib <= off.kib, "{name} {preset} {form}");
                match name {
                    // One fault more for each 2 MiB, and what it takes is told.
                    name if name.ends_with("then written") => {
                        assert!(
                            kib == off.kib && faults <= 2 * off.faults,
                            "{name} {preset} {form}"
                        );
                    }
                    _ if *form != "off" => assert_eq!(kib, 0, "{name} {preset} {form}"),
                    _ => {}
                }
            }
        }
    }
}
