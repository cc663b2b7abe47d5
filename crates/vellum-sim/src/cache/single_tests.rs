//! Behaviours of one cache, against a naive model where it matters.

use std::collections::BTreeMap;

use super::*;
use crate::cache::Index;

const ALL: [Policy; 6] =
    [Policy::Lru, Policy::Plru, Policy::Random, Policy::Nru, Policy::NruRotating, Policy::Rrip];

/// A line that was brought in and used by one level alone.
fn left(line: u64, dirty: bool) -> Option<Victim> {
    Some(Victim { line, dirty, reused: false })
}

fn cache(sets: u64, ways: u32, policy: Policy) -> Cache {
    Cache::new(Geometry { sets, ways, policy, index: Index::Modulo, seed: 1 })
        .expect("a valid shape")
}

fn hashed(sets: u64, ways: u32) -> Cache {
    let shape = *cache(sets, ways, Policy::Lru).geometry();
    Cache::new(Geometry { index: Index::Hash, ..shape }).expect("a valid shape")
}

fn misses_per_round(cache: &mut Cache, lines: u64, stride: u64, rounds: u64) -> f64 {
    let mut misses = 0;
    for round in 0..rounds + 10 {
        for i in 0..lines {
            let miss = cache.access(i * stride, false) != Lookup::Hit;
            misses += u64::from(miss && round >= 10);
        }
    }
    cache.validate().expect("consistent");
    misses as f64 / (rounds * lines) as f64
}

#[test]
fn what_is_seen_at_once_is_what_a_look_finds_under_any_policy() {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for policy in ALL {
        let (mut looks, mut sees) = (cache(4, 4, policy), cache(4, 4, policy));
        let (mut seen, mut there) = (0, 0);
        for step in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let (line, write) = ((x >> 8) % 24, x & 1 != 0);
            let again = sees.access_again(line, write, |set| set as u64 == line % 4);
            seen += u64::from(again);
            let is_there = !again && x & 2 != 0 && sees.access_there(line, write);
            there += u64::from(is_there);
            let found = if again || is_there { Lookup::Hit } else { sees.access(line, write) };
            assert_eq!(found, looks.access(line, write), "{policy:?} step {step}");
        }
        sees.validate().expect("consistent");
        assert!(seen > 100 && there > 100, "{policy:?}: {seen}, {there}");
        assert!(!sees.access_again(x % 24, false, |_| false), "{policy:?}: refused");
    }
}

#[test]
fn eight_lines_in_eight_ways_always_hit() {
    for policy in [Policy::Lru, Policy::Plru, Policy::Nru, Policy::NruRotating] {
        assert_eq!(misses_per_round(&mut cache(64, 8, policy), 8, 64, 1000), 0.0, "{policy:?}");
    }
}

#[test]
fn nine_lines_in_eight_ways_always_miss_under_lru() {
    assert_eq!(misses_per_round(&mut cache(64, 8, Policy::Lru), 9, 64, 1000), 1.0);
}

/// A tree of bits starts by keeping some of nine lines (4, then 6 misses a round) and then settles
/// into an order in which the victim is always the line asked for next. The same sequence comes out
/// of a separate model of tree-PLRU written for this test's numbers, from any initial state of the
/// bits.
#[test]
fn nine_lines_in_eight_ways_in_a_strict_cycle_miss_less_under_plru_at_first_and_always_in_the_end()
{
    let mut c = cache(64, 8, Policy::Plru);
    let mut round = || (0..9).filter(|i| c.access(i * 64, false) != Lookup::Hit).count();
    assert_eq!([round(), round(), round(), round(), round()], [9, 4, 6, 9, 9]);
}

#[test]
fn nine_lines_in_eight_ways_in_changing_order_miss_sometimes_under_plru() {
    let mut c = cache(64, 8, Policy::Plru);
    let mut misses = 0;
    for step in 0..9000u64 {
        // Nine lines a round, starting elsewhere and going another way each time.
        let (round, i) = (step / 9, step % 9);
        let line = (i * [1, 2, 4, 5, 7, 8][round as usize % 6] + round) % 9;
        misses += u64::from(c.access(line * 64, false) != Lookup::Hit);
    }
    let rate = misses as f64 / 9000.0;
    assert!(rate > 0.1 && rate < 0.9, "{rate}");
}

#[test]
fn nine_lines_in_eight_ways_miss_sometimes_under_random() {
    let rate = misses_per_round(&mut cache(64, 8, Policy::Random), 9, 64, 1000);
    assert!(rate > 0.1 && rate < 0.9, "{rate}");
}

/// Loads these lines of a set of four ways; where each drives one out, which.
fn victims(policy: Policy, lines: &[u64]) -> Vec<Option<u64>> {
    let mut c = cache(1, 4, policy);
    let each = lines.iter().map(|&line| match c.access(line, false) {
        Lookup::Hit => None,
        Lookup::Miss(victim) => victim.map(|v| v.line),
    });
    let out = each.collect();
    c.validate().expect("consistent");
    out
}

#[test]
fn the_victim_under_nru_is_in_the_first_way_not_used_since_the_bits_were_cleared() {
    // The fourth line would set the last bit, so that it alone keeps one: ways 0, 1, 2 come next.
    let fill = [10, 11, 12, 13];
    let after = |rest: &[u64]| victims(Policy::Nru, &[&fill, rest].concat())[4..].to_vec();
    assert_eq!(after(&[20]), [Some(10)]);
    assert_eq!(after(&[20, 21]), [Some(10), Some(11)]);
    // The third sets the last bit again, so that the search is back at way 0.
    assert_eq!(after(&[20, 21, 22, 23]), [Some(10), Some(11), Some(12), Some(20)]);
    // A hit keeps its line: 10 is passed over.
    assert_eq!(after(&[10, 20, 21]), [None, Some(11), Some(12)]);
    // Hits on three and the one whose bit is left clear the others.
    assert_eq!(after(&[10, 11, 12, 20, 21]), [None, None, None, Some(10), Some(11)]);
}

#[test]
fn under_rotating_nru_the_search_goes_on_behind_the_last_victim() {
    let fill = [10, 11, 12, 13];
    let after = |rest: &[u64]| victims(Policy::NruRotating, &[&fill, rest].concat())[4..].to_vec();
    // 22 in way 2 clears the others; the search goes on at way 3, where NRU begins at way 0.
    let expect = [10, 11, 12, 13, 20, 21].map(Some);
    assert_eq!(after(&[20, 21, 22, 23, 24, 25]), expect);
    assert_eq!(after(&[20, 11, 21]), [Some(10), None, Some(12)], "the used one is passed over");
}

#[test]
fn nine_lines_in_eight_ways_in_a_strict_cycle_always_miss_under_rotating_nru_and_not_under_nru() {
    assert_eq!(misses_per_round(&mut cache(64, 8, Policy::NruRotating), 9, 64, 1000), 1.0);
    let rate = misses_per_round(&mut cache(64, 8, Policy::Nru), 9, 64, 1000);
    assert!(rate > 0.1 && rate < 0.9, "{rate}");
}

#[test]
fn under_rrip_a_line_used_again_outlasts_seven_rounds_of_new_ones() {
    // 10 is used again and is 0; each of three new lines is a year from leaving. So all grow older
    // once in three, and 10 leaves in the eighth turn of growing.
    let lines: Vec<u64> = [10, 11, 12, 13, 10].into_iter().chain(20..60).collect();
    let out = victims(Policy::Rrip, &lines);
    assert_eq!(out[5..9], [11, 12, 13, 20].map(Some));
    let at = out.iter().position(|&v| v == Some(10)).expect("it leaves");
    assert_eq!(at - 5, 6 * 3, "others left before it");
    assert_eq!(victims(Policy::Rrip, &[10, 11, 12, 13, 20, 21])[4..], [10, 11].map(Some));
}

/// The share of the lines of a quarter of a cache, all used often, that leaves while others are
/// read once.
fn lost(policy: Policy, streamed: u64) -> f64 {
    let (sets, hot) = (1024, 4096);
    let mut c = cache(sets, 16, policy);
    (0..4).for_each(|_| (0..hot).for_each(|n| _ = c.access(n, false)));
    (0..streamed).for_each(|n| _ = c.access(1 << 20 | n, false));
    c.validate().expect("consistent");
    let lost = (0..hot).filter(|&n| c.access(n, false) != Lookup::Hit).count();
    lost as f64 / hot as f64
}

#[test]
fn a_stream_of_five_times_a_cache_leaves_what_is_used_often_in_it_under_rrip_alone() {
    for policy in [Policy::Lru, Policy::Plru, Policy::Random, Policy::NruRotating] {
        assert!(lost(policy, 5 << 14) > 0.95, "{policy:?}");
    }
    // Room for 12 lines in each set, seven times: 5.25 times the cache.
    assert_eq!([3, 4, 5, 6].map(|times| lost(Policy::Rrip, times << 14)), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn one_way_has_one_victim_and_64_ways_hold_64_lines_under_nru() {
    for policy in [Policy::Nru, Policy::NruRotating] {
        assert_eq!(misses_per_round(&mut cache(4, 1, policy), 2, 4, 10), 1.0);
        assert_eq!(misses_per_round(&mut cache(4, 64, policy), 64, 4, 10), 0.0);
    }
}

#[test]
fn a_victim_is_the_least_recently_used_line_and_says_whether_it_was_written() {
    let mut c = cache(4, 2, Policy::Lru);
    assert_eq!(c.access(0, true), Lookup::Miss(None));
    assert_eq!(c.access(4, false), Lookup::Miss(None));
    assert_eq!(c.access(0, false), Lookup::Hit);
    assert_eq!(c.access(8, false), Lookup::Miss(left(4, false)));
    assert_eq!(c.access(12, false), Lookup::Miss(left(0, true)));
    c.validate().expect("consistent");
}

#[test]
fn a_taken_line_leaves_room_that_the_next_miss_fills() {
    for policy in ALL {
        let mut c = cache(2, 3, policy);
        for line in [0, 2, 4] {
            c.access(line, line == 2);
        }
        assert_eq!(c.take(2), Some(true));
        assert_eq!(c.take(2), None);
        c.validate().expect("consistent");
        assert_eq!(c.access(6, false), Lookup::Miss(None), "{policy:?}");
        assert!(c.probe(0) && c.probe(4) && c.probe(6) && !c.probe(2));
        c.validate().expect("consistent");
    }
}

#[test]
fn a_flush_empties_the_cache_and_counts_what_was_dirty() {
    let mut c = cache(10, 3, Policy::Lru);
    for line in 0..20 {
        c.access(line, line % 4 == 0);
    }
    assert_eq!(c.lines().count(), 20);
    assert_eq!(c.flush(), 5);
    assert_eq!(c.lines().count(), 0);
    c.validate().expect("consistent");
}

#[test]
fn set_counts_that_are_no_power_of_two_map_each_line_to_one_set() {
    let mut c = cache(20480, 24, Policy::Lru);
    for line in 0..20480 * 24 {
        assert_eq!(c.access(line, false), Lookup::Miss(None));
    }
    assert_eq!(c.access(20480 * 24, false), Lookup::Miss(left(0, false)));
    c.validate().expect("consistent");
}

#[test]
fn lines_a_way_apart_fit_into_a_hashed_cache_and_all_miss_in_a_plain_one() {
    for sets in [1024, 16384, 20480] {
        for lines in [17, 64, 1000] {
            assert_eq!(misses_per_round(&mut hashed(sets, 16), lines, sets, 10), 0.0);
            assert_eq!(misses_per_round(&mut cache(sets, 16, Policy::Lru), lines, sets, 10), 1.0);
        }
    }
}

#[test]
fn a_column_of_a_matrix_of_4096_by_4096_words_fits_into_a_hashed_cache_of_1_mib() {
    // A row is 32 KiB, 512 lines; a column is 4096 lines, 256 KiB.
    assert_eq!(misses_per_round(&mut hashed(1024, 16), 4096, 512, 10), 0.0);
    assert_eq!(misses_per_round(&mut cache(1024, 16, Policy::Lru), 4096, 512, 10), 1.0);
}

#[test]
fn a_hashed_cache_names_its_victims_and_finds_what_it_holds() {
    for sets in [1, 3, 64, 1000] {
        let mut c = hashed(sets, 4);
        let mut held = BTreeMap::new();
        for n in 0..sets * 64 {
            let (line, write) = (n * n * n % (sets * 100), n % 3 == 0);
            match c.access(line, write) {
                Lookup::Hit => *held.get_mut(&line).expect("held") |= write,
                Lookup::Miss(victim) => {
                    if let Some(v) = victim {
                        assert_eq!(held.remove(&v.line), Some(v.dirty), "{sets} sets");
                    }
                    assert_eq!(held.insert(line, write), None, "{sets} sets");
                }
            }
        }
        assert!(held.iter().all(|(&line, _)| c.probe(line)));
        assert_eq!(c.lines().map(|v| (v.line, v.dirty)).collect::<BTreeMap<_, _>>(), held);
        assert!(held.len() as u64 <= sets * 4);
        c.validate().expect("consistent");
    }
}

#[test]
fn random_replacement_repeats_itself_exactly_with_the_same_seed() {
    let run = |seed| {
        let shape = Geometry { seed, ..*cache(4, 4, Policy::Random).geometry() };
        let mut c = Cache::new(shape).expect("valid");
        (0..1000u64).map(|i| c.access(i * i % 97, false) == Lookup::Hit).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn impossible_shapes_are_errors() {
    let make = |sets, ways| {
        let shape = Geometry { sets, ways, ..*cache(1, 1, Policy::Lru).geometry() };
        Cache::new(shape).map(|_| ()).unwrap_err()
    };
    assert_eq!(make(0, 8), GeometryError::NoSets);
    assert_eq!(make(64, 0), GeometryError::Ways(0));
    assert_eq!(make(64, 65), GeometryError::Ways(65));
    assert_eq!(make(1 << 40, 8), GeometryError::ManySets(1 << 40));
    let rrip = |ways| Cache::new(Geometry { ways, ..*cache(1, 1, Policy::Rrip).geometry() });
    assert!(rrip(21).is_ok());
    assert_eq!(rrip(22).map(|_| ()).unwrap_err(), GeometryError::Ages(22));
}

/// A list of lines per set, the most recent first: slow and obvious.
struct Naive {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
}

impl Naive {
    fn access(&mut self, line: u64, write: bool) -> Lookup {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(line % count) as usize];
        if let Some(at) = set.iter().position(|&(l, _)| l == line) {
            let (_, dirty) = set.remove(at);
            set.insert(0, (line, dirty || write));
            return Lookup::Hit;
        }
        let out = if set.len() == self.ways { set.pop() } else { None };
        set.insert(0, (line, write));
        Lookup::Miss(out.and_then(|(line, dirty)| left(line, dirty)))
    }
}

#[test]
fn lru_agrees_with_a_naive_model_for_every_number_of_ways() {
    let mut x = 88172645463325252u64;
    for ways in 1..=MAX_WAYS_TESTED {
        for sets in [1u64, 3, 4] {
            let mut c = cache(sets, ways, Policy::Lru);
            let mut n = Naive { sets: vec![Vec::new(); sets as usize], ways: ways as usize };
            for step in 0..2000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let line = (x >> 20) % (sets * u64::from(ways) * 3 / 2 + 1);
                if x & 31 == 0 {
                    let set = &mut n.sets[(line % sets) as usize];
                    let at = set.iter().position(|&(l, _)| l == line);
                    assert_eq!(c.take(line), at.map(|at| set.remove(at).1));
                } else {
                    let write = x & 64 != 0;
                    assert_eq!(
                        c.access(line, write),
                        n.access(line, write),
                        "{ways} ways, step {step}"
                    );
                }
            }
            c.validate().expect("consistent");
        }
    }
}

const MAX_WAYS_TESTED: u32 = crate::cache::MAX_WAYS;

#[test]
fn a_use_of_a_way_in_an_empty_set_is_found() {
    let mut c = cache(2, 4, Policy::Nru);
    assert_eq!(c.validate(), Ok(()));
    c.bits[1] = 1;
    assert!(c.validate().is_err());
}
