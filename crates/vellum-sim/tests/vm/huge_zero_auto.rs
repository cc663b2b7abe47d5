//! `zero.huge=auto` beside the fixed forms, in cycles of the simulated machine: within 8 % of the better one on the published workloads, within
//! 1.15x on loads it was not built on. Footprints are the published ones; what a test leaves out of a comparison, it says.
//!
//! With `auto` nothing is populated: it sees first faults or nothing. The kernel's timer is played by the load, which lets the space be
//! reconsidered each simulated millisecond.

use std::cell::Cell;

use vellum::addr::Va;
use vellum::config::Config;
use vellum::space::{Access, Attrs, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum::zero::auto::{ZeroChoice, ZeroForm, ZeroWhy};
use vellum::zero::decided::{ZeroDecision, ZeroReason};
use vellum_sim::file::Codec;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Cpu, Kind, Meta, Options, Program, SimMachine, file};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const AT: u64 = 16 * GIB;
const HALF: u64 = 4 * GIB;

/// What a load does with: loads at an offset, at most some instructions apart, and a clock.
struct Hand<'h> {
    load: &'h mut dyn FnMut(u64, bool),
    /// Told before an access to be a store.
    storing: &'h Cell<bool>,
    retire: &'h dyn Fn(u64),
    tick: &'h mut dyn FnMut(),
}

impl Hand<'_> {
    /// Two loads half the memory apart in each `step` of `bytes`, with the instructions of the published loops.
    fn pairs(&mut self, bytes: u64, step: u64, beside: u64) {
        for at in (0..bytes).step_by(step as usize) {
            (self.load)(at, false);
            (self.load)(HALF + at, false);
            (self.retire)(beside);
            if at.is_multiple_of(MIB) {
                (self.tick)();
            }
        }
    }
    /// What a program does that reads before it writes.
    fn read_then_write(&mut self, bytes: u64, step: u64) {
        for storing in [false, true] {
            self.storing.set(storing);
            self.walk(bytes, step);
        }
        self.storing.set(false);
    }
    fn walk(&mut self, bytes: u64, step: u64) {
        for at in (0..bytes).step_by(step as usize) {
            (self.load)(at, false);
            (self.retire)(7);
            if at.is_multiple_of(MIB) {
                (self.tick)();
            }
        }
    }
}

/// A load: one round of it.
type Load = fn(&mut Hand<'_>, &mut Rng);

/// What came of a load.
struct Ran {
    /// Cycles of each round, faults included.
    taken: Vec<u64>,
    /// What was chosen in the end.
    choice: ZeroChoice,
    /// How often it was reconsidered.
    again: i64,
    /// What was decided on the way.
    decisions: Vec<ZeroDecision>,
    /// KiB of the program's memory and of its tables in the end, and faults.
    cost: [u64; 3],
}

fn rounds(preset: &str, bytes: u64, form: &str, load: Load, rounds: usize) -> Ran {
    let machine = file::preset(preset).expect("a preset");
    match *machine.mmu.codec {
        Codec::X86_64 => rounds_on::<X86>(&machine, bytes, form, load, rounds),
        Codec::Aarch64 => rounds_on::<Arm>(&machine, bytes, form, load, rounds),
    }
}

fn rounds_on<F: Format>(machine: &file::Machine, bytes: u64, form: &str, load: Load, rounds: usize) -> Ran {
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
        let storing = Cell::new(false);
        let mut program = Program::new(cpu, |va, kind| {
            let access = if kind == Kind::Store { Access::Write } else { Access::Read };
            vm.fault(&space, Va(va), access).map(|_| ())
        });
        let next = Cell::new(cpu.now());
        let millisecond = 1000 * vellum::machine::Machine::cycles_per_us(sim);
        let mut rng = Rng::new(7);
        // The page of zeros is the machine's: whoever read first has paid for it.
        vm.keep_zeros().expect("memory");
        let mut taken = Vec::new();
        let mut decisions = Vec::new();
        for _ in 0..rounds {
            let before = cpu.now();
            load(
                &mut Hand {
                    load: &mut |at, dependent| {
                        let kind = if storing.get() { Kind::Store } else { Kind::Load };
                        program.access(AT + at, 8, kind, dependent).expect("mapped");
                    },
                    storing: &storing,
                    retire: &|n| cpu.retire(n),
                    tick: &mut || {
                        if cpu.now() >= next.get() {
                            next.set(cpu.now() + millisecond);
                            vm.reconsider_zeros(&space);
                        }
                    },
                },
                &mut rng,
            );
            taken.push(cpu.now() - before);
            decisions.extend(std::iter::from_fn(|| vm.take_zero_decision()));
        }
        // SAFETY: the load is at its end.
        unsafe { vm.validate(&[&space]) }.expect("everything adds up");
        assert!(decisions.iter().all(|d: &ZeroDecision| d.is_of(&space) && d.lost == 0));
        let (usage, stats) = (vm.usage(&space), vm.stats());
        Ran {
            taken,
            choice: vm.zero_choice(&space),
            again: stats.get(Counter::ZeroAutoForget),
            decisions,
            cost: [usage.rss_pages * 4, usage.table_nodes * 4, stats.get(Counter::Faults) as u64],
        }
    })
    .expect("no stop")
}

/// Total cycles of rounds `from` to the end by page, table and auto; prints all and what was decided, and says auto's ratio to the better.
fn ratio(preset: &str, bytes: u64, name: &str, load: Load, n: usize, from: usize) -> (f64, ZeroChoice) {
    let sum = |taken: &[u64]| taken[from..].iter().sum::<u64>() as f64;
    let [page, table] = ["page", "table"].map(|form| sum(&rounds(preset, bytes, form, load, n).taken));
    let Ran { taken, choice, again, decisions, .. } = rounds(preset, bytes, "auto", load, n);
    let auto = sum(&taken);
    let better = page.min(table);
    println!(
        "{preset} {name}: page {page:.4e}, table {table:.4e}, auto {auto:.4e} cycles, {:.3} of the better; \
         {again} times reconsidered, then {choice:?}",
        auto / better
    );
    for d in decisions.iter().filter(|d| matches!(d.why, ZeroReason::Visits { .. })) {
        println!("    at {:.2e}, {:?}: {:?}", d.at as f64, d.to, d.why);
    }
    (auto / better, choice)
}

#[test]
#[ignore = "half a minute or more of CPU time: `scripts/soak long`"]
fn benchmark_1_is_within_8_percent_of_the_better_form_in_its_very_first_loop() {
    // 4 GiB compared with 4 GiB, every fault and every wrong start counted: 99 more loops follow where it was published.
    let load: Load = |hand, _| hand.pairs(HALF, 64, 18);
    let (ratio, choice) = ratio("westmere-ex", 2 * HALF, "benchmark 1", load, 1, 0);
    assert!(ratio < 1.08, "{ratio}");
    assert_eq!(choice.form, ZeroForm::Table);
}

#[test]
fn benchmark_2_is_within_8_percent_of_the_better_form() {
    // From the second of 1000 loops on: the first is mostly faults, of which a table of a whole GiB takes a 512th.
    let load: Load = |hand, _| hand.pairs(HALF, 4 * KIB, 7);
    let (ratio, choice) = ratio("westmere-ex", 2 * HALF, "benchmark 2", load, 12, 1);
    assert!(ratio < 1.08, "{ratio}");
    assert_eq!((choice.form, choice.why), (ZeroForm::Page, ZeroWhy::Measured));
}

#[test]
fn the_rss_demonstration_is_within_8_percent_of_the_better_form() {
    // 200 MiB, a byte of each 4 KiB, once: nothing but first faults.
    let load: Load = |hand, _| hand.walk(200 * MIB, 4 * KIB);
    let (ratio, _) = ratio("westmere-ex", 200 * MIB, "RSS demonstration", load, 1, 0);
    assert!(ratio < 1.08, "{ratio}");
}

#[test]
fn an_array_read_along_each_of_its_axes_is_within_8_percent_of_the_better_form() {
    // As a three-dimensional transform reads what nobody wrote: 512 x 512 x 64 complex numbers, along rows, columns and planes.
    let load: Load = |hand, _| {
        let (row, plane, bytes) = (8 * KIB, 4 * MIB, 256 * MIB);
        hand.walk(bytes, 16);
        for (outer, inner) in [(plane, row), (bytes, plane)] {
            for start in (0..bytes).step_by(outer as usize) {
                for column in (0..inner).step_by(64 * 1024.min(inner as usize / 128)) {
                    for at in (0..outer).step_by(inner as usize) {
                        (hand.load)(start + column + at, false);
                        (hand.retire)(7);
                    }
                }
                (hand.tick)();
            }
        }
    };
    let (ratio, _) = ratio("westmere-ex", 256 * MIB, "three axes", load, 2, 0);
    assert!(ratio < 1.08, "{ratio}");
}

/// 64 KiB apart through 8 GiB, 128 rounds, all of them counted.
const STRIDE: Load = |hand, _| hand.walk(2 * HALF, 64 * KIB);

/// 1,000,000 words in 8 GiB, by Zipf's law over pages of 4 KiB with exponent 1: the r-th page as often as 1/r.
fn zipf(hand: &mut Hand<'_>, rng: &mut Rng, dependent: bool) {
    for n in 0..1_000_000u64 {
        // 2^u for a u from 0 to 21, in halves: an octave of ranks, then one of it.
        let octave = rng.below(21);
        let page = (1 << octave) - 1 + rng.below(1 << octave);
        (hand.load)(page * 4 * KIB + rng.below(512) * 8, dependent);
        (hand.retire)(7);
        if n.is_multiple_of(1024) {
            (hand.tick)();
        }
    }
}

#[test]
#[ignore = "half a minute or more of CPU time: `scripts/soak long`"]
fn loads_it_was_not_built_on_are_within_1_15_of_the_better_form() {
    let loads: [(&str, Load, usize); 4] = [
        ("64 KiB stride", STRIDE, 128),
        ("Zipf", |hand, rng| zipf(hand, rng, false), 6),
        ("Zipf, each load waits for the last", |hand, rng| zipf(hand, rng, true), 6),
        (
            "uniform",
            |hand, rng| {
                for n in 0..1_000_000u64 {
                    (hand.load)(rng.below(GIB) * 8, false);
                    (hand.retire)(7);
                    if n.is_multiple_of(1024) {
                        (hand.tick)();
                    }
                }
            },
            6,
        ),
    ];
    for preset in ["westmere-ex", "milan"] {
        for (name, load, n) in loads {
            let (ratio, choice) = ratio(preset, 2 * HALF, name, load, n, 0);
            assert!(ratio < 1.15, "{preset} {name}: {ratio}");
            // Where walks are slow and lines of 2 MiB of zeros wait side by side. First faults do not show it, accessed bits do.
            if (preset, name) == ("westmere-ex", "Zipf") {
                assert_eq!((choice.form, choice.why), (ZeroForm::Page, ZeroWhy::Visited));
            }
        }
    }
}

#[test]
#[ignore = "half a minute or more of CPU time: `scripts/soak long`"]
fn alternating_phases_on_the_same_memory_are_within_1_15_of_the_better_form() {
    let loads: [(&str, Load, usize); 3] = [
        (
            "equal passes, sparse first",
            |hand, _| {
                hand.pairs(GIB / 2, 4 * KIB, 7);
                hand.pairs(GIB / 2, 64, 18);
            },
            4,
        ),
        (
            "equal times, sparse first",
            |hand, _| {
                (0..64).for_each(|_| hand.pairs(GIB / 2, 4 * KIB, 7));
                hand.pairs(GIB / 2, 64, 18);
            },
            2,
        ),
        (
            "equal times, dense first",
            |hand, _| {
                hand.pairs(GIB / 2, 64, 18);
                (0..64).for_each(|_| hand.pairs(GIB / 2, 4 * KIB, 7));
            },
            2,
        ),
    ];
    for (name, load, n) in loads {
        let (ratio, _) = ratio("westmere-ex", 2 * HALF, name, load, n, 0);
        assert!(ratio < 1.15, "{name}: {ratio}");
    }
}

#[test]
fn decisions_say_when_where_and_by_which_figures_in_the_order_they_were_made() {
    let within = |d: &ZeroDecision| d.region.0.0 >= AT && d.region.1.0 <= AT + 2 * HALF;
    // In order, a byte of each 4 KiB: one comparison, and its figures are those of the choice.
    let ran = rounds("westmere-ex", 200 * MIB, "auto", |hand, _| hand.walk(200 * MIB, 4 * KIB), 1);
    let [one] = ran.decisions[..] else { panic!("{:?}", ran.decisions) };
    assert_eq!(one.why, ZeroReason::Dwell { page: ran.choice.page, table: ran.choice.table });
    assert_eq!((one.to, ran.choice.form), (ZeroForm::Page, ZeroForm::Page));
    assert!(within(&one) && one.at > 0 && one.exchanged > 0, "{one:?}");

    // All over 8 GiB: scattered, then by whole GiB, then looked at.
    let load: Load = |hand, rng| {
        for n in 0..400_000u64 {
            (hand.load)(rng.below(GIB) * 8, false);
            (hand.retire)(7);
            if n.is_multiple_of(1024) {
                (hand.tick)();
            }
        }
    };
    let ran = rounds("westmere-ex", 2 * HALF, "auto", load, 1);
    let [first, second, third] = ran.decisions[..] else { panic!("{:?}", ran.decisions) };
    assert!(matches!(first.why, ZeroReason::Scattered { near: 0..=2 }) && first.exchanged > 0, "{first:?}");
    assert_eq!((first.from, first.to), (ZeroForm::Page, ZeroForm::Table));
    assert_eq!((second.why, second.to), (ZeroReason::Sure { eights: 2 }, ZeroForm::Table));
    let ZeroReason::Visits { page, table, of: 4096 } = third.why else { panic!("{third:?}") };
    assert!((page, table, third.to) == (4096, 4096, ZeroForm::Table), "all was visited by both: {third:?}");
    assert!(ran.decisions.is_sorted_by_key(|d| d.at) && ran.decisions[..2].iter().all(within));
}

#[test]
fn without_accessed_bits_in_table_entries_scattered_reads_keep_the_table_and_no_look_is_taken() {
    let ran = rounds("thunderx2", 2 * HALF, "auto", |hand, rng| zipf(hand, rng, false), 2);
    let again = ran.decisions.iter().find_map(|d| match d.why {
        ZeroReason::Again { cost, ran } => Some((cost, ran)),
        _ => None,
    });
    assert!(again.is_some_and(|(cost, time)| cost > 0 && cost * 64 <= time), "{:?}", ran.decisions);
    let looks = ran.decisions.iter().filter(|d| matches!(d.why, ZeroReason::Visits { .. })).count();
    assert_eq!((looks, ran.choice.form, ran.choice.why), (0, ZeroForm::Table, ZeroWhy::Scattered));
}

#[test]
fn a_look_that_chose_the_page_takes_no_more_faults_and_is_taken_again_once_it_paid() {
    let ran = rounds("westmere-ex", 2 * HALF, "auto", |hand, rng| zipf(hand, rng, false), 16);
    let looks: Vec<_> = ran.decisions.iter().filter(|d| matches!(d.why, ZeroReason::Visits { .. })).collect();
    assert!(looks.len() > 1 && looks.iter().all(|d| d.to == ZeroForm::Page), "{looks:?}");
    assert_eq!((ran.again, ran.choice.form), (0, ZeroForm::Page));
    assert!(looks.is_sorted_by(|a, b| b.at - a.at > 16 * 2_371_000), "not within 16 ms: {looks:?}");
}

/// What the default of the switch is decided by: a part of each published load, and the one that huge zeros cannot help.
#[test]
fn no_form_takes_more_memory_than_none_and_what_each_form_takes_is_printed() {
    let loads: [(&str, Load); 5] = [
        ("200 MiB read, a byte of each 4 KiB", |hand, _| hand.walk(200 * MIB, 4 * KIB)),
        ("benchmark 2, 64 MiB of each half, 4 loops", |hand, _| (0..4).for_each(|_| hand.pairs(64 * MIB, 4 * KIB, 7))),
        ("benchmark 1, 64 MiB of each half, 1 loop", |hand, _| hand.pairs(64 * MIB, 64, 18)),
        ("64 MiB, a byte of each 4 KiB read, then written", |hand, _| hand.read_then_write(64 * MIB, 4 * KIB)),
        ("64 MiB, a byte of each 2 MiB read, then written", |hand, _| hand.read_then_write(64 * MIB, 2 * MIB)),
    ];
    for (name, load) in loads {
        for preset in ["westmere-ex", "milan", "icelake-x", "thunderx2", "tiered"] {
            let forms = ["off", "page", "table", "auto"].map(|form| (form, rounds(preset, 2 * HALF, form, load, 1)));
            let [rss, _, faults] = forms[0].1.cost;
            for (form, ran) in &forms {
                let (ratio, [kib, tables, n]) = (ran.taken[0] as f64 / forms[0].1.taken[0] as f64, ran.cost);
                println!("| {name} | {preset} | {form} | {ratio:.3} | {} | {tables} | {n} |", kib / 1024);
                assert!(kib <= rss, "{name} {preset} {form}");
                match name {
                    // One fault more for each 2 MiB, and what it takes is told.
                    name if name.ends_with("then written") => {
                        assert!(kib == rss && n <= 2 * faults && ratio < 1.1, "{name} {preset} {form}: {ratio}");
                    }
                    _ if *form != "off" => assert!(kib == 0 && ratio < 1.0, "{name} {preset} {form}: {ratio}"),
                    _ => {}
                }
            }
        }
    }
}
