//! Branches that a core predicts wrongly.
//!
//! A branch on a loaded value that goes the predicted way holds up nothing. One that does not is
//! found out when the value is there, and only then does the core come to what follows. So the
//! first load behind it counts as dependent. What a core would predict the [`Predictor`] says.
use super::predictor::Predictor;
use std::sync::atomic::AtomicU8;

/// The conditional branch at the end of a block.
#[derive(Debug, Default)]
pub struct Branch {
    /// The address behind it.
    after: u64,
    /// Registers at the block's beginning that its condition is made of, with
    /// [`ALWAYS`](super::ALWAYS) for a load of the block.
    condition: u16,
    /// Where it usually goes. 2 and 3: taken; 3 and 0 are sure.
    usual: AtomicU8,
}

impl Branch {
    /// The branch of a block that ends before `after`; with no registers in its condition there is
    /// none that could hold up anything.
    pub fn new(after: u64, condition: u16) -> Branch {
        Branch { after, condition, usual: AtomicU8::new(1) }
    }

    /// What its condition is made of.
    pub fn condition(&self) -> u16 {
        self.condition
    }

    /// The block that begins at `next` comes after it. Whether that was predicted wrongly; of a
    /// branch that does not `matter`, no.
    #[inline(always)]
    pub fn went_wrong(&self, next: u64, matters: bool, predictor: &mut Predictor) -> bool {
        let taken = next != self.after;
        let wrong = matters && predictor.is_wrong(self.after, &self.usual, taken);
        predictor.passes(taken);
        wrong
    }
}
