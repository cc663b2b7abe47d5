//! A barrier for the threads of a run, and a watchdog that checks their progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use vellum::entry::Codec;
use vellum::vm::Vm;

use crate::machine::Host;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier that gives up when another thread has panicked.
pub(super) struct Meeting {
    threads: usize,
    arrived: Mutex<usize>,
    moved: Condvar,
}

impl Meeting {
    pub(super) fn of(threads: usize) -> Meeting {
        Meeting { threads, arrived: Mutex::new(0), moved: Condvar::new() }
    }
}

pub(super) fn meet<C: Codec>(meeting: &Meeting, vm: &Vm<Host<C, true>>) {
    let mut arrived = lock(&meeting.arrived);
    *arrived += 1;
    let all = arrived.next_multiple_of(meeting.threads);
    meeting.moved.notify_all();
    while *arrived < all {
        let waited = meeting.moved.wait_timeout(arrived, Duration::from_millis(20));
        arrived = waited.unwrap_or_else(PoisonError::into_inner).0;
        assert!(!vm.machine().is_poisoned(), "another thread failed, so there is nobody to meet");
    }
}

/// If nothing moves for five minutes, something waits for ever: the waits are told to give up,
/// which names the place.
pub(super) fn watchdog<C: Codec>(vm: &Vm<Host<C, true>>, moved: &AtomicU64, over: &AtomicBool) {
    let mut last = (0, 0);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        let now = moved.load(Ordering::Relaxed);
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        if last.1 > 15_000 {
            vm.machine().poison();
        }
    }
}
