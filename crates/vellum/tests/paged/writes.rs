//! What becomes dirty, and what reaches the pager.

use super::*;

on_both!(only_dirty, only_what_was_written_is_written_back);

fn only_dirty<C: Arch>() {
    let f = paged::<C>(600 * KIB4 + 5);
    (0..20).for_each(|n| assert_eq!(f.peek(n), Ok(n + 1)));
    assert_eq!((f.dirty(), f.sync()), (0, Ok(())));
    f.poke(3, 30).unwrap();
    f.poke(4, 40).unwrap();
    f.poke(600, 0x0706_0504_0302_0100).unwrap();
    let (_, done) = f.fx.vm.objects().write(&f.object, 9 * KIB4 + 4090, &[7; 12]);
    assert_eq!(done, Ok(()));
    assert_eq!((f.dirty(), f.fx.count(Counter::DirtyPages)), (5, 5));
    f.disk().calls();
    assert_eq!(f.sync(), Ok(()));
    // Pages that follow each other are one call; no byte past the end is written.
    assert_eq!(f.calls(true), [(3, 2 * KIB4), (9, 2 * KIB4), (600, 5)]);
    assert_eq!([3, 4, 5].map(|n| f.disk().word(FILE, n)), [30, 40, 6]);
    assert_eq!(f.disk().block(FILE, 10)[..8], [7, 7, 7, 7, 7, 7, 0, 0]);
    assert_eq!(f.disk().word(FILE, 600), 0x04_0302_0100);
    assert_eq!((f.dirty(), f.fx.count(Counter::WritebackPages)), (0, 0));
    f.fx.check(&[&f.space]);
    // Clean: nothing is written, until somebody writes again.
    assert_eq!((f.peek(3), f.sync(), f.calls(true)), (Ok(30), Ok(()), vec![]));
    f.poke(3, 31).unwrap();
    assert_eq!((f.sync(), f.calls(true)), (Ok(()), vec![(3, KIB4)]));
    assert_eq!(f.disk().word(FILE, 3), 31);
    f.end([]);
}

on_both!(appended, a_page_at_the_end_takes_no_frames_for_what_lies_past_it);

fn appended<C: Arch>() {
    let f = paged_ahead::<C>(0, 32);
    let objects = f.fx.vm.objects();
    let before = f.fx.count(Counter::Alloc);
    for page in 0..64 {
        objects.resize(&f.object, (page + 1) * KIB4).unwrap();
        assert_eq!(objects.write(&f.object, page * KIB4, &[7; 4096]), (4096, Ok(())));
    }
    // And nodes of the trie.
    let taken = f.fx.count(Counter::Alloc) - before;
    assert!((64..72).contains(&taken), "{taken} frames for 64 pages");
    f.end([]);
}

on_both!(ranges, sync_writes_its_range_and_long_runs_in_parts);

fn ranges<C: Arch>() {
    let f = paged::<C>(200 * KIB4);
    (10..110).for_each(|n| f.poke(n, n).unwrap());
    f.disk().calls();
    let sync = |from: u64, bytes| f.fx.vm.objects().sync(&f.object, from, bytes);
    assert_eq!(sync(20 * KIB4 + 17, 1), Ok(()));
    assert_eq!(sync(30 * KIB4 - 1, 2), Ok(()));
    assert_eq!(f.calls(true), [(20, KIB4), (29, 2 * KIB4)]);
    assert_eq!((sync(0, 0), sync(u64::MAX, u64::MAX), f.calls(true)), (Ok(()), Ok(()), vec![]));
    assert_eq!(f.sync(), Ok(()));
    let parts = [(10, 10), (21, 8), (31, 32), (63, 32), (95, 15)];
    assert_eq!(f.calls(true), parts.map(|(page, pages)| (page, pages * KIB4)));
    assert_eq!(f.dirty(), 0);
    f.end([]);
}

on_both!(failed, a_page_that_cannot_be_written_stays_dirty);

fn failed<C: Arch>() {
    let f = paged::<C>(100 * KIB4);
    for n in [3, 50] {
        f.poke(n, 7 * n).unwrap();
    }
    for habits in [
        Habits { fails_writes: true, ..Habits::default() },
        Habits { most: Some(100), ..Habits::default() },
    ] {
        f.disk().set(habits);
        f.disk().calls();
        assert_eq!(f.sync(), Err(ObjectError::Io));
        assert_eq!(f.calls(true), [(3, KIB4), (50, KIB4)], "the others are tried all the same");
        assert_eq!((f.dirty(), f.fx.count(Counter::DirtyPages)), (2, 2));
        assert_eq!((f.peek(3), f.evict()), (Ok(21), 0), "nothing else has the bytes");
        f.fx.check(&[&f.space]);
    }
    assert_eq!(f.fx.count(Counter::WritebackErrors), 4);
    f.disk().set(Habits::default());
    assert_eq!(f.sync(), Ok(()));
    assert_eq!([3, 50].map(|n| f.disk().word(FILE, n)), [21, 350]);
    assert_eq!((f.dirty(), f.evict()), (0, 2));
    f.end([]);
}

on_both!(evicted, evict_frees_what_is_clean_and_leaves_the_rest);

fn evicted<C: Arch>() {
    let f = paged::<C>(100 * KIB4);
    (0..70).for_each(|n| assert_eq!(f.peek(n), Ok(n + 1)));
    f.poke(66, 5).unwrap();
    let child = f.fx.vm.fork(&f.space).unwrap();
    let free = f.fx.check(&[&f.space, &child]);
    assert_eq!(f.fx.vm.objects().evict(&f.object, 3 * KIB4 - 1, 2), 2);
    assert_eq!(f.evict(), 67);
    // The pages, and nodes of the trie.
    assert!(f.fx.check(&[&f.space, &child]) >= free + 69);
    assert_eq!(f.fx.usage(&child).shared_pages, 1);
    f.disk().calls();
    assert_eq!((f.peek(66), f.peek(1)), (Ok(5), Ok(2)));
    assert_eq!(f.calls(false), [(1, KIB4)]);
    // Without a pager there is nobody to read them again from.
    let object = f.fx.object(KIB4);
    assert_eq!(f.fx.vm.objects().write(&object, 0, &[1]).1, Ok(()));
    assert_eq!(f.fx.vm.objects().evict(&object, 0, KIB4), 0);
    assert_eq!(f.fx.vm.objects().sync(&object, 0, KIB4), Ok(()));
    f.fx.vm.objects().discard(object);
    f.end([child]);
}

on_both!(shorter, a_shorter_object_writes_nothing_of_what_went);

fn shorter<C: Arch>() {
    let f = paged::<C>(100 * KIB4);
    for n in [2, 3, 40] {
        f.poke(n, 9).unwrap();
    }
    assert_eq!(f.fx.vm.objects().resize(&f.object, 3 * KIB4 + 4), Ok(()));
    assert_eq!((f.dirty(), f.fx.count(Counter::DirtyPages)), (2, 2));
    f.disk().calls();
    assert_eq!((f.sync(), f.calls(true)), (Ok(()), vec![(2, KIB4 + 4)]));
    assert_eq!(f.disk().word(FILE, 40), 41);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(holes, a_hole_in_a_paged_object_is_zeros_that_are_written);

fn holes<C: Arch>() {
    let f = paged::<C>(8 * KIB4 + 5);
    assert_eq!(f.fx.vm.objects().punch(&f.object, 2 * KIB4, 2 * KIB4), Ok(()));
    assert_eq!(f.fx.vm.objects().punch(&f.object, 8 * KIB4, u64::MAX), Ok(()));
    assert_eq!([1, 2, 3, 4].map(|n| f.peek(n).unwrap()), [2, 0, 0, 5]);
    assert_eq!((f.sync(), f.evict()), (Ok(()), 5));
    assert_eq!([1, 2, 3, 8].map(|n| f.peek(n).unwrap()), [2, 0, 0, 0]);
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    let done = f.fx.vm.objects().punch(&f.object, 6 * KIB4, KIB4);
    assert_eq!(done, Err(ObjectError::Io));
    f.end([]);
}
