//! Poison beside other verbs.

use crate::explorer::{NEXT, both, few, script};
use vellum::addr::Va;
use vellum::config::{Config, ZeroHuge};
use vellum::space::{Attrs, Placement, Rights};
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

#[test]
fn poison_finds_a_moved_page_while_the_space_makes_a_new_list_of_its_shifts() {
    let far = |n: u64| Va(AT.0 + (n + 1) * (MIB2 + 4096));
    let one = |l: &Fixture, from: Va, to: Va| {
        assert_eq!(l.vm.remap(l.space(), from, 4096, 4096, Placement::At(to)), Ok(to));
    };
    // A page that has been moved and that parent and child share. 62 others were moved and unmapped
    // since, so the next remap but one drops the shifts of those.
    let world = move || {
        let fixture = few(2)();
        fixture.store(AT, 1).expect("memory");
        one(&fixture, AT, far(0));
        for n in 1..63 {
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            fixture.vm.map(fixture.space(), Placement::At(AT), 4096, attrs).expect("a hole");
            one(&fixture, AT, far(n));
            if n < 62 {
                fixture.vm.unmap(fixture.space(), far(n), 4096).expect("what was moved");
            }
        }
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        fixture.enter(0);
        fixture
    };
    both(
        &world,
        move |l| one(l, far(62), far(63)),
        move |l| {
            assert_eq!(l.vm.poison(&l.last(), far(0)), Ok(()));
            assert_eq!(l.load(far(0)), Ok(1));
        },
    );
}
