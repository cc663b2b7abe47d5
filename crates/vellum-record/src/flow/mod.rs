//! Which accesses have an address that came out of memory a moment ago.
//!
//! A core overlaps two misses unless the second one's address is the first one's result, so a
//! replay has to know which is which. The recorder sees no register values (asking QEMU for them at
//! every access would cost more than everything else together), but it sees the code. So it follows
//! names instead of values:
//!
//! * When a block is translated, [`block`] decodes it once and finds out, for each access, which
//!   general registers its address is made of as seen from the beginning of the block, or that a
//!   load of the same block made it; and for the block as a whole, which registers it leaves behind
//!   with a loaded value.
//! * When a block is entered, [`carry`] applies that to a mask of registers, one a virtual CPU; an
//!   access is a look at the mask.
//!
//! A loop needs no special case: its back edge is one more entry. A loaded value stops counting
//! after 128 to 256 instructions, which is what a core keeps in flight, so that a base register
//! filled before a loop is soon forgotten.
//!
//! What counts as a load: one whose own address is made with a general register. Fixed places
//! (stack slots, globals, thread-local variables) do not count: their addresses are known long
//! before, so that the core has their values early, and a compiler that keeps an array's base in a
//! slot has not made a chain. The price is that a pointer which travels through a slot (code
//! compiled without optimisation) is lost.
//!
//! Conditions count for nothing (cores predict them), nor do vector registers: gathers and pointers
//! that pass through a vector register are lost.
//!
//! Rejected: marking by values seen (an address equal to a recently loaded word), which needs the
//! values and mistakes `p + 8` for independent; a time stamp for each register, which costs a loop
//! over registers at each block.
pub mod block;
pub mod carry;

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
