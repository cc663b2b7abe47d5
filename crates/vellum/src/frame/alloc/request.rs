//! What an allocation is for, and what it learns of other CPUs.

use core::cell::Cell;

use crate::config::NumaPolicy;
use crate::machine::Use;

/// What an allocation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocRequest {
    /// Which node. [`NumaPolicy::Bind`] to a node that does not exist is never served,
    /// [`NumaPolicy::Prefer`] then means `Local`.
    pub policy: NumaPolicy,
    /// The index of a page of the block, by which [`NumaPolicy::Interleave`] takes turns: the next
    /// block of the same order lies on the next node.
    pub index: u64,
    /// What the frame becomes.
    pub use_: Use,
    /// The caller has another way, smaller blocks for one: a block of 2 MiB or more may be refused
    /// without a drain of the magazines.
    pub optional: bool,
}

impl AllocRequest {
    /// A frame for the library's own needs, near this CPU.
    pub const fn kernel(use_: Use) -> AllocRequest {
        AllocRequest { policy: NumaPolicy::Local, index: 0, use_, optional: false }
    }
}

/// What an allocation or a drain does about magazines and blocks that other CPUs have locked.
#[derive(Default)]
pub struct Contention {
    /// It passed over one, so there may be more free memory than it has seen.
    pub passed_over: Cell<bool>,
    /// It waits for their holders.
    pub wait: Cell<bool>,
}
