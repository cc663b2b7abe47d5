//! Reads of memory that nobody wrote, on this computer: Linux's page of zeros, small or huge.
//!
//! The system maps either, by advice: without huge pages the small one, 4 KiB at a time; with them
//! the huge one, if `transparent_hugepage/use_zero_page` allows it. A program without rights cannot
//! ask which it got, but it can count: 512 times fewer faults, and still nothing resident. If the
//! counts say otherwise, there is no figure but a reason.

use std::hint::black_box;

use rustix::mm::{Advice, madvise};

use super::measure::conditions::{host_faults, resident_bytes};
use super::measure::{Samples, alone, time};
use crate::memory::{ALIGN, Memory};

/// A figure in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// Median of the repetitions.
    pub median: f64,
    /// Third minus first quartile, over the median.
    pub spread: f64,
}

impl From<&Samples> for Figure {
    fn from(samples: &Samples) -> Figure {
        Figure { median: samples.median(), spread: samples.spread() }
    }
}

/// What reads cost by pages of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reads {
    /// The first read of each 4 KiB, faults included.
    pub first: Figure,
    /// Of each page of one half and the same page of the other, a byte.
    pub pages: Figure,
    /// Of each pair of lines, all words.
    pub lines: Figure,
    /// Faults of the first reads.
    pub faults: u64,
    /// What is resident afterwards, in KiB; `None` if the system does not tell.
    pub kib: Option<u64>,
}

/// Both.
#[derive(Clone, PartialEq, Debug)]
pub struct Zeros {
    /// By pages of 4 KiB.
    pub small: Reads,
    /// By pages of 2 MiB, or why there are none.
    pub huge: Result<Reads, String>,
}

/// Bytes of each half that pairs of lines are compared of.
const LINES: usize = 256 << 20;

/// Reads `bytes` bytes of zeros both ways, `repetitions` times each.
///
/// # Errors
/// Why there are no figures, in words.
pub fn run(bytes: usize, repetitions: usize) -> Result<Zeros, String> {
    let small = reads(bytes, false, repetitions)?;
    let huge = refused().map_or_else(|| reads(bytes, true, repetitions), Err);
    // Reads that take memory, or fault as small pages do, were not served by a huge page of zeros.
    let huge = huge.and_then(|r| match () {
        () if r.kib > small.kib.map(|kib| kib + 4096) => {
            Err("reads took real huge pages".to_owned())
        }
        () if r.faults > small.faults / 64 => {
            Err("the system mapped small pages of zeros all the same".to_owned())
        }
        () => Ok(r),
    });
    Ok(Zeros { small, huge })
}

/// Why the system would not map a huge page of zeros, if it says so.
fn refused() -> Option<String> {
    let says = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
        text.map(|t| t.trim().to_owned()).unwrap_or_default()
    };
    match (says("enabled").as_str(), says("use_zero_page").as_str()) {
        ("", _) => Some("the system has no transparent huge pages".to_owned()),
        (enabled, _) if enabled.contains("[never]") => Some(
            "/sys/kernel/mm/transparent_hugepage/enabled says `never`; root can change it to \
             `madvise`"
                .to_owned(),
        ),
        (_, "0") => Some(
            "/sys/kernel/mm/transparent_hugepage/use_zero_page says 0; root can change it to 1"
                .to_owned(),
        ),
        _ => None,
    }
}

fn reads(bytes: usize, huge: bool, repetitions: usize) -> Result<Reads, String> {
    let memory = Memory::new(bytes.max(4 * ALIGN), huge).map_err(|e| format!("no memory: {e}"))?;
    Ok(alone(|| {
        let half = memory.bytes() / 2;
        let [mut first, mut pages, mut lines] = <[Samples; 3]>::default();
        let mut faults = 0;
        for _ in 0..repetitions.max(1) {
            forget(&memory);
            let before = host_faults();
            first.add(time((2 * half / 4096) as u64, || sum(&memory, 0, 2 * half, 4096)));
            faults = host_faults() - before;
            pages.add(time((half / 4096) as u64, || compare(&memory, half, 4096, 1)));
            let some = LINES.min(half);
            lines.add(time((some / 64) as u64, || compare(&memory, some, 64, 8)));
        }
        let start = memory.base().as_ptr() as u64;
        let kib = resident_bytes(start..start + memory.bytes() as u64).map(|bytes| bytes >> 10);
        Reads {
            first: (&first).into(),
            pages: (&pages).into(),
            lines: (&lines).into(),
            faults,
            kib,
        }
    }))
}

/// The mapping as it was before anyone read it.
fn forget(memory: &Memory) {
    // SAFETY: the range is ours, and nobody holds a reference into it.
    let _ =
        unsafe { madvise(memory.base().as_ptr().cast(), memory.bytes(), Advice::LinuxDontNeed) };
}

fn word(memory: &Memory, at: usize) -> u64 {
    // SAFETY: callers stay inside the mapping, which is aligned and which nobody writes.
    unsafe { memory.base().as_ptr().add(at).cast::<u64>().read_volatile() }
}

fn sum(memory: &Memory, from: usize, to: usize, step: usize) {
    black_box((from..to).step_by(step).fold(0, |all, at| all | word(memory, at)));
}

/// Compares `bytes` of the first half with the second half, `words` words at each `step`.
fn compare(memory: &Memory, bytes: usize, step: usize, words: usize) {
    let half = memory.bytes() / 2;
    let mut differs = 0;
    for at in (0..bytes).step_by(step) {
        for word_at in (at..at + words * 8).step_by(8) {
            differs |= word(memory, word_at) ^ word(memory, half + word_at);
        }
    }
    black_box(differs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_untouched_memory_take_none_and_huge_ones_are_figures_or_a_reason() {
        let zeros = run(64 << 20, 1).expect("memory");
        assert!(zeros.small.kib.is_none_or(|kib| kib < 1024), "{zeros:?}");
        assert!(zeros.small.faults >= (64 << 20) / 4096 / 16, "{zeros:?}");
        match zeros.huge {
            Ok(reads) => {
                assert!(
                    reads.kib.is_none_or(|kib| kib < 4096)
                        && reads.faults <= zeros.small.faults / 64,
                    "{reads:?}"
                )
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
