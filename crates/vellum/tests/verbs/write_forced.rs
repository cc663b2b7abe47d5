//! Forced writes, as a debugger does them.

use vellum_testkit::prelude::*;

#[test]
fn d_10_a_forced_write_copies_what_others_share_and_respects_what_has_no_rights() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 3 * KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    fx.vm.protect(&parent, AT, 2 * KIB4, Rights::READ).unwrap();
    fx.vm.protect(&parent, page_at(2), KIB4, Rights::NONE).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    fx.vm.write_forced(&child, AT, &2u64.to_le_bytes()).unwrap();
    assert_eq!((fx.peek(&parent, AT), fx.peek(&child, AT)), (Ok(1), Ok(2)));
    assert_eq!(fx.vm.fault(&child, AT, Access::Write), Err(FaultError::Rights));
    // Where no page was yet.
    fx.vm.write_forced(&child, page_at(1), &3u64.to_le_bytes()).unwrap();
    assert_eq!((fx.peek(&parent, page_at(1)), fx.peek(&child, page_at(1))), (Ok(0), Ok(3)));
    assert_eq!(fx.vm.write_forced(&child, page_at(2), b"x"), Err(FaultError::Rights));
    assert_eq!(fx.vm.write_forced(&child, page_at(3), b"x"), Err(FaultError::Unmapped));
    fx.end([parent, child]);
}
