//! Which pages were written, for who harvests them; and writing back without waiting.

use std::thread::scope;

use super::*;

const PAGES: u64 = 100;

/// A logged object in a space.
fn logged<C: Arch>() -> Paged<C> {
    let fx = fixture_of::<C>(4, 4096, Config::default());
    let object = fx.vm.objects().create_logged(PAGES * KIB4).unwrap();
    let space = fx.with_object(AT, PAGES * KIB4, &object);
    Paged { fx, object, space }
}

fn harvest<C: Arch>(f: &Paged<C>) -> Vec<u64> {
    let mut pages = [0; PAGES as usize];
    let count = f.fx.vm.objects().harvest(&f.object, 0, &mut pages).unwrap();
    pages[..count].iter().map(|offset| offset / KIB4).collect()
}

on_both!(every_way, every_way_to_write_is_harvested_once);

fn every_way<C: Arch>() {
    let f = logged::<C>();
    let objects = f.fx.vm.objects();
    let other = f.fx.vm.fork(&f.space).unwrap();
    assert_eq!(harvest(&f), []);
    (0..10).for_each(|n| assert_eq!(f.peek(n), Ok(0)));
    assert_eq!(harvest(&f), [], "what is read");
    f.poke(3, 1).unwrap();
    f.poke(3, 2).unwrap();
    assert_eq!(f.fx.poke(&other, page_at(7), 5), Ok(()));
    assert_eq!(objects.write(&f.object, 20 * KIB4 - 1, &[1; 2]), (2, Ok(())));
    assert_eq!(f.fx.vm.copy_in(&f.space, page_at(50), &[9]), Ok(()));
    assert_eq!(harvest(&f), [3, 7, 19, 20, 50]);
    // What is told stays mapped, for reading.
    let mapped = [(&f.space, 3), (&other, 7), (&f.space, 50)];
    assert!(mapped.iter().all(|(space, n)| !f.fx.leaf(space, page_at(*n)).flags.write));
    assert_eq!(harvest(&f), []);
    assert_eq!([f.peek(3), f.peek(7)], [Ok(2), Ok(5)]);
    assert_eq!(harvest(&f), [], "what is read again");
    // A mapping that was there before; a hole, whole and in part; what was grabbed.
    assert_eq!(f.fx.poke(&other, page_at(3), 8), Ok(()));
    assert_eq!(objects.punch(&f.object, 49 * KIB4 + 8, 2 * KIB4), Ok(()));
    let pages = objects.grab(&f.object, 60 * KIB4, 2, GrabWait::Always).unwrap();
    objects.release(pages, true);
    assert_eq!(harvest(&f), [3, 49, 50, 51, 60, 61]);
    assert_eq!(f.fx.count(Counter::DirtyPages), 0);
    assert_eq!(f.fx.count(Counter::Dirtied), 11);
    f.fx.check(&[&f.space, &other]);
    f.end([other]);
}

on_both!(populated, pages_that_are_populated_for_writing_count_as_written);

fn populated<C: Arch>() {
    for alloc_cursor in [true, false] {
        let config = Config { alloc_cursor, ..Config::default() };
        let fx = fixture_of::<C>(4, 4096, config);
        let object = fx.vm.objects().create_logged(PAGES * KIB4).unwrap();
        let space = fx.with_object(AT, PAGES * KIB4, &object);
        let f = Paged { fx, object, space };
        let populate = |page: u64, pages, write| {
            let at = Va(page_at(page).0);
            f.fx.vm.advise(&f.space, at, pages * KIB4, Advice::Populate { write })
        };
        assert_eq!(populate(0, 11, true), Ok(()));
        // A table is there now, or the pages are.
        assert_eq!(populate(20, 5, false), Ok(()));
        assert_eq!((populate(20, 3, true), populate(40, 2, true)), (Ok(()), Ok(())));
        let wanted: Vec<u64> = (0..11).chain(20..23).chain(40..42).collect();
        assert_eq!(harvest(&f), wanted, "alloc.cursor {alloc_cursor}");
        f.fx.check(&[&f.space]);
        f.end([]);
    }
}

on_both!(in_parts, a_harvest_with_little_room_goes_on_where_it_ended);

fn in_parts<C: Arch>() {
    let f = logged::<C>();
    (0..PAGES).step_by(3).for_each(|n| f.poke(n, n).unwrap());
    let (mut from, mut got) = (0, Vec::new());
    loop {
        let mut pages = [0; 5];
        let count = f.fx.vm.objects().harvest(&f.object, from, &mut pages).unwrap();
        got.extend(pages[..count].iter().map(|offset| offset / KIB4));
        if count < pages.len() {
            break;
        }
        from = pages[count - 1] + KIB4;
    }
    assert_eq!(got, (0..PAGES).step_by(3).collect::<Vec<_>>());
    let plain = f.fx.vm.objects().create(KIB4).unwrap();
    let refused = f.fx.vm.objects().harvest(&plain, 0, &mut [0]);
    assert_eq!(refused, Err(ObjectError::NotLogged));
    f.fx.vm.objects().discard(plain);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(beside, no_store_is_missed_beside_harvests);

/// Threads store to words of their own while pages are harvested and copied. In the end the copy is
/// what the object is.
fn beside<C: Arch>() {
    let f = logged::<C>();
    let mut copy = vec![[0_u8; 4096]; PAGES as usize];
    let mut rounds = 0;
    scope(|threads| {
        let writers: Vec<_> = (1..=2_usize)
            .map(|cpu| {
                let f = &f;
                threads.spawn(move || {
                    f.fx.run_on(cpu);
                    let mut random = Random::new(cpu as u64);
                    for n in 1..=4000_u64 {
                        let at = Va(page_at(random.below(PAGES)).0 + 8 * cpu as u64);
                        let stored = f.fx.vm.copy_in(&f.space, at, &n.to_ne_bytes());
                        assert_eq!(stored, Ok(()));
                    }
                })
            })
            .collect();
        let mut last = false;
        while !last {
            last = writers.iter().all(|writer| writer.is_finished());
            for page in harvest(&f) {
                let bytes = &mut copy[page as usize];
                let done = f.fx.vm.objects().read(&f.object, page * KIB4, bytes);
                assert_eq!(done, (4096, Ok(())));
            }
            rounds += 1;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    println!("{rounds} rounds");
    for (page, copied) in (0..).zip(&copy) {
        let mut bytes = [0; 4096];
        assert_eq!(f.fx.vm.objects().read(&f.object, page * KIB4, &mut bytes), (4096, Ok(())));
        assert!(bytes == *copied, "page {page} after {rounds} rounds");
    }
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(back, what_is_written_back_is_not_waited_for_and_errors_are_told_later);

fn back<C: Arch>() {
    let f = paged::<C>(40 * KIB4);
    let objects = f.fx.vm.objects();
    let other = objects.another(&f.object);
    for n in [1, 2, 3, 9] {
        f.poke(n, 100 + n).unwrap();
    }
    assert_eq!((f.peek(4), f.calls(true)), (Ok(5), vec![]));
    f.disk().set(Habits { late: true, ..Habits::default() });
    objects.write_back(&f.object, 0, u64::MAX);
    assert_eq!(f.calls(true), [(1, 3 * KIB4), (9, KIB4)]);
    assert_eq!((f.dirty(), f.fx.count(Counter::WritebackPages)), (0, 4));
    // What is being written is passed over.
    f.poke(4, 104).unwrap();
    objects.write_back(&f.object, 0, u64::MAX);
    assert_eq!(f.calls(true), [(4, KIB4)]);
    f.disk().set(Habits { late: true, fails_writes: true, ..Habits::default() });
    f.disk().waiting(f.fx.m()).into_iter().for_each(|done| objects.answer(done));
    assert_eq!((f.dirty(), f.fx.count(Counter::WritebackErrors)), (5, 3));
    f.disk().set(Habits::default());
    // Each handle is told once, though all can be written now; one that is made later is not.
    assert_eq!([f.sync(), f.sync()], [Err(ObjectError::Io), Ok(())]);
    assert_eq!((f.dirty(), f.disk().word(FILE, 9)), (0, 109));
    let later = objects.another(&f.object);
    assert_eq!(objects.sync(&later, 0, KIB4), Ok(()));
    assert_eq!(objects.sync(&other, 0, 0), Err(ObjectError::Io));
    assert_eq!(objects.sync(&other, 0, u64::MAX), Ok(()));
    assert_eq!(f.fx.count(Counter::Written), 5);
    [other, later].into_iter().for_each(|handle| objects.discard(handle));
    f.fx.check(&[&f.space]);
    f.end([]);
}
