//! Threads that sleep until something with a key has changed: a page, mostly.
//!
//! ```text
//! sleeper                              waker
//! locks the bucket                     changes what the sleeper looks at
//! asleep += 1                          fence
//! fence                                reads asleep: 0, nothing to do
//! looks once more, sleeps              locks the bucket, unlocks it, wakes everybody there
//! ```
//! One of the two sees the other: either the sleeper's last look finds the change, or the waker
//! reads that somebody is asleep, and then gets the lock only when that thread really sleeps or has
//! seen the change. Keys share buckets, so a thread may wake for nothing.
//!
//! Rejected: a condition variable for each key, which would have to be made and found; a timeout,
//! which would hide that a wake-up is missing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Buckets. Basis: a guess; more than threads that sleep at once, mostly.
const BUCKETS: usize = 64;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    asleep: AtomicUsize,
    lock: Mutex<()>,
    woken: Condvar,
}

/// The sleepers of a machine.
#[derive(Debug)]
pub struct Sleepers {
    buckets: Box<[Bucket]>,
    slept: AtomicU64,
}

impl Default for Sleepers {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| Bucket::default()).collect();
        Sleepers { buckets, slept: AtomicU64::new(0) }
    }
}

impl Sleepers {
    fn bucket(&self, key: u64) -> &Bucket {
        // Fibonacci hashing: frames that follow each other go to different buckets.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.buckets[hash as usize % BUCKETS]
    }
    /// Sleeps until the key is woken, if `still` says so; or returns early.
    pub fn sleep(&self, key: u64, still: &dyn Fn() -> bool) {
        let bucket = self.bucket(key);
        let held = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.asleep.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if still() {
            self.slept.fetch_add(1, Ordering::Relaxed);
            drop(bucket.woken.wait(held));
        }
        bucket.asleep.fetch_sub(1, Ordering::SeqCst);
    }
    /// Wakes who sleeps for the key.
    #[inline]
    pub fn wake(&self, key: u64) {
        wake(self.bucket(key));
    }
    /// Wakes everybody.
    pub fn wake_all(&self) {
        self.buckets.iter().for_each(wake);
    }
    /// How often a thread slept.
    pub fn slept(&self) -> u64 {
        self.slept.load(Ordering::Relaxed)
    }
}

#[inline]
fn wake(bucket: &Bucket) {
    fence(Ordering::SeqCst);
    if bucket.asleep.load(Ordering::SeqCst) != 0 {
        drop(bucket.lock.lock().unwrap_or_else(PoisonError::into_inner));
        bucket.woken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wake_up_is_lost_between_the_last_look_and_the_sleep() {
        let (sleepers, turn) = (Sleepers::default(), AtomicU64::new(0));
        std::thread::scope(|s| {
            for me in 0..2 {
                let (sleepers, turn) = (&sleepers, &turn);
                s.spawn(move || {
                    for n in 0..5000 {
                        let mine = 2 * n + me;
                        while turn.load(Ordering::Acquire) != mine {
                            // Keys 1 and 2, so that each wakes the other.
                            sleepers.sleep(1 + me, &|| turn.load(Ordering::Acquire) != mine);
                        }
                        turn.store(mine + 1, Ordering::Release);
                        sleepers.wake(2 - me);
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), 10_000);
        assert!(sleepers.slept() > 0, "nobody slept: nothing was tested");
    }
}
