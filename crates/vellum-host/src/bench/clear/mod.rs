//! Clearing: every way this processor has, by length, beside the library's own choice; and the
//! choice itself.
//!
//! A row is nanoseconds for a 4 KiB page, the median of the repetitions, in each of which all ways
//! take turns. (The best repetition of the best of five ways is of another way each time, and 5 to
//! 10 % less than any of them takes as a rule.) Its peers are the ways of [`Method`]. The memory is
//! one mapping whose pages were all touched. `fixture` measures, `choose` chooses.
//!
//! [`calibrate`] measures and chooses, [`beside`] measures again with the library on a machine that
//! clears so, [`run`] does both.

mod choose;
mod copying;
mod fixture;

use std::collections::BTreeMap;
use std::{fmt, io};

use vellum::addr::PAGE_SIZE;

use super::measure::ratio::{Ratios, Side};
use super::measure::{Effort, alone};
use super::{Report, Row};
use crate::stores::{Choice, Method};
use choose::choose;
use fixture::{Fixture, Measured, Workload, sample};

/// What was measured and what follows from it.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The rows; `ours` is the way chosen.
    pub report: Report,
    /// The choice.
    pub choice: Choice,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { page, run, non_temporal, scattered, from } = self.choice;
        writeln!(
            f,
            "A page that is used at once: {}. Runs through the caches: {}.",
            page.name(),
            run.name()
        )?;
        if from == u64::MAX {
            return writeln!(
                f,
                "Going around the caches ({}) wins at no length here.",
                non_temporal.name()
            );
        }
        writeln!(
            f,
            "Around the caches: runs by {}, scattered pages by {}: all that nobody waits for. \
             Beside a page that faulted from {} KiB on: no longer slower there for somebody who \
             had a working set of half the second level and reads half of what was cleared.",
            non_temporal.name(),
            scattered.name(),
            from >> 10
        )
    }
}

/// What a way is called where only the fastest of its kind is shown; `None` is the library's own
/// and no peer.
const fn kind(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::Ahead => return None,
        Method::Strings => "strings",
        Method::Memset | Method::Vector32 | Method::Vector64 => "plain",
        Method::NonTemporal16
        | Method::NonTemporal32
        | Method::NonTemporal64
        | Method::Four64
        | Method::FourLines => "around",
        Method::Lines if method.is_non_temporal() => "around",
        Method::Lines => "line",
    })
}

fn report(all: &Measured, choice: Choice) -> Report {
    let mut report = Report::default();
    for (&workload, ways) in all {
        let chosen = match workload {
            Workload::Hot | Workload::Read => choice.page,
            Workload::Run(_) if choice.from != u64::MAX => choice.non_temporal,
            Workload::Scattered if choice.from != u64::MAX => choice.scattered,
            Workload::Scattered => choice.page,
            Workload::Used(pages) if (pages * PAGE_SIZE) as u64 >= choice.from => {
                choice.non_temporal
            }
            Workload::Run(_) | Workload::Used(_) => choice.run,
        };
        let ours = ways.get(&None).or(ways.get(&Some(chosen)));
        let Some(ours) = ours else { continue };
        let mut peers = BTreeMap::new();
        for (method, ns) in ways.iter().filter_map(|(m, s)| m.map(|m| (m, s.median()))) {
            let Some(kind) = kind(method) else { continue };
            let best = peers.entry(kind).or_insert(ns);
            *best = ns.min(*best);
        }
        report.benchmarks.push(Row {
            name: workload.name(),
            threads: 1,
            unit: "ns",
            ours: ours.median(),
            floor: None,
            peers,
            spread: ours.spread(),
        });
    }
    report
}

/// Measures every way there is and chooses. Takes some seconds and a GiB of memory with
/// [`Effort::FULL`].
///
/// # Errors
/// Memory the system refuses.
pub fn calibrate(effort: Effort) -> io::Result<Calibration> {
    alone(|| {
        let fixture = Fixture::new(effort, Choice::by_features())?;
        let all = sample(&fixture, effort, false);
        let mut choice = choose(&all);
        // A few repetitions do not tell ways that differ by a twentieth. Who is not seen to gain
        // over plain stores does not replace them. Plain ones differ by two times on a hot page,
        // and hardly in when a page that was cleared is read.
        let plain = plainest(&all, Workload::Hot).filter(|_| kind(choice.page) != Some("plain"));
        if let Some(plain) = plain {
            let pairs =
                fixture::beside(&fixture, effort, Workload::Read, (Some(choice.page), plain));
            if pairs.side(1.0) != Side::Above {
                choice.page = plain;
            }
        }
        Ok(Calibration { report: report(&all, choice), choice })
    })
}

/// The library on a machine that clears as `choice` says, beside the ways there are.
///
/// # Errors
/// Memory the system refuses.
pub fn beside(effort: Effort, choice: Choice) -> io::Result<Report> {
    alone(|| {
        let fixture = Fixture::new(effort, choice)?;
        let all = sample(&fixture, effort, true);
        let mut report = report(&all, choice);
        let pairs = |workload, peer| fixture::beside(&fixture, effort, workload, (None, peer));
        report.benchmarks.push(paired(OVER_STRINGS, &pairs(Workload::Scattered, Method::Strings)));
        if let Some(plain) = plainest(&all, Workload::Read) {
            report.benchmarks.push(paired(OVER_PLAIN, &pairs(Workload::Read, plain)));
        }
        report.benchmarks.push(paired(COPY, &copying::beside(&fixture, effort, false)));
        report.benchmarks.push(paired(COPY_USED, &copying::beside(&fixture, effort, true)));
        Ok(report)
    })
}

/// The row of the library's copies of 2 MiB beside those through the caches.
const COPY: &str = "clear/copy-2M-over-cached";
/// The same for a program that reads half of the copy.
const COPY_USED: &str = "clear/copy-2M-used-over-cached";
/// The row of the library beside strings on scattered pages: how many times as fast, pair by pair.
const OVER_STRINGS: &str = "clear/scattered-over-strings";
/// The row of the library beside the fastest plain stores, on pages that are read at once.
const OVER_PLAIN: &str = "clear/read-over-plain";

/// The plain stores that are fastest at a workload.
fn plainest(all: &Measured, at: Workload) -> Option<Method> {
    let timed = all.get(&at)?.iter().filter_map(|(m, s)| m.map(|m| (m, s.median())));
    timed.filter(|t| kind(t.0) == Some("plain")).min_by(|a, b| a.1.total_cmp(&b.1)).map(|t| t.0)
}

/// A row of ratios; its spread is by how much their median may be wrong.
fn paired(name: &str, ratios: &Ratios) -> Row {
    Row {
        name: name.to_owned(),
        threads: 1,
        unit: "x",
        ours: ratios.median(),
        floor: None,
        peers: BTreeMap::new(),
        spread: ratios.uncertainty(),
    }
}

/// Calibrates, then measures the library with what was found.
///
/// # Errors
/// Memory the system refuses.
pub fn run(effort: Effort) -> io::Result<Report> {
    let found = calibrate(Effort { repetitions: effort.repetitions.min(3), ..effort })?;
    let mut report = beside(effort, found.choice)?;
    report.notes.extend(found.to_string().lines().map(str::to_owned));
    Ok(report)
}

/// What the rows mean, in sentences computed from them.
pub fn explain(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    let row = |name: &str| report.benchmarks.iter().find(|r| r.name == name);
    let mut say = |name: &str, what: &str, peer: Option<Method>| {
        let Some(row) = row(name) else { return };
        let (peer, theirs) = match peer {
            Some(method) => match kind(method).and_then(|kind| row.peers.get_key_value(kind)) {
                Some((&kind, &ns)) => (kind, ns),
                None => return,
            },
            None => row.best_peer().unwrap_or(("nothing", f64::NAN)),
        };
        let times = theirs / row.ours;
        said.push(format!(
            "{what}: {:.1} ns a page, {peer} {theirs:.1} ns: {times:.2} times as fast.",
            row.ours
        ));
    };
    say("clear/page-hot", "One page over and over, beside the fastest way", None);
    say(
        "clear/used-2M",
        "2 MiB of which half is read, and what was in use before, beside the fastest way",
        None,
    );
    say("clear/run-64K", "64 KiB, beside the fastest way", None);
    say("clear/run-2M", "2 MiB, beside the fastest way", None);
    say("clear/run-1G", "1 GiB, beside the fastest way", None);
    let pairs = [
        (OVER_PLAIN, "A page cleared and then read, beside the fastest plain stores, pair by pair"),
        (
            OVER_STRINGS,
            "Scattered pages, a fence a batch, beside strings page by page, pair by pair",
        ),
        (COPY, "2 MiB copied, beside a copy through the caches, pair by pair"),
        (COPY_USED, "2 MiB copied and half of it read, and what was in use before, pair by pair"),
    ];
    for (name, what) in pairs {
        if let Some(row) = row(name) {
            said.push(format!(
                "{what}: {:.3} times as fast, give or take {:.1} %.",
                row.ours,
                row.spread * 100.0
            ));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_chooses_among_what_exists_and_the_library_clears_by_it() {
        let effort = Effort { shrink: 128, ..Effort::QUICK };
        let found = calibrate(effort).expect("memory");
        assert!(
            [found.choice.page, found.choice.run, found.choice.non_temporal]
                .into_iter()
                .all(Method::exists)
        );
        assert!(!found.choice.page.is_non_temporal() && !found.choice.run.is_non_temporal());
        let report = beside(effort, found.choice).expect("memory");
        assert_eq!(explain(&report).len(), 8, "no GiB in a quick run, but pairs");
        let rows = report.benchmarks;
        let used = |r: &&Row| r.name.starts_with("clear/used-");
        assert_eq!(rows.iter().filter(used).count(), 2, "two of the runs for somebody");
        assert!(rows.iter().any(|r| r.name == "clear/run-40K"), "no calibration has seen it");
        for row in rows {
            let kinds: std::collections::BTreeSet<_> = Method::here().filter_map(kind).collect();
            let expected = if row.unit == "x" { 0 } else { kinds.len() };
            assert!(row.ours > 0.0 && row.peers.len() == expected, "{row:?}");
        }
        assert!(found.to_string().lines().count() >= 2);
        assert_eq!(explain(&found.report).len(), 4, "nor pairs");
    }
}
