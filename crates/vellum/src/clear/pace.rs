//! How long a batch is.
//!
//! A kernel that is only preempted where it asks must ask often enough. The published choices are
//! constants, 8 MiB and then 32 MiB, that assume 10 GB/s; with every CPU of a machine clearing at
//! once bandwidth falls tenfold and the constant keeps others waiting tenfold. So with
//! `clear.batch=auto` each clear is timed, by node, and the next batch is as long as fits the
//! target.
//!
//! A slower portion than expected is believed at once: the portion after it is short enough. A
//! faster one moves the estimate by a quarter, since one portion that hit a cache says little.
//! Before the first measurement batches are short. One word a node, read and written without order:
//! an update that is lost is made good by the next portion.

use crate::clear::Clear;
use crate::config::ClearBatch;
use crate::machine::{MAX_NODES, Machine};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Base pages of the first portion on a node nothing is known of: 256 KiB keep a CPU for 1 ms even
/// at 0.27 GB/s.
const FIRST: u64 = 64;
/// Base pages of a batch where the clock's rate is not known: 8 MiB, the published choice.
const UNTIMED: u64 = 2048;
/// No batch is longer than the largest block.
const LONGEST: u64 = 1 << 18;
/// The rest of a range is not timed if it is shorter than this: what it costs beside its stores
/// would count too much.
const TIMED: u64 = 16;
/// Parts of a cycle the estimate is kept in.
const PARTS: u64 = 16;

/// What clearing a base page took lately, by node, in 1/16 cycle; 0: nothing is known.
pub(super) struct Pace([AtomicU64; MAX_NODES]);

impl Pace {
    pub const fn new() -> Pace {
        Pace([const { AtomicU64::new(0) }; MAX_NODES])
    }

    /// Whether a portion is timed. One that is as long as a batch may be always is, however short:
    /// an estimate that went wrong, because an interrupt fell into a portion, has to come back.
    pub fn times(pages: u64, batch: u64) -> bool {
        pages >= TIMED.min(batch)
    }

    /// A portion that is timed took that long.
    pub fn took(&self, node: usize, cycles: u64, pages: u64) {
        let new = (cycles.saturating_mul(PARTS) / pages).max(1);
        let old = self.0[node].load(Ordering::Relaxed);
        let next = if new >= old { new } else { old - (old - new).div_ceil(4) };
        if next != old {
            self.0[node].store(next, Ordering::Relaxed);
        }
    }

    /// Base pages that can be cleared in that many cycles.
    fn pages_in(&self, node: usize, cycles: u64) -> u64 {
        match self.0[node].load(Ordering::Relaxed) {
            0 => FIRST,
            pace => (cycles.saturating_mul(PARTS) / pace).clamp(1, LONGEST),
        }
    }
}

impl<M: Machine> Clear<M> {
    /// Base pages of the next portion on a node.
    pub fn batch(&self, node: usize) -> u64 {
        match self.config.clear_batch {
            ClearBatch::Pages(pages) => pages.max(1),
            ClearBatch::Auto => match self.machine.cycles_per_us() {
                0 => UNTIMED,
                cycles => {
                    self.pace.pages_in(node, cycles.saturating_mul(self.config.clear_target.into()))
                }
            },
        }
    }

    /// `Vm::clear_bandwidth`.
    pub fn clear_bandwidth(&self, node: usize) -> Option<u64> {
        let pace = self.pace.0.get(node)?.load(Ordering::Relaxed);
        let rate = self.machine.cycles_per_us();
        (pace != 0 && rate != 0).then(|| (4096 * PARTS * 1_000_000).saturating_mul(rate) / pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_portion_is_believed_at_once_and_a_faster_one_by_a_quarter() {
        let pace = Pace::new();
        assert_eq!(pace.pages_in(3, 1_000_000), FIRST);
        pace.took(3, 100_000, 100);
        assert_eq!(pace.pages_in(3, 1_000_000), 1000);
        pace.took(3, 1_000_000, 100);
        assert_eq!(pace.pages_in(3, 1_000_000), 100);
        pace.took(3, 100_000, 100);
        assert_eq!(
            pace.pages_in(3, 1_000_000),
            129,
            "10,000 cycles a page less a quarter of 9,000"
        );
        assert_eq!(pace.pages_in(2, 1_000_000), FIRST, "another node");
    }

    #[test]
    fn batches_stay_between_one_page_and_the_largest_block() {
        let pace = Pace::new();
        pace.took(0, 1, 512);
        assert_eq!(pace.pages_in(0, u64::MAX), LONGEST);
        pace.took(0, u64::MAX, 512);
        assert_eq!(pace.pages_in(0, 1000), 1);
        assert!(!Pace::times(TIMED - 1, 100) && Pace::times(TIMED, 100) && Pace::times(1, 1));
    }

    #[test]
    fn one_portion_that_something_fell_into_is_forgotten_though_the_next_ones_are_short() {
        let (pace, target) = (Pace::new(), 2_500_000);
        pace.took(0, 64 * 1000, 64);
        pace.took(0, 50_000_000, 64);
        let mut portions = 0;
        while pace.pages_in(0, target) < 2000 {
            let pages = pace.pages_in(0, target);
            pace.took(0, pages * 1000, pages);
            portions += 1;
            assert!(portions < 60, "{pages} pages");
        }
        assert!(portions > 10, "not by one lucky portion either: {portions}");
    }
}
