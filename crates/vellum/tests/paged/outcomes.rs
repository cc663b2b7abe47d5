//! How a run ended is told to those who waited for it, and to nobody else.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, yield_now};

use super::*;

const LATE: Habits = Habits { late: true, fails_reads: false, fails_writes: false, most: None };

/// Runs `act`; the first time it waits while the disk has a run, `then` is done by another CPU.
fn while_it_waits<R>(
    f: &Rc<Paged>,
    act: impl FnOnce(&Paged) -> R,
    then: impl Fn(&Paged) + 'static,
) -> R {
    let (held, done) = (Rc::clone(f), Cell::new(false));
    at_each_step(move |waits| {
        if waits && !done.get() {
            done.set(true);
            set_cpu(1);
            then(&held);
            set_cpu(0);
        }
    });
    set_cpu(0);
    let result = act(f);
    at_each_step(|_| ());
    result
}

fn answer_all(f: &Paged) {
    let waiting = f.disk().waiting(f.fx.m());
    assert_eq!(waiting.len(), 1);
    waiting.into_iter().for_each(|answer| f.fx.vm.objects().answer(answer));
}

#[test]
fn a_sync_is_told_of_its_own_run_whoever_writes_a_page_of_it_later() {
    let f = Rc::new(paged::<X86_64>(8 * KIB4));
    f.poke(1, 10).unwrap();
    f.poke(2, 20).unwrap();
    f.disk().set(LATE);
    let synced = while_it_waits(
        &f,
        |f| f.sync(),
        |f| {
            f.disk().set(Habits { fails_writes: true, ..LATE });
            answer_all(f);
            f.disk().set(Habits::default());
            // Another sync, of the first page alone, by a handle that was told of all so far.
            let other = f.fx.vm.objects().another(&f.object);
            assert_eq!(f.fx.vm.objects().sync(&other, KIB4, 1), Ok(()));
            f.fx.vm.objects().discard(other);
        },
    );
    assert!(synced.is_err() || f.disk().word(FILE, 2) == 20, "page 2 was not written");
}

#[test]
fn a_sync_is_told_that_it_failed_though_the_frame_was_poisoned_since() {
    let f = Rc::new(paged::<X86_64>(8 * KIB4));
    f.poke(1, 10).unwrap();
    f.disk().set(LATE);
    let synced = while_it_waits(
        &f,
        |f| f.sync(),
        |f| {
            f.disk().set(Habits { fails_writes: true, ..LATE });
            answer_all(f);
            assert_eq!(f.peek(1), Ok(10));
            assert_eq!(f.fx.vm.poison(&f.space, page_at(1)), Ok(()));
        },
    );
    assert!(synced.is_err() || f.disk().word(FILE, 1) == 10, "page 1 was not written");
}

#[test]
fn who_waited_for_a_read_is_not_told_of_a_failed_write() {
    let f = Rc::new(paged::<X86_64>(8 * KIB4));
    f.disk().set(LATE);
    let seen = while_it_waits(
        &f,
        |f| f.peek(1),
        |f| {
            answer_all(f);
            f.disk().set(Habits { fails_writes: true, ..Habits::default() });
            f.poke(1, 10).unwrap();
            assert_eq!(f.sync(), Err(ObjectError::Io));
        },
    );
    assert_eq!(seen, Ok(10), "the page was read and is there");
}

#[test]
fn who_waited_in_read_is_told_as_a_fault_is() {
    let f = Rc::new(paged::<X86_64>(8 * KIB4));
    f.disk().set(LATE);
    std::thread::scope(|threads| {
        let (fx, space) = (&f.fx, &f.space);
        let fault = threads.spawn(move || {
            fx.run_on(2);
            fx.vm.fault(space, page_at(1), Access::Read)
        });
        while f.fx.vm.objects().usage(&f.object).pages == 0 || f.fx.m().disk.calls().is_empty() {
            std::thread::yield_now();
        }
        let word = while_it_waits(
            &f,
            |f| f.word(1),
            |f| {
                f.disk().set(Habits { fails_reads: true, ..LATE });
                answer_all(f);
                f.disk().set(Habits::default());
            },
        );
        assert_eq!(fault.join().unwrap(), Err(FaultError::Io));
        assert_eq!(word, Err(ObjectError::Io), "everybody who waited gets Io");
    });
}

#[test]
fn an_empty_range_evicts_and_writes_nothing() {
    let f = paged::<X86_64>(8 * KIB4);
    assert_eq!(f.peek(1), Ok(2));
    assert_eq!(f.fx.vm.objects().evict(&f.object, KIB4 + 100, 0), 0);
    f.poke(1, 3).unwrap();
    f.disk().calls();
    assert_eq!(f.fx.vm.objects().sync(&f.object, KIB4 + 100, 0), Ok(()));
    assert_eq!(f.calls(true), []);
    f.end([]);
}

#[test]
fn a_pager_is_asked_with_no_lock_held_after_many_attempts() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    let f = std::sync::Arc::new(paged::<X86_64>(8 * KIB4));
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (f_, over_) = (&f, &over);
        threads.spawn(move || {
            f_.fx.run_on(1);
            // Often enough for the copy to take the mmap lock; then it is left alone.
            let mut evicted = 0;
            while evicted < 40 && !over_.load(Ordering::Relaxed) {
                evicted += f_.evict();
                std::thread::yield_now();
            }
        });
        let held = std::sync::Arc::clone(&f);
        // This CPU is slow where the page is mapped.
        at_each_step(move |_| {
            let start = Instant::now();
            while held.fx.count(Counter::Mapped) != 0 && start.elapsed() < Duration::from_millis(3)
            {
                std::thread::yield_now();
            }
        });
        f.fx.run_on(0);
        for _ in 0..20 {
            let _ = f.fx.vm.copy_out(&f.space, page_at(1), &mut [0]);
        }
        at_each_step(|_| ());
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_wait_that_unwinds_ends_after_the_run_is_answered() {
    let f = paged::<X86_64>(8 * KIB4);
    f.poke(1, 10).unwrap();
    f.disk().calls();
    f.disk().set(LATE);
    let asked = Arc::new(AtomicBool::new(false));
    scope(|threads| {
        let writer = threads.spawn(|| {
            f.fx.run_on(1);
            let asked = asked.clone();
            at_each_step(move |waits| assert!(!waits || !asked.load(SeqCst), "the wait ends"));
            let done = catch_unwind(AssertUnwindSafe(|| f.sync()));
            at_each_step(|_| ());
            done.is_err()
        });
        while f.disk().calls().is_empty() {
            yield_now();
        }
        asked.store(true, SeqCst);
        // The pager has the outcome in hand, which lies on the writer's stack.
        for _ in 0..2000 {
            assert!(!writer.is_finished(), "its stack is gone");
            yield_now();
        }
        answer_all(&f);
        assert!(writer.join().unwrap(), "its wait unwound");
    });
    assert_eq!((f.dirty(), f.disk().word(FILE, 1)), (0, 10));
}

#[test]
fn a_page_that_may_be_written_again_has_its_error_counted() {
    let mut rewritten = 0;
    for step in 0.. {
        let f = Rc::new(paged::<X86_64>(8 * KIB4));
        let objects = f.fx.vm.objects();
        let other = Rc::new(objects.another(&f.object));
        // Of a run of three the first page is free before the others.
        [1, 2, 3].into_iter().for_each(|n| f.poke(n, 10 * n).unwrap());
        f.disk().set(LATE);
        objects.write_back(&f.object, 0, u64::MAX);
        f.disk().set(Habits { fails_writes: true, ..LATE });
        let mut waiting = f.disk().waiting(f.fx.m());
        f.disk().set(Habits::default());
        // At each step of the answer another CPU writes the page, if it may, and is told.
        let (held, handle) = (Rc::clone(&f), Rc::clone(&other));
        let (left, told) = (Cell::new(step), Rc::new(Cell::new(None)));
        let tell = Rc::clone(&told);
        at_each_step(move |_| {
            if holds_no_lock() && left.replace(left.get() - 1) == 0 {
                set_cpu(1);
                let objects = held.fx.vm.objects();
                objects.write_back(&held.object, 0, u64::MAX);
                let is_written = held.disk().word(FILE, 1) == 10;
                let synced = objects.sync(&handle, 0, 0);
                tell.set(Some((is_written, synced)));
                set_cpu(0);
            }
        });
        objects.answer(waiting.remove(0));
        at_each_step(|_| ());
        let Some((is_written, synced)) = told.take() else { break };
        assert!(!is_written || synced.is_err(), "step {step}: written, and nothing was told");
        rewritten += u64::from(is_written);
    }
    assert!(rewritten > 0, "the page was never free to be written");
}
