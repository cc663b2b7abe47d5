//! Behaviours of the hierarchy, mostly on small machines where each line's place can be told by
//! hand.

use super::*;
use crate::cache::{Index, Policy};

fn geometry(sets: u64, ways: u32) -> Geometry {
    Geometry { sets, ways, policy: Policy::Lru, index: Index::Modulo, seed: 3 }
}

fn shape(inclusion: Inclusion) -> Shape {
    Shape {
        cpus: 4,
        cpus_per_llc: 2,
        l1i: geometry(2, 2),
        l1d: geometry(2, 2),
        l2: geometry(4, 2),
        llc: geometry(8, 4),
        inclusion,
        latency: [4, 12, 40, 40].map(Ticks::from_cycles),
        lines: 1 << 20,
    }
}

fn small(inclusion: Inclusion) -> Hierarchy {
    Hierarchy::new(&shape(inclusion)).expect("a valid shape")
}

const ALL: [Inclusion; 3] = [Inclusion::Inclusive, Inclusion::Victim, Inclusion::Independent];

fn load(h: &mut Hierarchy, cpu: usize, line: u64) -> Level {
    h.access(cpu, Agent::Demand, line, Kind::Load).level
}

#[test]
fn a_line_comes_from_memory_once_and_from_the_first_level_then() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        assert_eq!(load(&mut h, 0, 5), Level::Memory);
        assert_eq!(load(&mut h, 0, 5), Level::L1);
        h.validate().expect("consistent");
    }
}

#[test]
fn a_line_that_left_the_first_level_is_in_the_second_and_then_in_the_last() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        for line in [0, 2, 4] {
            load(&mut h, 0, line);
        }
        assert_eq!(load(&mut h, 0, 0), Level::L2, "{inclusion:?}");
        let mut h = small(inclusion);
        for line in [0, 4, 8] {
            load(&mut h, 0, line);
        }
        assert_eq!(load(&mut h, 0, 0), Level::Llc, "{inclusion:?}");
        h.validate().expect("consistent");
    }
}

#[test]
fn cpus_of_one_group_share_a_last_level_and_others_do_not() {
    let mut h = small(Inclusion::Inclusive);
    load(&mut h, 0, 9);
    assert_eq!(load(&mut h, 1, 9), Level::Llc);
    assert_eq!(load(&mut h, 2, 9), Level::Memory);
}

#[test]
fn a_victim_cache_gives_its_line_away_on_a_hit() {
    let mut h = small(Inclusion::Victim);
    for line in [0, 4, 8] {
        load(&mut h, 0, line);
    }
    assert_eq!(load(&mut h, 0, 0), Level::Llc);
    assert!(!h.llcs[0].cache().probe(0));
    assert_eq!(load(&mut h, 1, 8), Level::Memory, "8 is in CPU 0's second level alone");
}

/// Lines that are used again and again stay in a last level of ages, whatever streams through the
/// second, also where a hit moves them up and out.
#[test]
fn a_victim_cache_of_ages_keeps_what_comes_back_to_it() {
    let misses = |inclusion, policy| {
        let llc = Geometry { policy, ..geometry(256, 16) };
        let mut h = Hierarchy::new(&Shape { llc, ..shape(inclusion) }).expect("a valid shape");
        let (hot, stream) = (1024, 4 << 12);
        let mut missed = 0;
        for round in 0..20 {
            let from_memory = (0..hot).filter(|&n| load(&mut h, 0, n) == Level::Memory).count();
            (0..hot).for_each(|n| _ = load(&mut h, 0, n));
            if round >= 10 {
                missed += from_memory;
            }
            let first = (round + 1) << 14;
            (0..stream).for_each(|n| _ = load(&mut h, 0, first + n));
        }
        h.validate().expect("consistent");
        missed as f64 / (10 * hot) as f64
    };
    for inclusion in ALL {
        assert!(misses(inclusion, Policy::Lru) > 0.99, "{inclusion:?}");
        let found = misses(inclusion, Policy::Rrip);
        assert!(found < 0.2, "{inclusion:?}: {found}");
    }
}

/// A dirty line leaves the second level twice, if the first level gives it up after the second did.
#[test]
fn a_line_that_is_put_away_twice_is_not_used_again() {
    let rounds = |kind| {
        let one = geometry(1, 1);
        let llc = Geometry { policy: Policy::Rrip, ..geometry(1, 4) };
        let mut shape = shape(Inclusion::Victim);
        (shape.l1i, shape.l1d, shape.l2, shape.llc) = (one, one, one, llc);
        let mut h = Hierarchy::new(&shape).expect("a valid shape");
        h.access(0, Agent::Demand, 0, kind);
        (1..3).for_each(|n| _ = h.access(0, Agent::Demand, n, Kind::Fetch));
        load(&mut h, 0, 3);
        let fetches = (4..64).take_while(|&n| {
            h.access(0, Agent::Demand, n, Kind::Fetch);
            h.llcs[0].cache().probe(0)
        });
        fetches.count()
    };
    let (loaded, stored) = (rounds(Kind::Load), rounds(Kind::Store));
    assert!(stored <= loaded + 4, "{loaded} new lines, {stored} after a store");
}

#[test]
fn what_leaves_an_inclusive_last_level_leaves_the_first_level_too() {
    let mut h = small(Inclusion::Inclusive);
    load(&mut h, 0, 0);
    for i in 1..=4 {
        load(&mut h, 1, 8 * i);
    }
    assert_eq!(load(&mut h, 0, 0), Level::Memory);
    h.validate().expect("consistent");
    let mut h = small(Inclusion::Independent);
    load(&mut h, 0, 0);
    for i in 1..=4 {
        load(&mut h, 1, 8 * i);
    }
    assert_eq!(load(&mut h, 0, 0), Level::L1);
}

#[test]
fn every_dirty_line_reaches_memory_exactly_once() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        let mut out = Vec::new();
        for line in 0..200 {
            h.access(0, Agent::Demand, line, Kind::Store);
            out.extend_from_slice(h.write_backs());
        }
        for line in 1000..1200 {
            let served = h.access(0, Agent::Demand, line, Kind::Load);
            assert_eq!(usize::from(served.write_backs), h.write_backs().len());
            out.extend_from_slice(h.write_backs());
        }
        out.sort_unstable();
        assert_eq!(out, (0..200).collect::<Vec<_>>(), "{inclusion:?}");
        h.validate().expect("consistent");
    }
}

#[test]
fn a_line_fetched_ahead_is_in_the_second_level_and_where_a_miss_would_leave_it() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        assert_eq!(h.prefetch(0, 5).map(|s| s.level), Some(Level::Memory));
        assert_eq!(h.prefetch(0, 5), None, "it is there");
        assert_eq!(h.counters(0), &CpuCounters::default(), "no access");
        // A line that the other CPU of the group reads is in the last level, unless that holds
        // victims alone.
        let elsewhere = if inclusion == Inclusion::Victim { Level::Memory } else { Level::Llc };
        assert_eq!(load(&mut h, 1, 5), elsewhere, "{inclusion:?}");
        assert_eq!(load(&mut h, 0, 5), Level::L2, "{inclusion:?}");
        assert_eq!(h.prefetch(1, 9).map(|s| s.level), Some(Level::Memory));
        h.validate().expect("consistent");
    }
}

#[test]
fn a_line_fetched_ahead_pushes_out_what_a_miss_would() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        let mut out = Vec::new();
        for line in 0..100 {
            h.access(0, Agent::Demand, line, Kind::Store);
            out.extend_from_slice(h.write_backs());
        }
        for line in 1000..1200 {
            let served = h.prefetch(0, line).expect("not there");
            assert_eq!(usize::from(served.write_backs), h.write_backs().len());
            out.extend_from_slice(h.write_backs());
            h.validate().expect("consistent");
        }
        out.sort_unstable();
        // Four lines stay in the first level, unless the inclusive last level took them.
        assert!(out.len() >= 96 && out.is_sorted() && out.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(out.len() == 100, inclusion == Inclusion::Inclusive, "{inclusion:?}");
    }
}

#[test]
fn counters_are_kept_per_agent_and_add_up() {
    let mut h = small(Inclusion::Inclusive);
    for line in 0..100 {
        h.access(0, Agent::Demand, line, Kind::Load);
        h.access(0, Agent::Walk, 5000 + line / 8, Kind::Load);
        h.access(0, Agent::Demand, 9000, Kind::Fetch);
    }
    let c = h.counters(0);
    assert_eq!(c.accesses(Agent::Demand, Structure::L1d), 100);
    assert_eq!(c.accesses(Agent::Walk, Structure::L1d), 100);
    assert_eq!(c.accesses(Agent::Kernel, Structure::L1d), 0);
    assert_eq!(c.accesses(Agent::Demand, Structure::L1i), 100);
    assert_eq!(c.misses(Agent::Demand, Structure::L1d), 100);
    for agent in Agent::ALL {
        let l1 = c.misses(agent, Structure::L1d) + c.misses(agent, Structure::L1i);
        assert_eq!(l1, c.accesses(agent, Structure::L2));
        assert_eq!(c.misses(agent, Structure::L2), c.accesses(agent, Structure::Llc));
    }
    assert_eq!(h.totals(), *h.counters(0));
}

#[test]
fn an_allocating_store_stream_fetches_each_line_and_an_elided_one_none() {
    for inclusion in ALL {
        let mut h = small(inclusion);
        let cost = h.store_stream(0, Agent::Kernel, 0, 1000, false);
        assert_eq!((cost.lines, cost.fetched), (1000, 1000));
        assert_eq!(h.counters(0).misses(Agent::Kernel, Structure::L1d), 1000);
        assert_eq!(load(&mut h, 0, 999), Level::L1);
        let cost = h.store_stream(0, Agent::Kernel, 0, 1000, true);
        assert_eq!((cost.lines, cost.fetched, cost.written_back), (1000, 0, 1000));
        assert_eq!(h.counters(0).misses(Agent::Kernel, Structure::L1d), 1000);
        assert_eq!(load(&mut h, 0, 999), Level::Memory);
        h.validate().expect("consistent");
    }
}

#[test]
fn a_stream_counts_like_the_same_stores_one_by_one() {
    for inclusion in ALL {
        let (mut a, mut b) = (small(inclusion), small(inclusion));
        let mut backs = 0;
        for line in 0..500 {
            backs += u64::from(a.access(1, Agent::Kernel, line, Kind::Store).write_backs);
        }
        let cost = b.store_stream(1, Agent::Kernel, 0, 500, false);
        assert_eq!(a.counters(1), b.counters(1));
        assert_eq!(cost.written_back, backs);
    }
}

#[test]
fn two_hierarchies_of_different_geometry_do_not_interfere() {
    let lines = |i: u64| i * i * 7 % 300;
    let alone = |inclusion| {
        let mut h = small(inclusion);
        (0..2000).map(|i| load(&mut h, (i % 4) as usize, lines(i))).collect::<Vec<_>>()
    };
    let (mut a, mut b) = (small(Inclusion::Inclusive), small(Inclusion::Victim));
    let (mut served_a, mut served_b) = (Vec::new(), Vec::new());
    for i in 0..2000 {
        served_a.push(load(&mut a, (i % 4) as usize, lines(i)));
        served_b.push(load(&mut b, (i % 4) as usize, lines(i)));
    }
    assert_eq!(served_a, alone(Inclusion::Inclusive));
    assert_eq!(served_b, alone(Inclusion::Victim));
}

#[test]
fn memory_larger_than_the_tags_reach_is_an_error() {
    let shape = Shape {
        cpus: 1,
        cpus_per_llc: 1,
        l1i: geometry(1, 1),
        l1d: geometry(1, 1),
        l2: geometry(1, 1),
        llc: geometry(1, 1),
        inclusion: Inclusion::Inclusive,
        latency: [Ticks::ZERO; 4],
        lines: 1 << 32,
    };
    assert!(matches!(Hierarchy::new(&shape), Err(GeometryError::Reach { sets: 1, .. })));
}

#[test]
fn what_is_wrong_in_any_cache_in_use_is_found() {
    let mut h = small(Inclusion::Inclusive);
    load(&mut h, 0, 5);
    h.llcs[0].take(5);
    assert!(h.validate().is_err(), "not in the inclusive last level any more");
    // CPU 2 is the first of the second group.
    let mut h = small(Inclusion::Victim);
    (0..100).for_each(|line| _ = load(&mut h, 2, line));
    h.validate().expect("consistent");
    h.llcs[1].forget_counts();
    assert!(h.validate().is_err(), "lines of pages that count as absent");
}

#[test]
fn a_line_fetched_ahead_by_a_cpu_without_accesses_leaves_with_the_last_level_too() {
    let mut h = small(Inclusion::Inclusive);
    h.prefetch(1, 0).expect("it was nowhere");
    assert!(h.cpus[1].l2.probe(0));
    (1..10).for_each(|n| _ = load(&mut h, 0, n * 8));
    assert!(!h.llcs[0].cache().probe(0), "others took its place");
    assert!(!h.cpus[1].l2.probe(0));
    h.validate().expect("consistent");
}
