//! Remap: pages move, grow and shrink, and keep their contents.

use vellum_testkit::prelude::*;

#[test]
fn remap_carries_the_pages_and_leaves_nothing() {
    let fx = fixture(8192, Config::default());
    let space = fx.mapped(Va(GIB), 3 * MIB2, RW);
    for page in 0..1536 {
        fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
    }
    let copied = fx.m().asked.copied_frames.get();
    // By 2 MiB: the leaves stay huge. By a page: they are split.
    let far = Va(6 * GIB);
    assert_eq!(fx.vm.remap(&space, Va(GIB), 3 * MIB2, 3 * MIB2, Placement::At(far)), Ok(far));
    assert_eq!(fx.usage(&space).huge_leaves, 3);
    fx.check(&[&space]);
    let odd = Va(6 * GIB + 9 * MIB2 + KIB4);
    assert_eq!(fx.vm.remap(&space, far, 3 * MIB2, 3 * MIB2, Placement::At(odd)), Ok(odd));
    assert_eq!(fx.usage(&space).huge_leaves, 0);
    fx.check(&[&space]);
    for page in 0..1536 {
        assert_eq!(fx.peek(&space, Va(odd.0 + page * KIB4)), Ok(page + 1));
    }
    assert_eq!(fx.peek(&space, far), Err(FaultError::Unmapped));
    assert_eq!(fx.m().asked.copied_frames.get(), copied, "remap copied pages");
    fx.end([space]);
}

#[test]
fn remap_grows_in_place_when_it_can_and_moves_when_it_may() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 2 * KIB4, RW);
    let pages = |at, old, new, to| fx.vm.remap(&space, at, old * KIB4, new * KIB4, to);
    fx.poke(&space, page_at(1), 8).unwrap();
    assert_eq!(pages(AT, 2, 4, Placement::At(AT)), Ok(AT));
    fx.map(&space, page_at(6), KIB4, RW);
    assert_eq!(pages(AT, 4, 6, Placement::Anywhere), Ok(AT));
    assert_eq!(pages(AT, 6, 7, Placement::At(AT)), Err(SpaceError::Occupied));
    let moved = pages(AT, 6, 7, Placement::Anywhere).unwrap();
    assert_ne!(moved, AT);
    assert_eq!(fx.peek(&space, Va(moved.0 + KIB4)), Ok(8));
    assert_eq!(fx.vm.query(&space, AT), Page::Unmapped);
    assert_eq!(pages(moved, 7, 1, Placement::Anywhere), Ok(moved));
    assert_eq!(fx.vm.query(&space, Va(moved.0 + KIB4)), Page::Unmapped);
    let before = Va(moved.0 - KIB4);
    assert_eq!(pages(moved, 1, 2, Placement::Replace(before)), Err(SpaceError::Occupied));
    fx.end([space]);
}

#[test]
fn a_page_that_moved_is_still_shared_with_the_child_and_broken_right() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 4 * KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    let to = Va(AT.0 + 64 * MIB2);
    fx.vm.remap(&child, AT, 4 * KIB4, 4 * KIB4, Placement::At(to)).unwrap();
    fx.check(&[&parent, &child]);
    let again = fx.vm.fork(&child).unwrap();
    fx.poke(&again, to, 2).unwrap();
    fx.poke(&again, Va(to.0 + KIB4), 5).unwrap();
    let seen = [(&parent, AT), (&child, to), (&again, to)].map(|(space, va)| fx.peek(space, va));
    assert_eq!(seen, [Ok(1), Ok(1), Ok(2)]);
    fx.end([parent, child, again]);
}
