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
