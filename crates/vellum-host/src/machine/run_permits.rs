//! Permits to run: no more threads run than there are cores.
//!
//! Without permits, a machine of 64 CPUs on two cores would spend its time switching between
//! threads that wait for each other's acknowledgement. A thread that is bound to a CPU needs a
//! permit to run, and can pass it on between operations. Meanwhile its CPU is *parked*, and nobody
//! waits for a parked CPU (see `ipi`). Permits are granted in order of arrival.
//!
//! Rejected: a plain semaphore. The thread that returns a permit is running, and would take it
//! again first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::MAX_HOST_CPUS;

#[derive(Debug)]
struct Queue {
    next: u64,
    admitted: u64,
}

/// The permits.
#[derive(Debug)]
pub struct RunPermits {
    queue: Mutex<Queue>,
    moved: Condvar,
    waiting: AtomicUsize,
}

impl RunPermits {
    /// `running` permits, at least one. A permit more than there are CPUs changes nothing.
    pub fn new(running: usize) -> RunPermits {
        let admitted = running.clamp(1, MAX_HOST_CPUS) as u64;
        RunPermits {
            queue: Mutex::new(Queue { next: 0, admitted }),
            moved: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }
    /// Waits for a permit.
    pub fn acquire(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = queue.next;
        queue.next += 1;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while ticket >= queue.admitted {
            queue = self.moved.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    /// Gives a permit back.
    pub fn release(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).admitted += 1;
        self.moved.notify_all();
    }
    /// Whether a thread waits for a permit.
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_run_than_there_are_permits_and_all_get_a_turn() {
        let permits = RunPermits::new(2);
        let (inside, most, turns) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    for _ in 0..200 {
                        permits.acquire();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        permits.release();
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert_eq!(turns.load(Ordering::SeqCst), 1200);
        assert!(!permits.is_wanted());
    }

    #[test]
    fn as_many_permits_as_can_be_asked_for_are_given_back_and_taken_again() {
        let permits = RunPermits::new(usize::MAX);
        for _ in 0..3 {
            permits.acquire();
            permits.release();
        }
    }
}
