//! The rows that are behind their best peer, as the end of `vellum bench` lists them.

use std::fmt::Write as _;

use vellum_host::bench::Row;
use vellum_host::bench::behind::Behind;

use super::number;
use super::table::WIDTH;
use crate::text;

/// A line for each row that is behind, and above them how many of all rows with a peer those are.
pub fn list(rows: &[Row], behind: &[Behind]) -> String {
    let compared = rows.iter().filter(|r| !r.peers.is_empty()).count();
    if compared == 0 {
        return String::new();
    }
    if behind.is_empty() {
        return format!(
            "None of {compared} rows with a peer is behind the best of them, Linux included.\n"
        );
    }
    let within = behind.iter().filter(|b| b.within_spread).count();
    let head = format!(
        "{} of {compared} rows with a peer are behind the best of them, Linux included, {within} \
         of those by no more than their spread:",
        behind.len()
    );
    let mut out = text::wrapped(&head, WIDTH).join("\n") + "\n";
    let label = behind.iter().map(|b| b.name.len()).max().unwrap_or(0);
    let _ = writeln!(out, "   {:<label$}  thr   ratio  spread", "");
    for row in behind {
        let _ = writeln!(
            out,
            "   {:<label$}{:>5}{:>8}{:>6.0} %  {}{}",
            row.name,
            row.threads,
            number::figure(row.ratio),
            row.spread * 100.0,
            row.peer,
            if row.within_spread { ", within its spread" } else { "" }
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_host::bench::behind::behind;

    fn row(name: &str, threads: usize, ours: f64, peers: &[(&'static str, f64)]) -> Row {
        let peers = peers.iter().copied().collect();
        Row { name: name.to_owned(), threads, unit: "ns", ours, floor: None, peers, spread: 0.1 }
    }

    #[test]
    fn each_row_that_is_behind_has_a_line_and_the_others_have_none() {
        let rows = [
            row("frames/bulk-free", 1, 10.9, &[("bitmap", 10.0)]),
            row("frames/hot-pair", 1, 1.0, &[("bitmap", 2.0)]),
            row("unmap/4k", 2, 30.0, &[("linux", 10.0), ("other", 20.0)]),
            row("frames/floor", 1, 9.0, &[]),
        ];
        assert_eq!(
            list(&rows, &behind(&rows)),
            "2 of 3 rows with a peer are behind the best of them, Linux included, 1 of those by no \
             more than\ntheir spread:\n                     thr   ratio  spread\n   \
             frames/bulk-free    1    1.09    10 %  bitmap, within its spread\n   \
             unmap/4k            2    3.00    10 %  linux\n"
        );
        let ahead = &rows[1..2];
        assert_eq!(
            list(ahead, &behind(ahead)),
            "None of 1 rows with a peer is behind the best of them, Linux included.\n"
        );
        assert_eq!(list(&rows[3..], &[]), "", "nothing was compared");
    }
}
