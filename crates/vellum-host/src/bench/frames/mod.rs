//! `vellum bench frames`: the frame allocator beside its peers.
//!
//! All allocators live through all repetitions, so each is measured in the state that its own past
//! left. They take turns in a rotating order, so that noise of the computer reaches all of them.
//! The first repetition only warms up.

pub mod bound;
pub mod fragment;
pub mod peers;
pub mod workloads;

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use vellum::addr::{Order, Pfn};
use vellum::machine::{Machine, Use};
use vellum::unstable::{AllocRequest, Frames};

use super::measure::{Effort, Samples, Start, threads, time_enough};
use super::{Report, Row};
use crate::machine::{FIRST, Host, Plan};
use crate::memory::Memory;
use peers::{Allocator, Bitmap, Buddy, FRAMES, Floor};
use workloads::{Part, Phase};

/// Ours, on the machine that watches nothing.
pub struct Ours {
    frames: Frames,
    machine: Host<vellum::entry::X86_64, false>,
    layout: usize,
    /// What `frames` lives in; it goes last.
    metadata: Memory,
}

impl Ours {
    /// With all frames free, on a machine of `cpus` CPUs.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(cpus: usize) -> io::Result<Ours> {
        // The frames themselves are never touched: allocation writes no frame, as it writes no
        // record.
        let machine = Host::new(Plan::new(cpus, FRAMES * 4096))?;
        let unfit = |e| io::Error::other(format!("a flat topology is refused: {e}"));
        let layout = Frames::layout(machine.topology()).map_err(unfit)?;
        let metadata = Memory::new(layout.size(), true)?;
        metadata.warm();
        // SAFETY: zeroed, long enough, aligned to 2 MiB, and it outlives the value beside it.
        let frames = unsafe { Frames::new(machine.topology(), metadata.base()) }.map_err(unfit)?;
        Ok(Ours { frames, machine, layout: layout.size(), metadata })
    }
    /// The allocator.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }
    /// Bytes of metadata it asked for, records included.
    pub fn metadata_bytes(&self) -> usize {
        self.layout
    }
    /// The machine.
    pub fn machine(&self) -> &Host<vellum::entry::X86_64, false> {
        &self.machine
    }
}

impl Allocator for Ours {
    const NAME: &'static str = "ours";
    fn on_cpu<R>(&self, cpu: usize, f: impl FnOnce() -> R) -> R {
        let _cpu = self.machine.bind(cpu);
        f()
    }
    #[inline]
    fn alloc(&self, _cpu: usize, order: u8) -> Option<u32> {
        let order = Order::new(order)?;
        let first =
            self.frames.alloc(&self.machine, order, &AllocRequest::kernel(Use::Data)).ok()?;
        Some((first.0 - FIRST.0) as u32)
    }
    #[inline]
    fn free(&self, _cpu: usize, first: u32, order: u8) {
        let order = Order::new(order).unwrap_or(Order::BASE);
        // SAFETY: the workload gives back what it had from `alloc`, once.
        unsafe { self.frames.free(&self.machine, Pfn(FIRST.0 + first as u64), order) }
    }
}

/// The workloads, in the order they are played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workload {
    Bulk,
    Hot,
    Scattered,
    Holes,
    Huge,
    Mixed,
}

const WORKLOADS: [Workload; 6] = [
    Workload::Bulk,
    Workload::Hot,
    Workload::Scattered,
    Workload::Holes,
    Workload::Huge,
    Workload::Mixed,
];

impl Workload {
    fn has_orders(self) -> bool {
        matches!(self, Workload::Huge | Workload::Mixed)
    }
}

/// Plays one workload on one allocator; each phase's mean over the threads.
fn play<C: Allocator>(
    on: &C,
    workload: Workload,
    n: usize,
    effort: Effort,
    seed: u64,
) -> Vec<Phase> {
    if workload.has_orders() && !C::ORDERS {
        return Vec::new();
    }
    let start = Start::new(n);
    let found = threads(n, |cpu| {
        on.on_cpu(cpu, || {
            let part = Part { on, cpu, threads: n, start: &start, effort, seed };
            match workload {
                Workload::Bulk => part.bulk(),
                Workload::Hot => part.hot(),
                Workload::Scattered => part.scattered(),
                Workload::Holes => part.holes(),
                Workload::Huge => part.huge(),
                Workload::Mixed => part.mixed(),
            }
        })
    });
    let mean = |i: usize| found.iter().map(|phases| phases[i].1).sum::<f64>() / n as f64;
    (0..found[0].len()).map(|i| (found[0][i].0, mean(i))).collect()
}

/// Seconds after which a allocator repeats a workload no more, having been measured once at least.
/// The bitmap is a thousand times slower than the rest at blocks of several frames, and more of it
/// would say nothing more.
const PATIENCE: f64 = 2.0;

/// Measures every row at each number of threads. More threads than cores measure the system's
/// scheduler; the caller decides.
///
/// # Errors
/// The system has no memory for it.
pub fn run(effort: Effort, counts: &[usize]) -> io::Result<Report> {
    let mut report = Report::default();
    for &n in counts {
        let (ours, buddy, bitmap, floor) =
            (Ours::new(n)?, Buddy::new(), Bitmap::new(), Floor::new(n));
        if report.notes.is_empty()
            && let Some(huge) = ours.metadata.huge_bytes()
        {
            let all = ours.metadata.bytes() >> 20;
            report.notes.push(format!(
                "{} of {all} MiB of our metadata on huge pages of the host",
                huge >> 20
            ));
        }
        // (phase, allocator) to its samples; phases keep the order of their first appearance.
        let mut samples: BTreeMap<(&str, &str), Samples> = BTreeMap::new();
        let mut order: Vec<&'static str> = Vec::new();
        // Seconds a allocator has spent on a workload.
        let mut spent: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for repetition in 0..=effort.repetitions {
            if repetition > 1 && (effort.stop)() {
                break;
            }
            let seed = repetition as u64;
            for (at, workload) in WORKLOADS.into_iter().enumerate() {
                for turn in 0..4 {
                    let who = (turn + repetition) % 4;
                    let spent = spent.entry((at, who)).or_default();
                    if repetition > 1 && *spent > PATIENCE {
                        continue;
                    }
                    let began = Instant::now();
                    let (name, phases) = match who {
                        0 => (Ours::NAME, play(&ours, workload, n, effort, seed)),
                        1 => (Buddy::NAME, play(&buddy, workload, n, effort, seed)),
                        2 => (Bitmap::NAME, play(&bitmap, workload, n, effort, seed)),
                        _ => (Floor::NAME, play(&floor, workload, n, effort, seed)),
                    };
                    *spent += began.elapsed().as_secs_f64();
                    for (phase, each) in phases {
                        if !order.contains(&phase) {
                            order.push(phase);
                        }
                        if repetition > 0 {
                            samples.entry((phase, name)).or_default().add(each);
                        }
                    }
                }
            }
        }
        let median = |phase, name| samples.get(&(phase, name)).map(Samples::median);
        for phase in order {
            let Some(own) = samples.get(&(phase, Ours::NAME)) else { continue };
            let peers = [Buddy::NAME, Bitmap::NAME].into_iter();
            report.benchmarks.push(Row {
                name: format!("frames/{phase}"),
                threads: n,
                unit: "ns",
                ours: own.median(),
                floor: median(phase, Floor::NAME),
                peers: peers.filter_map(|p| Some((p, median(phase, p)?))).collect(),
                spread: own.spread(),
            });
        }
        // Beside the hot pair, where it is read.
        let hot =
            report.benchmarks.iter().position(|r| r.threads == n && r.name == "frames/hot-pair");
        let at = hot.map_or(report.benchmarks.len(), |at| at + 1);
        report.benchmarks.insert(at, bare(&floor, n, effort));
    }
    Ok(report)
}

/// The cost of two swaps and two stores alone, to be read beside the hot pair.
fn bare(floor: &Floor, n: usize, effort: Effort) -> Row {
    let mut samples = Samples::default();
    for _ in 0..effort.repetitions.max(1) {
        let each =
            threads(n, |cpu| time_enough(effort, |k| (0..k).for_each(|_| floor.bare_pair(cpu))));
        samples.add(each.iter().sum::<f64>() / n as f64);
    }
    Row {
        name: "frames/two-swaps-two-stores".into(),
        threads: n,
        unit: "ns",
        ours: samples.median(),
        floor: None,
        peers: BTreeMap::new(),
        spread: samples.spread(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_number_for_us_and_each_peer() {
        let report = run(Effort::QUICK, &[1]).unwrap();
        assert_eq!(report.benchmarks.len(), 13);
        for row in &report.benchmarks {
            assert!(row.ours.is_finite() && row.ours > 0.0, "{row:?}");
            let bare = row.name.contains("two-swaps");
            assert_eq!(row.peers.len(), if bare { 0 } else { 2 }, "{row:?}");
            let order_0 = !row.name.contains("2m") && !row.name.contains("mixed") && !bare;
            assert_eq!(row.floor.is_some(), order_0, "{row:?}");
        }
    }
}
