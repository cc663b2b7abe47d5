//! Protect: the rights of a range.

use vellum_testkit::prelude::*;

#[test]
fn rights_are_kept_and_told_apart_from_holes() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 8 * KIB4, Attrs::anonymous(Rights::READ));
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::Rights));
    assert_eq!(fx.vm.fault(&space, AT, Access::Exec), Err(FaultError::Rights));
    assert_eq!(fx.vm.fault(&space, Va(AT.0 - 1), Access::Read), Err(FaultError::Unmapped));
    fx.vm.protect(&space, page_at(2), 2 * KIB4, Rights::READ_WRITE).unwrap();
    fx.poke(&space, page_at(2), 1).unwrap();
    fx.vm.protect(&space, AT, 8 * KIB4, Rights::NONE).unwrap();
    assert!(matches!(fx.vm.query(&space, page_at(2)), Page::Inaccessible { .. }));
    assert_eq!(fx.usage(&space).rss_pages, 1);
    assert_eq!(fx.usage(&space).inaccessible_pages, 1);
    assert_eq!(fx.peek(&space, page_at(2)), Err(FaultError::Rights));
    fx.check(&[&space]);
    fx.vm.protect(&space, AT, 8 * KIB4, Rights::READ).unwrap();
    assert_eq!(fx.peek(&space, page_at(2)), Ok(1));
    assert_eq!(fx.vm.protect(&space, AT, 9 * KIB4, Rights::READ), Err(SpaceError::Unmapped));
    fx.end([space]);
}

#[test]
fn rights_reach_pages_whose_interval_was_joined_with_an_equal_one() {
    let fx = fixture(4096, Config::default());
    let (at, part) = (Va(GIB), 135 * KIB4);
    let other = Attrs { thp: Some(HugeAdvice::NoHuge), ..RW };
    // It ends inside a slot of 2 MiB: what its table says of the end takes a pair, too.
    let space = fx.mapped(at, GIB - KIB4, other);
    let replace = |bytes, attrs| fx.vm.map(&space, Placement::Replace(at), bytes, attrs).unwrap();
    replace(2 * MIB2, RW);
    fx.vm.unmap(&space, Va(at.0 + part), 2 * MIB2).unwrap();
    fx.vm.unmap(&space, at, part).unwrap();
    // A region of its own, equal to that of what is left; nothing is mapped in between any more.
    replace(MIB2, other);
    let start = Va(at.0 + 2 * MIB2 + part);
    fx.vm.protect(&space, start, 2 * MIB2, Rights::READ).unwrap();
    for n in 0..1024 {
        let rights = Rights::READ;
        assert_eq!(fx.vm.query(&space, Va(start.0 + n * KIB4)), Page::Reserved { rights });
    }
    assert_eq!(fx.poke(&space, start, 1), Err(FaultError::Rights));
    fx.check(&[&space]);
    fx.end([space]);
}

#[test]
fn every_page_of_a_table_may_have_its_own_rights() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), MIB2, RW);
    let before = fx.check(&[&space]);
    for page in (0..512).step_by(2) {
        fx.vm.protect(&space, Va(GIB + page * KIB4), KIB4, Rights::READ).unwrap();
    }
    fx.check(&[&space]);
    for page in 0..512 {
        let rights = if page % 2 == 0 { Rights::READ } else { Rights::READ_WRITE };
        assert_eq!(fx.vm.query(&space, Va(GIB + page * KIB4)), Page::Reserved { rights });
    }
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    fx.check(&[&space]);
    fx.vm.unmap(&space, Va(GIB), MIB2).unwrap();
    fx.map(&space, Va(GIB), MIB2, RW);
    assert_eq!(fx.check(&[&space]), before, "lists or regions kept");
    fx.vm.exit(space);
}
