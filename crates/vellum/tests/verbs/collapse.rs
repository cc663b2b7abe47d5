//! Collapse: base pages become a huge page.

use vellum_testkit::prelude::*;

#[test]
fn collapse_makes_one_leaf_of_what_is_there_and_zeros_elsewhere() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
    for page in (0..512).step_by(7) {
        fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
    }
    fx.peek(&space, Va(GIB + KIB4)).unwrap();
    let child = fx.vm.fork(&space).unwrap();
    fx.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::Collapse).unwrap();
    let usage = fx.usage(&space);
    // The second 2 MiB has no page, and stays reserved.
    assert_eq!((usage.huge_leaves, usage.rss_pages, usage.zero_leaves), (1, 512, 0));
    for page in 0..512 {
        let want = if page % 7 == 0 { page + 1 } else { 0 };
        assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), Ok(want));
        assert_eq!(fx.peek(&child, Va(GIB + page * KIB4)), Ok(want));
    }
    assert!(matches!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Spurious)));
    fx.end([space, child]);
}

#[test]
fn collapse_refuses_mixed_rights_and_contrary_advice() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), MIB2, RW);
    fx.poke(&space, Va(GIB), 1).unwrap();
    let collapsed = || {
        fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
        fx.usage(&space).huge_leaves
    };
    fx.vm.protect(&space, Va(GIB + 5 * KIB4), KIB4, Rights::READ).unwrap();
    assert_eq!(collapsed(), 0);
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    for (advice, huge) in [(Advice::NoHuge, 0), (Advice::Huge, 1)] {
        fx.vm.advise(&space, Va(GIB), MIB2, advice).unwrap();
        assert_eq!(collapsed(), huge, "{advice:?}");
    }
    fx.end([space]);
}

#[test]
fn what_one_collapse_gives_back_is_there_for_the_next() {
    for blocks in 1..=5 {
        let fx = fixture(8192, no_thp());
        let space = fx.mapped(Va(GIB), 8 * MIB2, RW);
        let mut held = fx.take_all(Order::BASE);
        let mut free_a_block = || {
            let of = |block: u64| held.iter().filter(move |pfn| pfn.0 / 512 == block);
            let whole = |block: &u64| of(*block).count() == 512;
            let block = (1..20).find(whole).expect("a block of which all is held");
            let (free, rest) = held.iter().partition(|pfn| pfn.0 / 512 == block);
            fx.give_back(free, Order::BASE);
            held = rest;
        };
        // Each table and 511 pages in it are all of a block.
        for block in 0..blocks {
            free_a_block();
            for page in 0..511 {
                fx.poke(&space, Va(GIB + block * MIB2 + page * KIB4), page).expect("memory");
            }
        }
        // One block for the first.
        free_a_block();
        let done = fx.vm.advise_part(&space, Va(GIB), blocks * MIB2, Advice::Collapse);
        assert_eq!(done, (blocks * MIB2, Ok(())), "{blocks} blocks");
        fx.give_back(held, Order::BASE);
        fx.end([space]);
    }
}
