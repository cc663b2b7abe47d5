//! Time: every tick of a CPU's clock on one account, interrupts that cost what the machine says,
//! CPUs that take turns by their clocks.

use crate::common::*;
use crate::script;
use std::cell::{Cell, RefCell};
use vellum::entry::Entry;
use vellum::machine::{CpuMask, Hooks, Machine, Scope, Verb, Work};
use vellum_sim::format::{Arm, X86};
use vellum_sim::memory::Ticks;
use vellum_sim::{Check, Cpu, Kind, Mode, Options, Rule, SimMachine};
use vellum_testkit::ext::MachineExt;

fn cycles(sim: &SimMachine<X86>, cpu: usize, name: &str) -> u64 {
    sim.counters(cpu).get(name).expect("a counter")
}

fn tiny() -> SimMachine<X86> {
    SimMachine::build(&parts(MmuKind::X86), Options::default()).expect("tiny can be built")
}

#[test]
fn every_cycle_is_on_one_account_and_they_add_up_to_the_clock() {
    for check in [Check::Incremental, Check::Walk] {
        for h in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
            play(
                h,
                options(check),
                &script!(k, cpu, {
                    for n in 0..40 {
                        k.verb(Verb::Fault, || k.map(A + n * 4096, RW));
                        store(cpu, A + n * 4096);
                        cpu.script(1, |c| load(c, A + n * 4096));
                    }
                    k.verb(Verb::Unmap, || {
                        k.set(A, Entry::Empty);
                        k.flush(&[0, 1], k.page(A));
                    });
                    cpu.retire(1001);
                    cpu.syscall();
                    for id in 0..2 {
                        let c = k.sim.counters(id);
                        let get = |n| c.get(n).expect("a counter");
                        let parts: u64 = c
                            .iter()
                            .filter(|(n, _)| n.starts_with("cycles_"))
                            .map(|(_, v)| v)
                            .sum();
                        assert_eq!((parts, get("cycles")), (k.sim.clock(id), k.sim.clock(id)));
                    }
                    let c = k.sim.counters(0);
                    for name in [
                        "cycles_program",
                        "cycles_fault",
                        "cycles_clear",
                        "cycles_flush",
                        "cycles_call",
                    ] {
                        assert!(c.get(name) > Some(0), "{name}");
                    }
                }),
            )
            .unwrap_or_else(|stop| panic!("{stop}"));
        }
    }
}

#[test]
fn work_costs_what_the_machine_file_says_on_the_account_of_the_verb() {
    let sim = tiny();
    let cost = parts(MmuKind::X86).costs.work[Work::Descend as usize];
    sim.solo(0, |_| {
        sim.begin(Verb::Fault);
        sim.work(Work::Descend, 1000);
        sim.end(Verb::Fault);
    })
    .expect("no stop");
    assert_eq!(cycles(&sim, 0, "cycles_fault"), (cost * 1000).cycles());
    assert_eq!(cycles(&sim, 0, "cycles"), (cost * 1000).cycles());
}

#[test]
fn an_interrupt_costs_the_sender_the_way_there_the_handler_and_the_acknowledgement() {
    let sim = tiny();
    let c = parts(MmuKind::X86).costs;
    let mut mask = CpuMask::EMPTY;
    mask.insert(1);
    sim.solo(0, |_| sim.flush_remote(&mask, Scope::All)).expect("no stop");
    let expect = c.interrupt_send
        + c.interrupt_deliver
        + c.interrupt_handle
        + c.flush_full
        + c.interrupt_ack;
    assert_eq!(cycles(&sim, 0, "cycles_flush"), expect.cycles());
    assert_eq!(cycles(&sim, 1, "cycles_flush"), (c.interrupt_handle + c.flush_full).cycles());
    assert_eq!((cycles(&sim, 0, "ipi_sent"), cycles(&sim, 1, "ipi_received")), (1, 1));
}

#[test]
fn a_busy_cpu_serves_an_interrupt_between_two_accesses_and_loses_its_time() {
    let sim = tiny();
    let c = parts(MmuKind::X86).costs;
    let mut mask = CpuMask::EMPTY;
    mask.insert(1);
    sim.run(|run| {
        run.spawn(0, |cpu: &Cpu<'_, X86>| {
            cpu.retire(10_000);
            cpu.machine().flush_remote(&mask, Scope::All);
        });
        run.spawn(1, |cpu: &Cpu<'_, X86>| (0..40_000).for_each(|_| cpu.retire(1)));
    })
    .expect("no stop");
    assert_eq!(cycles(&sim, 1, "ipi_received"), 1);
    assert_eq!(cycles(&sim, 1, "cycles_flush"), (c.interrupt_handle + c.flush_full).cycles());
    assert_eq!(cycles(&sim, 1, "cycles_program"), 20_000, "40,000 instructions at two a cycle");
    let waited = cycles(&sim, 0, "cycles_flush");
    let least = c.interrupt_send
        + c.interrupt_deliver
        + c.interrupt_handle
        + c.flush_full
        + c.interrupt_ack;
    // The busy CPU may be ahead by the quantum when it is asked.
    let most = least.cycles() + Options::default().quantum + 50;
    assert!((least.cycles()..most).contains(&waited), "{waited}");
}

#[test]
fn a_broadcast_interrupts_nobody() {
    let sim = SimMachine::<Arm>::build(&parts(MmuKind::Arm), Options::default())
        .expect("tiny can be built");
    let mut mask = CpuMask::EMPTY;
    mask.insert(3);
    sim.solo(0, |_| sim.flush_remote(&mask, Scope::All)).expect("no stop");
    let total = sim.total();
    assert_eq!((total.get("broadcasts"), total.get("ipi_received")), (Some(1), Some(0)));
    assert_eq!(sim.clock(3), 0, "the other CPU lost no time");
    assert!(sim.clock(0) > 0);
}

#[test]
fn the_cpu_that_is_behind_runs() {
    let sim = tiny();
    let order = RefCell::new(Vec::new());
    sim.run(|run| {
        for id in 0..3usize {
            let order = &order;
            run.spawn(id, move |cpu: &Cpu<'_, X86>| {
                for _ in 0..30 {
                    cpu.retire(1000 * (id as u64 + 1));
                    order.borrow_mut().push((cpu.now(), id));
                }
            });
        }
    })
    .expect("no stop");
    let order = order.borrow();
    let quantum = Options::default().quantum;
    for pair in order.windows(2) {
        assert!(
            pair[1].0 + quantum + 1500 >= pair[0].0,
            "{pair:?}: one CPU ran far ahead of another"
        );
    }
    let early: Vec<_> = order.iter().take(12).map(|o| o.1).collect();
    assert!(early.contains(&0) && early.contains(&1) && early.contains(&2), "{early:?}");
}

#[test]
fn a_cpu_that_waits_for_another_skips_to_its_time() {
    let sim = tiny();
    let flag = Cell::new(false);
    sim.run(|run| {
        run.spawn(0, |cpu: &Cpu<'_, X86>| cpu.wait_for(|| flag.get()));
        run.spawn(1, |cpu: &Cpu<'_, X86>| {
            (0..1000).for_each(|_| cpu.retire(1000));
            flag.set(true);
        });
    })
    .expect("no stop");
    assert!(sim.clock(0) >= 499_000, "{}", sim.clock(0));
    assert!(cycles(&sim, 0, "cycles_idle") >= 499_000);
}

#[test]
fn a_wait_for_a_condition_is_the_same_as_rounds_of_waiting() {
    let played = |by_rounds: bool, mode: Mode, seed: u64| {
        let options = Options { seed, mode, ..Options::default() };
        let sim = SimMachine::build(&parts(MmuKind::X86), options).expect("tiny can be built");
        let (turn, asked) = (Cell::new(0), Cell::new(0u64));
        sim.run(|run| {
            for id in 0..3 {
                let (turn, asked) = (&turn, &asked);
                let mut others = CpuMask::EMPTY;
                (0..3).filter(|other| *other != id).for_each(|other| others.insert(other));
                run.spawn(id, move |cpu: &Cpu<'_, X86>| {
                    for round in 0..20 {
                        let mine = || {
                            asked.set(asked.get() + 1);
                            turn.get() == round * 3 + id
                        };
                        if by_rounds {
                            while !mine() {
                                cpu.relax();
                            }
                        } else {
                            cpu.wait_for(mine);
                        }
                        (0..10 + id).for_each(|_| cpu.retire(700));
                        if round % 4 == 0 {
                            cpu.machine().flush_remote(&others, Scope::All);
                        }
                        turn.set(turn.get() + 1);
                    }
                });
            }
        })
        .expect("no stop");
        let counters: Vec<_> = (0..3).map(|id| (sim.clock(id), sim.counters(id))).collect();
        (asked.get(), format!("{counters:?}"))
    };
    for (mode, seed) in [(Mode::Timing, 1), (Mode::Hunting, 1), (Mode::Hunting, 2)] {
        let rounds = played(true, mode, seed);
        assert!(rounds.0 > 300, "too few waits to say anything: {}", rounds.0);
        let asked = played(false, mode, seed);
        assert_eq!(asked.1, rounds.1, "{mode:?}, seed {seed}");
        // What cannot have come true is not asked again.
        assert!(asked.0 * if mode == Mode::Timing { 5 } else { 1 } <= rounds.0, "{}", asked.0);
    }
}

/// What is told of the last line is as good as a look, where lines take time to come, too: others'
/// turns make a CPU forget it.
#[test]
fn a_cpu_takes_as_long_beside_one_that_waits_as_alone() {
    let clock = |quantum: u64, beside: Option<bool>| {
        let mut p = parts(MmuKind::X86);
        p.first.refill = Some(Ticks::from_cycles(20));
        (p.core.fill_buffers, p.core.window) = (16, 224);
        let options = Options { quantum, ..Options::default() };
        let sim = SimMachine::<X86>::build(&p, options).expect("tiny can be built");
        let next = Cell::new(16);
        let k = Kernel::new(&sim, &next, 0);
        k.map_huge(A, RW);
        let done = Cell::new(false);
        sim.run(|run| {
            let (k, done) = (&k, &done);
            run.spawn(0, move |cpu| {
                k.load();
                for n in 0..400 {
                    let line = A + n * 64;
                    for (at, dependent) in
                        [(line, true), (line, true), (line, false), (line + (64 << 10), true)]
                    {
                        cpu.access(at, 8, Kind::Load, dependent).expect("mapped");
                    }
                    cpu.retire(n * 3 % 13);
                }
                done.set(true);
            });
            match beside {
                Some(true) => run.spawn(1, |cpu| cpu.wait_for(|| done.get())),
                Some(false) => run.spawn(1, |cpu| cpu.wait_until(|| done.get())),
                None => {}
            }
        })
        .expect("no stop");
        sim.clock(0)
    };
    let alone = clock(500, None);
    for quantum in [3, 7, 500] {
        for way in [true, false] {
            assert_eq!(clock(quantum, Some(way)), alone, "quantum {quantum}, told: {way}");
        }
    }
}

/// A CPU whose accesses all end where they begin lets others have their turns, too.
#[test]
fn cpus_that_use_one_line_each_take_turns() {
    let options = Options { quantum: 100, ..Options::default() };
    let sim = SimMachine::<X86>::build(&parts(MmuKind::X86), options).expect("tiny can be built");
    let next = Cell::new(16);
    let k = Kernel::new(&sim, &next, 0);
    k.map_huge(A, RW);
    let (last, turns) = (Cell::new(0), Cell::new(0));
    sim.run(|run| {
        for id in 0..2 {
            let (k, last, turns) = (&k, &last, &turns);
            run.spawn(id, move |cpu| {
                k.load();
                for _ in 0..10_000 {
                    cpu.access(A + id as u64 * 4096, 8, Kind::Load, false).expect("mapped");
                    turns.set(turns.get() + u64::from(last.replace(id) != id));
                }
            });
        }
    })
    .expect("no stop");
    assert!(turns.get() > 10, "{} turns", turns.get());
}

/// A script runs in a program's place while another CPU waits for that program's flush.
#[test]
fn a_flush_asked_before_a_script_begins_is_served() {
    for seed in 1..60 {
        let options = Options { seed, mode: Mode::Hunting, ..Options::default() };
        let sim =
            SimMachine::<X86>::build(&parts(MmuKind::X86), options).expect("tiny can be built");
        let next = Cell::new(16);
        let (k, flushed) = (Kernel::new(&sim, &next, 0), Cell::new(false));
        sim.run(|run| {
            let (k, flushed) = (&k, &flushed);
            run.spawn(0, move |cpu| {
                k.load();
                cpu.retire(700);
                k.verb(Verb::Unmap, || k.flush(&[0, 1], k.page(A)));
                flushed.set(true);
            });
            run.spawn(1, move |cpu| {
                k.load();
                (0..seed % 7).for_each(|_| cpu.retire(300));
                cpu.script(2, |other| other.wait_until(|| flushed.get()));
            });
        })
        .unwrap_or_else(|stop| panic!("seed {seed}: {stop}"));
    }
}

#[test]
fn waiting_for_what_nobody_will_do_stops() {
    let sim = tiny();
    let stop = sim.solo(0, |cpu| cpu.wait_until(|| false)).expect_err("nothing can end it");
    assert_eq!(stop.rule, Rule::Livelock);
    let sim = tiny();
    let stop = sim.solo(0, |cpu| cpu.wait_for(|| false)).expect_err("nothing can end it");
    assert_eq!(stop.rule, Rule::Livelock);
}

#[test]
fn several_that_wait_for_what_nobody_will_do_stop_where_rounds_of_waiting_do() {
    let played = |by_rounds: bool, cpus: usize| {
        let sim = tiny();
        let stop = sim.run(|run| {
            for id in 0..cpus {
                run.spawn(id, move |cpu: &Cpu<'_, X86>| {
                    cpu.retire(3 * id as u64);
                    if by_rounds { cpu.wait_until(|| false) } else { cpu.wait_for(|| false) }
                });
            }
        });
        let stop = stop.expect_err("nothing can end it");
        assert_eq!(stop.rule, Rule::Livelock);
        (stop.cpu, stop.clock, (0..cpus).map(|id| sim.clock(id)).collect::<Vec<_>>())
    };
    for cpus in [2, 3] {
        assert_eq!(played(false, cpus), played(true, cpus));
    }
}

#[test]
fn a_panic_in_a_program_reaches_the_caller_and_leaves_the_machine_usable() {
    let sim = tiny();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim.solo(0, |_| assert_eq!(1, 2, "a test's own failure"))
    }));
    assert!(r.is_err());
    assert_eq!(sim.solo(1, |cpu| cpu.id()).expect("no stop"), 1);
}

#[test]
fn independent_loads_overlap_and_dependent_ones_do_not() {
    play(
        MmuKind::X86,
        options(Check::Incremental),
        &script!(k, cpu, {
            let pages = 64;
            (0..pages).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
            let time = |dependent| {
                let start = cpu.now();
                for n in 0..pages * 64 {
                    cpu.access(A + n * 64, 8, Kind::Load, dependent).expect("mapped");
                }
                cpu.now() - start
            };
            let (independent, dependent) = (time(false), time(true));
            assert!(dependent > 2 * independent, "{dependent} against {independent}");
        }),
    )
    .unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn an_access_over_a_line_and_a_page_boundary_is_two() {
    play(
        MmuKind::X86,
        options(Check::Incremental),
        &script!(k, cpu, {
            k.map(A, RW);
            assert!(cpu.access(A + 4092, 8, Kind::Load, false).is_err_and(|f| f.va == A + 4096));
            k.map(A + 4096, RW);
            let before = k.sim.counters(0);
            assert!(cpu.access(A + 4092, 8, Kind::Load, false).is_ok());
            assert_eq!(k.sim.counters(0).since(&before).get("loads"), Some(2));
        }),
    )
    .unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn walks_that_hold_up_dependent_loads_are_on_their_account() {
    play(
        MmuKind::X86,
        options(Check::Incremental),
        &script!(k, cpu, {
            (0..64).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
            let before = k.sim.counters(0);
            for n in 0..640 {
                cpu.access(A + n * 7 % 64 * 4096, 8, Kind::Load, true).expect("mapped");
            }
            let c = k.sim.counters(0).since(&before);
            let get = |n| c.get(n).expect("a counter");
            assert!(get("walks_data") > 600, "tiny's TLBs hold next to nothing");
            let (held_up, walking) = (get("cycles_walk"), get("walk_cycles"));
            assert!(
                held_up > walking / 2 && held_up <= walking + 640 * 10,
                "{held_up} of {walking}"
            );
        }),
    )
    .unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn hits_of_the_second_level_tlb_are_on_an_account_of_their_own() {
    play(
        MmuKind::X86,
        options(Check::Incremental),
        &script!(k, cpu, {
            const PAGES: u64 = 4;
            (0..PAGES).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
            let turns = |count: u64| {
                (0..count * PAGES).for_each(|n| {
                    cpu.access(A + n % PAGES * 4096, 8, Kind::Load, true).expect("mapped");
                });
            };
            turns(2);
            let before = k.sim.counters(0);
            turns(10);
            let c = k.sim.counters(0).since(&before);
            let get = |n| c.get(n).expect("a counter");
            assert_eq!([get("stlb_hits"), get("walks_data")], [10 * PAGES, 0]);
            assert_eq!(get("cycles_walk"), 0);
            assert!(get("cycles_stlb") >= 10 * PAGES, "{}", get("cycles_stlb"));
        }),
    )
    .unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn bytes_the_kernel_moves_go_through_its_cpus_caches_and_take_time() {
    let sim = tiny();
    let next = Cell::new(16);
    sim.solo(0, |_| {
        let k = Kernel::new(&sim, &next, 0);
        let pfn = k.data();
        let before = sim.counters(0);
        k.verb(Verb::Copy, || sim.poke(pfn, 60, &[7; 72]));
        let mut got = [0; 72];
        k.verb(Verb::Copy, || sim.peek(pfn, 60, &mut got));
        assert_eq!(got, [7; 72]);
        let d = sim.counters(0).since(&before);
        assert_eq!(d.get("l1d_kernel_access"), Some(6), "three lines, twice");
        assert!(d.get("cycles_call") > Some(0));
    })
    .expect("no stop");
}
