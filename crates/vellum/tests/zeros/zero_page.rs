//! Base frames of zeros.

use vellum_testkit::prelude::*;

#[test]
fn zeros_are_not_counted_nor_written_nor_given_away() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 100 * KIB4, RW);
    let before = fx.check(&[&space]);
    for page in 0..100 {
        assert_eq!(fx.vm.fault(&space, page_at(page), Access::Read), Ok(Fault::Zero));
    }
    assert_eq!(fx.check(&[&space]), before);
    let (first, count) = fx.vm.zeros(0);
    assert_eq!(count, 1);
    assert!(fx.vm.is_zero(first) && !fx.vm.is_zero(first.add(1)));
    assert_eq!(fx.usage(&space).rss_pages, 0);
    fx.vm.protect(&space, AT, 100 * KIB4, Rights::NONE).unwrap();
    assert_eq!(fx.usage(&space).inaccessible_pages, 0);
    fx.vm.protect(&space, AT, 100 * KIB4, Rights::READ).unwrap();
    fx.peek(&space, AT).unwrap();
    fx.vm.unmap(&space, AT, 100 * KIB4).unwrap();
    fx.end([space]);
}
