//! Which accesses use an address that was loaded a moment ago.
//!
//! A core overlaps two misses unless the second one's address is the first one's result, so a
//! replay has to know which is which. The recorder reads no register values, since asking QEMU for
//! them at every access costs more than all the rest. It follows registers through the code
//! instead:
//!
//! * When a block is translated, [`block`] finds the registers that each access's address is made
//!   of, seen from the beginning of the block, and those that the block leaves with a loaded value.
//! * When the background thread learns that a block was entered, [`carry`] applies that to a mask
//!   of registers, one for each virtual CPU; an access tests the mask.
//!
//! A load counts if its own address is made with a general register. Fixed places (stack slots,
//! globals, thread-local variables) do not count, since a core has their values early; so a pointer
//! that travels through a slot is lost. Conditions of branches do not count, since cores predict
//! them, but for the load behind a branch that was predicted wrongly ([`branch`]). Vector registers
//! do not, so gathers are lost.
//!
//! Rejected: comparing addresses with recently loaded words, which needs the values and mistakes
//! `p + 8` for independent; a time stamp for each register, which costs a loop at each block.
pub mod block;
pub mod branch;
pub mod carry;
pub mod predictor;
mod report;

/// The bit of the stack pointer's number. That register never carries a load's value, so its place
/// in a mask says "whatever the other registers hold".
pub const ALWAYS: u16 = 1 << 4;

/// The registers an instruction's addresses are made of, by number, at the beginning of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Of what it loads.
    pub loads: u16,
    /// Of what it stores.
    pub stores: u16,
    /// It reads a place in order to write it (`add [m], r`). A processor asks for such a place
    /// once, for writing.
    pub modifies: bool,
    /// It does so in one piece (`lock`, `xchg`).
    pub atomic: bool,
    /// What QEMU will say of its accesses.
    pub report: Report,
}

/// What QEMU says of an instruction's accesses each time that it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Report {
    /// What may differ each time.
    #[default]
    Open,
    /// Nothing: it has none, and goes on to the next instruction, or by a branch, whatever happens.
    Quiet,
    /// One load of two to the power of this many bytes.
    Load(u8),
    /// One store.
    Store(u8),
    /// One load and one store, of the same place.
    Modify(u8),
}

/// What a block does to the mask of registers that hold a loaded value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Effect {
    /// Registers with a new value.
    pub clear: u16,
    /// Of those, registers with a loaded one.
    pub set: u16,
    /// The second mask's registers hold what was computed from the first one's.
    pub copies: Box<[(u16, u16)]>,
    /// Instructions in the block.
    pub instructions: u32,
}
