//! Which ranges the verbs take: the first and the last page that may be mapped, and what is none.

use vellum_testkit::prelude::*;

#[test]
fn ranges_that_are_none_are_refused_by_every_verb_and_change_nothing() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 4 * KIB4, RW);
    let bad = [
        (Va(AT.0 + 1), KIB4, RangeError::Unaligned),
        (AT, KIB4 + 1, RangeError::Unaligned),
        (AT, 0, RangeError::Empty),
        (Va(USER_END), KIB4, RangeError::OutOfSpace),
        (Va(USER_END - KIB4), 2 * KIB4, RangeError::OutOfSpace),
        (Va(!0xfff), KIB4, RangeError::OutOfSpace),
        (Va(!0xfff), 2 * KIB4, RangeError::OutOfSpace),
        (AT, !0xfff, RangeError::OutOfSpace),
        (Va(0), !0xfff, RangeError::OutOfSpace),
    ];
    for (va, bytes, error) in bad {
        let refused = Err(SpaceError::Range(error));
        let verbs = [
            fx.vm.map(&space, Placement::At(va), bytes, RW).map(drop),
            fx.vm.map(&space, Placement::Replace(va), bytes, RW).map(drop),
            fx.vm.unmap(&space, va, bytes),
            fx.vm.protect(&space, va, bytes, Rights::READ),
            fx.vm.advise(&space, va, bytes, Advice::DontNeed),
            fx.populate(&space, va, bytes),
            fx.vm.remap(&space, va, bytes, KIB4, Placement::Anywhere).map(drop),
        ];
        assert_eq!(verbs, [refused; 7], "{va:?} {bytes:#x}");
        if bytes != KIB4 {
            assert!(fx.vm.remap(&space, AT, KIB4, bytes, Placement::At(va)).is_err());
        }
    }
    for (bytes, error) in [
        (0, SpaceError::Range(RangeError::Empty)),
        (5, SpaceError::Range(RangeError::Unaligned)),
        (1 << 60, SpaceError::NoHole),
        (USER_END, SpaceError::NoHole),
    ] {
        assert_eq!(fx.vm.map(&space, Placement::Anywhere, bytes, RW), Err(error), "{bytes:#x}");
    }
    assert_eq!(fx.vm.fault(&space, Va(USER_END), Access::Read), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.fault(&space, Va(u64::MAX), Access::Write), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.query(&space, Va(u64::MAX)), Page::Unmapped);
    assert_eq!(fx.vm.copy_in(&space, Va(u64::MAX - 2), &[0; 8]), Err(FaultError::Unmapped));
    assert_eq!(fx.usage(&space).mapped_pages, 4);
    fx.end([space]);
}

fn first_and_last_page<C: Codec>(rules: MmuRules) {
    let fx: Fixture<C> = Fixture::new(flat_with(1, 4096, rules), Config::default());
    let space = fx.vm.create().unwrap();
    let end = fx.vm.user_end();
    for va in [Va(LOWEST), Va(end.0 - KIB4)] {
        fx.map(&space, va, KIB4, RW);
        fx.poke(&space, Va(va.0 + 4088), 3).unwrap();
        assert_eq!(fx.peek(&space, Va(va.0 + 4088)), Ok(3));
        fx.check(&[&space]);
    }
    fx.vm.protect(&space, Va(end.0 - KIB4), KIB4, Rights::READ).unwrap();
    let bytes = [9; 2];
    assert_eq!(fx.vm.copy_in(&space, Va(LOWEST + KIB4 - 2), &bytes), Ok(()));
    assert_eq!(fx.vm.copy_in(&space, Va(LOWEST + KIB4 - 1), &bytes), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.copy_in(&space, Va(end.0 - 2), &bytes), Err(FaultError::Rights));
    // All of the user half at once.
    fx.vm.unmap(&space, Va(0), end.0).unwrap();
    assert_eq!(fx.usage(&space).table_nodes, 1);
    fx.map(&space, Va(LOWEST), end.0 - LOWEST, RW);
    // A path to the first page, and one to the last page where the last slot is not whole.
    let ways = 1 + u64::from(!end.is_aligned(GIB << 9));
    assert_eq!(fx.usage(&space).table_nodes, 1 + ways * (u64::from(rules.levels) - 1));
    fx.poke(&space, Va(end.0 / 2), 5).unwrap();
    fx.check(&[&space]);
    fx.vm.advise(&space, Va(LOWEST), end.0 - LOWEST, Advice::DontNeed).unwrap();
    assert_eq!(fx.peek(&space, Va(end.0 / 2)), Ok(0));
    fx.vm.unmap(&space, Va(0), end.0).unwrap();
    fx.check(&[&space]);
    assert_eq!(fx.usage(&space), Usage { table_nodes: 1, ..Default::default() });
    fx.end([space]);
}

#[test]
fn the_first_and_the_last_page_that_may_be_mapped_are_pages_like_others() {
    first_and_last_page::<X86_64>(MmuRules::X86_64);
    first_and_last_page::<X86_64>(MmuRules { levels: 5, ..MmuRules::X86_64 });
    first_and_last_page::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn the_lowest_64_kib_are_not_mapped() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(0x11000), USER_END - 0x11000, RW);
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, KIB4, RW), Ok(Va(0x10000)));
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, KIB4, RW), Err(SpaceError::NoHole));
    let low = SpaceError::Range(RangeError::TooLow);
    assert_eq!(low.to_string(), "the range begins below 64 KiB, where nothing is mapped");
    for (start, bytes) in [(0, KIB4), (0xf000, KIB4), (0xf000, GIB), (0, 1 << 40)] {
        for to in [Placement::At(Va(start)), Placement::Replace(Va(start))] {
            assert_eq!(fx.vm.map(&space, to, bytes, RW), Err(low), "{start:#x}");
            assert_eq!(fx.vm.remap(&space, AT, KIB4, bytes, to), Err(low), "{start:#x}");
        }
    }
    // Verbs that make no mapping accept the range.
    assert_eq!(fx.vm.unmap(&space, Va(0), KIB4), Ok(()));
    assert_eq!(fx.vm.protect(&space, Va(0), KIB4, Rights::NONE), Err(SpaceError::Unmapped));
    assert_eq!(fx.vm.remap(&space, AT, KIB4, KIB4, Placement::Replace(Va(LOWEST))), Ok(Va(LOWEST)));
    fx.vm.exit(space);
}
