//! The experiment on a simulated machine: runs are collected, run two at a time, and set beside
//! the published figures.

use vellum_sim::cache::Policy;
use vellum_sim::file::Machine;

use super::costs;
use super::prose;
use super::shape::Shape;
use super::workloads::{
    POLICIES, PUBLISHED_TURNS, Reading, TURNS, ZeroReads, beside_zeros, in_a_row,
};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::bench::Counted;
use crate::repro::context::Context;
use crate::repro::page::{Page, Pair, Row, Statement, Table};
use crate::repro::side;

/// Constants that decide whether lines of one page offset meet in a set: sizes and ways, which the
/// tests themselves state.
pub(super) const SETS: [&str; 4] = ["l1d.size", "l1d.ways", "l2.size", "l2.ways"];
/// And those that decide how long it takes.
const TIMES: [&str; 8] = [
    "l1d.latency",
    "l2.latency",
    "llc.latency",
    "llc.size",
    "llc.ways",
    "core",
    "tlb.l1d.banks",
    "clock_hz",
];
const READINGS: [Reading; 2] = [Reading::Advancing, Reading::Whole];

/// A figure of a run, and how alignments are put together.
pub(super) type Figure = (fn(&Counted) -> f64, Aggregate);

/// How alignments are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aggregate {
    Mean,
    Worst,
}

impl Aggregate {
    pub(super) fn of(self, values: impl Iterator<Item = f64> + Clone) -> f64 {
        match self {
            Aggregate::Mean => values.clone().sum::<f64>() / values.count().max(1) as f64,
            Aggregate::Worst => values.fold(0.0, f64::max),
        }
    }
}

/// Every run of test 2: by policy, reading and seed, then before and after, then alignment.
pub(super) struct Sweep(Vec<(usize, usize, usize, [Vec<Counted>; 2])>);

impl Sweep {
    fn run(
        context: &Context<'_>,
        shape: &Shape,
        turns: u64,
        seeds: u64,
        policies: &[usize],
    ) -> Result<Sweep, LabError> {
        let mut keys = Vec::new();
        for &policy in policies {
            // Only random victims know the seed; one more seed shows that the others do not.
            let seeds = if POLICIES[policy].0 == Policy::Random { seeds } else { seeds.min(2) };
            for reading in 0..READINGS.len() {
                keys.extend((0..seeds).map(|seed| (policy, reading, seed)));
            }
        }
        let both = [1, shape.colours[1]];
        let runs: Vec<ZeroReads> = keys
            .iter()
            .flat_map(|&(policy, reading, seed)| {
                both.into_iter()
                    .flat_map(move |colours| (0..both[1]).map(move |align| (colours, align)))
                    .map(move |(colours, align)| ZeroReads {
                        policy: Some(POLICIES[policy].0),
                        reading: READINGS[reading],
                        colours,
                        align,
                        dependent: false,
                        turns,
                        seed: context.seed + seed,
                    })
            })
            .collect();
        let counted = side::by_side(&runs, |run| beside_zeros(context.machine, shape, run))?;
        let aligns = both[1] as usize;
        let sets = counted.chunks(2 * aligns);
        Ok(Sweep(
            keys.iter()
                .zip(sets)
                .map(|(&(policy, reading, seed), set)| {
                    (
                        policy,
                        reading,
                        seed as usize,
                        [set[..aligns].to_vec(), set[aligns..].to_vec()],
                    )
                })
                .collect(),
        ))
    }

    fn of(&self, policy: usize, reading: usize) -> impl Iterator<Item = &[Vec<Counted>; 2]> {
        self.0.iter().filter(move |s| (s.0, s.1) == (policy, reading)).map(|s| &s.3)
    }

    /// Before and after of the first seed.
    pub(super) fn pair(&self, policy: usize, reading: usize, (figure, over): Figure) -> [f64; 2] {
        let both = |set: &[Vec<Counted>; 2]| [0, 1].map(|i| over.of(set[i].iter().map(figure)));
        self.of(policy, reading).next().map_or([f64::NAN; 2], both)
    }

    /// How far the ratio varies with the seed, as a share.
    fn spread(&self, policy: usize, reading: usize, (figure, over): Figure) -> Option<f64> {
        let ratio = |set: &[Vec<Counted>; 2]| {
            let [before, after] = [0, 1].map(|i| over.of(set[i].iter().map(figure)));
            if before == 0.0 { f64::NAN } else { after / before }
        };
        Row::spread(self.of(policy, reading).map(ratio).collect())
    }

    /// Hits the oracle compared.
    fn checked(&self) -> u64 {
        self.0.iter().flat_map(|s| s.3.iter().flatten()).map(|c| c.checked).sum()
    }
}

fn some(pair: [f64; 2]) -> Pair {
    pair.map(Some)
}

/// The page.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let machine = context.machine;
    let shape = Shape::of(machine)?;
    let all: Vec<usize> = (0..POLICIES.len()).collect();
    let sweep = Sweep::run(context, &shape, TURNS, 3, &all)?;
    let longer = Sweep::run(context, &shape, 2 * TURNS, 1, &all)?;
    let sets = basis::provenance(machine, &SETS)?;
    let first = basis::provenance(machine, &SETS[..2])?;

    let rows = Rows { context, shape: &shape, sweep: &sweep, sets: &sets };
    let one = rows.test_one(&first)?;
    let (lru, others) = (rows.test_two()?, rows.other_policies());
    let costs = rows.costs()?;

    let nine =
        in_a_row(machine, Some(Policy::Lru), shape.l1_ways + 1, false, (TURNS, context.seed))?.l1;
    let expected = (shape.l2_ways + 1) as f64 / shape.colours[1] as f64;
    let statements = vec![
        Statement {
            id: "B-6",
            what: format!("L1 misses a read, {} frames in a row, LRU", shape.l1_ways + 1),
            value: nine / (shape.l1_ways + 1) as f64,
            band: [0.99, 1.01],
            provenance: first,
        },
        Statement {
            id: "B-7",
            what: format!("L2 misses a turn, {} colours, (i), worst, LRU", shape.colours[1]),
            value: sweep.pair(0, 0, (|c| c.l2, Aggregate::Worst))[1],
            band: [expected - 0.01, expected + 0.01],
            provenance: sets.clone(),
        },
    ];
    let moved = moved_by_doubling(&sweep, &longer);
    let checked = sweep.checked() + longer.checked();
    let mut page =
        prose::page(context, &shape, &sweep, &[&one, &lru, &others, &costs], (moved, checked));
    page.tables = vec![one, lru, others, costs];
    page.statements = statements;
    Ok(page)
}

/// The largest change of a ratio of test 2 when twice as many turns are counted, as a share.
fn moved_by_doubling(once: &Sweep, twice: &Sweep) -> f64 {
    let figures: [Figure; 2] = [(|c| c.l1, Aggregate::Mean), (|c| c.l2, Aggregate::Mean)];
    let mut most: f64 = 0.0;
    for policy in 0..POLICIES.len() {
        for reading in 0..READINGS.len() {
            for figure in figures {
                let [a, b] =
                    [once, twice].map(|s| s.pair(policy, reading, figure)).map(|[b, a]| a / b);
                if a.is_finite() && b.is_finite() {
                    most = most.max((b - a).abs() / a);
                }
            }
        }
    }
    most
}

/// Makes the tables.
struct Rows<'r> {
    context: &'r Context<'r>,
    shape: &'r Shape,
    sweep: &'r Sweep,
    sets: &'r Provenance,
}

impl Rows<'_> {
    fn nanoseconds(machine: &Machine, cycles: f64) -> f64 {
        cycles * 1e9 / *machine.clock_hz as f64
    }

    fn test_one(&self, sets: &Provenance) -> Result<Table, LabError> {
        let (machine, turns) = (self.context.machine, TURNS);
        let frames = [self.shape.l1_ways, self.shape.l1_ways + 1];
        let mut rows = Vec::new();
        for (i, &(policy, name)) in POLICIES.iter().enumerate() {
            let seeds: Vec<u64> = (0..3).map(|n| self.context.seed + n).collect();
            let pairs = side::by_side(&seeds, |&seed| {
                let misses = |n: u64| {
                    Ok(in_a_row(machine, Some(policy), n, false, (turns, seed))?.l1 / n as f64)
                };
                Ok([misses(frames[0])?, misses(frames[1])?])
            })?;
            rows.push(Row {
                name: format!("L1 misses a read, {name}"),
                published: prose::TEST_ONE_MISSES[i],
                ours: some(pairs[0]),
                // N frames fit and hardly miss at all, so what varies is the figure after.
                spread: Row::spread(pairs.iter().map(|pair| pair[1]).collect()),
                provenance: Some(sets.clone()),
            });
        }
        let constants: Vec<&str> = SETS[..2].iter().chain(&TIMES).copied().collect();
        for (dependent, name) in
            [(false, "ns a round, LRU"), (true, "ns a round, LRU, each read waits")]
        {
            let pair = |machine: &Machine| {
                let time = |n: u64| {
                    let counted = in_a_row(
                        machine,
                        Some(Policy::Lru),
                        n,
                        dependent,
                        (turns, self.context.seed),
                    )?;
                    Ok::<f64, LabError>(Self::nanoseconds(machine, counted.cycles))
                };
                Ok::<[f64; 2], LabError>([time(frames[0])?, time(frames[1])?])
            };
            let ratio = |machine: &Machine| pair(machine).map(|[before, after]| after / before);
            rows.push(Row {
                name: name.to_owned(),
                published: prose::TEST_ONE_TIME,
                ours: some(pair(machine)?),
                spread: None,
                provenance: Some(basis::measured_provenance(machine, &constants, &ratio)?),
            });
        }
        Ok(Table {
            title: "Test 1: offset 0 of each of N frames in a row, again and again".to_owned(),
            columns: frames.map(|n| format!("N = {n}")),
            rows,
        })
    }

    fn sweep_row(
        &self,
        policy: usize,
        reading: usize,
        (what, figure): (&str, Figure),
        published: Pair,
    ) -> Row {
        let over = if figure.1 == Aggregate::Mean { "mean" } else { "worst" };
        Row {
            name: format!("{what}, {}, {over}", ["(i)", "(ii)"][reading]),
            published,
            ours: some(self.sweep.pair(policy, reading, figure)),
            spread: self.sweep.spread(policy, reading, figure),
            provenance: Some(self.sets.clone()),
        }
    }

    fn columns(&self) -> [String; 2] {
        ["one zero page".to_owned(), format!("{} colours", self.shape.colours[1])]
    }

    fn test_two(&self) -> Result<Table, LabError> {
        let mut rows = Vec::new();
        for reading in 0..2 {
            let l1: Figure = (|c| c.l1, Aggregate::Mean);
            rows.push(self.sweep_row(0, reading, ("L1 misses a turn", l1), prose::TEST_TWO_MISSES));
            for over in [Aggregate::Mean, Aggregate::Worst] {
                rows.push(self.sweep_row(
                    0,
                    reading,
                    ("L2 misses a turn", (|c| c.l2, over)),
                    [None, None],
                ));
            }
        }
        for (reading, over) in [(0, Aggregate::Mean), (0, Aggregate::Worst), (1, Aggregate::Mean)] {
            let constants: Vec<&str> = SETS.iter().chain(&TIMES).copied().collect();
            let pair = |machine: &Machine| {
                let shape = Shape::of(machine)?;
                let time = |colours: u64| {
                    let run = |align| ZeroReads {
                        policy: Some(Policy::Lru),
                        reading: READINGS[reading],
                        colours,
                        align,
                        dependent: false,
                        turns: TURNS / 4,
                        seed: self.context.seed,
                    };
                    let times = (0..shape.colours[1])
                        .map(|align| Ok(beside_zeros(machine, &shape, &run(align))?.cycles))
                        .collect::<Result<Vec<f64>, LabError>>()?;
                    Ok::<f64, LabError>(Self::nanoseconds(machine, over.of(times.into_iter())))
                };
                Ok::<[f64; 2], LabError>([time(1)?, time(shape.colours[1])?])
            };
            let ratio = |machine: &Machine| pair(machine).map(|[before, after]| after / before);
            let over = if over == Aggregate::Mean { "mean" } else { "worst" };
            rows.push(Row {
                name: format!("ns a turn, {}, {over}", ["(i)", "(ii)"][reading]),
                published: prose::TEST_TWO_TIME,
                ours: some(pair(self.context.machine)?),
                spread: None,
                provenance: Some(basis::measured_provenance(
                    self.context.machine,
                    &constants,
                    &ratio,
                )?),
            });
        }
        Ok(Table {
            title:
                "Test 2: real data in every way of one set, then zeros; LRU; over all alignments"
                    .to_owned(),
            columns: self.columns(),
            rows,
        })
    }

    fn other_policies(&self) -> Table {
        let mut rows = Vec::new();
        for (policy, (_, name)) in POLICIES.iter().enumerate().skip(1) {
            for reading in 0..2 {
                let published = prose::TEST_TWO_MISSES;
                rows.push(self.sweep_row(
                    policy,
                    reading,
                    (&format!("{name}: L1"), (|c| c.l1, Aggregate::Mean)),
                    published,
                ));
                for over in [Aggregate::Mean, Aggregate::Worst] {
                    let what = format!("{name}: L2");
                    rows.push(self.sweep_row(
                        policy,
                        reading,
                        (&what, (|c| c.l2, over)),
                        [None, None],
                    ));
                }
            }
        }
        Table {
            title: "The same with other replacement, misses a turn".to_owned(),
            columns: self.columns(),
            rows,
        }
    }

    fn costs(&self) -> Result<Table, LabError> {
        let (machine, seed) = (self.context.machine, self.context.seed);
        let both = [1, self.shape.colours[1]];
        let hot = side::by_side(&both, |&colours| costs::beside_hot_data(machine, colours, seed))?;
        let large =
            side::by_side(&both, |&colours| costs::beside_large_data(machine, colours, seed))?;
        let row = |name: String, ours: [f64; 2], provenance: Provenance| Row {
            name,
            published: [None, None],
            ours: some(ours),
            spread: None,
            provenance: Some(provenance),
        };
        let in_llc = |machine: &Machine| {
            let [one, many] = both.map(|colours| costs::beside_large_data(machine, colours, seed));
            Ok(many?.llc / one?.llc)
        };
        Ok(Table {
            title: "The price: zeros read in bulk beside real data".to_owned(),
            columns: self.columns(),
            rows: vec![
                row(
                    "L1 misses a turn, data 3/4 of L1".to_owned(),
                    [hot[0].l1, hot[1].l1],
                    basis::provenance(machine, &["l1d.size", "l1d.ways", "l1d.policy"])?,
                ),
                row(
                    format!("LLC misses a pass, data of {} MiB", costs::LARGE >> 20),
                    [large[0].llc, large[1].llc],
                    basis::measured_provenance(
                        machine,
                        &["llc.size", "llc.ways", "llc.policy", "llc.inclusion"],
                        &in_llc,
                    )?,
                ),
            ],
        })
    }
}

/// By how much published loops are cut: test 1, test 2.
pub(super) fn factors() -> [u64; 2] {
    PUBLISHED_TURNS.map(|turns| turns / TURNS)
}
