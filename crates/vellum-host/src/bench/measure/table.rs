//! Collects samples and makes rows of them.
//!
//! A benchmark adds samples of ours, the floor and the peers under a name, in any order. Rows come
//! out in the order in which their names first appeared. A name without a sample of ours is no row.

use std::collections::BTreeMap;

use super::{Samples, Timed};
use crate::bench::{Report, Row};

/// A row's name and threads.
type Key = (String, usize);

#[derive(Default)]
struct Line {
    unit: &'static str,
    ours: Samples,
    floor: Samples,
    peers: BTreeMap<&'static str, Samples>,
}

/// Rows in the making.
#[derive(Default)]
pub struct Table {
    order: Vec<Key>,
    lines: BTreeMap<Key, Line>,
    host_faults: u64,
}

impl Table {
    fn line(&mut self, name: &str, threads: usize) -> &mut Line {
        let key = (name.to_owned(), threads);
        if !self.lines.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.lines.entry(key).or_default()
    }
    /// One sample of ours.
    pub fn add(&mut self, name: &str, threads: usize, unit: &'static str, value: f64) {
        let line = self.line(name, threads);
        line.unit = unit;
        line.ours.add(value);
    }
    /// One sample of ours, in `ns` or `us`, with what disturbed it.
    pub fn add_timed(&mut self, name: &str, threads: usize, unit: &'static str, t: Timed) {
        self.add(name, threads, unit, if unit == "us" { t.each / 1000.0 } else { t.each });
        self.host_faults += t.host_faults;
    }
    /// One sample of the floor.
    pub fn floor(&mut self, name: &str, threads: usize, value: f64) {
        self.line(name, threads).floor.add(value);
    }
    /// One sample of a peer.
    pub fn peer(&mut self, name: &str, threads: usize, peer: &'static str, value: f64) {
        self.line(name, threads).peers.entry(peer).or_default().add(value);
    }
    /// Faults of the host inside what was timed.
    pub fn host_faults(&self) -> u64 {
        self.host_faults
    }
    /// The rows.
    pub fn report(self) -> Report {
        let rows = self.order.iter().filter_map(|key| {
            let line = &self.lines[key];
            (!line.ours.is_empty()).then(|| Row {
                name: key.0.clone(),
                threads: key.1,
                unit: line.unit,
                ours: line.ours.median(),
                floor: (!line.floor.is_empty()).then(|| line.floor.median()),
                peers: line.peers.iter().map(|(&name, s)| (name, s.median())).collect(),
                spread: line.ours.spread(),
            })
        });
        Report { benchmarks: rows.collect(), notes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_in_the_order_of_their_names_and_only_with_figures_of_ours() {
        let mut t = Table::default();
        t.peer("b", 1, "linux", 4.0);
        t.add("a", 1, "ns", 1.0);
        t.add("b", 1, "ns", 2.0);
        t.add("a", 2, "ns", 3.0);
        t.floor("c", 1, 9.0);
        t.floor("a", 1, 0.5);
        let report = t.report();
        let names: Vec<(&str, usize)> =
            report.benchmarks.iter().map(|r| (r.name.as_str(), r.threads)).collect();
        assert_eq!(names, [("b", 1), ("a", 1), ("a", 2)]);
        assert_eq!(report.benchmarks[0].peers["linux"], 4.0);
        assert_eq!((report.benchmarks[1].floor, report.benchmarks[2].floor), (Some(0.5), None));
    }
}
