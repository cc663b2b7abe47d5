//! Same seed, same bytes: run twice, and two machines of different geometry side by side in two
//! threads.

use std::cell::Cell;

use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::machine::Use;
use vellum::space::{Access, Advice, Attrs, Placement, Rights};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::tlb::{NestedShape, PageSize, WalkCacheShape};
use vellum_sim::{Cpu, Kind, Meta, Mode, Options, Parts, Program, SimMachine, file};

/// A workload on four CPUs; everything countable afterwards, as text.
fn run<F: Format>(machine: &str, options: Options, thp: Thp) -> String {
    let file = file::preset(machine).expect("a preset");
    run_parts::<F>(&Parts::of(&file, options.seed), options, thp)
}

fn run_parts<F: Format>(parts: &Parts, options: Options, thp: Thp) -> String {
    let sim = SimMachine::<F>::build(parts, options).expect("it can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm =
        unsafe { Vm::new(sim, Config { thp, ..Config::default() }, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let bytes = 6 << 20;
    let space = sim.solo(0, |_| vm.create().expect("memory")).expect("no stop");
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let at = sim
        .solo(0, |_| vm.map(&space, Placement::Anywhere, bytes, attrs).expect("a hole").0)
        .expect("no stop");
    let cpus = sim.topology().cpus.min(4);
    let finished = Cell::new(0);
    let outcome = sim.run(|run| {
        for id in 0..cpus {
            let (vm, space, finished) = (&vm, &space, &finished);
            run.spawn(id, move |cpu: &Cpu<'_, F>| {
                vm.activate(space);
                let mut rng = Rng::new(id as u64);
                let mut p = Program::new(cpu, |va, kind| {
                    let access = if kind == Kind::Store { Access::Write } else { Access::Read };
                    vm.fault(space, Va(va), access).map(|_| ())
                });
                for n in 0..1500u64 {
                    let va = at + (rng.below(bytes) & !7);
                    let kind = if rng.one_in(3) { Kind::Store } else { Kind::Load };
                    p.access(va, 8, kind, rng.one_in(5)).expect("mapped");
                    cpu.retire(rng.below(20));
                    if n % 300 == 299 {
                        vm.advise(
                            space,
                            Va(at + (rng.below(bytes) & !0x1f_ffff)),
                            64 << 12,
                            Advice::DontNeed,
                        )
                        .expect("mapped");
                    }
                }
                finished.set(finished.get() + 1);
            });
        }
    });
    let outcome = outcome.unwrap_or_else(|stop| panic!("{stop}"));
    assert_eq!(finished.get(), cpus);
    let mut text = format!("{outcome:?}\n");
    for cpu in 0..cpus {
        let c = sim.counters(cpu);
        let sum: u64 = c.iter().filter(|(n, _)| n.starts_with("cycles_")).map(|(_, v)| v).sum();
        assert_eq!(Some(sum), c.get("cycles"), "the accounts add up to the clock of CPU {cpu}");
        assert_eq!(c.get("cycles"), Some(sim.clock(cpu)));
        let (charges, charged) =
            c.charges().flat_map(|(_, both)| both).fold((0, 0), |(n, sum), v| (n + 1, sum + v));
        let rounded = sum.checked_sub(charged).expect("nothing is charged twice");
        assert!(rounded <= charges, "{charged} of {sum} cycles have a constant");
        c.iter().for_each(|(name, value)| text += &format!("{cpu} {name} {value}\n"));
    }
    let usage = vm.usage(&space);
    let all = sim.total();
    assert!(all.get("page_faults") >= Some(1) && all.get("dtlb_l1_misses") >= all.get("stlb_hits"));
    let shared = usage.rss_pages;
    assert_eq!(shared, sim.frames_in(Use::Data), "resident pages are the data frames in use");
    text += &format!("{usage:?} {:?} {:?}", vm.stats(), sim.traffic(0));
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    text
}

fn hunting(seed: u64) -> Options {
    Options { seed, mode: Mode::Hunting, ..Options::default() }
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_timing_and_in_hunting_mode() {
    for options in [Options::default(), hunting(1)] {
        assert_eq!(
            run::<X86>("tiny", options, Thp::Always),
            run::<X86>("tiny", options, Thp::Always)
        );
        assert_eq!(
            run::<X86>("westmere-ex", options, Thp::Never),
            run::<X86>("westmere-ex", options, Thp::Never)
        );
    }
}

#[test]
fn a_guest_gives_the_same_bytes_each_time_and_others_than_a_machine_of_its_own() {
    for options in [Options::default(), hunting(1)] {
        let own = Parts::of(&file::preset("tiny").expect("a preset"), options.seed);
        for page in PageSize::ALL {
            let walk = WalkCacheShape::default();
            let nested = Some(NestedShape { page, levels: 4, entries: 2, ways: 2, walk });
            let guest = Parts { nested, ..own.clone() };
            let text = run_parts::<X86>(&guest, options, Thp::Always);
            assert_eq!(text, run_parts::<X86>(&guest, options, Thp::Always));
            assert_ne!(text, run_parts::<X86>(&own, options, Thp::Always));
        }
    }
}

#[test]
fn another_seed_gives_another_order_when_hunting() {
    assert_ne!(
        run::<X86>("tiny", hunting(1), Thp::Never),
        run::<X86>("tiny", hunting(2), Thp::Never)
    );
}

#[test]
fn machines_of_different_geometry_side_by_side_give_what_each_gives_alone() {
    let alone = (
        run::<X86>("milan", Options::default(), Thp::Always),
        run::<Arm>("thunderx2", Options::default(), Thp::Never),
        run::<X86>("tiny", hunting(5), Thp::Never),
    );
    let together = std::thread::scope(|s| {
        let a = s.spawn(|| run::<X86>("milan", Options::default(), Thp::Always));
        let b = s.spawn(|| run::<Arm>("thunderx2", Options::default(), Thp::Never));
        let c = s.spawn(|| run::<X86>("tiny", hunting(5), Thp::Never));
        (a.join().expect("no panic"), b.join().expect("no panic"), c.join().expect("no panic"))
    });
    assert_eq!(alone, together);
}

#[test]
fn two_machines_interleaved_in_one_thread_do_not_know_of_each_other() {
    let alone = run::<X86>("tiny", Options::default(), Thp::Never);
    let file = file::preset("tiny").expect("a preset");
    let other = SimMachine::<X86>::new(&file, hunting(3)).expect("it can be built");
    let inner =
        other.solo(2, |_| run::<X86>("tiny", Options::default(), Thp::Never)).expect("no stop");
    assert_eq!(alone, inner);
}
