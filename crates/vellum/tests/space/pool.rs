//! A pool beside pages that come and go.

use std::cell::Cell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

const EXACT: Attrs = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };

/// CPU 0 unmaps a page that a pool of one block waits for. At each step CPU 1 has the pool hold
/// none.
#[test]
fn a_pool_of_none_keeps_no_block() {
    for at in 0.. {
        let machine = flat(2, 2048);
        let fx = Rc::new(Fixture::new(machine, Config::default()));
        let space = fx.mapped(Va(GIB), MIB2, EXACT);
        fx.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
        let blocks = fx.take_all(Order::HUGE);
        assert!(fx.vm.pool(Order::HUGE, 1).is_err(), "all blocks are in use");
        let (theirs, ran) = (fx.clone(), Rc::new(Cell::new(false)));
        let here = ran.clone();
        let none = move || {
            theirs.vm.machine().run_on(1);
            // Where it waits for CPU 0, which stands still, there is no such schedule.
            let done = unless_it_waits(|| theirs.vm.pool(Order::HUGE, 0));
            here.set(done.is_some_and(|done| done.is_ok()));
            theirs.vm.machine().run_on(0);
        };
        let unmap = || fx.vm.unmap(&space, Va(GIB), MIB2).expect("it is whole");
        let left = interleave(vec![(at, Box::new(none))], unmap);
        if left == 0 {
            assert!(at > 10, "{at} steps");
            return;
        }
        if ran.get() {
            let block = fx.take_all(Order::HUGE);
            assert_eq!(
                block.len(),
                1,
                "step {at}: the page is unmapped, the pool holds none, and its block is refused"
            );
            fx.give_back(block, Order::HUGE);
            fx.give_back(blocks, Order::HUGE);
            fx.end([space]);
        }
    }
}

#[test]
fn a_fault_that_is_refused_a_table_looks_twice_whether_its_block_is_of_a_pool_or_not() {
    for pooled in [0, 1] {
        let fx = fixture(4096, no_thp());
        let space = fx.vm.create().expect("memory");
        // A promise one level above, so that the page takes a table.
        fx.map(&space, Va(GIB), GIB, EXACT);
        fx.vm.pool(Order::HUGE, pooled).expect("memory");
        let mut blocks = fx.take_all(Order::HUGE);
        let frames = fx.take_all(Order::BASE);
        if pooled == 0 {
            fx.give_back(blocks.split_off(blocks.len() - 1), Order::HUGE);
        }
        let cleared = || fx.m().asked.cleared_frames.get();
        let before = cleared();
        assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Err(FaultError::NoMemory));
        assert_eq!((cleared() - before) / 512, 2, "{pooled} in the pool");
        fx.give_back(frames, Order::BASE);
        fx.give_back(blocks, Order::HUGE);
        fx.vm.pool(Order::HUGE, 0).expect("it is given back");
        fx.end([space]);
    }
}
