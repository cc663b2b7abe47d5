//! Private views of objects: they show the object until a page is written.

use vellum_testkit::prelude::*;

use crate::oom::each_allocation_fails;

/// An object of so many pages, each with its number, a space that shares it at `AT`, and one that
/// has a private view of it there.
struct Viewed<C: Arch> {
    fx: Fixture<C>,
    object: Object,
    shares: Space,
    views: Space,
}

fn viewed<C: Arch>(pages: u64) -> Viewed<C> {
    let fx = fixture_of::<C>(2, 4096, no_around());
    let object = fx.object(pages * KIB4);
    let shares = fx.with_object(AT, pages * KIB4, &object);
    (0..pages).for_each(|n| fx.poke(&shares, page_at(n), n + 1).unwrap());
    let views = fx.vm.create().unwrap();
    fx.map_private(&views, AT, pages * KIB4, &object);
    Viewed { fx, object, shares, views }
}

fn ends<C: Arch>(fx: Fixture<C>, object: Object, spaces: impl IntoIterator<Item = Space>) {
    fx.vm.objects().discard(object);
    fx.end(spaces);
    let counters = [Counter::ShmemPages, Counter::AnonPages, Counter::Mapped];
    assert_eq!(counters.map(|counter| fx.count(counter)), [0; 3]);
}

on_both!(shows_until_written, a_view_shows_the_object_until_it_is_written);

fn shows_until_written<C: Arch>() {
    let Viewed { fx, object, shares, views } = viewed::<C>(8);
    assert_eq!(fx.peek(&views, page_at(2)), Ok(3));
    assert_eq!(fx.frame(&views, page_at(2)), fx.frame(&shares, page_at(2)), "one page of both");
    assert!(!fx.leaf(&views, page_at(2)).flags.write);
    fx.poke(&shares, page_at(2), 30).unwrap();
    assert_eq!(fx.peek(&views, page_at(2)), Ok(30), "the object's page still");
    // A page that was read, and one that was not.
    for page in [2, 5] {
        let shown = fx.peek(&shares, page_at(page)).unwrap();
        fx.poke(&views, Va(page_at(page).0 + 8), 77).unwrap();
        assert_eq!(fx.peek(&views, page_at(page)), Ok(shown), "the rest of the page is copied");
        fx.poke(&shares, page_at(page), 99).unwrap();
        assert_eq!(fx.peek(&views, page_at(page)), Ok(shown), "the object reaches it no more");
        assert_eq!(fx.peek(&shares, Va(page_at(page).0 + 8)), Ok(0), "nor it the object");
    }
    assert_eq!(fx.count(Counter::CowCopies), 2);
    assert_eq!(fx.usage(&views).shared_pages, 0);
    assert_eq!(fx.count(Counter::AnonPages), 2);
    fx.check(&[&shares, &views]);
    // What is forgotten shows the object again.
    assert_eq!(fx.vm.advise(&views, AT, 8 * KIB4, Advice::DontNeed), Ok(()));
    assert_eq!(fx.peek(&views, page_at(2)), Ok(99));
    assert_eq!(fx.count(Counter::AnonPages), 0);
    ends(fx, object, [views, shares]);
}

on_both!(untouched, a_page_that_the_object_lacks_is_zeros_and_the_object_keeps_none);

fn untouched<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, Config::default());
    let object = fx.object(600 * KIB4);
    let space = fx.vm.create().unwrap();
    fx.map_private(&space, AT, 600 * KIB4, &object);
    // With tables that are missing, and with those that are there.
    for page in [3, 4] {
        fx.poke(&space, page_at(page), 1).unwrap();
        assert_eq!(fx.peek(&space, Va(page_at(page).0 + 8)), Ok(0));
    }
    assert_eq!(fx.vm.objects().usage(&object).pages, 0, "who writes gets a page of his own");
    assert_eq!(fx.peek(&space, page_at(5)), Ok(0));
    assert_eq!(fx.vm.objects().usage(&object).pages, 1, "who reads gets the object's");
    fx.check(&[&space]);
    ends(fx, object, [space]);
}

on_both!(shorter, an_object_that_becomes_shorter_leaves_the_copies);

fn shorter<C: Arch>() {
    let Viewed { fx, object, shares, views } = viewed::<C>(8);
    fx.poke(&views, page_at(6), 60).unwrap();
    assert_eq!(fx.peek(&views, page_at(7)), Ok(8));
    assert_eq!(fx.vm.objects().resize(&object, KIB4), Ok(()));
    assert_eq!(fx.peek(&views, page_at(6)), Ok(60));
    assert_eq!(fx.peek(&views, page_at(7)), Err(FaultError::Beyond));
    assert_eq!(fx.poke(&views, page_at(5), 1), Err(FaultError::Beyond));
    assert_eq!(fx.vm.write_forced(&views, page_at(5), &[1]), Err(FaultError::Beyond));
    fx.check(&[&shares, &views]);
    // The last page's rest is cleared in the object, not in a copy of it.
    fx.poke(&views, AT, 11).unwrap();
    assert_eq!(fx.vm.objects().resize(&object, 4), Ok(()));
    assert_eq!((fx.peek(&views, AT), fx.peek(&shares, AT)), (Ok(11), Ok(1)));
    ends(fx, object, [shares, views]);
}

on_both!(rights, protect_and_forced_writes_know_a_view);

fn rights<C: Arch>() {
    let Viewed { fx, object, shares, views } = viewed::<C>(8);
    let protect = |from, pages, rights| fx.vm.protect(&views, page_at(from), pages * KIB4, rights);
    assert_eq!(fx.peek(&views, page_at(1)), Ok(2));
    fx.poke(&views, page_at(2), 20).unwrap();
    for (from, pages) in [(0, 8), (1, 1), (2, 3)] {
        assert_eq!(protect(from, pages, Rights::READ), Ok(()));
        assert_eq!(fx.poke(&views, page_at(from), 1), Err(FaultError::Rights));
        assert_eq!(protect(from, pages, Rights::READ_WRITE), Ok(()));
        fx.check(&[&shares, &views]);
        assert_eq!(protect(from, pages, Rights::NONE), Ok(()));
        assert_eq!(fx.peek(&views, page_at(from)), Err(FaultError::Rights));
        fx.check(&[&shares, &views]);
        assert_eq!(protect(from, pages, Rights::READ_EXEC), Ok(()));
    }
    assert_eq!(fx.peek(&views, page_at(1)), Ok(2));
    assert_eq!(fx.peek(&views, page_at(2)), Ok(20), "the copy was kept where nobody may read it");
    // A debugger writes to code: a page that is mapped, and one that is not.
    for page in [1, 4] {
        let word = 0xccu64.to_le_bytes();
        assert_eq!(fx.vm.write_forced(&views, page_at(page), &word), Ok(()));
        assert_eq!(fx.peek(&views, page_at(page)), Ok(0xcc));
        assert!(!fx.leaf(&views, page_at(page)).flags.write);
        assert_eq!(fx.peek(&shares, page_at(page)), Ok(page + 1));
        fx.check(&[&shares, &views]);
    }
    ends(fx, object, [views, shares]);
}

on_both!(forked, a_fork_copies_what_was_written_and_shows_the_rest);

fn forked<C: Arch>() {
    let Viewed { fx, object, shares, views } = viewed::<C>(8);
    fx.poke(&views, page_at(1), 10).unwrap();
    assert_eq!(fx.peek(&views, page_at(2)), Ok(3));
    let child = fx.vm.fork(&views).unwrap();
    fx.check(&[&shares, &views, &child]);
    fx.poke(&child, page_at(1), 11).unwrap();
    fx.poke(&child, page_at(2), 12).unwrap();
    fx.poke(&shares, page_at(2), 13).unwrap();
    fx.poke(&shares, page_at(3), 14).unwrap();
    let words = |space: &Space| [1, 2, 3].map(|n| fx.peek(space, page_at(n)).unwrap());
    assert_eq!(words(&views), [10, 13, 14]);
    assert_eq!(words(&child), [11, 12, 14]);
    assert_eq!(words(&shares), [2, 13, 14]);
    fx.check(&[&shares, &views, &child]);
    fx.vm.exit(views);
    assert_eq!(words(&child), [11, 12, 14]);
    ends(fx, object, [child, shares]);
}

on_both!(moved, remap_takes_copies_and_what_is_shown_along);

fn moved<C: Arch>() {
    let Viewed { fx, object, shares, views } = viewed::<C>(8);
    fx.poke(&views, page_at(1), 10).unwrap();
    assert_eq!(fx.peek(&views, page_at(2)), Ok(3));
    let to = Va(GIB * 300 + 5 * KIB4);
    let at = |n: u64| Va(to.0 + n * KIB4);
    assert_eq!(fx.vm.remap(&views, AT, 4 * KIB4, 8 * KIB4, Placement::At(to)), Ok(to));
    fx.check(&[&shares, &views]);
    assert_eq!([1, 2, 3, 6].map(|n| fx.peek(&views, at(n)).unwrap()), [10, 3, 4, 7]);
    fx.poke(&views, at(3), 30).unwrap();
    assert_eq!(fx.peek(&shares, page_at(3)), Ok(4));
    // A frame of either kind is found where it is now, in a child, too.
    let child = fx.vm.fork(&views).unwrap();
    for n in [1, 2, 3] {
        let before = fx.frame(&child, at(n));
        assert_eq!(fx.vm.poison(&child, at(n)), Ok(()));
        let words = [&views, &child].map(|space| fx.peek(space, at(n)));
        assert_eq!(words, [Ok([10, 3, 30][n as usize - 1]); 2]);
        assert_ne!(fx.frame(&child, at(n)), before);
        assert_eq!(fx.frame(&child, at(n)), fx.frame(&views, at(n)));
        fx.check(&[&shares, &views, &child]);
    }
    assert_eq!(fx.count(Counter::FramesPoisoned), 3);
    fx.vm.objects().discard(object);
    [shares, views, child].into_iter().for_each(|space| fx.vm.exit(space));
}

#[test]
fn every_allocation_of_a_view_fails_as_a_whole() {
    let fx = fixture(600, no_thp());
    let space = fx.mapped(Va(GIB * 64), KIB4, RW);
    let object = fx.object(MIB2);
    assert_eq!(fx.vm.objects().write(&object, 6 * KIB4, &[9; 8]).1, Ok(()));
    let part = ObjectPart { object: &object, offset: 0 };
    let at = Va(GIB * 200 + 5 * KIB4);
    each_allocation_fails(&fx, &[&space], || {
        let mapped = fx.vm.map_private(&space, Placement::At(at), MIB2, RW, part);
        mapped.map(drop).map_err(|error| error.to_string())
    });
    // The object has the one page, and lacks the other.
    for page in [6, 7] {
        each_allocation_fails(&fx, &[&space], || {
            let done = fx.vm.fault(&space, Va(at.0 + page * KIB4), Access::Write);
            done.map(drop).map_err(|error| error.to_string())
        });
        assert_eq!(fx.vm.advise(&space, at, MIB2, Advice::DontNeed), Ok(()));
    }
    // One that is shown already.
    assert_eq!(fx.peek(&space, Va(at.0 + 6 * KIB4)), Ok(u64::from_le_bytes([9; 8])));
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.write_forced(&space, Va(at.0 + 6 * KIB4), &[1]);
        done.map_err(|error| error.to_string())
    });
    each_allocation_fails(&fx, &[&space], || {
        let to = Placement::At(Va(GIB * 300));
        let moved = fx.vm.remap(&space, at, MIB2, MIB2, to);
        moved.map(drop).map_err(|error| error.to_string())
    });
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(last_copy, an_object_goes_with_the_last_copy_of_its_view);

fn last_copy<C: Arch>() {
    let fx = fixture_of::<C>(1, 2048, Config::default());
    let object = fx.object(2 * KIB4);
    let space = fx.vm.create().expect("memory");
    fx.map_private(&space, AT, 2 * KIB4, &object);
    // The table keeps an entry, and the interval begins before the page that goes last.
    fx.map(&space, page_at(9), KIB4, RW);
    assert_eq!(fx.vm.unmap(&space, AT, KIB4), Ok(()));
    assert_eq!(fx.vm.objects().write(&object, 0, &[1]).1, Ok(()));
    fx.poke(&space, page_at(1), 7).unwrap();
    fx.vm.objects().discard(object);
    assert_eq!(fx.count(Counter::ShmemPages), 1);
    assert_eq!(fx.vm.unmap(&space, page_at(1), KIB4), Ok(()));
    assert_eq!(fx.count(Counter::ShmemPages), 0);
    fx.end([space]);
}
