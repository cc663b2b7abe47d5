//! A spin lock in one 32-bit word, to embed in a frame's record, a slab or a table node.
//!
//! Bit 0 is the lock; the rest keeps the last holder's number, so that a machine which charges for
//! moved cache lines can be told ([`Work::Contended`]) when the lock last lived on another CPU. All
//! zero is unlocked and never held, as zeroed metadata needs it. Preemption is off while a lock is
//! held: a waiter spins, and the holder must be running.
//!
//! Rejected: queue locks (a word per waiter and CPU, for critical sections of a few hundred
//! instructions), and locks as wrappers around their data (a record's words change meaning with the
//! frame's use).

use core::marker::PhantomData;

use super::atomic::{AtomicU32, Ordering};
use super::epoch::EpochGuard;
use super::level::{Above, LockLevel, Token};
use super::touch;
use crate::machine::{MAX_CPUS, Machine, Work};

const LOCKED: u32 = 1;

const _: () = assert!(
    MAX_CPUS < u32::MAX as usize >> 1,
    "a lock's word has 31 bits for the last holder's number + 1"
);

/// A lock of level `L`.
#[repr(transparent)]
pub struct Lock<L> {
    word: AtomicU32,
    level: PhantomData<fn() -> L>,
}

impl<L> Default for Lock<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L> Lock<L> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        Lock { word: AtomicU32::new(0), level: PhantomData }
    }

    /// The lock that lives in `word`. All views of a word must be of one level.
    #[inline]
    pub fn from_word(word: &AtomicU32) -> &Lock<L> {
        // SAFETY: `repr(transparent)` over the word, and the marker is a zero-sized type without
        // alignment.
        unsafe { &*core::ptr::from_ref(word).cast::<Lock<L>>() }
    }

    /// Whether someone holds it, for assertions.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    #[inline]
    fn acquire<M: Machine>(&self, m: &M) -> bool {
        touch(m, &self.word, true);
        let old = self.word.load(Ordering::Relaxed);
        let mine = (m.cpu() as u32 + 1) << 1;
        if old & LOCKED != 0
            || self
                .word
                .compare_exchange(old, mine | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        if old != 0 && old != mine {
            m.work(Work::Contended, 1);
        }
        true
    }

    /// Takes the lock without tokens, for walks that hold locks of changing number. The caller
    /// answers for the order, and calls [`unlock_raw`](Lock::unlock_raw) once. Preemption is off
    /// until then.
    #[inline]
    pub fn lock_raw<M: Machine>(&self, m: &M) {
        m.preempt_off();
        while !self.acquire(m) {
            self.wait(m);
        }
    }

    #[cold]
    fn wait<M: Machine>(&self, m: &M) {
        while self.is_locked() {
            m.relax();
        }
    }

    /// Takes the lock without tokens if nobody holds it, as [`lock_raw`](Lock::lock_raw).
    #[inline]
    pub fn try_lock_raw<M: Machine>(&self, m: &M) -> bool {
        m.preempt_off();
        let taken = self.acquire(m);
        if !taken {
            // SAFETY: undoes the `preempt_off` above.
            unsafe { m.preempt_on() }
        }
        taken
    }

    /// Gives the lock back.
    ///
    /// # Safety
    /// The caller holds it by `lock_raw` or `try_lock_raw`, on this CPU, and what it guards is in
    /// order.
    #[inline]
    pub unsafe fn unlock_raw<M: Machine>(&self, m: &M) {
        self.release(m);
        // SAFETY: undoes the `preempt_off` of `lock_raw` or `try_lock_raw`, by the caller's
        // promise.
        unsafe { m.preempt_on() }
    }

    #[inline]
    fn release<M: Machine>(&self, m: &M) {
        debug_assert!(self.is_locked(), "a lock is given back that nobody holds");
        touch(m, &self.word, true);
        self.word.store(self.word.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
    }
}

impl<L: LockLevel> Lock<L> {
    /// Takes the lock, waiting for it. `key` orders the locks of one level (debug builds check it
    /// in [`lock_next`](Lock::lock_next)).
    #[inline]
    pub fn lock<'a, M: Machine, H: Above<L>>(
        &'a self,
        m: &'a M,
        above: &'a mut Token<H>,
        key: u64,
    ) -> Guard<'a, L, M> {
        let _ = above;
        self.lock_raw(m);
        Guard { lock: self, m, token: Token::new(key) }
    }

    /// As [`lock`](Lock::lock), inside an epoch: preemption is off already and stays off.
    #[inline]
    pub fn lock_inside<'a, M: Machine, H: Above<L>>(
        &'a self,
        epoch: &'a EpochGuard<'_, M>,
        above: &'a mut Token<H>,
        key: u64,
    ) -> Guard<'a, L, M, true> {
        let _ = above;
        let m = epoch.machine();
        while !self.acquire(m) {
            self.wait(m);
        }
        Guard { lock: self, m, token: Token::new(key) }
    }

    /// As [`lock_inside`](Lock::lock_inside), if nobody holds the lock, or whoever does gives it
    /// back within so many further looks.
    #[inline(always)]
    pub fn try_lock_inside<'a, M: Machine, H: Above<L>>(
        &'a self,
        epoch: &'a EpochGuard<'_, M>,
        above: &'a mut Token<H>,
        (key, looks): (u64, u32),
    ) -> Option<Guard<'a, L, M, true>> {
        let _ = above;
        let m = epoch.machine();
        if !self.acquire(m) {
            self.acquire_within(m, looks)?;
        }
        Some(Guard { lock: self, m, token: Token::new(key) })
    }

    /// Looks again, so many times at most.
    #[cold]
    #[inline(never)]
    fn acquire_within<M: Machine>(&self, m: &M, looks: u32) -> Option<()> {
        (0..looks).find_map(|_| {
            m.relax();
            self.acquire(m).then_some(())
        })
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock<'a, M: Machine, H: Above<L>>(
        &'a self,
        m: &'a M,
        above: &'a mut Token<H>,
        key: u64,
    ) -> Option<Guard<'a, L, M>> {
        let _ = above;
        self.try_lock_raw(m).then(|| Guard { lock: self, m, token: Token::new(key) })
    }

    /// Takes a second lock of a level. `key` must be above the held one's.
    #[inline]
    pub fn lock_next<'a, M: Machine>(
        &'a self,
        m: &'a M,
        held: &'a mut Token<L>,
        key: u64,
    ) -> Guard<'a, L, M> {
        #[cfg(debug_assertions)]
        assert!(key > held.key, "{} {key:#x} taken while {:#x} is held", L::NAME, held.key);
        let _ = held;
        self.lock_raw(m);
        Guard { lock: self, m, token: Token::new(key) }
    }
}

/// A held lock; gives it back when dropped. `INSIDE`: an epoch that outlives it keeps preemption
/// off.
#[must_use = "the lock is given back at once"]
pub struct Guard<'a, L: LockLevel, M: Machine, const INSIDE: bool = false> {
    lock: &'a Lock<L>,
    m: &'a M,
    token: Token<L>,
}

impl<L: LockLevel, M: Machine, const INSIDE: bool> Guard<'_, L, M, INSIDE> {
    /// What is needed to take locks below this one.
    #[inline]
    pub fn token(&mut self) -> &mut Token<L> {
        &mut self.token
    }
}

impl<L: LockLevel, M: Machine, const INSIDE: bool> Drop for Guard<'_, L, M, INSIDE> {
    #[inline]
    fn drop(&mut self) {
        // A guard exists only while its lock is held, and tokens keep it on its thread.
        self.lock.release(self.m);
        if !INSIDE {
            // SAFETY: undoes the `preempt_off` of the call that made the guard.
            unsafe { self.m.preempt_on() }
        }
    }
}
