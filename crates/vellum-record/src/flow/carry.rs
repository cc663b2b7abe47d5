//! From block to block, at run time: a mask of registers that hold a loaded value.
//!
//! Age is kept in two generations. A load's result begins in the young one; every [`PERIOD`]
//! instructions the young become old and the old are forgotten. So a value counts for one to two
//! periods, and a block costs a handful of operations on one word.
use super::branch::Branch;
use super::predictor::Predictor;
use super::{ALWAYS, Effect};

/// Instructions in a generation. Two of them are the reorder buffer of a recent core (256 on Zen 3,
/// 352 on Ice Lake), rounded down: a load further back has nearly always retired.
pub const PERIOD: u32 = 128;

/// The registers of one virtual CPU.
#[derive(Clone, Debug)]
pub struct Carry {
    /// Registers with a loaded value when the running block began, and [`ALWAYS`].
    entry: u16,
    /// The same at its end: young in the low half, old in the high one.
    exit: u32,
    age: u32,
    /// The conditional branch that the running block ends with, and whether its condition is a
    /// loaded value.
    branch: Option<(&'static Branch, bool)>,
    predictor: Predictor,
    /// The next load is the first behind a branch that was predicted wrongly.
    held_up: bool,
}

impl Carry {
    /// Nothing is known.
    pub fn new() -> Carry {
        let predictor = Predictor::default();
        Carry { entry: ALWAYS, exit: 0, age: 0, branch: None, predictor, held_up: false }
    }

    /// The block at `start` begins, which ends with `branch`.
    #[inline(always)]
    pub fn enter(&mut self, start: u64, e: &Effect, branch: &'static Branch) {
        let was = self.exit;
        self.entry = was as u16 | (was >> 16) as u16 | ALWAYS;
        if let Some((last, matters)) = self.branch {
            self.held_up |= last.went_wrong(start, matters, &mut self.predictor);
        }
        let matters = self.depends(branch.condition());
        self.branch = (branch.condition() != 0).then_some((branch, matters));
        let clear = u32::from(e.clear);
        let mut now = was & !(clear | clear << 16) | u32::from(e.set);
        for (from, to) in &e.copies {
            let (young, old) = (was as u16 & from != 0, (was >> 16) as u16 & from != 0);
            now |= u32::from(*to) * (u32::from(young) | u32::from(old) << 16);
        }
        self.age += e.instructions;
        if self.age >= PERIOD {
            now <<= 16;
            self.age %= PERIOD;
        }
        self.exit = now;
    }

    /// Is the load that is next the first behind a branch that was predicted wrongly? It is asked
    /// once for each load.
    #[inline(always)]
    pub fn is_held_up(&mut self) -> bool {
        std::mem::take(&mut self.held_up)
    }

    /// Is an address made of these registers a loaded value, in the running block?
    #[inline(always)]
    pub fn depends(&self, registers: u16) -> bool {
        self.entry & registers != 0
    }
}
