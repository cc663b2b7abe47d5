//! The cost of cache sets on this computer: the two tests behind coloured zero pages, natively.
//!
//! Consecutive frames come from 2 MiB pages of the host. Without them nobody knows which frames a
//! program has, and the tests refuse to run. Linux has one zero page and no colours, so frames of
//! another large page stand for zero pages: one frame for all reads, or one of each colour in turn.
//! In a guest whose memory the host backs with small pages, the host decides the sets of the second
//! level; those of the first level are right as long as a way is a page.

use std::hint::black_box;
use std::ptr::NonNull;

use vellum::machine::CacheLevel;

use super::measure::{Samples, pin, threads, time};
use crate::machine::geometry;
use crate::memory::{ALIGN, Memory};
use crate::rng::Rng;

/// Why there are no figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSets {
    /// The system gave no large pages.
    NoHugePages,
    /// The system does not say what its second-level cache looks like.
    NoGeometry,
    /// The system gave no memory at all.
    NoMemory(String),
}

impl std::fmt::Display for NoSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoSets::NoHugePages => f.write_str(
                "the system backs no memory with 2 MiB pages \
                 (/sys/kernel/mm/transparent_hugepage/enabled says `never`?)",
            ),
            NoSets::NoGeometry => {
                f.write_str("the system does not tell the shape of its second-level cache")
            }
            NoSets::NoMemory(why) => write!(f, "no memory: {why}"),
        }
    }
}

/// One figure, in nanoseconds a read or a turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// Median of the repetitions.
    pub median: f64,
    /// Third minus first quartile, over the median.
    pub spread: f64,
}

/// Everything measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Sets {
    /// Sets and ways of the second level.
    pub l2: [u64; 2],
    /// For N frames in a row: ns a read, independent and dependent.
    pub in_a_row: Vec<(u64, [Figure; 2])>,
    /// The same frames in an order without a stride, which prefetchers into the first level follow.
    pub shuffled: Vec<(u64, [Figure; 2])>,
    /// ns a turn of strided reads and one zero read: one frame of zeros or all colours, mean over
    /// alignments and worst.
    pub advancing: [[Figure; 2]; 2],
    /// The same with as many zero reads a turn as there are ways.
    pub whole: [[Figure; 2]; 2],
}

/// Repetitions, and about how many reads each.
const REPETITIONS: usize = 9;
const READS: u64 = 200_000;

/// Measures, in a second or two, on one pinned core. `shrink` divides the reads, for a test that
/// only asks whether it runs.
pub fn run(shrink: u64) -> Result<Sets, NoSets> {
    let reads = (READS / shrink.max(1)).max(1000);
    let CacheLevel { sets, ways, line } = geometry::here().l2;
    if line == 0 {
        return Err(NoSets::NoGeometry);
    }
    let memory = Memory::new(8 * ALIGN, true).map_err(|e| NoSets::NoMemory(e.to_string()))?;
    memory.warm();
    if memory.huge_bytes().unwrap_or(0) < memory.bytes() as u64 {
        return Err(NoSets::NoHugePages);
    }
    let mut answers = threads(1, |core| {
        pin(core);
        let probe = Probe { memory: &memory, way: sets * line, ways, reads };
        Sets {
            l2: [sets, ways],
            in_a_row: FRAMES.map(|n| (n, probe.frames(&in_a_row(n)))).collect(),
            shuffled: FRAMES.map(|n| (n, probe.frames(&shuffled(n)))).collect(),
            advancing: [probe.beside(1, 1), probe.beside(probe.colours(), 1)],
            whole: [probe.beside(1, ways), probe.beside(probe.colours(), ways)],
        }
    });
    answers.pop().ok_or(NoSets::NoHugePages)
}

/// Frames of test 1.
const FRAMES: std::ops::RangeInclusive<u64> = 4..=16;

fn in_a_row(n: u64) -> Vec<u64> {
    (0..n).collect()
}

fn shuffled(n: u64) -> Vec<u64> {
    let mut order = in_a_row(n);
    Rng::new(n).shuffle(&mut order);
    order
}

struct Probe<'m> {
    memory: &'m Memory,
    /// Bytes of a way of the second level.
    way: u64,
    ways: u64,
    reads: u64,
}

impl Probe<'_> {
    fn colours(&self) -> u64 {
        (self.way / 4096).clamp(1, 64)
    }

    fn at(&self, offset: u64) -> NonNull<u64> {
        assert!(offset as usize + 8 <= self.memory.bytes());
        // SAFETY: inside the mapping.
        unsafe { self.memory.base().add(offset as usize) }.cast()
    }

    /// Offset 0 of each of these frames, independent and dependent.
    fn frames(&self, order: &[u64]) -> [Figure; 2] {
        let places: Vec<NonNull<u64>> = order.iter().map(|frame| self.at(frame * 4096)).collect();
        [false, true].map(|dependent| self.places(&places, dependent))
    }

    fn places(&self, places: &[NonNull<u64>], dependent: bool) -> Figure {
        let n = places.len() as u64;
        let rounds = self.reads / n;
        if dependent {
            for (i, place) in places.iter().enumerate() {
                let next = places[(i + 1) % places.len()];
                // SAFETY: inside the mapping, aligned, and this thread is its only user.
                unsafe { place.write(next.as_ptr() as u64) };
            }
        }
        figure(|| {
            time(rounds * n, || {
                if dependent {
                    let mut at = places[0].as_ptr();
                    for _ in 0..rounds * n {
                        // SAFETY: the words written above form a ring inside the mapping.
                        at = unsafe { at.read_volatile() } as *mut u64;
                    }
                    black_box(at);
                } else {
                    for _ in 0..rounds {
                        // SAFETY: inside the mapping.
                        places.iter().for_each(|place| _ = unsafe { place.read_volatile() });
                    }
                }
            })
        })
    }

    /// A turn of strided reads, one in each way, and `zeros` reads of frames that stand for zero
    /// pages; mean and worst alignment.
    fn beside(&self, colours: u64, zeros: u64) -> [Figure; 2] {
        // Real data in the lower large pages, zeros in the last.
        let zero = |n: u64| self.at(7 * ALIGN as u64 + n % colours * 4096);
        let turns = (self.reads / (self.ways + zeros) / 8).max(16);
        let zero_places: Vec<NonNull<u64>> = (0..64).map(zero).collect();
        let mut samples = [Samples::default(), Samples::default()];
        for repetition in 0..=REPETITIONS {
            let each: Vec<f64> = (0..self.colours())
                .map(|align| {
                    let places: Vec<NonNull<u64>> = (0..self.ways)
                        .map(|n| self.at((n * self.way + align * 4096) % (6 * ALIGN as u64)))
                        .collect();
                    let turn = |n: u64| {
                        // SAFETY: inside the mapping, all of them.
                        places.iter().for_each(|place| _ = unsafe { place.read_volatile() });
                        for i in 0..zeros {
                            let n = if zeros == 1 { n } else { i };
                            // SAFETY: as above.
                            let _ = unsafe { zero_places[n as usize % 64].read_volatile() };
                        }
                    };
                    (0..turns / 4).for_each(turn);
                    time(turns, || (0..turns).for_each(turn))
                })
                .collect();
            if repetition > 0 {
                samples[0].add(each.iter().sum::<f64>() / each.len() as f64);
                samples[1].add(each.iter().copied().fold(0.0, f64::max));
            }
        }
        samples.map(|s| Figure { median: s.median(), spread: s.spread() })
    }
}

fn figure(mut measure: impl FnMut() -> f64) -> Figure {
    let mut samples = Samples::default();
    measure();
    (0..REPETITIONS).for_each(|_| samples.add(measure()));
    Figure { median: samples.median(), spread: samples.spread() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_time_or_there_is_a_reason_why_there_is_none() {
        match run(1000) {
            Ok(sets) => {
                assert_eq!(sets.in_a_row.len(), 13);
                assert_eq!(sets.shuffled.len(), 13);
                let rows = sets.in_a_row.iter().chain(&sets.shuffled).flat_map(|row| row.1);
                let turns = [sets.advancing, sets.whole].into_iter().flatten().flatten();
                assert!(
                    rows.chain(turns).all(|f| f.median > 0.0 && f.median.is_finite()),
                    "{sets:?}"
                );
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
