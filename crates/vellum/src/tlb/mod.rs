//! Stale translations: who may hold them, how they are dropped, and what may be freed afterwards.
//!
//! Verbs change entries and note it in a `Receipt`. Only the flush of a receipt makes a `Flushed`,
//! and only a `Flushed` frees frames and table nodes. Freeing before the flush therefore does not
//! compile.
//!
//! Each space knows two sets of CPUs: *active* ones have its root loaded, *cached* ones may hold
//! translations under its ASID from an earlier visit. A flush reaches the active ones; the others
//! flush before they run here again, unless table nodes go, whose walk caches must go at once.
//!
//! ```text
//!   CPU that comes (activate)          CPU that changes entries (flush)
//!   cached := cached + me              store entries
//!   active := active + me              fence; first := active
//!   fence                              stale := stale + (cached - first)
//!   stale had me? flush at load        fence; second := active
//!   load root                          flush first + second
//! ```
//! Whichever fence comes first: the comer is in `second`, or it finds itself in `stale`, or it
//! loads its root after the entries were stored and has nothing old.

mod active;
mod asid;
mod flush;
mod receipt;

pub(crate) use asid::CONTEXT_WORDS;
pub(crate) use receipt::{Flushed, Receipt};

use core::ptr::NonNull;

use crate::machine::Machine;
use crate::memory::Memory;
use crate::platform::above;
use crate::sync::atomic::AtomicU64;

/// What a CPU runs: its own line.
#[repr(C, align(64))]
pub(crate) struct Current(AtomicU64);

/// The layer that knows what CPUs may hold in their TLBs.
pub(crate) struct Tlb<M: Machine> {
    memory: Memory<M>,
    current: NonNull<Current>,
    asids: NonNull<AtomicU64>,
}

above!(Tlb, memory: Memory);

impl<M: Machine> Tlb<M> {
    /// # Safety
    /// `current` names one per CPU, `asids` [`CONTEXT_WORDS`] words, all zero and the value's
    /// alone.
    pub unsafe fn new(
        memory: Memory<M>,
        current: NonNull<Current>,
        asids: NonNull<AtomicU64>,
    ) -> Tlb<M> {
        Tlb { memory, current, asids }
    }

    /// The handle of the space a CPU runs, 0 for none. Written by that CPU alone.
    pub fn current(&self, cpu: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus);
        // SAFETY: one per CPU, as `new` was promised.
        unsafe { &self.current.add(cpu).as_ref().0 }
    }

    pub fn context_words(&self) -> &[AtomicU64] {
        // SAFETY: that many words, as `new` was promised.
        unsafe { core::slice::from_raw_parts(self.asids.as_ptr(), CONTEXT_WORDS) }
    }
}
