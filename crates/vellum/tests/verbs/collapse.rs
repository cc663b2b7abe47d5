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

/// A heap. What its tables said of it by themselves holds for the leaves as well, and for what is
/// mapped there later.
#[test]
fn what_grew_in_parts_is_collapsed_and_stays_mapped_as_it_was() {
    for (part, other) in [(1, None), (33, None), (33, Some(Rights::READ))] {
        let fx = fixture(8192, no_thp());
        let space = fx.vm.create().unwrap();
        let mut end = 0;
        while end < 3 * 512 {
            fx.map(&space, Va(GIB + end * KIB4), part * KIB4, RW);
            for page in end..end + part {
                fx.poke(&space, Va(GIB + page * KIB4), page).unwrap();
            }
            end += part;
        }
        // A neighbour that says something else.
        if let Some(rights) = other {
            fx.map(&space, Va(GIB - MIB2), MIB2, Attrs::anonymous(rights));
        }
        fx.vm.advise(&space, Va(GIB), 3 * MIB2, Advice::Collapse).unwrap();
        assert_eq!(fx.usage(&space).huge_leaves, 3);
        for page in 0..end {
            assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), Ok(page));
        }
        let child = fx.vm.fork(&space).unwrap();
        fx.check(&[&space, &child]);
        // The second is parted, the third goes and comes again.
        fx.vm.protect(&space, Va(GIB + MIB2), 5 * KIB4, Rights::READ).unwrap();
        fx.vm.unmap(&space, Va(GIB + 2 * MIB2), MIB2).unwrap();
        fx.map(&space, Va(GIB + 2 * MIB2), MIB2, Attrs::anonymous(Rights::READ));
        for (page, writes) in [(0, true), (512, false), (517, true), (1023, true), (1024, false)] {
            let va = Va(GIB + page * KIB4);
            assert_eq!(fx.poke(&space, va, !page).is_ok(), writes, "{page}");
            assert_eq!(fx.peek(&child, va), Ok(page));
        }
        fx.end([space, child]);
    }
}

/// The interval of the slot above needs memory as well.
#[test]
fn a_collapse_of_what_grew_fails_whole() {
    for left in 0..4 {
        let fx = fixture(8192, no_thp());
        let space = fx.vm.create().unwrap();
        // Many intervals above, one for each block.
        for block in 0..12 {
            let thp = (block % 2 == 0).then_some(HugeAdvice::Huge);
            for half in 0..2 {
                let va = Va(GIB + block * MIB2 + half * MIB2 / 2);
                fx.map(&space, va, MIB2 / 2, Attrs { thp, ..RW });
                fx.poke(&space, va, block).unwrap();
            }
        }
        let mut taken = fx.take_all(Order::BASE);
        fx.give_back(taken.drain(..left), Order::BASE);
        let bytes = 12 * MIB2;
        let done = fx.vm.advise(&space, Va(GIB), bytes, Advice::Collapse);
        assert_eq!(done, Err(SpaceError::NoMemory), "{left}");
        let audit = fx.vm.audit(&[&space]).expect("a valid state");
        assert_eq!(audit.other_frames, taken.len() as u64);
        fx.give_back(taken, Order::BASE);
        assert_eq!(fx.vm.advise(&space, Va(GIB), bytes, Advice::Collapse), Ok(()));
        assert_eq!(fx.usage(&space).huge_leaves, 12);
        for block in 0..12 {
            for half in 0..2 {
                let va = Va(GIB + block * MIB2 + half * MIB2 / 2);
                assert_eq!(fx.peek(&space, va), Ok(block));
            }
        }
        fx.end([space]);
    }
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
