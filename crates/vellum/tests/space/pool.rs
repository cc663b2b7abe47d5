//! A pool beside pages that come and go.

use std::rc::Rc;

use vellum_testkit::prelude::*;

/// CPU 0 unmaps a page that a pool of one block waits for. At each step CPU 1 has the pool hold
/// none.
#[test]
fn a_pool_of_none_keeps_no_block() {
    let mut at = 0;
    loop {
        let fx = Rc::new(fixture(2048, Config::default()));
        let space = fx.mapped(Va(GIB), MIB2, EXACTLY_HUGE);
        fx.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
        let blocks = fx.take_all(Order::HUGE);
        assert!(fx.vm.pool(Order::HUGE, 1).is_err(), "all blocks are in use");
        let none = |fx: &Fixture| assert_eq!(fx.vm.pool(Order::HUGE, 0), Ok(()));
        let unmap = |fx: &Fixture| fx.vm.unmap(&space, Va(GIB), MIB2).expect("it is whole");
        let Some(met) = put_in(&fx, [(at, none)], unmap) else { break };
        if met == Met::Ran {
            let block = fx.take_all(Order::HUGE);
            assert_eq!(
                block.len(),
                1,
                "step {at}: the page is unmapped, the pool holds none, and its block is refused"
            );
            fx.give_back(block.into_iter().chain(blocks), Order::HUGE);
            fx.end([space]);
        }
        at += 1;
    }
    assert!(at > 10, "{at} steps");
}

#[test]
fn a_fault_that_is_refused_a_table_looks_twice_whether_its_block_is_of_a_pool_or_not() {
    for pooled in [0, 1] {
        let fx = fixture(4096, no_thp());
        let space = fx.vm.create().expect("memory");
        // A promise one level above, so that the page takes a table.
        fx.map(&space, Va(GIB), GIB, EXACTLY_HUGE);
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
