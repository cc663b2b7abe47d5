//! Locks, sequence counts and epochs on real threads.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use vellum::unstable::{Busy, Epochs, Lock, SeqCount, TableLock};
use vellum_testkit::prelude::*;

const CPUS: usize = 4;

#[test]
fn a_lock_keeps_others_out() {
    let m = flat(CPUS, 512);
    let lock: Lock<Busy> = Lock::new();
    let counter = AtomicU64::new(0);
    on_cpus(0..CPUS, |_| {
        let mut top = Token::top();
        for i in 0..20_000 {
            let guard = if i % 3 == 0 {
                lock.try_lock(&m, &mut top, 0)
            } else {
                Some(lock.lock(&m, &mut top, 0))
            };
            if guard.is_some() {
                assert_eq!(m.preempt_depth(), 1);
                let seen = counter.load(Ordering::Relaxed);
                std::hint::spin_loop();
                counter.store(seen + 1, Ordering::Relaxed);
            } else {
                counter.fetch_add(0, Ordering::Relaxed);
            }
        }
        // No lock is held any more.
        assert_eq!(m.preempt_depth(), 0);
    });
    assert!(!lock.is_locked());
    // Two of three iterations always take the lock.
    assert!(counter.load(Ordering::Relaxed) >= (CPUS as u64 * 20_000 * 2) / 3);
}

#[test]
fn locks_count_every_increment_made_under_them() {
    let m = flat(CPUS, 512);
    let word = AtomicU32::new(0);
    let counter = AtomicU64::new(0);
    on_cpus(0..CPUS, |_| {
        for _ in 0..20_000 {
            let mut top = Token::top();
            let _guard = Lock::<TableLock>::from_word(&word).lock(&m, &mut top, 1);
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), CPUS as u64 * 20_000);
}

#[test]
fn a_sequence_count_shows_no_torn_pair() {
    let m = flat(2, 512);
    let count = SeqCount::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    on_cpus(0..2, |cpu| {
        if cpu == 1 {
            for i in 1..50_000 {
                let _write = count.write(&m);
                pair.iter().for_each(|word| word.store(i, Ordering::Relaxed));
            }
            return stop.store(true, Ordering::Release);
        }
        let mut last = 0;
        while !stop.load(Ordering::Acquire) {
            let seen = count.begin(&m);
            let read = [&pair[0], &pair[1]].map(|p| p.load(Ordering::Relaxed));
            if !count.changed(&m, seen) {
                assert_eq!(read[0], read[1]);
                assert!(read[0] >= last);
                last = read[0];
            }
        }
    });
}

#[test]
fn nothing_is_freed_while_someone_inside_an_epoch_may_look_at_it() {
    let m = flat(CPUS, 512);
    let meta = Meta::new(Epochs::layout(CPUS));
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let epochs = unsafe { Epochs::new(CPUS, meta.base()) };
    // Two slots take turns: the linked one holds the number of its round, the other is cleared once
    // nobody can read it.
    let slots = [AtomicU64::new(1), AtomicU64::new(0)];
    let linked = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let looked = AtomicU64::new(0);
    on_cpus(0..CPUS, |cpu| {
        while cpu != 0 && !stop.load(Ordering::Acquire) {
            // Outside the epoch, so that the freeing thread runs even on a host with fewer CPUs.
            thread::yield_now();
            let _outer = epochs.enter(&m);
            let slot = &slots[linked.load(Ordering::Acquire) as usize];
            let seen = slot.load(Ordering::Acquire);
            let _inner = epochs.enter(&m);
            assert!(epochs.is_inside(&m) && seen != 0);
            for _ in 0..4 {
                // The freeing thread runs while this one reads.
                thread::yield_now();
                assert_eq!(slot.load(Ordering::Acquire), seen, "looked at what was freed");
            }
            looked.fetch_add(1, Ordering::Relaxed);
        }
        if cpu != 0 {
            assert!(!epochs.is_inside(&m));
            return assert_eq!(m.preempt_depth(), 0);
        }
        let mut round = 2;
        while round < 200 || looked.load(Ordering::Relaxed) < 2000 && round < 100_000 {
            let old = linked.load(Ordering::Relaxed);
            slots[1 - old as usize].store(round, Ordering::Release);
            linked.store(1 - old, Ordering::SeqCst);
            epochs.synchronize(&m, &mut Token::top());
            slots[old as usize].store(0, Ordering::Release);
            round += 1;
        }
        stop.store(true, Ordering::Release);
    });
}

/// A task that waits for epochs may move to another CPU at any time. It asks whether it is inside
/// an epoch itself by the line of one CPU, and another task may be inside on the CPU that it left.
#[test]
fn a_task_that_may_move_is_not_taken_for_another_that_is_inside() {
    let m = flat(2, 512);
    let meta = Meta::new(Epochs::layout(2));
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let epochs = unsafe { Epochs::new(2, meta.base()) };
    let inside = epochs.enter(&m);
    m.run_on(1);
    assert!(!epochs.is_inside(&m));
    m.run_on(0);
    assert!(epochs.is_inside(&m));
    drop(inside);
    epochs.synchronize(&m, &mut Token::top());
    assert_eq!(m.asked.loose_cpus.get(), 0, "a number that may be another task's by its use");
}

#[test]
#[cfg(debug_assertions)]
fn two_locks_of_a_level_in_the_wrong_order_are_noticed() {
    let m = flat(1, 512);
    let (a, b): (Lock<TableLock>, Lock<TableLock>) = (Lock::new(), Lock::new());
    let mut top = Token::top();
    {
        let mut first = a.lock(&m, &mut top, 1);
        let _second = b.lock_next(&m, first.token(), 2);
    }
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut first = b.lock(&m, &mut top, 2);
        let _second = a.lock_next(&m, first.token(), 1);
    }));
    assert!(wrong.is_err());
    assert!(!a.is_locked() && !b.is_locked());
}
