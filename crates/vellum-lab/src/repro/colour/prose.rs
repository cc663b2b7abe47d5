//! Published figures, and the sentences around ours. Every sentence that judges is chosen by the
//! figures it speaks of.

use super::shape::Shape;
use super::sim::{Aggregate, Sweep, factors};
use crate::repro::context::Context;
use crate::repro::page::{Page, Pair, Table};
use crate::repro::text::figure;

/// Test 1, misses a read by N = 8 and 9: version 3 of the series beside LRU, version 1 beside
/// random; 1,000,000 rounds each.
pub const TEST_ONE_MISSES: [Pair; 3] = [
    [Some(43_429.0 / 8e6), Some(9_038_460.0 / 9e6)],
    [None, None],
    [Some(37_103.0 / 8e6), Some(4_687_932.0 / 9e6)],
];
/// Test 1, nanoseconds a round (version 3).
pub const TEST_ONE_TIME: Pair = [Some(299.206372), Some(722.253140)];
/// Test 2, L1 misses a turn, 8,000,000 turns.
pub const TEST_TWO_MISSES: Pair = [Some(35_804_552.0 / 8e6), Some(42_636_698.0 / 8e6)];
/// Test 2, nanoseconds a turn.
pub const TEST_TWO_TIME: Pair = [Some(2.602511671e9 / 8e6), Some(2.098198172e9 / 8e6)];

/// The page without its tables and statements.
pub fn page(
    context: &Context<'_>,
    shape: &Shape,
    sweep: &Sweep,
    tables: &[&Table; 4],
    (moved, checked): (f64, u64),
) -> Page {
    let Shape { l1_ways, l2_ways, colours: [l1_colours, colours], stride } = *shape;
    let l1 = |policy, reading| sweep.pair(policy, reading, (|c| c.l1, Aggregate::Mean));
    let l2 = |policy, reading, over| sweep.pair(policy, reading, (|c| c.l2, over));
    let [first, second] = factors();
    let (i_mean, i_worst) = (l2(0, 0, Aggregate::Mean), l2(0, 0, Aggregate::Worst));
    let (ii_mean, ii_worst) = (l2(0, 1, Aggregate::Mean), l2(0, 1, Aggregate::Worst));
    let change = |[before, after]: [f64; 2]| match after / before {
        _ if before == after => "stays what it was".to_owned(),
        _ if before == 0.0 => "comes up".to_owned(),
        r if (r - 1.0).abs() < 0.01 => "stays what it was".to_owned(),
        r if r < 1.0 => format!("falls to {:.0} %", r * 100.0),
        r => format!("rises {r:.1} times"),
    };
    let between = |pair: [f64; 2]| format!("{} -> {}", figure(pair[0]), figure(pair[1]));
    let [published_before, published_after] = TEST_TWO_MISSES.map(|v| v.unwrap_or(f64::NAN));
    let near = |pair: [f64; 2]| {
        (pair[0] / published_before - 1.0).abs() < 0.1
            && (pair[1] / published_after - 1.0).abs() < 0.1
    };
    let found: Vec<String> = (0..3)
        .flat_map(|policy| (0..2).map(move |reading| (policy, reading)))
        .filter(|&(policy, reading)| near(l1(policy, reading)))
        .map(|(policy, reading)| {
            format!(
                "{} in reading {}",
                super::workloads::POLICIES[policy].1,
                ["(i)", "(ii)"][reading]
            )
        })
        .collect();
    let price = |row: usize| {
        tables[3].rows.get(row).map_or([f64::NAN; 2], |r| r.ours.map(|v| v.unwrap_or(f64::NAN)))
    };

    Page {
        name: "colour",
        title: "Coloured zero pages".to_owned(),
        on: format!("{}, simulated, seed {}", context.machine.name, context.seed),
        asked: vec![
            "A page that was read and never written is backed by one shared page of zeros, so all \
             such pages' bytes at one offset compete for one set of each cache with whatever else \
             lies there. Does it help to have several zero pages, one for each colour of the \
             cache, chosen by the address? (A posting for arm64, 2020, not merged; MIPS and s390 \
             do it.)"
                .to_owned(),
        ],
        run: vec![
            format!(
                "Test 1 reads offset 0 of N frames in a row ({l1_ways} ways in L1, so N = \
                 {l1_ways} and {}). Test 2 reads {l2_ways} lines one way of L2 ({} KiB) apart, \
                 then memory that is only zeros. The posting does not say how much of it: (i) one \
                 read a turn, a page further each time, or (ii) {l2_ways} reads a turn. Nor where \
                 the frames lie: all {colours} alignments are run, each with one zero page and \
                 with {colours}. Data accesses of the program only, walks not counted.",
                l1_ways + 1,
                stride >> 10
            ),
            format!(
                "Loops are 1/{first} (test 1) and 1/{second} (test 2) of the published length; \
                 twice as long, no ratio of test 2 moves by more than {:.1} %. LRU, tree-PLRU and \
                 random replacement are set by the experiment. The oracle compared {} TLB hits.",
                moved * 100.0,
                crate::report::number::grouped(checked as i64)
            ),
        ],
        out: vec![
            format!(
                "L2, LRU, reading (i): over all alignments the mean of {} misses a turn {}; the \
                 worst alignment, {}, {}.",
                between(i_mean),
                change(i_mean),
                between(i_worst),
                change(i_worst)
            ),
            format!(
                "L2, LRU, reading (ii): the mean of {} {}; the worst, {}, {}.",
                between(ii_mean),
                change(ii_mean),
                between(ii_worst),
                change(ii_worst)
            ),
            format!(
                "L1 has {l1_colours} colour{}: with LRU its misses are {} a turn in (i) and {} in \
                 (ii). The published {} -> {} {}.",
                if l1_colours == 1 { "" } else { "s" },
                between(l1(0, 0)),
                between(l1(0, 1)),
                figure(published_before),
                figure(published_after),
                match found.as_slice() {
                    [] => "are not reproduced by plain LRU, nor by any other policy and reading \
                           tried here"
                        .to_owned(),
                    some => format!(
                        "are not reproduced by plain LRU; within 10 % of them: {}",
                        some.join(", ")
                    ),
                }
            ),
            format!(
                "With random victims the mean of {} L2 misses a turn {} in (i){}.",
                between(l2(2, 0, Aggregate::Mean)),
                change(l2(2, 0, Aggregate::Mean)),
                if i_mean[0] > 0.0 {
                    ": there one line in rotation hardly ever loses its place"
                } else {
                    ""
                }
            ),
            if l1_colours == 1 {
                format!(
                    "Test 1 with a strict cycle over one line too many misses always under \
                     tree-PLRU too, once it has settled, from whatever state it starts; random \
                     victims miss {} of the time at N = {}. Version 1 of the series published \
                     0.52.",
                    tables[0].rows.get(2).and_then(|r| r.ours[1]).map_or("-".to_owned(), figure),
                    l1_ways + 1
                )
            } else {
                format!(
                    "Test 1 wants a first level of which a way is a page. Here a way is \
                     {l1_colours} pages, so that {} frames in a row lie in {l1_colours} sets and \
                     fit.",
                    l1_ways + 1
                )
            },
        ],
        means: vec![
            if i_worst[1] < i_worst[0] * 0.99 && (i_mean[1] / i_mean[0] - 1.0).abs() < 0.02 {
                "Colours are an insurance, not a gain: they take the worst alignment away and \
                 spread what it cost over all others. A gain is seen by who happens to be unlucky \
                 without them."
                    .to_owned()
            } else {
                "On this machine colours change the mean as well as the worst case; see the \
                 table."
                    .to_owned()
            },
            format!(
                "The default, zero.colours=auto, counts the colours of L1: {l1_colours} here{}.",
                if l1_colours == 1 { ", which is no colouring at all" } else { "" }
            ),
        ],
        limits: vec![
            format!(
                "Programs that read many zeros a turn lose: reading (ii) {} L2 misses. Zeros read \
                 in bulk take {colours} pages of cache instead of one: beside data of 3/4 of L1, \
                 misses go {} a turn; beside {} MiB of data, {} LLC misses a pass{}.",
                between(ii_mean),
                between(price(0)),
                super::costs::LARGE >> 20,
                between(price(1)),
                if price(1)[0] * 2.0 > (super::costs::LARGE / 64) as f64 {
                    ", since so much does not fit anyway"
                } else {
                    ""
                }
            ),
            "Nobody has shown a program that is held up by reading memory it never wrote; the \
             posting's own kernel build took the same time with and without."
                .to_owned(),
            "Times rest on guesses (latencies, overlap), and published times cannot be compared \
             in size: the posting's loop made 178 cache references a turn, ours makes as many as \
             the text says. Its hardware prefetchers are not modelled."
                .to_owned(),
        ],
        ..Page::default()
    }
}
