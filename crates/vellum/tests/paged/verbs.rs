//! Verbs of spaces do not lose a write: whatever they do, what was stored is written back.

use super::*;

/// Stores to page 1, does `act`, syncs, stores again by the same address as `at` says, and syncs.
fn keeps<C: Arch>(act: impl FnOnce(&Paged<C>) -> (Va, Vec<Space>)) {
    let f = paged::<C>(8 * KIB4);
    f.poke(1, 10).unwrap();
    let (at, others) = act(&f);
    let spaces: Vec<&Space> = others.iter().chain([&f.space]).collect();
    f.fx.check(&spaces);
    assert_eq!(f.sync(), Ok(()));
    assert_eq!(f.disk().word(FILE, 1), 10);
    for space in &spaces {
        assert_eq!(f.fx.peek(space, at), Ok(10));
    }
    f.fx.check(&spaces);
    // None of them may store without the object's knowledge.
    for (n, space) in (11..).zip(&spaces) {
        f.fx.poke(space, at, n).unwrap();
        f.fx.check(&spaces);
        assert_eq!((f.dirty(), f.sync()), (1, Ok(())), "after a store by space {n}");
        assert_eq!(f.disk().word(FILE, 1), n);
    }
    drop(spaces);
    f.end(others);
}

on_both!(synced, a_store_after_a_sync_is_noticed);
fn synced<C: Arch>() {
    keeps::<C>(|_| (page_at(1), vec![]));
}

on_both!(forked, a_fork_takes_the_right_along_and_loses_it_with_a_sync);
fn forked<C: Arch>() {
    keeps::<C>(|f| (page_at(1), vec![f.fx.vm.fork(&f.space).unwrap()]));
}

on_both!(moved, remap_leaves_the_next_store_to_be_noticed);
fn moved<C: Arch>() {
    keeps::<C>(|f| {
        let to = Va(GIB * 200 + 3 * KIB4);
        let moved = f.fx.vm.remap(&f.space, AT, 4 * KIB4, 4 * KIB4, Placement::At(to));
        assert_eq!(moved, Ok(to));
        (Va(to.0 + KIB4), vec![])
    });
}

on_both!(protected, protect_gives_no_right_to_store_unnoticed);
fn protected<C: Arch>() {
    for rights in [Rights::NONE, Rights::READ, Rights::ALL] {
        keeps::<C>(|f| {
            let protect = |rights| f.fx.vm.protect(&f.space, AT, 8 * KIB4, rights);
            assert_eq!(protect(rights), Ok(()));
            f.fx.check(&[&f.space]);
            assert_eq!(protect(Rights::READ_WRITE), Ok(()));
            (page_at(1), vec![])
        });
    }
}

on_both!(forgotten, a_page_that_a_space_forgets_is_dirty_all_the_same);
fn forgotten<C: Arch>() {
    keeps::<C>(|f| {
        assert_eq!(f.fx.vm.advise(&f.space, AT, 8 * KIB4, Advice::DontNeed), Ok(()));
        (page_at(1), vec![])
    });
}

on_both!(poisoned, the_frame_that_replaces_a_bad_one_is_as_dirty);
fn poisoned<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    f.poke(1, 10).unwrap();
    assert_eq!(f.peek(2), Ok(3));
    for page in [1, 2] {
        assert_eq!(f.fx.vm.poison(&f.space, page_at(page)), Ok(()));
    }
    f.fx.check(&[&f.space]);
    f.disk().calls();
    assert_eq!((f.dirty(), f.sync(), f.calls(true)), (1, Ok(()), vec![(1, KIB4)]));
    assert_eq!(f.disk().word(FILE, 1), 10);
    f.fx.vm.objects().discard(f.object);
    f.fx.vm.exit(f.space);
}

on_both!(forced, the_kernels_writes_are_noticed);
fn forced<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    assert_eq!(f.peek(1), Ok(2));
    for page in [1, 2] {
        assert_eq!(f.fx.vm.write_forced(&f.space, page_at(page), &[70]), Ok(()));
        assert_eq!(f.fx.vm.copy_in(&f.space, page_at(page + 2), &[71]), Ok(()));
    }
    let populate = Advice::Populate { write: true };
    assert_eq!(f.fx.vm.advise(&f.space, page_at(5), KIB4, populate), Ok(()));
    f.fx.check(&[&f.space]);
    assert_eq!((f.dirty(), f.sync()), (5, Ok(())));
    assert_eq!([1, 2, 3, 4, 5].map(|n| f.disk().word(FILE, n)), [70, 70, 71, 71, 6]);
    f.end([]);
}

#[test]
fn invalidate_of_an_empty_range_tells_of_no_page() {
    let f = paged::<X86_64>(8 * KIB4);
    f.poke(1, 10).unwrap();
    let mut room = [KeptPage { offset: 0, dirty: false, busy: false }; 4];
    let told = f.fx.vm.objects().invalidate(&f.object, (KIB4 + 100, 0), &mut room);
    assert_eq!(told, (0, 0));
}
