//! The first space of all, and the end of one that runs elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use vellum_testkit::prelude::*;

#[test]
fn a_space_ends_when_the_last_cpu_has_left_it() {
    let fx = Fixture::new(flat(2, 4096), no_thp());
    let space = Arc::new(fx.mapped(AT, KIB4, RW));
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
            fx.vm.deactivate();
        });
        running.wait();
        fx.vm.exit(Arc::into_inner(space).expect("the other thread has given its own up"));
        let had_left = left.load(Ordering::SeqCst);
        ended.store(true, Ordering::SeqCst);
        assert!(had_left, "a space ended that a CPU was running");
    });
    fx.check(&[]);
}

#[test]
fn two_cpus_that_make_the_first_space_at_once_make_the_zeros_once() {
    let config = Config { zero_colours: Colours::Exactly(order(3)), ..no_thp() };
    for _ in 0..200 {
        let (fx, start) = (&fixture(1 << 13, config), &Barrier::new(2));
        let first = |cpu| {
            move || {
                fx.run_on(cpu);
                start.wait();
                let space = fx.mapped(AT, 8 * KIB4, RW);
                for page in 0..8 {
                    assert_eq!(fx.vm.fault(&space, page_at(page), Access::Read), Ok(Fault::Zero));
                    assert_eq!(fx.frame(&space, page_at(page)), fx.vm.zeros(0).0.add(page));
                }
                space
            }
        };
        let spaces = std::thread::scope(|scope| {
            [0, 1].map(|cpu| scope.spawn(first(cpu))).map(|cpu| cpu.join().expect("no panic"))
        });
        let audit = fx.vm.audit(&[&spaces[0], &spaces[1]]).expect("sound");
        assert_eq!((audit.zero_frames, audit.other_frames), (8, 0), "no second block is left over");
        fx.end(spaces);
    }
}
