//! The shared zeros.
//!
//! A few frames of zeros stand behind every page that was read and never written. They are
//! allocated when the first space is made (an embedder reserves its own frames before that), never
//! freed, never writable, never counted as anyone's memory; "is this a zero page" is a range test
//! on the frame number, not a look at a record. How many there are, and which one an
//! address maps, is told in `page`; a space may have none at all (`forbid_zeros`). An empty table
//! is none of them: it is a frame of its own, of another use, as a zero frame's contents must stay
//! zero and a table's need not.
//!
//! Where a huge page would be used, `huge` keeps one page of zeros of that size, and `tables`
//! tables that map base zeros for everybody.
//!
//! Clearing is in [`clear`](crate::clear).

mod huge;
pub(crate) mod make;
pub(crate) mod page;
mod tables;

use huge::HugeZero;
#[cfg(test)]
pub(crate) use huge::MOST_USES;

use core::ptr::NonNull;

use crate::clear::Clear;
use crate::machine::{MAX_NODES, Machine};
use crate::platform::above;
use crate::sync::atomic::AtomicU64;
use crate::zero::page::{ByColour, Zeros};

/// The layer that has the shared zeros.
pub(crate) struct Zero<M: Machine> {
    clear: Clear<M>,
    zeros: Zeros,
    by_colour: NonNull<ByColour>,
    pub huge_zero: HugeZero,
    zero_tables: ZeroTables,
}

above!(Zero, clear: Clear);

impl<M: Machine> Zero<M> {
    /// # Safety
    /// `by_colour` names one zero block per CPU that is the value's alone.
    pub unsafe fn new(clear: Clear<M>, by_colour: NonNull<ByColour>) -> Zero<M> {
        let (zeros, huge_zero, zero_tables) = (Zeros::new(), HugeZero::new(), ZeroTables::new());
        Zero { clear, zeros, by_colour, huge_zero, zero_tables }
    }

    /// Zero faults by colour, by CPU.
    #[inline]
    fn by_colour(&self) -> &[ByColour] {
        // SAFETY: one per CPU, as `new` was promised; zero is a valid block and they are atomics.
        unsafe { core::slice::from_raw_parts(self.by_colour.as_ptr(), self.cpus) }
    }
}

/// The tables of each node: frame + 1, or 0.
struct ZeroTables([[AtomicU64; 2]; MAX_NODES]);

impl ZeroTables {
    const fn new() -> ZeroTables {
        ZeroTables([const { [const { AtomicU64::new(0) }; 2] }; MAX_NODES])
    }
}
