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
