//! What all CPUs write of a memory node.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// See [`NodeCounters::defer`].
pub const MOST_DEFER_SHIFT: u32 = 6;

/// A node's shared counters. All of them are written in batches only.
#[repr(C, align(64))]
pub struct NodeCounters {
    /// Base frames free in blocks, less what is in `Magazine::delta` of each CPU.
    pub free: AtomicI64,
    /// Base frames reserved before first use.
    pub reserved: AtomicU64,
    /// Optional huge allocations that fail without a drain of the magazines, less than 2 to the
    /// power of [`MOST_DEFER_SHIFT`]; and log2 of how many the next failure adds, at most that.
    pub defer: AtomicU32,
    pub defer_shift: AtomicU32,
    pub unheld: UnheldCounts,
}

/// Counts of allocations and frees whose CPU did not hold its magazine.
#[repr(C, align(64))]
pub struct UnheldCounts {
    /// Allocations past the stack, the base frames in them, and base frames freed past the stack.
    pub blocks: AtomicU64,
    pub block_frames: AtomicU64,
    pub block_freed: AtomicU64,
    /// Allocations that wanted another node.
    pub missed: AtomicU64,
}

impl NodeCounters {
    /// Whether an optional huge allocation should fail at once, since draining the magazines did
    /// not help the last ones: each such failure doubles how many do without a drain, up to 64.
    pub fn defers(&self) -> bool {
        let left = self.defer.load(Relaxed);
        if left != 0 {
            self.defer.store(left - 1, Relaxed);
            return true;
        }
        let shift = self.defer_shift.load(Relaxed);
        self.defer_shift.store((shift + 1).min(MOST_DEFER_SHIFT), Relaxed);
        self.defer.store((1 << shift) - 1, Relaxed);
        false
    }
}
