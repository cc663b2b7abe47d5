//! What a prefetcher fetches, miss by miss.

use super::*;
use crate::cache::{Index, Policy};

/// The cache that is fetched into.
const CACHE: Geometry =
    Geometry { sets: 64, ways: 2, policy: Policy::Lru, index: Index::Modulo, seed: 1 };

fn prefetcher(streams: u32, train: u32, depth: u32) -> Prefetcher {
    let (walks, crosses_pages) = (false, false);
    Prefetcher::new(PrefetchShape { streams, train, depth, walks, crosses_pages }, &CACHE)
}

/// The same, from page to page.
fn crossing(streams: u32, train: u32, depth: u32) -> Prefetcher {
    let (walks, crosses_pages) = (false, true);
    Prefetcher::new(PrefetchShape { streams, train, depth, walks, crosses_pages }, &CACHE)
}

/// The lines fetched at each of these misses.
fn fetched(p: &mut Prefetcher, misses: impl IntoIterator<Item = u64>) -> Vec<Vec<u64>> {
    let each = misses.into_iter().map(|line| {
        let lines = p.miss(line).collect();
        p.validate().expect("consistent");
        lines
    });
    each.collect()
}

/// The program's lines are virtual where pages are crossed, and those of walks physical: equal
/// numbers are not one page, and tables that follow one another are not one stream.
#[test]
fn walks_have_pages_of_their_own_and_stay_within_them() {
    let (walks, crosses_pages) = (true, true);
    let shape = PrefetchShape { streams: 4, train: 2, depth: 8, walks, crosses_pages };
    let mut p = Prefetcher::new(shape, &CACHE);
    assert_eq!(p.miss(640).count() + p.miss_of_walk(641).count(), 0, "two first misses");
    assert_eq!(p.miss_of_walk(642).collect::<Vec<_>>(), [643]);
    let mut fetched: Vec<u64> = (643..704).flat_map(|line| p.miss_of_walk(line)).collect();
    assert_eq!((fetched.remove(0), fetched.pop()), (644, Some(703)), "no line of the next table");
    assert_eq!(p.miss_of_walk(704).count() + p.miss_of_walk(705).count(), 1, "it begins anew");
    assert_eq!(p.miss(641).collect::<Vec<_>>(), [642], "the program's goes on where it was");
    p.validate().expect("consistent");
}

#[test]
fn after_training_it_runs_ahead_by_one_line_and_by_twice_as_many_with_each_further_miss() {
    let mut p = prefetcher(4, 3, 8);
    let lines = fetched(&mut p, 640..648);
    let expect: [&[u64]; 8] = [
        &[],
        &[],
        &[643],
        &[644, 645],
        &[646, 647, 648],
        &[649, 650, 651, 652, 653],
        &[654],
        &[655],
    ];
    assert_eq!(lines, expect);
}

#[test]
fn a_descending_stream_is_the_ascending_one_in_a_mirror() {
    for (train, depth) in [(2, 1), (2, 20), (3, 8), (5, 63)] {
        let up = fetched(&mut prefetcher(1, train, depth), 64..128);
        let down = fetched(&mut prefetcher(1, train, depth), (64..128).rev());
        let mirrored = up.iter().map(|lines| lines.iter().map(|l| 191 - l).collect());
        assert_eq!(down, mirrored.collect::<Vec<Vec<u64>>>());
    }
}

#[test]
fn of_a_page_in_order_every_line_after_training_is_fetched_once_before_it_is_missed() {
    for (train, depth) in [(2, 1), (2, 20), (3, 8), (5, 63), (63, 63)] {
        let mut p = prefetcher(1, train, depth);
        let mut seen = Vec::new();
        for line in 64..128 {
            assert_eq!(seen.contains(&line), line >= 64 + u64::from(train), "line {line}");
            seen.extend(p.miss(line));
        }
        assert_eq!(seen, (64 + u64::from(train)..128).collect::<Vec<_>>(), "{train} {depth}");
    }
}

#[test]
fn it_never_leaves_the_page() {
    for misses in [[61, 62, 63, 64], [66, 65, 64, 63], [2, 1, 0, 64]] {
        let lines = fetched(&mut prefetcher(4, 2, 63), misses).concat();
        let page = misses[0] / 64;
        assert!(lines.iter().all(|line| line / 64 == page), "{misses:?}: {lines:?}");
    }
}

#[test]
fn one_that_crosses_pages_trains_once_and_fetches_all_lines_of_a_row_once() {
    for (train, depth) in [(2, 1), (2, 20), (3, 8), (2, 63)] {
        let row = 64 * 100..64 * 104;
        let up = fetched(&mut crossing(4, train, depth), row.clone()).concat();
        let first = row.start + u64::from(train);
        assert_eq!(up, (first..row.end + u64::from(depth)).collect::<Vec<_>>(), "{train} {depth}");
        let down = fetched(&mut crossing(4, train, depth), row.clone().rev()).concat();
        let mirror = |line: u64| row.start + row.end - 1 - line;
        assert_eq!(down, up.into_iter().map(mirror).collect::<Vec<_>>());
    }
    let lines = fetched(&mut crossing(4, 2, 4), [62, 63, 65, 200, 66]);
    let expect: [&[u64]; 5] = [&[], &[64], &[66, 67], &[], &[68, 69, 70]];
    assert_eq!(lines, expect, "a step of two, and a miss elsewhere in between");
    let far = fetched(&mut crossing(4, 2, 4), [62, 63, 67, 127, 64]);
    assert!(far[2..].concat().is_empty(), "a longer step begins anew: {far:?}");
    assert!(fetched(&mut crossing(4, 2, 4), [2, 1, 64, 65])[2].is_empty(), "another direction");
    let bottom = fetched(&mut crossing(4, 2, 4), [1, 0]).concat();
    assert_eq!(bottom, [u64::MAX], "beyond the first line is a line that nobody has");
}

#[test]
fn frames_of_pages_are_known_until_translations_are_flushed() {
    let mut p = crossing(1, 2, 8);
    p.knows(5, 77);
    p.knows(6, 78);
    assert_eq!([5, 6, 7, 21].map(|page| p.frame_of(page)), [Some(77), Some(78), None, None]);
    p.knows(21, 79);
    assert_eq!(
        [5, 21].map(|page| p.frame_of(page)),
        [None, Some(79)],
        "one takes the other's place"
    );
    p.flush();
    assert_eq!([5, 6, 21].map(|page| p.frame_of(page)), [None; 3]);
}

#[test]
fn every_other_line_makes_it_fetch_all_lines_and_every_third_none() {
    let other = fetched(&mut prefetcher(1, 2, 8), (0..64).step_by(2)).concat();
    // One line ahead is not enough to reach line 4; from there on half are fetched for nothing.
    assert_eq!(other, [3].into_iter().chain(5..64).collect::<Vec<_>>());
    assert!(fetched(&mut prefetcher(1, 2, 8), (0..64).step_by(3)).concat().is_empty());
}

#[test]
fn a_stream_that_turns_or_jumps_begins_anew() {
    let lines = fetched(&mut prefetcher(1, 3, 8), [10, 11, 12, 13, 12, 11, 10, 30, 31, 32, 32]);
    let expect: [&[u64]; 11] =
        [&[], &[], &[13], &[14, 15], &[], &[10], &[9, 8], &[], &[], &[33], &[]];
    assert_eq!(lines, expect);
}

#[test]
fn streams_up_to_the_number_of_trackers_do_not_disturb_each_other() {
    let pages = |streams: u64| move |n: u64| n % streams * 6400 + n / streams;
    let alone = fetched(&mut prefetcher(1, 2, 8), 0..64).concat().len();
    for streams in 1..=4 {
        let lines = fetched(&mut prefetcher(4, 2, 8), (0..64 * streams).map(pages(streams)));
        assert_eq!(lines.concat().len(), alone * streams as usize);
    }
    let five = fetched(&mut prefetcher(4, 2, 8), (0..64 * 5).map(pages(5)));
    assert!(five.concat().is_empty(), "each takes the tracker that is needed next");
}

#[test]
fn random_misses_fetch_nearly_nothing() {
    let mut state = 1u64;
    let mut random = move |lines: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % lines
    };
    let mut rate = |lines: u64| {
        let mut p = prefetcher(16, 3, 16);
        (0..100_000).map(|_| p.miss(random(lines)).count()).sum::<usize>() as f64 / 100_000.0
    };
    assert_eq!(rate(1 << 24), 0.0, "over 1 GiB");
    assert!(rate(64 * 64) < 0.001, "over 64 pages");
    assert!(rate(16 * 64) < 0.01, "over 16 pages, as many as there are trackers");
}

#[test]
fn a_fetched_line_is_told_once_and_the_oldest_of_a_full_set_is_forgotten() {
    let mut p = prefetcher(1, 2, 8);
    p.sent(7, Ticks(100));
    p.sent(8, Ticks(120));
    assert_eq!((p.take(9), p.take(7), p.take(7)), (None, Some(Ticks(100)), None));
    (1..=2).for_each(|n| p.sent(8 + 64 * n, Ticks(200 + n)));
    assert_eq!((p.take(8), p.take(8 + 64)), (None, Some(Ticks(201))));
    p.sent(8 + 128, Ticks(300));
    p.sent(8 + 192, Ticks(301));
    p.validate().expect("consistent");
    assert_eq!((p.take(8 + 128), p.take(8 + 192)), (Some(Ticks(300)), Some(Ticks(301))));
}
