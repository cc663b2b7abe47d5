//! The page index beside ordered maps and a hash table of the registry.
//!
//! The floor is a plain array of frame numbers. The crate `xarray` needs an unstable compiler, so
//! its figures, and those of FreeBSD's and Linux's index, are of another computer of this class
//! ([`ELSEWHERE`]). Many operations are inside one guard or epoch; entering it is a row.

mod ours;
mod peers;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;

use super::fixture::{BareVm, boot};
use super::measure::{Effort, Samples, alone, time};
use super::{Report, Row};
use ours::Ours;
use peers::{Array, Btree, Congee, Hash, Index, PageRecord, RUN, Rart};

/// Entries of the two sizes.
const SIZES: [(&str, u64); 2] = [("32k", 32 << 10), ("1m", 1 << 20)];
/// Distance of the sparse rows, as a shift.
const STRIDE: u32 = 9;
/// Lookups of one repetition at most, and those of which each waits for the one before.
const LOOKUPS: u64 = 256 << 10;
const CHASED: u64 = 64 << 10;
/// Memory for nodes: the worst distance has 73 bytes an entry.
const MEMORY: u64 = 192 << 20;

/// A figure of another computer of this class: the row, who, nanoseconds at 32 Ki and at 1 Mi.
pub struct Elsewhere {
    /// The row's act.
    pub act: &'static str,
    /// Whose it is.
    pub who: &'static str,
    /// At 32 Ki entries, and at 1 Mi.
    pub figures: [f64; 2],
}

const fn elsewhere(act: &'static str, who: &'static str, figures: [f64; 2]) -> Elsewhere {
    Elsewhere { act, who, figures }
}

/// The best ordered index for each act, measured on another computer: FreeBSD's `pctrie` (2026) and
/// Linux 6.1's xarray in user space, and crates.
pub const ELSEWHERE: &[Elsewhere] = &[
    elsewhere("insert, root", "FreeBSD", [18.9, 25.8]),
    elsewhere("insert, cursor", "FreeBSD, xarray crate", [9.1, 14.9]),
    elsewhere("lookup, root", "FreeBSD, Linux", [11.4, 19.2]),
    elsewhere("lookup, cursor", "Linux", [5.1, 9.9]),
    elsewhere("random lookup", "FreeBSD", [22.1, 104.8]),
    elsewhere("dependent lookup", "congee", [70.3, 289.5]),
    elsewhere("runs of 16, lookup", "FreeBSD", [7.4, 24.4]),
    elsewhere("runs of 16, insert", "FreeBSD", [10.5, 21.0]),
    elsewhere("stride 512, insert", "FreeBSD", [14.2, 27.3]),
    elsewhere("stride 512, lookup", "FreeBSD", [9.6, 24.0]),
    elsewhere("miss, ascending", "FreeBSD", [19.5, 26.3]),
    elsewhere("miss, random", "FreeBSD, Linux", [26.9, 66.0]),
    elsewhere("remove, cursor", "xarray crate", [16.5, 11.6]),
];

/// Nanoseconds by act, and by structure.
#[derive(Default)]
struct Measured {
    samples: BTreeMap<(&'static str, &'static str), Samples>,
    acts: Vec<&'static str>,
    counts: bool,
}

impl Measured {
    fn add(&mut self, act: &'static str, who: &'static str, each: f64) {
        if !self.acts.contains(&act) {
            self.acts.push(act);
        }
        if self.counts {
            self.samples.entry((act, who)).or_default().add(each);
        }
    }
}

/// What all structures are asked for.
struct Work {
    entries: u64,
    /// All indices, shuffled.
    shuffled: Vec<u64>,
    /// The beginnings of all runs, shuffled.
    runs: Vec<u64>,
    /// By frame: the index to be looked up next, and something to be read.
    records: Vec<PageRecord>,
}

impl Work {
    fn new(entries: u64) -> Work {
        let shuffled = shuffled(entries);
        let runs = shuffled.iter().filter(|at| *at % RUN == 0).copied().collect();
        let mut records = vec![PageRecord([0; 8]); entries as usize];
        for (at, next) in shuffled.iter().zip(shuffled.iter().cycle().skip(1)) {
            records[*at as usize].0[0] = *next;
        }
        Work { entries, shuffled, runs, records }
    }

    /// One repetition of a structure that `new` makes.
    fn play<I: Index>(&self, measured: &mut Measured, mut new: impl FnMut(bool) -> I) {
        let (n, records) = (self.entries, &self.records[..]);
        let all = || (0..n).map(|at| (at, at));
        let mut say = |act, each| measured.add(act, I::NAME, each);
        let mut index = new(false);
        say("insert, root", time(n, || index.insert(all(), false)));
        let read = |f: &dyn Fn() -> u64, count| {
            time(count, || {
                black_box(f());
            })
        };
        say("lookup, root", read(&|| index.lookup(0..n, false, records), n));
        if I::CURSOR || I::NAME == Array::NAME {
            say("lookup, cursor", read(&|| index.lookup(0..n, true, records), n));
        }
        let some = n.min(LOOKUPS);
        let random = || self.shuffled.iter().copied().take(some as usize);
        say("random lookup", read(&|| index.lookup(random(), false, records), some));
        let chased = n.min(CHASED);
        say("dependent lookup", read(&|| index.chase(chased, records), chased));
        let runs = || self.runs.iter().copied().take((some / RUN) as usize);
        say("runs of 16, lookup", read(&|| index.runs(runs(), records), some));
        if I::REMOVES {
            say("remove, cursor", time(n, || index.remove(0..n, true)));
        }
        drop(index);
        let mut index = new(false);
        if I::CURSOR || I::NAME == Array::NAME {
            say("insert, cursor", time(n, || index.insert(all(), true)));
        } else {
            index.insert(all(), false);
        }
        if I::REMOVES {
            say("remove, one call", time(n, || index.remove_all(n)));
        }
        drop(index);
        let mut index = new(false);
        let by_runs = || self.runs.iter().flat_map(|at| *at..*at + RUN).map(|at| (at, at));
        say("runs of 16, insert", time(n, || index.insert(by_runs(), true)));
        drop(index);
        // Twice is of interest for a place that is kept.
        let ways = if I::CURSOR { 2 } else { 1 };
        let acts = [("miss, ascending", true), ("miss, ascending, twice", false)];
        for (act, kept) in acts.into_iter().take(ways) {
            let mut index = new(false);
            say(act, time(n, || index.miss(all(), kept)));
        }
        let random = || self.shuffled.iter().map(|at| (*at, *at));
        let acts = [("miss, random", true), ("miss, random, twice", false)];
        for (act, kept) in acts.into_iter().take(ways) {
            let mut index = new(false);
            say(act, time(n, || index.miss(random(), kept)));
        }
        let mut index = new(true);
        let sparse = || (0..n).map(|at| (at << STRIDE, at));
        say("stride 512, insert", time(n, || index.insert(sparse(), true)));
        let at = || (0..n).map(|at| at << STRIDE);
        say("stride 512, lookup", read(&|| index.lookup(at(), false, records), n));
    }
}

/// The numbers below `n` in an order that is the same each time.
fn shuffled(n: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..n).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..n as usize).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        all.swap(i, (seed % (i as u64 + 1)) as usize);
    }
    all
}

/// Every row.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort) -> io::Result<Report> {
    let host = boot(1, MEMORY, false)?;
    let mut report = Report::default();
    alone(|| {
        let _cpu = host.vm.machine().bind(0);
        for (size, entries) in SIZES {
            let work = Work::new((entries / effort.shrink).max(512));
            measure(&host, &work, size, effort, &mut report);
        }
        memory(&host, effort, &mut report);
    });
    let who: Vec<String> = ELSEWHERE.iter().map(|e| format!("{} ({})", e.act, e.who)).collect();
    report.notes.push(format!(
        "elsewhere is the best ordered index, FreeBSD's and Linux's included, on another computer \
         of this class: {}. The crate xarray needs an unstable compiler and is not run here.",
        who.join("; ")
    ));
    Ok(report)
}

fn measure(host: &BareVm, work: &Work, size: &str, effort: Effort, report: &mut Report) {
    let repetitions = effort.repetitions.min(if work.entries > 1 << 16 { 3 } else { 5 });
    let mut measured = Measured::default();
    for repetition in 0..=repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        measured.counts = repetition > 0;
        let array = |is_sparse: bool| Array {
            frames: vec![0; work.entries as usize],
            stride: if is_sparse { STRIDE } else { 0 },
        };
        for turn in 0..6 {
            let mut ours = |_| Ours::new(host);
            match (turn + repetition) % 6 {
                0 => work.play(&mut measured, &mut ours),
                1 => work.play(&mut measured, array),
                2 => work.play(&mut measured, |_| Btree::default()),
                3 => work.play(&mut measured, |_| Hash::default()),
                4 => work.play(&mut measured, |_| Congee::default()),
                _ => work.play(&mut measured, |_| Rart::default()),
            }
        }
        guard_and_blocks(host, work, &mut measured);
    }
    let median = |act, who| measured.samples.get(&(act, who)).map(Samples::median);
    for act in &measured.acts {
        let Some(own) = measured.samples.get(&(*act, Ours::NAME)) else { continue };
        let peers = [Btree::NAME, Hash::NAME, Congee::NAME, Rart::NAME].into_iter();
        report.benchmarks.push(Row {
            name: format!("trie/{size}/{act}"),
            threads: 1,
            unit: "ns",
            ours: own.median(),
            floor: median(act, Array::NAME),
            peers: peers.filter_map(|peer| Some((peer, median(act, peer)?))).collect(),
            spread: own.spread(),
        });
    }
}

/// What only ours has.
fn guard_and_blocks(host: &BareVm, work: &Work, measured: &mut Measured) {
    let mut ours = Ours::new(host);
    let n = work.entries;
    measured.add("enter an epoch", Ours::NAME, time(n, || ours.enter(n)));
    let at = || (0..n).map(|at| at << STRIDE);
    measured.add("2 MiB block in", Ours::NAME, time(n, || ours.blocks(at(), true)));
    measured.add("2 MiB block out", Ours::NAME, time(n, || ours.blocks(at(), false)));
}

/// Bytes of nodes an entry.
fn memory(host: &BareVm, effort: Effort, report: &mut Report) {
    let entries = ((1 << 20) / effort.shrink).max(512);
    let each = |shift: u32| {
        let mut ours = Ours::new(host);
        ours.insert((0..entries).map(|at| (at << shift, at)), true);
        ours.shape().bytes() as f64 / entries as f64
    };
    let all: Vec<f64> = (0..=12).map(each).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let worst = all.iter().copied().fold(0.0, f64::max);
    let rows = [("dense", all[0]), ("stride 512", all[9]), ("mean", mean), ("worst", worst)];
    for (name, ours) in rows {
        report.benchmarks.push(Row {
            name: format!("trie/bytes/{name}"),
            threads: 1,
            unit: "B",
            ours,
            floor: None,
            peers: BTreeMap::new(),
            spread: 0.0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_number_for_us_and_most_for_the_peers() {
        let report = run(Effort::QUICK).unwrap();
        for row in &report.benchmarks {
            assert!(row.ours.is_finite() && row.ours > 0.0, "{row:?}");
        }
        let names: Vec<&str> = report.benchmarks.iter().map(|row| row.name.as_str()).collect();
        assert!(ELSEWHERE.iter().all(|e| names.contains(&format!("trie/1m/{}", e.act).as_str())));
        let lookup = report.benchmarks.iter().find(|row| row.name == "trie/1m/lookup, root");
        assert!(lookup.is_some_and(|row| row.peers.len() == 4 && row.floor.is_some()));
    }
}
