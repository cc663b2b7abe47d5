//! Text tables: a label, one column for each variant, and after each but the first its ratio to the
//! first.
//!
//! Tables are at most [`WIDTH`] columns wide. More variants go into further blocks, each with the
//! base again, since nobody reads lines that wrap. What the table comes to is said before it, a
//! line for each variant ([`verdict`]).

use std::fmt::Write as _;

use super::counters::Counters;
use super::interval::Interval;
use super::number;
use super::rows::{Group, Row, TIME, Unit, cause};
use crate::text::wrapped;

/// No line is longer.
pub const WIDTH: usize = 100;
const LABEL: usize = 28;
const RATIO: usize = 9;

/// A column: its name and what was counted.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// The variant's name.
    pub name: &'a str,
    /// Its counters.
    pub counters: &'a Counters,
    /// Whether it was replayed to the end. Ratios of parts of different length would say nothing
    /// and are left out.
    pub complete: bool,
}

/// All groups for all columns, in blocks that fit the page.
pub fn full(groups: &[Group], columns: &[Column<'_>]) -> String {
    let mut out = String::new();
    for block in blocks(columns) {
        out.push_str(&header(&block));
        for group in groups {
            let mut body = String::new();
            for row in group.rows {
                body.push_str(&line(row, &block));
            }
            if !body.is_empty() {
                let _ = writeln!(out, "{}", group.title);
                out.push_str(&body);
            }
        }
        out.push('\n');
    }
    out.pop();
    out
}

/// What each column but the first comes to beside the first: `thp=always against thp=never: 19 %
/// less time (15 to 22 %), mostly page faults, 16 % more memory`. `intervals` are those of the
/// columns' times, as far as they are known.
pub fn verdict(rows: &[Row], columns: &[Column<'_>], intervals: &[Option<Interval>]) -> String {
    let Some((base, others)) = columns.split_first() else { return String::new() };
    let mut out = String::new();
    for (at, column) in others.iter().enumerate() {
        if !(column.complete && base.complete) {
            continue;
        }
        let interval = intervals.get(at + 1).and_then(Option::as_ref);
        let cause = cause(column.counters, base.counters);
        let remarks = rows.iter().filter_map(|row| {
            let (value, base) =
                (column.counters.get(row.counter)?, base.counters.get(row.counter)?);
            if row.counter != TIME {
                return row.remark?(value, base);
            }
            let time = interval.map_or_else(|| row.remark?(value, base), |i| Some(i.words()))?;
            let known = interval.is_none_or(|interval| !interval.is_open());
            Some(match cause.as_ref().filter(|_| known) {
                Some(cause) => format!("{time}, {cause}"),
                None => time,
            })
        });
        let said = remarks.collect::<Vec<String>>().join(", ");
        let name = column.name.replace(',', ", ");
        // Where the base is one switch, it is named; else it is the first column.
        let against = if base.name.contains(',') { "the first column" } else { base.name };
        for line in wrapped(&format!("{name} against {against}: {said}"), WIDTH - 3) {
            let _ = writeln!(out, "   {line}");
        }
    }
    out
}

/// One list of rows without titles: a section of the screen.
pub fn section(rows: &[Row], columns: &[Column<'_>]) -> String {
    let mut out = String::new();
    for block in blocks(columns) {
        out.push_str(&header(&block));
        for row in rows {
            out.push_str(&line(row, &block));
        }
    }
    out
}

/// Columns by blocks that fit; the base leads each.
fn blocks<'a>(columns: &[Column<'a>]) -> Vec<Vec<Column<'a>>> {
    let Some((&base, others)) = columns.split_first() else { return Vec::new() };
    let widest = columns.iter().map(|c| width(c)).max().unwrap_or(0);
    let fit = ((WIDTH - LABEL - widest) / (widest + RATIO)).max(1);
    if others.is_empty() {
        return vec![vec![base]];
    }
    others
        .chunks(fit)
        .map(|chunk| std::iter::once(base).chain(chunk.iter().copied()).collect())
        .collect()
}

/// A column is as wide as its name needs, within reason.
fn width(column: &Column<'_>) -> usize {
    (column.name.chars().count() + 2).clamp(15, 26)
}

fn header(block: &[Column<'_>]) -> String {
    let mut cells = String::new();
    // Names too long for their column are broken at commas into several lines.
    let names: Vec<Vec<String>> = block.iter().map(|c| broken(c.name, width(c) - 2)).collect();
    for i in 0..names.iter().map(Vec::len).max().unwrap_or(0) {
        let mut text = " ".repeat(LABEL);
        for (at, (lines, column)) in names.iter().zip(block).enumerate() {
            let _ =
                write!(text, "{:>w$}", lines.get(i).map_or("", String::as_str), w = width(column));
            if at > 0 {
                let _ = write!(text, "{:>RATIO$}", if i == 0 { "ratio" } else { "" });
            }
        }
        cells.push_str(text.trim_end());
        cells.push('\n');
    }
    cells
}

fn broken(name: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive([',', '=']) {
        let last = lines.last_mut().expect("a list that starts with one line never empties");
        if !last.is_empty() && last.chars().count() + part.chars().count() > width {
            lines.push(part.to_owned());
        } else {
            last.push_str(part);
        }
    }
    for l in &mut lines {
        if l.chars().count() > width {
            *l = l.chars().take(width - 1).chain(['~']).collect();
        }
    }
    lines
}

/// A row, or nothing if no column kept the counter, or (for rows that say so) all have zero.
fn line(row: &Row, block: &[Column<'_>]) -> String {
    let value = |c: &Counters| Some(c.get(row.counter)? + row.and.map_or(Some(0), |n| c.get(n))?);
    let values: Vec<Option<i64>> = block.iter().map(|c| value(c.counters)).collect();
    let total = block.iter().filter_map(|c| c.counters.get("estimate_total")).max().unwrap_or(0);
    let telling = values.iter().any(|v| v.is_some_and(|v| row.always || v != 0));
    if !telling {
        return String::new();
    }
    let mut text = format!("   {:<w$}", row.label, w = LABEL - 3);
    let base = values[0];
    for (at, (value, column)) in values.iter().zip(block).enumerate() {
        let _ = write!(
            text,
            "{:>w$}",
            value.map_or("-".to_owned(), |v| cell(row.unit, v, total)),
            w = width(column)
        );
        if at > 0 {
            let ratio = match (row.unit, *value, base) {
                (Unit::Permyriad, ..) => String::new(),
                _ if !block.iter().all(|c| c.complete) => "-".to_owned(),
                (Unit::Cycles, Some(v), Some(b)) if is_noise(b, total) && v != b => "-".to_owned(),
                (_, Some(v), Some(b)) => number::ratio(v, b),
                _ => "-".to_owned(),
            };
            let _ = write!(text, "{ratio:>RATIO$}");
        }
    }
    let mut text = text.trim_end().to_owned();
    text.push('\n');
    text
}

/// Less than a thousandth of the time: of such a base nobody wants to know the multiple.
fn is_noise(base: i64, total: i64) -> bool {
    base < total / 1000
}

fn cell(unit: Unit, value: i64, total: i64) -> String {
    match unit {
        Unit::Count => number::grouped(value),
        Unit::Cycles => number::cycles(value, total),
        Unit::Bytes => number::bytes(value),
        Unit::Permyriad => format!("{:.1} %", value as f64 / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GROUPS, SCREEN};

    fn counters(list: &[(&'static str, i64)]) -> Counters {
        let mut c = Counters::new();
        for (n, v) in list {
            c.put(n, *v);
        }
        c
    }

    #[test]
    fn a_column_that_was_stopped_has_no_ratio_and_no_verdict() {
        let a = counters(&[("pgfault", 80), ("rss_peak_bytes", 312 << 20)]);
        let b = counters(&[("pgfault", 20), ("rss_peak_bytes", 361 << 20)]);
        let columns = |complete| {
            let whole = Column { name: "whole", counters: &a, complete: true };
            [whole, Column { name: "part", counters: &b, complete }]
        };
        assert!(full(GROUPS, &columns(true)).contains("0.25"));
        assert_eq!(
            verdict(SCREEN, &columns(true), &[]),
            "   part against whole: 16 % more memory\n"
        );
        assert!(!full(GROUPS, &columns(false)).contains("0.25"));
        assert_eq!(verdict(SCREEN, &columns(false), &[]), "");
    }

    #[test]
    fn two_columns_show_their_ratio_and_what_it_comes_to() {
        let a = counters(&[
            ("pgfault", 79_871),
            ("estimate_total", 3_440_000_000),
            ("rss_peak_bytes", 312 << 20),
        ]);
        let b = counters(&[
            ("pgfault", 214),
            ("estimate_total", 2_800_000_000),
            ("rss_peak_bytes", 361 << 20),
        ]);
        let columns = [
            Column { name: "thp=never", counters: &a, complete: true },
            Column { name: "thp=always", counters: &b, complete: true },
        ];
        let said = |intervals| verdict(SCREEN, &columns, intervals);
        assert_eq!(
            said(&[]),
            "   thp=always against thp=never: 19 % less time, 16 % more memory\n"
        );
        let mut faults = [a.clone(), b.clone()];
        faults[0].put("cycles_fault", 900_000_000);
        faults[1].put("cycles_fault", 400_000_000);
        let dearer = [0, 1].map(|n| Column { counters: &faults[n], ..columns[n] });
        let because = "19 % less time, mostly page faults, 16 % more memory";
        assert_eq!(
            verdict(SCREEN, &dearer, &[]),
            format!("   thp=always against thp=never: {because}\n")
        );
        let interval = Interval { ratio: 0.814, low: 0.9, high: 1.01, most: None };
        assert_eq!(
            said(&[None, Some(interval)]),
            "   thp=always against thp=never: no difference in time that this model can see (10 % \
             less to 1 %\n   more), 16 % more memory\n"
        );
        assert_eq!(
            full(GROUPS, &columns),
            "                                  thp=never     thp=always    ratio\n\
             faults\n   page faults                       79,871            214    0.003\n\
             memory\n   RSS, peak                        312 MiB        361 MiB     1.16\n\
             modelled cycles\n   total                            3.440 G        2.800 G     \
             0.81\n"
        );
    }

    #[test]
    fn of_a_part_that_takes_next_to_no_time_there_is_no_ratio() {
        let row = |base, other| {
            let counted = |stlb| {
                let all = [("estimate_stlb", stlb), ("estimate_total", 400_000_000)];
                counters(&all)
            };
            let (a, b) = (counted(base), counted(other));
            let column = |name, counters| Column { name, counters, complete: true };
            let text = full(GROUPS, &[column("a", &a), column("b", &b)]);
            let line = text.lines().find(|l| l.contains("L2 TLB hits")).expect("the row");
            line.split_whitespace().last().expect("the ratio").to_owned()
        };
        assert_eq!(row(777, 434_000), "-", "0.001 M -> 0.434 M");
        assert_eq!(row(399_999, 800_000), "-");
        assert_eq!(row(400_000, 800_000), "2.00");
        assert_eq!([row(434_000, 777), row(9, 9)], ["0.002", "1.00"]);
    }

    #[test]
    fn no_line_is_wider_than_the_page_whatever_the_names_and_numbers() {
        let rows: Vec<(&'static str, i64)> =
            GROUPS.iter().flat_map(|g| g.rows).map(|r| (r.counter, 123_456_789_012)).collect();
        let c = counters(&rows);
        let name = "thp=always,tlb.batch=off,zero.page=off,numa=interleave,preempt=voluntary";
        for n in 1..9 {
            let columns = vec![Column { name, counters: &c, complete: true }; n];
            let text = verdict(SCREEN, &columns, &[]) + &full(GROUPS, &columns);
            assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        }
    }

    #[test]
    fn rows_that_nobody_counted_are_left_out() {
        let a = counters(&[("pgfault", 0), ("cow_copy", 0)]);
        let text = full(GROUPS, &[Column { name: "defaults", counters: &a, complete: true }]);
        assert!(
            text.contains("page faults") && !text.contains("copied") && !text.contains("total"),
            "{text}"
        );
    }
}
