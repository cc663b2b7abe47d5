//! Pagers that take memory themselves, and ranges without a byte.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn invalidate_of_an_empty_range_tells_of_no_page() {
    let f = paged::<X86_64>(8 * KIB4);
    f.poke(1, 10).unwrap();
    let mut room = [KeptPage { offset: 0, dirty: false, busy: false }; 4];
    let told = f.fx.vm.objects().invalidate(&f.object, (KIB4 + 100, 0), &mut room);
    assert_eq!(told, (0, 0));
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
