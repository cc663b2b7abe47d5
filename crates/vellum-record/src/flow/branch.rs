//! Branches that a core predicts wrongly.
//!
//! A branch on a loaded value that goes the predicted way holds up nothing. One that does not is
//! found out when the value is there, and only then does the core come to what follows. So the
//! first load behind it counts as dependent. The predictor is the plainest there is, two bits for
//! each branch: it is right about loops and habits, and wrong half of the time where the direction
//! is chance, as any other. Predictors that see patterns do better where there are some.
use std::sync::atomic::{AtomicU8, Ordering};

/// The conditional branch at the end of a block.
#[derive(Debug, Default)]
pub struct Branch {
    /// The address behind it.
    after: u64,
    /// Registers at the block's beginning that its condition is made of, with
    /// [`ALWAYS`](super::ALWAYS) for a load of the block.
    condition: u16,
    /// 2 and 3: taken, it says; 3 and 0 are sure.
    history: AtomicU8,
}

impl Branch {
    /// The branch of a block that ends before `after`; with no registers in its condition there is
    /// none that could hold up anything.
    pub fn new(after: u64, condition: u16) -> Branch {
        Branch { after, condition, history: AtomicU8::new(1) }
    }

    /// What its condition is made of.
    pub fn condition(&self) -> u16 {
        self.condition
    }

    /// The block that begins at `next` comes after it; whether that was predicted wrongly.
    #[inline(always)]
    pub fn went_wrong(&self, next: u64) -> bool {
        // CPUs that run the same block share its history, and may lose a step of it.
        let (taken, history) = (next != self.after, self.history.load(Ordering::Relaxed));
        let moved = if taken { (history + 1).min(3) } else { history.saturating_sub(1) };
        if moved != history {
            self.history.store(moved, Ordering::Relaxed);
        }
        (history >= 2) != taken
    }
}
