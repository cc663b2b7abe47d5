//! The laws of a core.

use super::*;

const L3: Ticks = Ticks::from_cycles(63);

fn core(fill_buffers: u32) -> Core {
    let quarter = Ticks(64);
    Core::new(Overlap {
        fill_buffers,
        walkers: 1,
        window: 128,
        store_buffer: 0,
        instruction: quarter,
        l1: Ticks::from_cycles(4),
        load: Ticks::ZERO,
        mispredict: Ticks::ZERO,
        last_level_line: Ticks::ZERO,
    })
}

fn cycles_per_line(core: &mut Core, lines: u64, each: impl Fn(&mut Core)) -> f64 {
    let start = core.now();
    for _ in 0..lines {
        core.retire(5);
        each(core);
    }
    core.serialize();
    core.validate().expect("consistent");
    (core.now() - start).0 as f64 / 256.0 / lines as f64
}

#[test]
fn stride_reads_at_63_cycles_with_8_to_10_buffers_cost_about_8_cycles_a_line() {
    for (buffers, expect) in [(8, 63.0 / 8.0), (9, 7.0), (10, 6.3)] {
        let cost = cycles_per_line(&mut core(buffers), 10_000, |c| {
            c.load(L3, false);
        });
        assert!((cost - expect).abs() < 0.1, "{buffers} buffers: {cost}");
    }
}

#[test]
fn a_dependent_chain_at_63_cycles_costs_63_a_line() {
    let cost = cycles_per_line(&mut core(10), 10_000, |c| {
        c.load(L3, true);
    });
    assert!((cost - 63.0).abs() < 0.1, "{cost}");
}

#[test]
fn a_chain_of_first_level_hits_costs_its_latency_and_independent_hits_nothing() {
    let cost = cycles_per_line(&mut core(10), 10_000, |c| {
        c.hit(true);
    });
    assert!((cost - 4.0).abs() < 0.1, "{cost}");
    let cost = cycles_per_line(&mut core(10), 10_000, |c| {
        c.hit(false);
    });
    assert_eq!(cost, 1.25);
}

#[test]
fn loads_at_hand_are_issued_no_faster_than_the_load_port_takes_them() {
    let port = |load| Overlap { load: Ticks::from_cycles(load), ..core(10).overlap };
    let cost = |load| {
        let mut c = Core::new(port(load));
        cycles_per_line(&mut c, 10_000, |c| {
            c.issue(8);
            c.hit(false);
        })
    };
    assert!((cost(1) - 8.0).abs() < 0.1, "eight loads among few instructions: {}", cost(1));
    assert_eq!(cost(0), 1.25);
    // Where instructions take longer than the loads among them, the port is no limit.
    let mut c = Core::new(port(1));
    let cost = cycles_per_line(&mut c, 10_000, |c| {
        c.retire(35);
        c.issue(8);
    });
    assert!((cost - 10.0).abs() < 0.1, "{cost}");
}

#[test]
fn an_index_read_from_the_first_level_does_not_wait_for_the_miss_before_it() {
    // `a[b[i]]`: b's lines are at hand, a's are not, and no turn needs the last one's element.
    let cost = cycles_per_line(&mut core(9), 10_000, |c| {
        c.hit(false);
        c.load(L3, true);
    });
    assert!((cost - 7.0).abs() < 0.2, "{cost}");
}

#[test]
fn a_short_window_limits_overlap_before_the_buffers_do() {
    let mut c = Core::new(Overlap {
        fill_buffers: 16,
        walkers: 1,
        window: 10,
        store_buffer: 0,
        instruction: Ticks(64),
        l1: Ticks::from_cycles(4),
        load: Ticks::ZERO,
        mispredict: Ticks::ZERO,
        last_level_line: Ticks::ZERO,
    });
    let cost = cycles_per_line(&mut c, 10_000, |c| {
        c.load(L3, false);
    });
    assert!(cost > 63.0 / 3.0 && cost < 63.0, "two or three loads fit 10 instructions: {cost}");
}

/// A load that hits and depends on the last one is a load like others, of the first level's
/// latency; and the clock is made of instructions and waits.
#[test]
fn a_dependent_hit_is_a_load_that_takes_the_first_level_s_latency() {
    let mut x = 0x2545_f491_4f6c_dd1du64;
    for run in 0..200 {
        let overlap = Overlap {
            window: [10, 40, 128, 1000][run % 4],
            load: Ticks(run as u64 % 3 * 100),
            ..core(1 + run as u32 % 12).overlap
        };
        let [mut hits, mut loads] = [Core::new(overlap), Core::new(overlap)];
        for step in 0..400 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let (amount, dependent) = (x >> 20 & 63, x >> 40 & 1 != 0);
            for (n, c) in [&mut hits, &mut loads].into_iter().enumerate() {
                c.served_by((x >> 50) as u8);
                match x & 7 {
                    0 => c.retire(amount),
                    1 => c.load(Ticks::from_cycles(amount), dependent),
                    2 => c.store(Ticks::from_cycles(amount)),
                    3 => {
                        c.issue(amount / 8);
                        Ticks::ZERO
                    }
                    _ if n == 0 => c.hit(true),
                    _ => c.load_after(Ready::default(), overlap.l1, true, false),
                };
                c.validate().expect("consistent");
            }
            let seen = |c: &Core| {
                let waits = c.waits();
                assert_eq!(c.translating().walks, Ticks::ZERO);
                let waited = waits.sources.into_iter().sum::<Ticks>() + waits.port;
                assert_eq!(c.now(), c.retiring() + waited, "run {run} step {step}");
                (c.now(), c.last_load(), waits.sources, waits.port, c.limit)
            };
            assert_eq!(seen(&hits), seen(&loads), "run {run} step {step}");
        }
    }
}

#[test]
fn a_core_is_a_window_of_instructions_ahead_of_its_load_port() {
    // 128 instructions are 32 cycles.
    let with = |instruction| {
        Core::new(Overlap { load: Ticks::from_cycles(1), instruction, ..core(10).overlap })
    };
    let mut c = with(Ticks(64));
    c.issue(32);
    assert_eq!(c.now(), Ticks::ZERO);
    c.issue(8);
    assert_eq!(c.now(), Ticks::from_cycles(8));
    let mut c = with(Ticks(u64::MAX / 2));
    c.retire(1);
    c.issue(1);
    assert_eq!(c.now(), Ticks(u64::MAX / 2), "however far ahead that is");
}

#[test]
fn the_window_waits_for_its_oldest_load_and_not_for_those_behind_it() {
    let mut c = core(10);
    c.load(L3, false);
    c.retire(1);
    // Done two cycles after the first.
    c.load(L3 + Ticks::from_cycles(2), false);
    c.retire(127);
    assert_eq!(c.now(), L3, "the first leaves the window, when it is done");
    c.retire(1);
    assert_eq!(c.now(), L3 + Ticks::from_cycles(2) + Ticks(64), "then the second");
}

#[test]
fn work_overlaps_with_one_miss_in_flight() {
    let mut c = core(10);
    c.load(Ticks::from_cycles(20), false);
    c.retire(100);
    assert_eq!(c.now(), Ticks::from_cycles(25));
    assert_eq!(c.serialize(), Ticks::ZERO);
}

#[test]
fn one_walker_makes_walks_wait_for_each_other_and_two_halve_that() {
    let run = |walkers| {
        let mut c = Core::new(Overlap {
            fill_buffers: 10,
            walkers,
            window: 128,
            store_buffer: 0,
            instruction: Ticks(64),
            l1: Ticks::from_cycles(4),
            load: Ticks::ZERO,
            mispredict: Ticks::ZERO,
            last_level_line: Ticks::ZERO,
        });
        cycles_per_line(&mut c, 10_000, |c| {
            let ready = c.walk(Ticks::from_cycles(27));
            c.load_after(ready, Ticks::from_cycles(4), false, false);
        })
    };
    assert!((run(1) - 27.0).abs() < 0.2, "{}", run(1));
    assert!((run(2) - 13.5).abs() < 0.2, "{}", run(2));
}

#[test]
fn an_access_that_is_waited_for_has_held_the_core_up_from_its_beginning() {
    let mut c = core(10);
    let lost = cycles_per_line(&mut c, 1000, |c| {
        c.served_by(3);
        c.load(L3, true);
    });
    let waits = c.waits();
    let cycles = |t: Ticks| t.0 as f64 / 256.0 / 1000.0;
    assert!(cycles(c.retiring()) < 0.1, "1.25 cycles a line of the chain are hidden");
    assert!((cycles(waits.sources[3]) - lost).abs() < 0.1, "{waits:?}");
    // Instructions that nothing waits beside are the core's own time.
    let mut c = core(10);
    cycles_per_line(&mut c, 1000, |c| {
        c.hit(false);
    });
    assert_eq!(cycles(c.retiring()), 1.25);
    assert_eq!(c.waits().sources, [Ticks::ZERO; SOURCES]);
}

#[test]
fn waits_are_blamed_on_translations_in_proportion() {
    let mut c = core(1);
    let ready = c.walk(Ticks::from_cycles(30));
    c.load_after(ready, Ticks::from_cycles(90), false, true);
    c.load(Ticks::from_cycles(10), false);
    let blamed = c.take_translating().walks;
    assert_eq!(c.now(), Ticks::from_cycles(120), "the second load waited for the only fill buffer");
    assert!(blamed.0.abs_diff(Ticks::from_cycles(30).0) < 256, "{blamed}: a quarter of 120");
    assert_eq!(c.take_translating().walks, Ticks::ZERO);
}

#[test]
fn store_misses_are_bound_by_the_buffers_and_not_by_the_window() {
    let mut c = Core::new(Overlap {
        fill_buffers: 10,
        walkers: 1,
        window: 6,
        store_buffer: 0,
        instruction: Ticks(64),
        l1: Ticks::from_cycles(4),
        load: Ticks::ZERO,
        mispredict: Ticks::ZERO,
        last_level_line: Ticks::ZERO,
    });
    let cost = cycles_per_line(&mut c, 10_000, |c| {
        c.store(L3);
    });
    assert!((cost - 6.3).abs() < 0.1, "{cost}");
}

#[test]
fn serializing_waits_for_the_slowest_access_and_advancing_does_not_wait() {
    let mut c = core(10);
    c.load(Ticks::from_cycles(300), false);
    c.load(Ticks::from_cycles(100), false);
    c.advance(Ticks::from_cycles(50));
    assert_eq!(c.now(), Ticks::from_cycles(50));
    assert_eq!(c.serialize(), Ticks::from_cycles(250));
    assert_eq!(c.advance_to(Ticks::from_cycles(200)), Ticks::ZERO);
    assert_eq!(c.advance_to(Ticks::from_cycles(400)), Ticks::from_cycles(100));
}

#[test]
fn a_line_on_its_way_takes_what_is_left_and_blames_translation_for_its_part_alone() {
    let at = Ticks::from_cycles;
    let mut c = core(10);
    c.load_arriving(Ready::default(), at(12), at(300), false);
    assert_eq!(c.last_load(), at(300), "not there before");
    c.load_arriving(Ready::default(), at(12), at(305), true);
    assert_eq!(c.last_load(), at(312), "there before the chain asks for it");
    assert_eq!(c.miss_starts(at(100), true), at(312));
    c.store_arriving(Ready::default(), at(12), at(400));
    assert_eq!((c.last_load(), c.serialize()), (at(312), at(400)));
    assert_eq!(c.take_translating().second_level, Ticks::ZERO);
    let mut c = core(1);
    c.load_arriving(Ready { at: at(50), walked: false }, at(12), at(100), false);
    assert_eq!(c.miss_starts(Ticks::ZERO, false), at(100), "the only buffer is in use");
    c.load(at(10), false);
    assert_eq!(
        (c.now(), c.take_translating().second_level),
        (at(100), Ticks(at(100).0 * 127 / 255))
    );
}

#[test]
fn a_branch_predicted_wrongly_holds_up_all_behind_it_and_most_what_depends_on_its_load() {
    let overlap = Overlap { mispredict: Ticks::from_cycles(16), ..core(10).overlap };
    let cycles = |mut c: Core, dependent: bool| {
        c.load(L3, false);
        let anew = c.mispredicted();
        c.advance(anew);
        c.load(L3, dependent);
        c.serialize();
        c.validate().expect("consistent");
        c.now().0 / 256
    };
    assert_eq!(cycles(Core::new(overlap), true), 63 + 16 + 63);
    assert_eq!(cycles(Core::new(overlap), false), 16 + 63, "begun on either way");
    assert_eq!([cycles(core(10), true), cycles(core(10), false)], [2 * 63, 63], "no such constant");
}

#[test]
fn lines_of_the_last_level_come_one_after_the_other() {
    let line = |cycles| Overlap { last_level_line: Ticks::from_cycles(cycles), ..core(10).overlap };
    let mut free = Core::new(line(0));
    let cycles = Ticks::from_cycles;
    assert_eq!([(); 3].map(|()| free.from_last_level(Ticks::ZERO)), [Ticks::ZERO; 3]);
    let mut c = Core::new(line(10));
    assert_eq!([(); 3].map(|()| c.from_last_level(Ticks::ZERO)), [0, 10, 20].map(cycles));
    c.retire(80);
    assert_eq!(c.from_last_level(Ticks::ZERO), cycles(10), "20 cycles later");
    assert_eq!(c.from_last_level(cycles(45)), Ticks::ZERO, "it begins after its line can come");
    assert_eq!(c.from_last_level(cycles(20)), cycles(30), "and holds up none that overtakes it");
    c.retire(400);
    assert_eq!(c.from_last_level(Ticks::ZERO), Ticks::ZERO);
}

/// Turns of 16 stores, the first of which takes 128 cycles: their time, in cycles a turn.
fn turn_of_stores(store_buffer: u32) -> f64 {
    let overlap = Overlap { store_buffer, ..core(10).overlap };
    let mut c = Core::new(overlap);
    let turn = |c: &mut Core| {
        for n in 0..16 {
            c.retire(1);
            c.issue_store();
            if n == 0 {
                c.store(Ticks::from_cycles(128));
            }
        }
        c.validate().expect("consistent");
    };
    (0..32).for_each(|_| turn(&mut c));
    let start = c.now();
    (0..512).for_each(|_| turn(&mut c));
    (c.now() - start).0 as f64 / 256.0 / 512.0
}

#[test]
fn stores_behind_one_that_waits_fill_the_store_buffer() {
    // A store that misses is followed by 15 that hit: so many turns are in the buffer at once.
    for (places, turns) in [(16, 1.0), (32, 2.0), (64, 4.0)] {
        let cost = turn_of_stores(places);
        assert!((cost - 128.0 / turns).abs() < 1.0, "{places} places: {cost}");
    }
    // Then ten fill buffers are the limit.
    for places in [160, 256, 0] {
        let cost = turn_of_stores(places);
        assert!((cost - 12.8).abs() < 0.2, "{places} places: {cost}");
    }
}

#[test]
fn stores_leave_the_store_buffer_in_program_order() {
    let at = Ticks::from_cycles;
    let overlap = Overlap { store_buffer: 2, instruction: Ticks(0), ..core(10).overlap };
    let mut c = Core::new(overlap);
    let mut store = |latency: u64| {
        c.issue_store();
        c.store(at(latency));
        c.now()
    };
    // The second is done long before the first, and leaves behind it.
    assert_eq!([store(100), store(10)], [at(0); 2]);
    // The third waits for the first; then the second leaves, too, so that the fourth need not.
    assert_eq!([store(50), store(50)], [at(100); 2]);
    assert_eq!(store(1), at(150));
    c.validate().expect("in order");
    // What is waited for anyway leaves nothing in the buffer.
    c.serialize();
    c.issue_store();
    c.issue_store();
    c.issue_store();
    assert_eq!(c.now(), at(151));
}

/// What a store, or a barrier, is made of in the comparison below.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Miss,
    Hit,
    Joins,
    LateMiss,
    LateHit,
    Arriving,
    Load,
    Barrier,
}

/// A core with a store buffer of `size`, beside one without and a list of all its stores: when each
/// leaves, and so when the one that many later has a place.
fn compare_with_a_list_of_all_stores(seed: u64, size: u32, fill_buffers: u32) {
    use Kind::*;
    let at = Ticks::from_cycles;
    let overlap = Overlap { store_buffer: size, walkers: 2, ..core(fill_buffers).overlap };
    let mut c = Core::new(overlap);
    let mut free = Core::new(Overlap { store_buffer: 0, ..overlap });
    let mut leave: Vec<Ticks> = vec![];
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..1500 {
        let kinds = [Miss, Hit, Joins, LateMiss, LateHit, Arriving, Load, Hit, Miss, Barrier];
        let kind = kinds[random(10) as usize];
        let latency = at([random(10), random(40), random(300)][random(3) as usize]);
        let translated = at(random(60));
        if kind == Barrier {
            if random(8) == 0 {
                c.serialize();
                free.serialize();
                free.advance_to(leave.last().copied().unwrap_or_default());
            }
        } else if kind == Load {
            for c in [&mut c, &mut free] {
                c.retire(1);
                c.load(latency, step % 2 == 0);
            }
        } else {
            c.retire(1);
            free.retire(1);
            c.issue_store();
            if let Some(n) = leave.len().checked_sub(size as usize) {
                free.advance_to(leave[n]);
            }
            assert_eq!(c.now(), free.now(), "seed {seed}, {size} places, step {step}: issued");
            let arrival = free.now() + at(random(300));
            let mut done = Ticks::ZERO;
            for c in [&mut c, &mut free] {
                let late = matches!(kind, LateMiss | LateHit | Joins);
                let ready = if late { c.walk(translated) } else { Ready::default() };
                match kind {
                    Joins => c.store_joining(ready, arrival),
                    Arriving => c.store_arriving(ready, latency, arrival),
                    Hit => Ticks::ZERO,
                    _ => c.store_after(ready, latency, kind != LateHit),
                };
                let comes = match kind {
                    Joins => arrival.max(ready.at),
                    Hit | LateHit => ready.at,
                    Arriving => arrival.max(c.now() + latency),
                    _ => c.now().max(ready.at) + latency,
                };
                done = comes.max(c.now());
            }
            leave.push(done.max(leave.last().copied().unwrap_or_default()));
        }
        assert_eq!(c.now(), free.now(), "seed {seed}, {size} places, step {step}: done");
        c.validate().expect("consistent");
    }
}

#[test]
fn a_store_is_issued_when_the_one_that_many_before_has_left() {
    for seed in 0..12 {
        for size in [1, 2, 3, 16, 63, 64, 65, 128, 256] {
            for fill_buffers in [1, 10, 20] {
                compare_with_a_list_of_all_stores(seed, size, fill_buffers);
            }
        }
    }
}

#[test]
fn places_of_stores_that_leave_together_are_not_short() {
    let at = Ticks::from_cycles;
    let overlap = Overlap { store_buffer: 256, instruction: Ticks(0), ..core(10).overlap };
    let mut c = Core::new(overlap);
    for n in 0..256 {
        c.issue_store();
        c.store_joining(Ready::default(), at(70));
        assert_eq!(c.now(), at(0), "store {n} of 256");
    }
    c.issue_store();
    assert_eq!(c.now(), at(70));
}

#[test]
fn a_core_knows_of_64_stores_whose_lines_come_one_after_the_other() {
    let at = Ticks::from_cycles;
    let overlap = Overlap { store_buffer: 256, instruction: Ticks(0), ..core(10).overlap };
    let mut c = Core::new(overlap);
    let mut store = |n: u64| {
        c.issue_store();
        c.store_joining(Ready::default(), at(100 + n));
        c.validate().expect("consistent");
        c.now()
    };
    assert!((0..64).all(|n| store(n) == at(0)));
    assert_eq!([store(64), store(65)], [100, 101].map(at), "one more waits for the oldest");
    c.serialize();
    assert_eq!(c.now(), at(165), "a barrier for all");
}

#[test]
fn a_store_to_a_line_on_its_way_keeps_its_place_until_the_line_is_there() {
    let at = Ticks::from_cycles;
    let overlap = Overlap { store_buffer: 1, instruction: Ticks(0), ..core(10).overlap };
    let mut c = Core::new(overlap);
    c.issue_store();
    c.store_joining(Ready::default(), at(70));
    assert_eq!(c.now(), at(0));
    c.issue_store();
    assert_eq!(c.now(), at(70));
}
