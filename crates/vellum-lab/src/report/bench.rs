//! Native benchmarks as text: a line for each row, ours beside the floor and each peer, with
//! ratios.
//!
//! Each ratio stands right of what it compares with, ours over theirs: below 1 is faster, except
//! where more is better (`%`). Figures of growth are transposed: an operation is a line, and its
//! sizes are columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use vellum_host::bench::targets::{Judged, Standing};
use vellum_host::bench::trie::ELSEWHERE;
use vellum_host::bench::{Report, Row};

use super::number;
use super::table::WIDTH;
use crate::text;

const FIGURE: usize = 9;
const RATIO: usize = 7;

/// What all names begin with, up to and with the first `/`, if that is the same for all.
fn common<'a>(rows: &[&'a Row]) -> &'a str {
    let first = |r: &&'a Row| r.name.find('/').map_or("", |at| &r.name[..=at]);
    match rows.first().map(first) {
        Some(prefix) if rows.iter().all(|r| first(r) == prefix) => prefix,
        _ => "",
    }
}

fn ratio(ours: f64, theirs: f64) -> String {
    match ours / theirs {
        r if !r.is_finite() => "-".to_owned(),
        r if r >= 99.5 => format!("{r:.0}"),
        r if r >= 9.95 => format!("{r:.1}"),
        r if r >= 0.01 => format!("{r:.2}"),
        r => format!("{r:.0e}"),
    }
}

/// The usual table.
pub fn table(report: &Report) -> String {
    // A row `NAME/bare` is the row `NAME` without moving bytes, and stands beside it.
    let bare = |row: &Row| {
        let name = format!("{}/bare", row.name);
        report.benchmarks.iter().find(|r| r.name == name && r.threads == row.threads)
    };
    let is_beside = |row: &&Row| {
        let owner = row.name.strip_suffix("/bare");
        owner.is_some_and(|n| {
            report
                .benchmarks
                .iter()
                .any(|r| r.name == n && r.threads == row.threads && r.unit == "ns")
        })
    };
    let rows: Vec<&Row> = report.benchmarks.iter().filter(|r| !is_beside(r)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let prefix = common(&rows);
    let label = rows.iter().map(|r| r.name.len() - prefix.len()).max().unwrap_or(0) + 3;
    let with_bare = rows.len() < report.benchmarks.len();
    let with_floor = rows.iter().any(|r| r.floor.is_some());
    let peers: BTreeSet<&str> = rows.iter().flat_map(|r| r.peers.keys().copied()).collect();

    let mut out = format!("{:<label$}{:>3}{:>14}{:>8}", "", "thr", "ours", "spread");
    if with_bare {
        let _ = write!(out, "{:>13}", "no clearing");
    }
    for name in with_floor.then_some("floor").into_iter().chain(peers.iter().copied()) {
        let _ = write!(out, "{name:>FIGURE$}{:>RATIO$}", "ratio");
    }
    out.push('\n');
    for row in rows {
        let mut line =
            format!("   {:<w$}{:>3}", &row.name[prefix.len()..], row.threads, w = label - 3);
        let _ = write!(
            line,
            "{:>14}",
            format!("{} {}", number::figure(row.ours), unit(row.unit)).trim_end()
        );
        let _ = write!(
            line,
            "{:>8}",
            if row.spread == 0.0 { String::new() } else { format!("{:.0} %", row.spread * 100.0) }
        );
        if with_bare {
            let beside = bare(row).filter(|_| row.unit == "ns");
            let _ =
                write!(line, "{:>13}", beside.map_or(String::new(), |r| number::figure(r.ours)));
        }
        let floor = with_floor.then_some(row.floor).into_iter();
        for other in floor.chain(peers.iter().map(|p| row.peers.get(p).copied())) {
            let (figure, over) =
                other.map_or(Default::default(), |v| (number::figure(v), ratio(row.ours, v)));
            let _ = write!(line, "{figure:>FIGURE$}{over:>RATIO$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A unit where it says more than the name of the benchmark.
fn unit(unit: &'static str) -> &'static str {
    if unit == "instructions" { "" } else { unit }
}

/// Figures of growth: `growth/ACT/AXIS-SIZE`, a block an axis, a line an act, a column a size;
/// ratios to the smallest size.
pub fn growth(report: &Report) -> String {
    let parts = |r: &Row| -> Option<(String, String, String)> {
        let mut words = r.name.split('/').skip(1);
        let (act, (axis, size)) = (words.next()?, words.next()?.split_once('-')?);
        Some((axis.to_owned(), act.to_owned(), size.to_owned()))
    };
    let split: Vec<(String, String, String, f64)> = report
        .benchmarks
        .iter()
        .filter_map(|r| parts(r).map(|(a, b, c)| (a, b, c, r.ours)))
        .collect();
    let distinct = |of: &mut dyn Iterator<Item = &String>| {
        let mut seen: Vec<String> = Vec::new();
        of.for_each(|x| {
            if !seen.contains(x) {
                seen.push(x.clone());
            }
        });
        seen
    };
    let mut out = String::new();
    for axis in distinct(&mut split.iter().map(|s| &s.0)) {
        let here: Vec<_> = split.iter().filter(|s| s.0 == axis).collect();
        let sizes = distinct(&mut here.iter().map(|s| &s.2));
        let _ = write!(out, "{:<20}", format!("{axis}, ns"));
        for (i, size) in sizes.iter().enumerate() {
            let _ = write!(
                out,
                "{size:>FIGURE$}{:>w$}",
                if i > 0 { "ratio" } else { "" },
                w = if i > 0 { 6 } else { 0 }
            );
        }
        out.push('\n');
        for act in distinct(&mut here.iter().map(|s| &s.1)) {
            let _ = write!(out, "   {act:<17}");
            let at = |size: &String| here.iter().find(|s| s.1 == act && s.2 == *size).map(|s| s.3);
            let first = sizes.first().and_then(at);
            for (i, size) in sizes.iter().enumerate() {
                let value = at(size);
                let _ = write!(out, "{:>FIGURE$}", value.map_or(String::new(), number::figure));
                if i > 0 {
                    let over = value.zip(first).map_or(String::new(), |(v, f)| ratio(v, f));
                    let _ = write!(out, "{over:>6}");
                }
            }
            out.push('\n');
        }
    }
    out
}

/// Figures of tries, `trie/SIZE/ACT`: ours beside the floor, the hash table, the best ordered peer
/// with its name, and the best figure of another computer.
pub fn trie(report: &Report) -> String {
    let mut out = format!(
        "{:<29}{:>9}{:>7}{:>13}{:>13}{:>19}{:>10}\n",
        "", "ours", "spread", "floor ratio", "hash ratio", "best ordered ratio", "elsewhere"
    );
    for row in &report.benchmarks {
        let name = row.name.trim_start_matches("trie/");
        let ours = format!("{} {}", number::figure(row.ours), row.unit);
        let spread =
            if row.spread == 0.0 { String::new() } else { format!("{:.0} %", row.spread * 100.0) };
        let _ = write!(out, "   {name:<26}{ours:>9}{spread:>7}");
        let beside = |other: Option<f64>| {
            other.map_or(Default::default(), |v| (number::figure(v), ratio(row.ours, v)))
        };
        for other in [row.floor, row.peers.get("hashbrown").copied()] {
            let (figure, over) = beside(other);
            let _ = write!(out, "{figure:>7}{over:>6}");
        }
        let ordered = row.peers.iter().filter(|(name, _)| **name != "hashbrown");
        let best = ordered.min_by(|a, b| a.1.total_cmp(b.1));
        let (figure, over) = beside(best.map(|(_, figure)| *figure));
        let who = best.map_or("", |(name, _)| *name);
        let (size, act) = name.split_once('/').unwrap_or(("", name));
        let other = ELSEWHERE.iter().find(|other| other.act == act);
        let other = other
            .filter(|_| size != "bytes")
            .map(|other| number::figure(other.figures[(size == "1m") as usize]));
        let _ = write!(out, "{figure:>7} {who:<6}{over:>5}{:>10}", other.unwrap_or_default());
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

/// What came of the targets: a line or a few each, the limit first.
pub fn verdicts(judged: &[Judged]) -> String {
    let mut out = String::new();
    for target in judged {
        let mark = match target.standing() {
            Standing::Met => "met",
            Standing::Behind => "behind",
            Standing::Missed => "missed",
        };
        let met = target.verdicts.iter().filter(|v| v.met && !v.behind).count();
        // A few rows are all shown, many only where they miss.
        let few = target.verdicts.len() <= 2;
        let short = |name: &str| name.split_once('/').map_or(name, |(_, n)| n).to_owned();
        let same = target.verdicts.iter().all(|v| v.row == target.verdicts[0].row);
        let shown: Vec<String> = target
            .verdicts
            .iter()
            .filter(|v| few || !v.met || v.behind)
            .map(|v| {
                let name = if same { String::new() } else { format!("{} ", short(&v.row)) };
                let threads = if v.threads > 1 {
                    format!(" by {} threads", v.threads)
                } else {
                    String::new()
                };
                let but = match (v.met, v.close, v.behind) {
                    (true, _, true) => " (behind its best peer)",
                    (false, true, _) => " (within its spread)",
                    _ => "",
                };
                format!("{name}{}{threads}{but}", number::figure(v.value))
            })
            .collect();
        let many =
            if few { String::new() } else { format!(" {met} of {} rows", target.verdicts.len()) };
        let join = if many.is_empty() || shown.is_empty() { "" } else { "; not" };
        let line = format!("{} ({}):{many}{join} {}", target.says, target.source, shown.join(", "));
        for (i, part) in text::wrapped(line.trim_end(), WIDTH - 10).into_iter().enumerate() {
            let _ = writeln!(out, "   {:<7}{part}", if i == 0 { mark } else { "" });
        }
    }
    out
}

/// A paragraph, indented and no wider than the page.
pub fn paragraph(words: &str) -> String {
    text::wrapped(words, WIDTH - 3).into_iter().map(|l| format!("   {l}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_host::bench::targets::judge;

    fn row(
        name: &str,
        threads: usize,
        ours: f64,
        floor: Option<f64>,
        peers: &[(&'static str, f64)],
    ) -> Row {
        let peers = peers.iter().copied().collect();
        Row { name: name.to_owned(), threads, unit: "ns", ours, floor, peers, spread: 0.05 }
    }

    #[test]
    fn ours_stands_beside_the_floor_and_every_peer_with_its_ratio() {
        let benchmarks = vec![
            row("frames/hot-pair", 1, 12.0, Some(10.0), &[("buddy", 24.0), ("bitmap", 16.0)]),
            row("frames/two-swaps-two-stores", 1, 9.6, None, &[]),
        ];
        assert_eq!(
            table(&Report { benchmarks, notes: vec![] }),
            "                       thr          ours  spread    floor  ratio   \
             bitmap  ratio    buddy  ratio\n   \
             hot-pair              1       12.0 ns     5 %     10.0   1.20     \
             16.0   0.75     24.0   0.50\n   \
             two-swaps-two-stores  1       9.60 ns     5 %\n"
        );
    }

    #[test]
    fn a_fault_without_clearing_stands_beside_the_fault() {
        let benchmarks = vec![
            row("fault/4k-write", 1, 190.0, Some(160.0), &[("linux", 500.0)]),
            row("fault/4k-write/bare", 1, 30.0, None, &[]),
        ];
        let text = table(&Report { benchmarks, notes: vec![] });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("no clearing") && text.contains(" 30.0 "), "{text}");
    }

    #[test]
    fn growth_shows_each_size_beside_the_smallest() {
        let benchmarks = vec![
            row("growth/fault, a page/memory-1M", 1, 30.0, None, &[]),
            row("growth/map, a call/memory-1M", 1, 300.0, None, &[]),
            row("growth/fault, a page/memory-10M", 1, 33.0, None, &[]),
            row("growth/fault/mappings-100", 1, 50.0, None, &[]),
        ];
        assert_eq!(
            growth(&Report { benchmarks, notes: vec![] }),
            "memory, ns                 1M      10M ratio\n   \
             fault, a page         30.0     33.0  1.10\n   \
             map, a call            300               \n\
             mappings, ns              100\n   \
             fault                 50.0\n"
        );
    }

    #[test]
    fn verdicts_name_what_misses_and_only_that() {
        let benchmarks = vec![
            row("frames/hot-pair", 1, 12.0, Some(10.0), &[("buddy", 24.0)]),
            row("frames/hot-pair", 2, 15.0, Some(10.0), &[("buddy", 80.0)]),
            row("frames/bulk-free", 1, 12.0, Some(10.0), &[("buddy", 11.0)]),
        ];
        let text = verdicts(&judge("frames", &Report { benchmarks, notes: vec![] }));
        assert!(
            text.contains(
                "missed hot pair at most 1.17x the floor (our goal: 6.2 ns where the floor takes \
                 5.3, two\n          threads): 1.20 (within its spread), 1.50 by 2 threads\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "behind bulk free at most 1.6x the floor (our goal): 1.20 (behind its best peer)\n"
            ),
            "{text}"
        );
        assert!(text.contains("peer (our goal): 2 of 3 rows; not bulk-free 1.09\n"), "{text}");
    }
}
