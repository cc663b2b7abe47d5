//! The first space of all, and the end of one that runs elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use vellum_testkit::prelude::*;

#[test]
fn a_space_ends_when_the_last_cpu_has_left_it() {
    let fx = Fixture::new(flat(2, 4096), no_thp());
    let space = Arc::new(fx.vm.create().unwrap());
    fx.map(&space, AT, KIB4, RW);
    let (left, ended, running) = (AtomicBool::new(false), AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|threads| {
        let other = Arc::clone(&space);
        let (fx, left, ended, running) = (&fx, &left, &ended, &running);
        threads.spawn(move || {
            fx.run_on(1);
            fx.vm.activate(&other);
            drop(other);
            running.wait();
            // Until the exit waits, or has not waited.
            let waits = || fx.m().asked.relaxed.get() != 0;
            while !waits() && !ended.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            left.store(true, Ordering::SeqCst);
            fx.vm.idle();
        });
        running.wait();
        fx.vm.exit(Arc::into_inner(space).expect("the other thread has given its own up"));
        let had_left = left.load(Ordering::SeqCst);
        ended.store(true, Ordering::SeqCst);
        assert!(had_left, "a space ended that a CPU was running");
    });
    fx.check(&[]);
}
