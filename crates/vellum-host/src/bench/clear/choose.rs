//! Chooses the stores for clearing from measurements.
//!
//! Ways that differ by less than [`TIE`] count as equal: on a shared computer they are. Of the ways
//! that clear a hot page equally fast, the one is chosen after which the page is read soonest. Of
//! the non-temporal ways that clear the longest run equally fast, the one is chosen that is fastest
//! on scattered pages.
//!
//! The threshold is the shortest run from which non-temporal stores do not lose, at every longer
//! run that was measured, for a program that had a working set and reads half of the run. They must
//! also not lose at the longest run when nothing is read. Rejected: the length from which they win
//! when nothing is read. That is 16 KiB on our processors, and a program that then reads a page
//! waits for memory.

use super::fixture::{Measured, Workload, lengths};
use crate::bench::measure::Samples;
use crate::stores::{Choice, Method};
use vellum::addr::PAGE_SIZE;

/// Closer than this is equal.
const TIE: f64 = 1.05;
/// Where it is to say "does not lose", this is what two measurements of the same differ by.
const NO_SLOWER: f64 = 1.02;

/// Pages of a block that always go through the caches, as its first page's neighbourhood. The
/// library asks about the range beside them, so a block as long as the shortest that pays has a
/// range that is shorter by these.
const NEAR: usize = 3;

pub(super) fn choose(all: &Measured) -> Choice {
    let at = |workload: Workload, m: Method| all.get(&workload)?.get(&Some(m)).map(Samples::lowest);
    let ways =
        |non_temporal: bool| Method::here().filter(move |m| m.is_non_temporal() == non_temporal);
    let fastest = |workload: Workload, non_temporal: bool| {
        let timed = ways(non_temporal).filter_map(|m| Some((m, at(workload, m)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let longest = |workload: fn(usize) -> Workload| {
        lengths(all, workload).last().map(|&pages| workload(pages))
    };

    // Of the fastest at one workload, the fastest at another.
    let of_fastest = |one: Workload, other: Workload, non_temporal: bool| {
        let best = fastest(one, non_temporal)?.1;
        let equal = ways(non_temporal).filter(|&m| at(one, m).is_some_and(|ns| ns <= best * TIE));
        let then = |m| at(other, m).unwrap_or(f64::INFINITY);
        equal.min_by(|&a, &b| then(a).total_cmp(&then(b)))
    };

    let page = of_fastest(Workload::Hot, Workload::Read, false).unwrap_or(Method::Memset);
    let run = fastest(Workload::Used(512), false)
        .or_else(|| fastest(Workload::Run(512), false))
        .map_or(page, |w| w.0);
    let non_temporal =
        longest(Workload::Run).and_then(|s| Some((s, of_fastest(s, Workload::Scattered, true)?)));
    let Some((non_temporal, alone)) = non_temporal.and_then(|(s, m)| Some((m, at(s, m)?))) else {
        return Choice { page, run, non_temporal: run, from: u64::MAX };
    };
    let through = longest(Workload::Run).and_then(|s| at(s, run)).unwrap_or(0.0);
    let holds = |&pages: &usize| match (
        at(Workload::Used(pages), non_temporal),
        at(Workload::Used(pages), run),
    ) {
        (Some(non_temporal), Some(through)) => non_temporal <= through * NO_SLOWER,
        _ => false,
    };
    let used = lengths(all, Workload::Used);
    let shortest = used.iter().rev().copied().take_while(holds).last();
    let from = match shortest {
        Some(pages) if alone <= through * TIE => ((pages - NEAR) * PAGE_SIZE) as u64,
        _ => u64::MAX,
    };
    Choice { page, run, non_temporal, from }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rows: &[(Workload, &[(Method, f64)])]) -> Measured {
        let mut all = Measured::new();
        for (workload, ways) in rows {
            for &(method, ns) in *ways {
                all.entry(*workload).or_default().entry(Some(method)).or_default().add(ns);
            }
        }
        all
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn of_ways_equal_on_a_hot_page_the_one_that_is_read_sooner_is_taken() {
        let hot = [(Method::Strings, 28.0), (Method::Memset, 16.0), (Method::NonTemporal16, 5.0)];
        let read = [(Method::Strings, 100.0), (Method::Memset, 300.0)];
        let one = |hot: &[(Method, f64)]| {
            choose(&measured(&[(Workload::Hot, hot), (Workload::Read, &read)])).page
        };
        assert_eq!(one(&hot), Method::Memset, "strings are far slower");
        assert_eq!(
            one(&[(Method::Strings, 16.5), (Method::Memset, 16.0)]),
            Method::Strings,
            "a tie"
        );
        let long =
            [(Method::Strings, 90.0), (Method::NonTemporal16, 45.0), (Method::NonTemporal32, 46.0)];
        let apart = [(Method::NonTemporal16, 120.0), (Method::NonTemporal32, 90.0)];
        let ways =
            choose(&measured(&[(Workload::Run(1 << 18), &long), (Workload::Scattered, &apart)]));
        let expected = if Method::NonTemporal32.exists() {
            Method::NonTemporal32
        } else {
            Method::NonTemporal16
        };
        assert_eq!(ways.non_temporal, expected, "equal on the run, faster on single pages");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn going_around_begins_where_it_no_longer_loses_for_somebody_who_reads_half() {
        let (s, a) = (Method::Strings, Method::NonTemporal16);
        let with = |used: [f64; 4], alone: f64| {
            let rows = [
                (Workload::Run(1 << 18), &[(s, 90.0), (a, alone)][..]),
                (Workload::Used(16), &[(s, 100.0), (a, used[0])]),
                (Workload::Used(256), &[(s, 100.0), (a, used[1])]),
                (Workload::Used(512), &[(s, 100.0), (a, used[2])]),
                (Workload::Used(2048), &[(s, 100.0), (a, used[3])]),
            ];
            choose(&measured(&rows))
        };
        let usual = with([180.0, 120.0, 101.0, 90.0], 45.0);
        assert_eq!(
            (usual.run, usual.non_temporal, usual.from),
            (s, a, (2 << 20) - (12 << 10)),
            "a block of 2 MiB has a range of 509 pages"
        );
        assert_eq!(with([90.0; 4], 45.0).from, 52 << 10, "it always wins");
        assert_eq!(
            with([90.0, 90.0, 120.0, 90.0], 45.0).from,
            (8 << 20) - (12 << 10),
            "not below a length where it loses"
        );
        assert_eq!(with([90.0, 90.0, 90.0, 120.0], 45.0).from, u64::MAX, "it loses at the longest");
        assert_eq!(with([90.0; 4], 120.0).from, u64::MAX, "it loses when nothing is read");
    }
}
