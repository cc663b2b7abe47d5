//! Locks that know their order, sequence counts and epochs.
//!
//! Everything that waits here waits by [`Machine::relax`], so a CPU that spins still serves flush
//! requests; everything that touches a shared word says so first ([`Hooks::shared`]), so a
//! simulator can put another CPU in between. On metal both vanish into a pause instruction and
//! nothing.
//!
//! Atomics are taken from [`atomic`] and from nowhere else: one place to exchange them for a model
//! checker's.

mod epoch;
mod hands;
mod level;
mod lines;
mod lock;
mod seq;

/// The atomics the library uses.
pub(crate) mod atomic {
    pub use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

    /// Right after a sequentially consistent exchange: makes a full fence of it. On x86_64 it is
    /// one. Elsewhere the exchange is an acquire and a release and no more: aarch64 may do a later
    /// acquire load before the exchanged value is seen by others.
    #[inline(always)]
    pub fn fence_after_exchange() {
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }
}

pub use epoch::{EpochGuard, Epochs};
pub(crate) use hands::{Hands, Stay, Turn};
pub use level::{
    Above, Attachments, Busy, Family, Inner, LockLevel, MmapLock, Object, Queue, TableLock, Token,
    Top,
};
pub use lock::{Guard, Lock};
pub use seq::{SeqCount, SeqWrite};

#[cfg(doc)]
use crate::machine::Hooks;
use crate::machine::Machine;

/// Tells the machine that `word` is about to be touched.
#[inline(always)]
pub(crate) fn touch<M: Machine, T>(m: &M, word: &T, write: bool) {
    m.shared(core::ptr::from_ref(word) as usize, write);
}

/// Brings a value's first line near, if this architecture has an instruction for that which never
/// waits.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads nothing a program could see, and the instruction is part of the
    // architecture's base.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::from_ref(value).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
