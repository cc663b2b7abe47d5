//! Poison beside other verbs.

use crate::explorer::{NEXT, script};
use vellum::addr::Va;
use vellum::config::{Config, ZeroHuge};
use vellum_proof::explore::explore;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};

#[test]
fn a_page_whose_old_frame_becomes_the_huge_zeros_is_not_refused_as_zeros() {
    // A huge page that parent and child share. One block is free, and 2 MiB behind it are reserved.
    let world = || {
        let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
        let fixture = Fixture::with_space(2, 1024, config);
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        (0..4).for_each(|_| fixture.take(9));
        let held = fixture.held.borrow().len();
        fixture.give(held - 1);
        fixture.enter(0);
        fixture
    };
    // The page holds 1 all the time.
    let poison = script(|l: &Fixture| assert_eq!(l.vm.poison(l.space(), AT), Ok(())));
    let copy = script(|l: &Fixture| {
        assert_eq!(l.store(NEXT, 7), Ok(()));
        l.end_last();
        assert_eq!(l.load(Va(AT.0 + MIB2)), Ok(0));
    });
    let done = explore(&world, &[poison, copy], 1, u64::MAX);
    println!("poison, copy and zeros: {done:?}");
    assert!(!done.cut, "{done:?}");
}
