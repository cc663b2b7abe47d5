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

/// What is mapped and touched around a range that moves, as a program sees it.
fn contents(fx: &Fixture, space: &Space, (from, pages): (u64, u64)) -> Vec<Option<u64>> {
    let at = |page| Va(from + page * KIB4);
    let seen = |page| match fx.vm.query(space, at(page)) {
        Page::Unmapped => None,
        Page::Mapped { .. } => Some(fx.peek(space, at(page)).unwrap()),
        _ => Some(0),
    };
    (0..pages).map(seen).collect()
}

/// Where the distance is no multiple of what a table maps, a table that leaves comes into two, and
/// only one of them may get a page of it.
#[test]
fn a_page_that_moves_alone_out_of_a_table_is_not_freed_with_it() {
    let fx = fixture(4096, no_thp());
    for (page, grown) in [0, 1, 255, 256, 511].into_iter().flat_map(|p| [(p, 0), (p, MIB2)]) {
        let space = fx.mapped(Va(GIB), 3 * MIB2, RW);
        let at = MIB2 + page * KIB4;
        fx.poke(&space, Va(GIB + at), 7).unwrap();
        let to = Va(5 * GIB + MIB2 / 2);
        let moved = fx.vm.remap(&space, Va(GIB), 3 * MIB2, 3 * MIB2 + grown, Placement::At(to));
        assert_eq!(moved, Ok(to), "page {page}");
        fx.check(&[&space]);
        // Whoever gets memory now does not get that page.
        let other = fx.mapped(Va(64 * GIB), 8 * KIB4, RW);
        (0..8).for_each(|n| fx.poke(&other, Va(64 * GIB + n * KIB4), 9).unwrap());
        assert_eq!(fx.peek(&space, Va(to.0 + at)), Ok(7), "page {page}");
        fx.end([space, other]);
    }
}

#[test]
fn a_range_moves_with_all_there_is_wherever_tables_begin_and_end() {
    let starts = [0, 1, 509].map(|page| GIB + page * KIB4);
    let lengths = [1, 3, 511, 512, 513, 1024, 1030];
    let distances =
        [MIB2, 3 * MIB2 + KIB4, GIB - MIB2, GIB, GIB + 509 * KIB4, 512 * GIB - 2 * MIB2];
    for config in [no_thp(), Config::default(), with_zeros(ZeroHuge::Table)] {
        let fx = fixture(8192, config);
        for (start, pages) in starts.into_iter().flat_map(|start| lengths.map(|n| (start, n))) {
            for (n, distance) in distances.into_iter().enumerate() {
                let to = start + distance + (pages * KIB4).next_multiple_of(MIB2);
                let space = fx.mapped(Va(start), pages * KIB4, RW);
                // A neighbour on one side, on the other, on both, or on none, and one at the new
                // place.
                if [1, 3, 5].contains(&n) {
                    fx.map(&space, Va(start - KIB4), KIB4, RW);
                }
                if [2, 3].contains(&n) {
                    fx.map(&space, Va(start + pages * KIB4), KIB4, RW);
                }
                if n == 0 {
                    fx.map(&space, Va(to - KIB4), KIB4, RW);
                }
                if n == 5 {
                    fx.map(&space, Va(to + pages * KIB4), KIB4, RW);
                }
                for page in (0..pages).filter(|page| page % 37 == n as u64 || page + 1 == pages) {
                    fx.poke(&space, Va(start + page * KIB4), page + 1).unwrap();
                }
                fx.peek(&space, Va(start + pages / 2 * KIB4)).unwrap();
                let around = |from| contents(&fx, &space, (from - KIB4, pages + 2));
                let (before, there) = (around(start), around(to));
                let moves = |from, to| {
                    let bytes = pages * KIB4;
                    fx.vm.remap(&space, Va(from), bytes, bytes, Placement::At(Va(to)))
                };
                let case = (start - GIB, pages, distance);
                assert_eq!(moves(start, to), Ok(Va(to)), "{case:x?}");
                fx.check(&[&space]);
                let ends = [0, pages as usize + 1];
                let (left, came) = (around(start), around(to));
                for page in 0..pages as usize + 2 {
                    let is_end = ends.contains(&page);
                    let (gone, new) =
                        if is_end { (before[page], there[page]) } else { (None, before[page]) };
                    assert_eq!((left[page], came[page]), (gone, new), "{page} of {case:x?}");
                }
                assert_eq!(moves(to, start), Ok(Va(start)), "{case:x?}");
                fx.check(&[&space]);
                assert_eq!((around(start), around(to)), (before, there), "{case:x?}");
                fx.end([space]);
            }
        }
    }
}

#[test]
fn tables_move_as_they_are() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), 2 * MIB2 + 5 * KIB4, RW);
    for page in 0..1029 {
        fx.poke(&space, Va(GIB + page * KIB4), page).unwrap();
    }
    fx.vm.activate(&space);
    let tables = || fx.m().asked.became[Use::Table as usize].get();
    let flushes = || fx.m().asked.local_flushes.get();
    // In the same table of the third level: one of the second is new, and the third table of pages
    // moves too, since nothing else is in it. At the end one of the second level is empty.
    let (made, flushed) = (tables(), flushes());
    let bytes = 2 * MIB2 + 5 * KIB4;
    let to = Va(3 * GIB + MIB2);
    assert_eq!(fx.vm.remap(&space, Va(GIB), bytes, bytes, Placement::At(to)), Ok(to));
    assert_eq!((tables() - made, flushes() - flushed), (1, 1));
    fx.check(&[&space]);
    // A whole table of the second level.
    let far = Va(9 * GIB + MIB2);
    assert_eq!(fx.vm.remap(&space, to, bytes, bytes, Placement::At(far)), Ok(far));
    assert_eq!((tables() - made, flushes() - flushed), (1, 2));
    fx.check(&[&space]);
    // What is mapped beside it afterwards is mapped by rights of its own.
    let behind = Va(far.0 + bytes);
    fx.map(&space, behind, KIB4, Attrs::anonymous(Rights::READ));
    assert_eq!(fx.vm.fault(&space, behind, Access::Write), Err(FaultError::Rights));
    for page in 0..1029 {
        assert_eq!(fx.peek(&space, Va(far.0 + page * KIB4)), Ok(page));
    }
    fx.vm.deactivate();
    fx.end([space]);
}

#[test]
fn a_table_in_which_something_stays_or_comes_stays() {
    let fx = fixture(4096, no_thp());
    // To another slot of the same table, and of the same table of the second level.
    for (from, to) in [(GIB, GIB + 7 * KIB4), (GIB + KIB4, GIB + 9 * MIB2 + 2 * KIB4)] {
        let space = fx.mapped(Va(from), 2 * KIB4, RW);
        fx.poke(&space, Va(from), 8).unwrap();
        fx.vm.remap(&space, Va(from), 2 * KIB4, 2 * KIB4, Placement::At(Va(to))).unwrap();
        fx.check(&[&space]);
        assert_eq!(fx.peek(&space, Va(to)), Ok(8));
        fx.end([space]);
    }
    // Cut inside a table of which the rest goes, and made longer.
    for (pages, new) in [(600, 520), (600, 512), (600, 700), (600, 1200)] {
        let space = fx.mapped(Va(GIB), pages * KIB4, RW);
        for page in (0..pages).step_by(7) {
            fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
        }
        let to = Va(5 * GIB + MIB2);
        let moved = fx.vm.remap(&space, Va(GIB), pages * KIB4, new * KIB4, Placement::At(to));
        assert_eq!(moved, Ok(to));
        fx.check(&[&space]);
        for page in 0..new {
            let value = if page < pages && page % 7 == 0 { page + 1 } else { 0 };
            assert_eq!(fx.peek(&space, Va(to.0 + page * KIB4)), Ok(value), "page {page}");
        }
        assert_eq!(fx.peek(&space, Va(to.0 + new * KIB4)), Err(FaultError::Unmapped));
        assert_eq!(fx.usage(&space).mapped_pages, new);
        fx.end([space]);
    }
}

#[test]
fn tables_with_several_regions_move_page_by_page() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
    for page in 0..1024 {
        fx.poke(&space, Va(GIB + page * KIB4), page).unwrap();
    }
    let protect = |at, bytes, rights| fx.vm.protect(&space, Va(at), bytes, rights).unwrap();
    protect(GIB + 100 * KIB4, 50 * KIB4, Rights::READ);
    protect(GIB + 200 * KIB4, 350 * KIB4, Rights::NONE);
    let mut from = GIB;
    for to in [3 * GIB + MIB2, 9 * GIB + MIB2, 9 * GIB + 9 * MIB2, 7 * GIB + KIB4] {
        let moved = fx.vm.remap(&space, Va(from), 2 * MIB2, 2 * MIB2, Placement::At(Va(to)));
        assert_eq!(moved, Ok(Va(to)));
        fx.check(&[&space]);
        for page in 0..1024 {
            let (va, write) =
                (Va(to + page * KIB4), fx.vm.fault(&space, Va(to + page * KIB4), Access::Write));
            match page {
                100..150 => {
                    assert_eq!((write, fx.peek(&space, va)), (Err(FaultError::Rights), Ok(page)))
                }
                200..550 => assert_eq!(fx.peek(&space, va), Err(FaultError::Rights)),
                _ => assert_eq!((write.is_ok(), fx.peek(&space, va)), (true, Ok(page))),
            }
        }
        from = to;
    }
    fx.end([space]);
}

#[test]
fn a_page_that_is_alone_in_its_tables_moves_with_what_it_was() {
    let fx = fixture(4096, no_thp());
    // Below the same table as before, below one further up, and where the ways part at the root.
    for distance in [MIB2, MIB2 + KIB4, GIB + KIB4, 512 * GIB + KIB4, KIB4] {
        for neighbour in [None, Some(3 * KIB4), Some(GIB / 2)] {
            for (n, touched) in ["reserved", "zero", "written", "inaccessible"].iter().enumerate() {
                let space = fx.mapped(AT, KIB4, RW);
                // The space keeps the last regions it made.
                let to = Va(AT.0 + distance);
                if let Some(beside) = neighbour {
                    fx.map(&space, Va(AT.0 + beside), KIB4, RW);
                }
                match n {
                    0 => {}
                    1 => drop(fx.vm.fault(&space, AT, Access::Read)),
                    _ => fx.poke(&space, AT, 7).unwrap(),
                }
                if n == 3 {
                    fx.vm.protect(&space, AT, KIB4, Rights::NONE).unwrap();
                }
                let tables = fx.usage(&space).table_nodes;
                assert_eq!(fx.vm.remap(&space, AT, KIB4, KIB4, Placement::At(to)), Ok(to));
                fx.check(&[&space]);
                assert_eq!(fx.peek(&space, AT), Err(FaultError::Unmapped), "{touched}");
                if n == 3 {
                    assert_eq!(fx.peek(&space, to), Err(FaultError::Rights));
                    fx.vm.protect(&space, to, KIB4, Rights::READ_WRITE).unwrap();
                }
                assert_eq!(fx.peek(&space, to), Ok(if n < 2 { 0 } else { 7 }), "{touched}");
                let back = fx.vm.remap(&space, to, KIB4, KIB4, Placement::At(AT));
                assert_eq!((back, fx.usage(&space).table_nodes), (Ok(AT), tables), "{touched}");
                fx.check(&[&space]);
                assert_eq!(fx.peek(&space, AT), Ok(if n < 2 { 0 } else { 7 }), "{touched}");
                fx.end([space]);
            }
        }
    }
}

/// Moves a page on and on, to an address where it has never been each time.
fn wander(fx: &Fixture, space: &Space, moves: u64) {
    let at = |n: u64| Va(64 * GIB + n * 3 * KIB4);
    fx.map(space, at(0), KIB4, RW);
    fx.poke(space, at(0), 5).unwrap();
    for n in 0..moves {
        let to = at(n + 1);
        assert_eq!(fx.vm.remap(space, at(n), KIB4, KIB4, Placement::At(to)), Ok(to));
    }
    assert_eq!(fx.peek(space, at(moves)), Ok(5));
}

#[test]
fn what_a_space_keeps_of_remaps_is_what_lies_elsewhere_and_not_how_often_it_moved() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 200 * KIB4, RW);
    // 100 pages stay where they have been moved, each by another distance.
    let stays = |n: u64| Va(16 * GIB + n * n * KIB4);
    for n in 0..100 {
        fx.poke(&space, page_at(n), n + 1).unwrap();
        let moved = fx.vm.remap(&space, page_at(n), KIB4, KIB4, Placement::At(stays(n)));
        assert_eq!(moved, Ok(stays(n)));
    }
    // And a copy of an object's page, which has an index of its own.
    let (object, copy) = (fx.object(KIB4), Va(512 * GIB + 5 * KIB4));
    fx.map_private(&space, page_at(300), KIB4, &object);
    fx.poke(&space, page_at(300), 9).unwrap();
    let moved = fx.vm.remap(&space, page_at(300), KIB4, KIB4, Placement::At(copy));
    assert_eq!(moved, Ok(copy));
    let child = fx.vm.fork(&space).unwrap();
    let slabs = fx.count(Counter::SlabPages);
    wander(&fx, &space, 20_000);
    // The list alone would be 45 frames long.
    let more = fx.count(Counter::SlabPages) - slabs;
    assert!(more <= 8, "{more} frames of slabs for 20,000 moves of one page");
    fx.check(&[&space, &child]);
    for n in 0..100 {
        fx.poke(&child, stays(n), n + 1000).unwrap();
        assert_eq!(fx.peek(&space, stays(n)), Ok(n + 1));
    }
    // What goes from a page to its mappings finds all of them.
    let pfn = fx.frame(&space, stays(0));
    assert_eq!(fx.vm.poison(&space, stays(0)), Ok(()));
    assert_ne!(fx.frame(&space, stays(0)), pfn);
    let pfn = fx.frame(&space, copy);
    assert_eq!(fx.vm.poison(&child, copy), Ok(()));
    assert_ne!(fx.frame(&space, copy), pfn);
    assert_eq!(fx.peek(&space, copy), Ok(9));
    fx.check(&[&space, &child]);
    fx.vm.objects().discard(object);
    fx.end([space, child]);
}

#[test]
fn a_childs_first_remap_does_not_look_at_all_that_the_parent_has_moved() {
    const PAGES: u64 = 2000;
    // Entries that it reads where all pages were moved, and lie so many pages from each other.
    let reads = |apart: u64| {
        let fx = fixture(40_000, no_thp());
        let space = fx.mapped(AT, PAGES * KIB4, RW);
        let at = |n: u64| Va(64 * GIB + n * apart * KIB4);
        for n in 0..PAGES {
            let moved = fx.vm.remap(&space, page_at(n), KIB4, KIB4, Placement::At(at(n)));
            assert_eq!(moved, Ok(at(n)));
        }
        let child = fx.vm.fork(&space).unwrap();
        let to = Va(256 * GIB);
        let before = fx.m().asked.entries_read.get();
        assert_eq!(fx.vm.remap(&child, at(1), KIB4, KIB4, Placement::At(to)), Ok(to));
        let read = fx.m().asked.entries_read.get() - before;
        fx.poke(&child, at(PAGES - 1), 3).unwrap();
        fx.check(&[&space, &child]);
        fx.end([space, child]);
        read
    };
    // One distance for all and a few tables, or a distance and a table for each.
    let (one, each) = (reads(1), reads(512));
    assert!(each < one + 100, "{each} entries read, and {one} where all went as far");
}

#[test]
fn remaps_look_seldom_for_index_shifts_where_a_space_has_many_regions() {
    const MOVES: u64 = 5000;
    // 500 tables with so many regions each, of a range that was moved itself.
    let reads = |regions: u64| {
        let fx = fixture(4096, no_thp());
        let space = fx.mapped(Va(32 * GIB), 500 * MIB2, RW);
        let far = Va(128 * GIB);
        let moved = fx.vm.remap(&space, Va(32 * GIB), 500 * MIB2, 500 * MIB2, Placement::At(far));
        assert_eq!(moved, Ok(far));
        for n in (0..500 * 512).step_by(2 * 512 / regions as usize) {
            let at = Va(far.0 + n * KIB4);
            assert_eq!(fx.vm.protect(&space, at, KIB4, Rights::READ), Ok(()));
        }
        let before = fx.m().asked.entries_read.get();
        wander(&fx, &space, MOVES);
        let read = fx.m().asked.entries_read.get() - before;
        fx.end([space]);
        read
    };
    // A search reads the 500 entries above those tables, and some others. As often in both cases
    // would be 79 times in all.
    let (few, many) = (reads(2), reads(512));
    println!("{few} entries read beside few regions, {many} beside many");
    assert!(many + 10_000 < few, "{many} entries read for {MOVES} moves, and {few} of few regions");
}

#[test]
fn a_huge_page_that_arrives_as_base_pages_is_counted_as_split() {
    for (to, splits) in [(6 * GIB, 0), (6 * GIB + KIB4, 3), (6 * GIB + MIB2 / 2, 3)] {
        for (old, new) in [(3, 3), (3, 4)] {
            let fx = fixture(8192, Config::default());
            let space = fx.mapped(Va(GIB), 3 * MIB2, RW);
            assert_eq!(fx.populate(&space, Va(GIB), 3 * MIB2), Ok(()));
            let (old, new) = (old * MIB2, new * MIB2);
            assert_eq!(fx.vm.remap(&space, Va(GIB), old, new, Placement::At(Va(to))), Ok(Va(to)));
            assert_eq!(fx.usage(&space).huge_leaves, 3 - splits);
            assert_eq!(fx.count(Counter::ThpSplit), splits as i64);
            fx.end([space]);
        }
    }
}
