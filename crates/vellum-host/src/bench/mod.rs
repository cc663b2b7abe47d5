//! Native benchmarks: one process, every row beside its peers.
//!
//! Nanoseconds of a shared machine mean little by themselves, so read ratios. What is compared runs
//! in turn within one process, on pinned threads and warm memory. A row is the median of its
//! repetitions with their spread, beside the peers' medians of the same run. [`targets`] holds rows
//! against limits, [`behind`] lists those that have a better peer.
//!
//! | benchmark | what it compares |
//! |---|---|
//! | [`frames`] | the frame allocator, two registry crates, a floor |
//! | [`frames::fragment`] | large pages that are left after a long life |
//! | [`fault`] | faults and what goes with them, the kernel under us |
//! | [`clear`] | clearing by every way this processor has, and the library's choice |
//! | [`space`] | whole verbs on mappings of several sizes |
//! | [`growth`] | the same operations with ten and a hundred times as much of everything |
//! | [`scaling`] | one thread against two in one space |
//! | [`objects`] | pages of objects, and files and shared memory of the kernel under us |
//! | [`trie`] | the page index, ordered maps and a hash table of the registry |
//! | [`instructions`] | instructions of the hot paths, counted exactly |

pub mod behind;
pub mod clear;
pub mod fault;
pub mod fixture;
pub mod frames;
pub mod growth;
pub mod instructions;
pub mod linux;
pub mod measure;
pub mod objects;
pub mod scaling;
pub mod sets;
pub mod space;
pub mod targets;
pub mod trie;
pub mod zeros;

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
    /// Whether it is a share or a throughput, and no time or count.
    pub fn more_is_better(&self) -> bool {
        matches!(self.unit, "%" | "x")
    }

    /// The best peer and its median.
    pub fn best_peer(&self) -> Option<(&'static str, f64)> {
        let best =
            |a: f64, b: f64| if self.more_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) };
        self.peers.iter().map(|(&n, &v)| (n, v)).min_by(|a, b| best(a.1, b.1))
    }
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The rows, in the order they were measured.
    pub benchmarks: Vec<Row>,
    /// What a reader should know beside the rows.
    pub notes: Vec<String>,
}
