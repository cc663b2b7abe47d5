//! Without memory: what fails leaves a page that was read at most, and writing back takes none.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// What is done, and whether there was memory for it.
type Act = (&'static str, fn(&Paged) -> bool);

#[test]
fn reading_and_writing_fail_at_each_allocation() {
    let f = paged::<X86_64>(600 * KIB4);
    let acts: [Act; 4] = [
        ("a read fault", |f| done(f.fx.vm.fault(&f.space, AT, Access::Read))),
        ("a write fault", |f| done(f.fx.vm.fault(&f.space, page_at(300), Access::Write))),
        ("read", |f| done(f.word(400))),
        ("write", |f| done(f.fx.vm.objects().write(&f.object, 500 * KIB4, &[1]).1)),
    ];
    for (what, act) in acts {
        let before = f.fx.vm.objects().usage(&f.object).pages;
        for left in 0.. {
            let taken = f.fx.take_all_but(left, Order::BASE);
            let is_done = act(&f);
            f.fx.vm.audit(&[&f.space]).unwrap_or_else(|e| panic!("{what}, {left} left: {e}"));
            // A page that was read may stay for the next one who asks.
            let pages = f.fx.vm.objects().usage(&f.object).pages;
            assert!((before..=before + 1).contains(&pages), "{what}, {left} left: {pages} pages");
            f.fx.give_back(taken, Order::BASE);
            if is_done {
                assert!(left > 0, "{what} takes no memory");
                break;
            }
        }
    }
    // Writing back, evicting and growing shorter take none at all.
    let taken = f.fx.take_all(Order::BASE);
    assert_eq!((f.dirty(), f.sync(), f.dirty()), (2, Ok(()), 0));
    assert_eq!(f.evict(), 4);
    f.fx.give_back(taken, Order::BASE);
    f.end([]);
}

/// Whether there was memory.
fn done<T, E: std::fmt::Display>(got: Result<T, E>) -> bool {
    got.map_err(|error| assert_eq!(error.to_string(), "out of physical memory")).is_ok()
}

/// A pager that has its pages in another object, as a loop device, and is short of memory: it is
/// refused, or gets some. `fault`: who asks for the page is a program.
fn a_pager_takes_memory(fault: bool) {
    let f: &'static Paged = Box::leak(Box::new(paged::<X86_64>(4096 * KIB4)));
    let other: &'static Object =
        Box::leak(Box::new(f.fx.vm.objects().create(8192 * KIB4).unwrap()));
    let mut hung = Vec::new();
    for n in 0..150 {
        let page = 2 * n as u64 + 1;
        let taken = f.fx.take_all(Order::BASE);
        // While it looks, some memory comes back.
        let (mut steps, mut waits, mut spare) = (0, 0u64, taken);
        let rest = spare.split_off(8.min(spare.len()));
        let spare = RefCell::new(Some(spare));
        at_each_step(move |is_wait| {
            steps += 1;
            waits += u64::from(is_wait);
            assert!(waits < 100_000, "it waits for ever");
            if steps == n
                && let Some(spare) = spare.take()
            {
                f.fx.give_back(spare, Order::BASE);
            }
        });
        before_each_read(move || {
            let taken = f.fx.take_all(Order::BASE);
            let _ = f.fx.vm.objects().write(other, page * 16 * KIB4 % (8192 * KIB4), &[1]);
            f.fx.give_back(taken, Order::BASE);
        });
        let done = catch_unwind(AssertUnwindSafe(|| {
            if fault {
                let _ = f.fx.vm.fault(&f.space, page_at(page), Access::Read);
            } else {
                let _ = f.word(page);
            }
        }));
        at_each_step(|_| ());
        before_each_read(|| ());
        if done.is_err() {
            hung.push(n);
            break;
        }
        f.fx.give_back(rest, Order::BASE);
    }
    assert!(hung.is_empty(), "memory that comes back at step {hung:?}: nobody goes on");
}

#[test]
fn a_pager_that_takes_memory_is_not_asked_with_the_turn_in_hand_by_read() {
    a_pager_takes_memory(false);
}

#[test]
fn a_pager_that_takes_memory_is_not_asked_with_the_turn_in_hand_by_a_fault() {
    a_pager_takes_memory(true);
}
