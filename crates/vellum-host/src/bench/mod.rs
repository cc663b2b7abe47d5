//! Native benchmarks: one process, every row beside its peers.
//!
//! Absolute nanoseconds of a shared machine mean little, so everything that is compared runs in turn within one process, on
//! pinned threads, on warm memory, repeated; rows carry the median of the repetitions, their spread, and the peers' medians of the same run.
//! Read ratios.
//!
//! [`frames`] is the frame allocator against two registry crates and a floor; [`fragment`] what is left of large pages,
//! [`fault`] the fault path and whole verbs. [`measure`] has the clock, the
//! pinning and the statistics; [`contest`] is what a frame allocator must do to take part.

pub mod contest;
pub mod fault;
pub mod fragment;
pub mod frames;
pub mod measure;
pub mod scenes;

use std::collections::BTreeMap;

use serde::Serialize;

/// One line of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done, as `topic/act`.
    pub name: String,
    /// Threads that did it at once.
    pub threads: usize,
    /// The unit of every number but the spread.
    pub unit: &'static str,
    /// Ours, median of the repetitions.
    pub ours: f64,
    /// The floor's median, where there is a floor.
    pub floor: Option<f64>,
    /// Medians of the peers by name.
    pub peers: BTreeMap<&'static str, f64>,
    /// Distance of the third from the first quartile of ours, as a share of the median.
    pub spread: f64,
}

impl Row {
    /// The best peer and its median: the highest share, or the lowest of anything else.
    pub fn best_peer(&self) -> Option<(&'static str, f64)> {
        let best = |a: f64, b: f64| if self.unit == "%" { b.total_cmp(&a) } else { a.total_cmp(&b) };
        self.peers.iter().map(|(&n, &v)| (n, v)).min_by(|a, b| best(a.1, b.1))
    }
}

/// A run: what `--json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The rows, in the order they were measured.
    pub benchmarks: Vec<Row>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<38}{:>8}{:>13}{:>8}{:>10}{:>9}  {:<18}{:>9}",
            "benchmark", "threads", "ours", "spread", "floor", "x floor", "best peer", "x peer"
        )?;
        for r in &self.benchmarks {
            let ours = format!("{:.1} {}", r.ours, r.unit);
            let spread = format!("{:.0} %", r.spread * 100.0);
            let floor = r.floor.map_or(String::new(), |v| format!("{v:.1}"));
            let over = r.floor.map_or(String::new(), |v| format!("{:.2}", r.ours / v));
            let (peer, ratio) = match r.best_peer() {
                Some((name, v)) => (format!("{name} {v:.1}"), format!("{:.2}", r.ours / v)),
                None => Default::default(),
            };
            writeln!(
                f,
                "{:<38}{:>8}{ours:>13}{spread:>8}{floor:>10}{over:>9}  {peer:<18}{ratio:>9}",
                r.name, r.threads
            )?;
        }
        Ok(())
    }
}
