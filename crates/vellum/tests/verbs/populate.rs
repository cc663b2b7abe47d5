//! Populate: the pages of a range at once.

use vellum_testkit::prelude::*;

#[test]
fn populate_brings_every_page_in_and_says_when_it_may_not() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 40 * KIB4, RW);
    fx.vm.advise(&space, AT, 40 * KIB4, Advice::Populate { write: false }).unwrap();
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_leaves), (0, 40));
    fx.vm.advise(&space, AT, 40 * KIB4, Advice::Populate { write: true }).unwrap();
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_leaves), (40, 0));
    fx.vm.protect(&space, AT, KIB4, Rights::READ).unwrap();
    let write = Advice::Populate { write: true };
    assert_eq!(fx.vm.advise(&space, AT, KIB4, write), Err(SpaceError::Rights));
    assert_eq!(fx.vm.advise(&space, page_at(39), 2 * KIB4, write), Err(SpaceError::Unmapped));
    fx.vm.exit(space);
}
