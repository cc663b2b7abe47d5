//! Chooses the stores for clearing from measurements.
//!
//! A way's time is its median, as in the rows that reports show.
//!
//! Ways that differ by less than [`TIE`] count as equal: on a shared computer they are. Of the ways
//! that clear a hot page equally fast, the one is chosen after which the page is read soonest.
//!
//! Of the non-temporal ways one is chosen for runs, that which is fastest over all lengths that
//! were measured, and one for scattered pages. Four pages at a time take two thirds of the time of
//! one after the other where pages are scattered, and on some processors an eighth more on runs.
//!
//! The threshold is the shortest run from which non-temporal stores do not lose, at every longer
//! run that was measured, for a program that had a working set and reads half of the run. Where
//! they lose at the longest, it is twice that. What nobody waits for does not ask for the length,
//! but whether there is a threshold: there is none if non-temporal stores lose over all lengths
//! when nothing is read. Rejected: the length from which they win when nothing is read. That is
//! 16 KiB on our processors, and a program that then reads a page waits for memory.

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
    let at = |workload: Workload, m: Method| all.get(&workload)?.get(&Some(m)).map(Samples::median);
    let ways =
        |non_temporal: bool| Method::here().filter(move |m| m.is_non_temporal() == non_temporal);
    let fastest = |workload: Workload, non_temporal: bool| {
        let timed = ways(non_temporal).filter_map(|m| Some((m, at(workload, m)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    };

    // Of the fastest on a hot page, the one after which it is read soonest.
    let page = fastest(Workload::Hot, false).and_then(|(_, best)| {
        let equal =
            ways(false).filter(|&m| at(Workload::Hot, m).is_some_and(|ns| ns <= best * TIE));
        let read = |m| at(Workload::Read, m).unwrap_or(f64::INFINITY);
        equal.min_by(|&a, &b| read(a).total_cmp(&read(b)))
    });
    let page = page.unwrap_or(Method::Memset);
    let run = fastest(Workload::Used(512), false)
        .or_else(|| fastest(Workload::Run(512), false))
        .map_or(page, |w| w.0);
    // A length counts as much as any other, however long its runs take: times are multiplied.
    let runs = lengths(all, Workload::Run);
    let over_all =
        |m| runs.iter().map(|&n| at(Workload::Run(n), m).map(f64::ln)).sum::<Option<f64>>();
    let timed = ways(true).filter_map(|m| Some((m, over_all(m)?)));
    let non_temporal = timed.min_by(|a: &(_, f64), b| a.1.total_cmp(&b.1)).map(|(m, _)| m);
    let Some(non_temporal) = non_temporal else {
        return Choice { page, run, non_temporal: run, scattered: run, from: u64::MAX };
    };
    let scattered = fastest(Workload::Scattered, true).map_or(non_temporal, |w| w.0);
    let holds = |&pages: &usize| match (
        at(Workload::Used(pages), non_temporal),
        at(Workload::Used(pages), run),
    ) {
        (Some(non_temporal), Some(through)) => non_temporal <= through * NO_SLOWER,
        _ => false,
    };
    let used = lengths(all, Workload::Used);
    let shortest = used.iter().rev().copied().take_while(holds).last();
    let beyond = used.last().map(|longest| 2 * longest);
    let loses = over_all(non_temporal) > over_all(run).map(|ln| ln + TIE.ln() * runs.len() as f64);
    let from = match shortest.or(beyond) {
        Some(pages) if !loses => ((pages - NEAR) * PAGE_SIZE) as u64,
        _ => u64::MAX,
    };
    Choice { page, run, non_temporal, scattered, from }
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
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn one_lucky_turn_chooses_nothing() {
        let mut all =
            measured(&[(Workload::Hot, &[(Method::Memset, 16.0), (Method::Strings, 15.0)])]);
        let strings =
            all.get_mut(&Workload::Hot).and_then(|ways| ways.get_mut(&Some(Method::Strings)));
        let strings = strings.expect("measured");
        [29.0, 31.0].into_iter().for_each(|ns| strings.add(ns));
        assert_eq!(choose(&all).page, Method::Memset);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn runs_and_scattered_pages_get_the_way_that_is_fastest_for_each() {
        let wide = Method::NonTemporal32;
        if !wide.exists() {
            return;
        }
        let ways = |runs: [[f64; 2]; 2]| {
            let [short, long] =
                runs.map(|[a, b]| [(Method::Strings, 90.0), (Method::NonTemporal16, a), (wide, b)]);
            let apart = [(Method::NonTemporal16, 120.0), (wide, 90.0)];
            let rows = [(Workload::Run(4), &short[..]), (Workload::Run(1 << 18), &long)];
            let choice = choose(&measured(&[rows[0], rows[1], (Workload::Scattered, &apart)]));
            (choice.non_temporal, choice.scattered)
        };
        assert_eq!(ways([[45.0, 46.0]; 2]), (Method::NonTemporal16, wide));
        assert_eq!(
            ways([[60.0, 45.0], [45.0, 46.0]]),
            (wide, wide),
            "a little slower on one length, far faster on the other"
        );
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
        assert_eq!(
            with([90.0, 90.0, 90.0, 120.0], 45.0).from,
            (16 << 20) - (12 << 10),
            "it loses at the longest, and what nobody waits for gains"
        );
        assert_eq!(with([90.0; 4], 120.0).from, u64::MAX, "it loses when nothing is read");
    }
}
