//! Where objects may be mapped, and what a mapping of one is to the verbs of a space.

use vellum_testkit::prelude::*;

#[test]
fn a_part_of_an_object_is_checked_before_anything_changes() {
    let fx = fixture(2048, Config::default());
    let object = fx.object(MIB2);
    let space = fx.vm.create().unwrap();
    let before = fx.state(&[&space]);
    let map = |offset, bytes, attrs| {
        let part = ObjectPart { object: &object, offset };
        fx.vm.map_object(&space, Placement::At(AT), bytes, attrs, part)
    };
    assert_eq!(map(12, KIB4, RW), Err(SpaceError::Part));
    let last = !(KIB4 - 1);
    assert_eq!(map(last, 2 * KIB4, RW), Err(SpaceError::Part));
    assert_eq!(map(0, 12, RW), Err(SpaceError::Range(RangeError::Unaligned)));
    assert_eq!(map(0, 0, RW), Err(SpaceError::Range(RangeError::Empty)));
    assert_eq!(map(0, MIB2, EXACTLY_HUGE), Err(SpaceError::LeafSize));
    assert_same(&before, &fx.state(&[&space]), "refused parts");
    assert_eq!(map(last, KIB4, RW), Ok(AT), "the last page there can be");
    assert_eq!(fx.peek(&space, AT), Err(FaultError::Beyond));
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn an_access_past_the_end_is_told_from_one_that_nothing_maps() {
    let fx = fixture(2048, Config::default());
    let object = fx.object(2 * KIB4 + 1);
    let space = fx.with_object(AT, 16 * KIB4, &object);
    fx.poke(&space, page_at(2), 1).unwrap();
    assert_eq!(fx.poke(&space, page_at(3), 1), Err(FaultError::Beyond));
    assert_eq!(fx.peek(&space, page_at(15)), Err(FaultError::Beyond));
    assert_eq!(fx.peek(&space, page_at(16)), Err(FaultError::Unmapped));
    let (done, error) = fx.vm.copy_in_part(&space, page_at(2), &[1; 5000]);
    assert_eq!((done, error), (KIB4 as usize, Err(FaultError::Beyond)));
    let whole = fx.vm.advise(&space, AT, 16 * KIB4, Advice::Populate { write: false });
    assert_eq!(whole, Err(SpaceError::Beyond));
    // Once the object is long enough the same address has a page.
    assert_eq!(fx.vm.objects().resize(&object, 4 * KIB4), Ok(()));
    assert_eq!(fx.peek(&space, page_at(3)), Ok(0));
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn one_object_is_mapped_many_times_and_leaves_nothing_behind() {
    let fx = fixture(4096, Config::default());
    let object = fx.object(MIB2);
    let space = fx.vm.create().unwrap();
    let slabs = |fx: &Fixture| fx.count(Counter::SlabPages);
    fx.map_object(&space, AT, MIB2, &object);
    // The object's own memory.
    (0..512).for_each(|n| fx.poke(&space, page_at(n), n).unwrap());
    let once = slabs(&fx);
    for n in 0..1000u64 {
        let at = Va(AT.0 + 2 * MIB2 + n % 7 * MIB2);
        fx.map_object(&space, at, MIB2, &object);
        fx.poke(&space, Va(at.0 + n % 512 * KIB4), n).unwrap();
        assert_eq!(fx.vm.unmap(&space, at, MIB2), Ok(()));
    }
    assert_eq!(slabs(&fx), once, "attachments of mappings that are gone");
    // At once they are as many as there are places.
    for n in 0..100u64 {
        fx.map_object(&space, Va(AT.0 + 2 * MIB2 + n * KIB4), KIB4, &object);
    }
    assert_eq!(fx.peek(&space, Va(AT.0 + 2 * MIB2 + 50 * KIB4)), fx.peek(&space, AT));
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn pages_of_objects_are_no_anonymous_ones() {
    let fx = fixture(2048, no_around());
    let object = fx.object(64 * KIB4);
    let space = fx.with_object(AT, 64 * KIB4, &object);
    let other = fx.with_object(AT, 64 * KIB4, &object);
    (0..8).for_each(|n| fx.poke(&space, page_at(n), n).unwrap());
    (4..6).for_each(|n| assert_eq!(fx.peek(&other, page_at(n)), Ok(n)));
    let counts = |fx: &Fixture| {
        [Counter::AnonPages, Counter::ShmemPages, Counter::Mapped].map(|counter| fx.count(counter))
    };
    // A page that two spaces map is mapped.
    assert_eq!(counts(&fx), [0, 8, 8]);
    let usage = fx.usage(&space);
    assert_eq!((usage.rss_pages, usage.shared_pages), (8, 8));
    assert_eq!(fx.usage(&other).shared_pages, 2);
    let audit = fx.vm.audit(&[&space, &other]).unwrap();
    assert_eq!((audit.data_frames, audit.object_frames), (8, 8));
    fx.vm.exit(other);
    assert_eq!(counts(&fx), [0, 8, 8]);
    assert_eq!(fx.vm.unmap(&space, AT, 3 * KIB4), Ok(()));
    assert_eq!(counts(&fx), [0, 8, 5]);
    fx.vm.objects().discard(object);
    fx.end([space]);
    assert_eq!(counts(&fx), [0, 0, 0]);
}

#[test]
fn a_mapping_of_an_object_has_base_pages_whatever_thp_says() {
    let fx = fixture(4096, Config::default());
    let object = fx.object(4 * MIB2);
    let space = fx.with_object(AT, 4 * MIB2, &object);
    fx.poke(&space, AT, 1).unwrap();
    assert_eq!(fx.leaf(&space, AT).level, Level::ONE);
    assert_eq!(fx.usage(&space).shared_pages, 1);
    assert_eq!(fx.vm.advise(&space, AT, MIB2, Advice::Huge), Ok(()));
    (0..512).for_each(|n| fx.poke(&space, page_at(n), n).unwrap());
    assert_eq!(fx.vm.advise(&space, AT, MIB2, Advice::Collapse), Ok(()));
    assert_eq!(fx.usage(&space).huge_leaves, 0);
    // Untouched pages are made by the read, and no shared zeros stand for them.
    assert_eq!(fx.peek(&space, page_at(700)), Ok(0));
    assert!(!fx.leaf(&space, page_at(700)).zero);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn an_object_that_is_mapped_in_pieces_is_mapped_as_one_that_is_not() {
    const PAGES: u64 = 1200;
    type Pieces = Vec<(u64, u64)>;
    let apart = |n: u64| (n * 7 % PAGES, 1);
    let ways: [Pieces; 4] = [
        (0..PAGES).map(|n| (n, 1)).collect(),
        (0..PAGES).rev().map(|n| (n, 1)).collect(),
        (0..PAGES).map(apart).collect(),
        (0..PAGES / 100).map(|n| (n * 100, 100)).collect(),
    ];
    for (way, private) in ways.iter().flat_map(|way| [(way, false), (way, true)]) {
        let fx = fixture(8192, no_thp());
        let object = fx.object(PAGES * KIB4);
        let space = fx.vm.create().unwrap();
        let slabs = fx.count(Counter::SlabPages);
        for &(first, pages) in way {
            let (at, bytes) = (page_at(first), pages * KIB4);
            let part = ObjectPart { object: &object, offset: first * KIB4 };
            let mapped = match private {
                true => fx.vm.map_private(&space, Placement::At(at), bytes, RW, part),
                false => fx.vm.map_object(&space, Placement::At(at), bytes, RW, part),
            };
            assert_eq!(mapped, Ok(at));
        }
        let more = fx.count(Counter::SlabPages) - slabs;
        // A region and an attachment of 64 bytes for each piece would be 38.
        let joins = way[1].0.abs_diff(way[0].0) == way[0].1;
        assert!(!joins || more <= 4, "{more} frames of slabs for {} pieces", way.len());
        (0..PAGES).for_each(|n| fx.poke(&space, page_at(n), n + 1).unwrap());
        fx.check(&[&space]);
        // So it is with what is moved in pieces.
        let to = |n: u64| Va(64 * GIB + n * KIB4);
        for n in 0..PAGES {
            let moved = fx.vm.remap(&space, page_at(n), KIB4, KIB4, Placement::At(to(n)));
            assert_eq!(moved, Ok(to(n)));
        }
        let more = fx.count(Counter::SlabPages) - slabs;
        assert!(!joins || more <= 8, "{more} frames of slabs after {PAGES} moves");
        fx.check(&[&space]);
        assert_eq!(fx.vm.unmap(&space, to(3), 2 * KIB4), Ok(()));
        assert_eq!(fx.vm.objects().resize(&object, 0), Ok(()));
        let left = |n: u64| if private { Ok(n + 1) } else { Err(FaultError::Beyond) };
        for n in [0, 1, 2, 5, PAGES - 1] {
            assert_eq!(fx.peek(&space, to(n)), left(n));
        }
        fx.vm.objects().discard(object);
        fx.end([space]);
    }
}

#[test]
fn what_the_members_of_a_family_map_for_themselves_is_sought_in_one_each() {
    const SPACES: usize = 400;
    let reads = |family: bool| {
        let fx = fixture(40_000, no_thp());
        let parent = fx.mapped(Va(3 * GIB), KIB4, RW);
        let object = fx.object(KIB4);
        // Each at a place of its own: were it one for all, the first walk would find them all.
        let mut spaces: Vec<Space> = (0..SPACES)
            .map(|n| {
                let space = match family {
                    true => fx.vm.fork(&parent).unwrap(),
                    false => fx.mapped(Va(3 * GIB), KIB4, RW),
                };
                fx.map_object(&space, page_at(n as u64), KIB4, &object);
                fx.poke(&space, page_at(n as u64), 1).unwrap();
                space
            })
            .collect();
        // One whose mapping a child has, too.
        let child = fx.vm.fork(&spaces[7]).unwrap();
        assert_eq!(fx.peek(&child, page_at(7)), Ok(1));
        spaces.extend([child, parent]);
        let before = fx.m().asked.entries_read.get();
        assert_eq!(fx.vm.poison(&spaces[0], AT), Ok(()));
        let read = fx.m().asked.entries_read.get() - before;
        let pfn = fx.frame_at(&spaces[1], page_at(1));
        assert_eq!(pfn, None, "it has left every space");
        assert_eq!(fx.vm.objects().resize(&object, 0), Ok(()));
        assert_eq!(fx.peek(&spaces[SPACES], page_at(7)), Err(FaultError::Beyond));
        fx.vm.objects().discard(object);
        fx.end(spaces);
        read
    };
    let (strangers, members) = (reads(false), reads(true));
    println!("{members} entries read, and {strangers} of spaces that are no family");
    assert!(members < strangers * 2, "{members} entries read, and {strangers} of strangers");
}

#[test]
fn a_mapping_that_takes_the_place_of_its_like_has_room_when_that_has_gone() {
    for moves in [false, true] {
        let fx = fixture(4096, no_thp());
        let object = fx.object(16 * KIB4);
        let space = fx.mapped(page_at(0), 2 * KIB4, RW);
        // Three intervals, which is what a table has room for by itself. Of the second, over pages
        // 2 to 8, only page 5 is left.
        let part = |page: u64| ObjectPart { object: &object, offset: page * KIB4 };
        let at = |to| fx.vm.map_object(&space, to, 6 * KIB4, RW, part(2));
        assert_eq!(at(Placement::At(page_at(2))), Ok(page_at(2)));
        fx.map(&space, page_at(8), KIB4, Attrs::anonymous(Rights::READ));
        assert_eq!(fx.vm.unmap(&space, page_at(2), 3 * KIB4), Ok(()));
        assert_eq!(fx.vm.unmap(&space, page_at(6), 2 * KIB4), Ok(()));
        fx.poke(&space, page_at(5), 7).unwrap();
        let over = Placement::Replace(page_at(5));
        let done = match moves {
            false => fx.vm.map_object(&space, over, KIB4, RW, part(5)),
            true => {
                let from = Va(64 * GIB);
                let mapped = fx.vm.map_object(&space, Placement::At(from), KIB4, RW, part(5));
                assert_eq!(mapped, Ok(from));
                fx.vm.remap(&space, from, KIB4, KIB4, over)
            }
        };
        assert_eq!(done, Ok(page_at(5)));
        assert_eq!(fx.peek(&space, page_at(5)), Ok(7));
        fx.check(&[&space]);
        fx.vm.objects().discard(object);
        fx.end([space]);
    }
}
