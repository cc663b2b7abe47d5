//! Pages of an object for one holder alone, and what `invalidate` leaves (C-3, C-4, C-7, C-8).

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::{scope, yield_now};

use super::*;

fn grab<C: Arch>(
    f: &Paged<C>,
    page: u64,
    pages: usize,
    wait: GrabWait,
) -> Result<Grabbed, ObjectError> {
    f.fx.vm.objects().grab(&f.object, page * KIB4, pages, wait)
}

/// An object without a pager, in a space.
fn anonymous<C: Arch>(bytes: u64) -> Paged<C> {
    let fx = fixture_of::<C>(4, 4096, Config::default());
    let object = fx.vm.objects().create(bytes).unwrap();
    let space = fx.with_object(AT, bytes, &object);
    Paged { fx, object, space }
}

fn index_of<C: Arch>(f: &Paged<C>, pfn: Pfn) -> u64 {
    let mut word = [0; 8];
    // SAFETY: the caller has grabbed the page.
    unsafe { f.fx.m().read(pfn, 0, &mut word) };
    u64::from_le_bytes(word)
}

on_both!(holes, a_run_over_pages_and_holes_comes_in_order_and_makes_each_page_once);

fn holes<C: Arch>() {
    let f = anonymous::<C>(100 * KIB4);
    for page in [1, 2, 5, 9, 40] {
        f.poke(page, page + 1).unwrap();
    }
    let before = f.fx.count(Counter::CursorRestarted);
    let grabbed = grab(&f, 0, 12, GrabWait::Never).unwrap();
    assert_eq!((grabbed.offset(), grabbed.frames().len()), (0, 12));
    let words: Vec<u64> = grabbed.frames().iter().map(|&pfn| index_of(&f, pfn)).collect();
    assert_eq!(words, [0, 2, 3, 0, 0, 6, 0, 0, 0, 10, 0, 0]);
    assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 13);
    // For each hole the guard was given back once, and the cursor went on where it stood.
    assert_eq!(f.fx.count(Counter::CursorRestarted), before);
    assert!(f.fx.count(Counter::CursorKept) >= 8);
    f.fx.vm.objects().release(grabbed, true);
    assert_eq!((f.peek(2), f.peek(3)), (Ok(3), Ok(0)));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(in_a_run, a_run_of_pages_around_a_fault_is_mapped_without_the_one_that_is_grabbed);

fn in_a_run<C: Arch>() {
    // All of a table, and so many pages that they lie in one large node.
    let f = anonymous::<C>(512 * KIB4);
    for page in 0..100u64 {
        f.fx.vm.objects().write(&f.object, page * KIB4, &(page + 1).to_le_bytes()).1.unwrap();
    }
    // It has the table made.
    f.poke(17, 18).unwrap();
    let held = grab(&f, 72, 1, GrabWait::Never).unwrap();
    assert_eq!(f.peek(64), Ok(65));
    let mapped = (64..80).filter(|&n| f.fx.frame_at(&f.space, page_at(n)).is_some());
    assert!(mapped.eq((64..80).filter(|&n| n != 72)));
    f.fx.vm.objects().release(held, false);
    assert_eq!(f.peek(72), Ok(73));
    let frames = [70, 71, 72, 73, 74].map(|n| f.fx.frame_at(&f.space, page_at(n)).unwrap().0);
    assert_eq!(frames, [0, 1, 2, 3, 4].map(|n| frames[0] + n), "else this tests no run");
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(busy, who_does_not_wait_gets_the_pages_before_a_busy_one);

fn busy<C: Arch>() {
    let f = anonymous::<C>(20 * KIB4);
    let held = grab(&f, 4, 2, GrabWait::Never).unwrap();
    let before = grab(&f, 0, 32, GrabWait::Never).unwrap();
    assert_eq!(before.frames().len(), 4);
    // C-3, C-8: refused, and nothing is put over what is there.
    assert_eq!(grab(&f, 4, 1, GrabWait::Never).err(), Some(ObjectError::Busy));
    assert_eq!(grab(&f, 5, 9, GrabWait::Never).err(), Some(ObjectError::Busy));
    f.fx.vm.objects().release(before, false);
    assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 6);
    let after = grab(&f, 6, 100, GrabWait::Never).unwrap();
    assert_eq!(after.frames().len(), 14, "up to the end");
    assert_eq!(grab(&f, 20, 1, GrabWait::Always).err(), Some(ObjectError::Beyond));
    assert_eq!(
        f.fx.vm.objects().grab(&f.object, u64::MAX, 1, GrabWait::Always).err(),
        Some(ObjectError::Beyond)
    );
    assert_eq!(grab(&f, 3, 0, GrabWait::Always).err(), Some(ObjectError::Beyond));
    let mut frames: Vec<Pfn> = held.frames().iter().chain(after.frames()).copied().collect();
    frames.sort_unstable_by_key(|pfn| pfn.0);
    frames.dedup();
    assert_eq!(frames.len(), 16);
    [held, after].into_iter().for_each(|pages| f.fx.vm.objects().release(pages, false));
    f.fx.check(&[&f.space]);
    f.end([]);
}

#[test]
fn who_waits_once_is_refused_after_it_and_finds_the_page_then() {
    let f = Rc::new(anonymous::<X86_64>(20 * KIB4));
    let held = RefCell::new(Some(grab(&f, 4, 1, GrabWait::Never).unwrap()));
    let other = Rc::clone(&f);
    at_each_step(move |waits| {
        if waits && let Some(held) = held.take() {
            other.fx.vm.objects().release(held, false);
        }
    });
    // C-4, C-8: it waited, so the world may have changed: it is refused, with nothing in hand.
    let refused = grab(&f, 4, 3, GrabWait::Once).err();
    at_each_step(|_| ());
    assert_eq!(refused, Some(ObjectError::Busy));
    let got = grab(&f, 4, 3, GrabWait::Once).unwrap();
    assert_eq!(got.frames().len(), 3);
    f.fx.vm.objects().release(got, false);
    f.fx.check(&[&f.space]);
}

on_both!(scarce, what_memory_there_is_is_grabbed_and_nothing_is_lost);

fn scarce<C: Arch>() {
    let f = anonymous::<C>(100 * KIB4);
    f.poke(90, 5).unwrap();
    for wait in [GrabWait::Never, GrabWait::Always] {
        for left in 0..12 {
            let taken = f.fx.take_all_but(left, Order::BASE);
            let got = grab(&f, 0, 20, wait);
            f.fx.give_back(taken, Order::BASE);
            match got {
                Ok(pages) => {
                    assert!(pages.frames().len() <= left);
                    f.fx.vm.objects().release(pages, false);
                }
                Err(error) => assert!(error == ObjectError::NoMemory && left < 4, "{left}"),
            }
            assert_eq!(f.fx.vm.objects().resize(&f.object, 0), Ok(()));
            assert_eq!(f.fx.vm.objects().resize(&f.object, 100 * KIB4), Ok(()));
            f.fx.check(&[&f.space]);
        }
    }
    f.end([]);
}

on_both!(paged_grab, pages_of_a_pager_are_read_and_dirty_if_the_holder_says_so);

fn paged_grab<C: Arch>() {
    let f = paged::<C>(20 * KIB4);
    // It does not wait for the pager.
    assert_eq!(grab(&f, 3, 2, GrabWait::Never).err(), Some(ObjectError::Busy));
    assert_eq!(grab(&f, 3, 1, GrabWait::Never).unwrap_then(&f, false), [4]);
    assert_eq!(f.dirty(), 0);
    assert_eq!(grab(&f, 2, 3, GrabWait::Always).unwrap_then(&f, true), [3, 4, 5]);
    assert_eq!(f.dirty(), 3);
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    assert_eq!(grab(&f, 4, 3, GrabWait::Always).unwrap_then(&f, false), [5]);
    assert_eq!(grab(&f, 5, 3, GrabWait::Always).err(), Some(ObjectError::Io));
    f.disk().set(Habits::default());
    assert_eq!(f.sync(), Ok(()));
    f.fx.check(&[&f.space]);
    f.end([]);
}

trait Then {
    /// The words that the pages begin with; gives them back.
    fn unwrap_then<C: Arch>(self, f: &Paged<C>, written: bool) -> Vec<u64>;
}

impl Then for Result<Grabbed, ObjectError> {
    fn unwrap_then<C: Arch>(self, f: &Paged<C>, written: bool) -> Vec<u64> {
        let pages = self.unwrap();
        let words = pages.frames().iter().map(|&pfn| index_of(f, pfn)).collect();
        f.fx.vm.objects().release(pages, written);
        words
    }
}

on_both!(alone, nobody_sees_or_changes_a_page_while_it_is_grabbed);

fn alone<C: Arch>() {
    let f = anonymous::<C>(20 * KIB4);
    f.poke(3, 1).unwrap();
    let pages = grab(&f, 3, 1, GrabWait::Never).unwrap();
    let (writer, reader) = scope(|threads| {
        let writer = threads.spawn(|| {
            f.fx.run_on(1);
            f.poke(3, 2)
        });
        let reader = threads.spawn(|| {
            f.fx.run_on(2);
            f.word(3)
        });
        (0..3000).for_each(|_| yield_now());
        assert!(!writer.is_finished() && !reader.is_finished());
        // SAFETY: the page is this thread's alone.
        unsafe { f.fx.m().write(pages.frames()[0], 0, &7_u64.to_le_bytes()) };
        f.fx.vm.objects().release(pages, true);
        (writer.join().unwrap(), reader.join().unwrap())
    });
    assert_eq!(writer, Ok(()));
    assert!(matches!(reader, Ok(2 | 7)), "{reader:?}");
    assert_eq!(f.peek(3), Ok(2));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(kept, invalidate_says_what_is_dirty_and_what_is_in_use);

fn kept<C: Arch>() {
    let f = paged::<C>(40 * KIB4);
    (0..8).for_each(|n| assert_eq!(f.peek(n), Ok(n + 1)));
    f.poke(2, 20).unwrap();
    f.poke(6, 60).unwrap();
    let held = grab(&f, 4, 2, GrabWait::Never).unwrap();
    let objects = f.fx.vm.objects();
    let mut room = [KeptPage::default(); 3];
    let page = |n: u64, dirty, busy| KeptPage { offset: n * KIB4, dirty, busy };
    let wanted = [page(2, true, false), page(4, false, true), page(5, false, true)];
    assert_eq!(objects.invalidate(&f.object, (KIB4, u64::MAX), &mut room), (3, 3));
    assert_eq!(room, wanted);
    // From the next page on.
    assert_eq!(objects.invalidate(&f.object, (6 * KIB4, u64::MAX), &mut room), (0, 1));
    assert_eq!(room[0], page(6, true, false));
    assert_eq!(objects.invalidate(&f.object, (0, KIB4), &mut []), (1, 0));
    objects.release(held, false);
    assert_eq!(objects.invalidate(&f.object, (3 * KIB4, 3 * KIB4), &mut room), (2, 0));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(told_gone, a_pager_is_told_when_its_object_is_gone);

fn told_gone<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    let objects = f.fx.vm.objects();
    let second = objects.another(&f.object);
    // A run that its pager has keeps the object.
    f.disk().set(Habits { late: true, ..Habits::default() });
    objects.will_need(&f.object, 0, KIB4);
    let Paged { fx, object, space } = f;
    let objects = fx.vm.objects();
    objects.discard(object);
    objects.discard(second);
    assert_eq!(fx.m().disk.gone(), []);
    fx.vm.exit(space);
    assert_eq!(fx.m().disk.gone(), []);
    fx.m().disk.waiting(fx.m()).into_iter().for_each(|done| objects.answer(done));
    assert_eq!(fx.m().disk.gone(), [FILE]);
    fx.end([]);
}

/// A copy is refused and waits for the page, its turn to look again in hand, while who has the page
/// finds no memory for the next one.
#[test]
fn who_has_pages_in_hand_waits_for_no_memory() {
    const ROUNDS: u64 = 1000;
    let fx = fixture_of::<X86_64>(4, 600, no_thp());
    let object = fx.vm.objects().create(16 * KIB4).unwrap();
    assert_eq!(fx.vm.objects().write(&object, 0, &[1; 8]).1, Ok(()));
    let space = fx.vm.create().unwrap();
    fx.map_private(&space, AT, 16 * KIB4, &object);
    assert!(fx.vm.fault(&space, AT, Access::Read).is_ok());
    let taken = fx.take_all_but(0, Order::BASE);
    scope(|threads| {
        threads.spawn(|| {
            fx.run_on(1);
            for _ in 0..ROUNDS {
                assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::NoMemory));
            }
        });
        threads.spawn(|| {
            fx.run_on(2);
            for _ in 0..ROUNDS {
                let pages = fx.vm.objects().grab(&object, 0, 2, GrabWait::Always).unwrap();
                assert_eq!(pages.frames().len(), 1);
                fx.vm.objects().release(pages, false);
            }
        });
    });
    fx.give_back(taken, Order::BASE);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

/// As before, but the memory is wanted by another call of who has the page.
#[test]
fn who_waits_for_a_page_gives_its_turn_to_look_for_memory_back() {
    const ROUNDS: u64 = 1000;
    let fx = fixture_of::<X86_64>(4, 600, no_thp());
    let object = fx.vm.objects().create(16 * KIB4).unwrap();
    assert_eq!(fx.vm.objects().write(&object, 0, &[1; 8]).1, Ok(()));
    let space = fx.vm.create().unwrap();
    fx.map_private(&space, AT, 16 * KIB4, &object);
    // The table is there; nothing of the first page is.
    assert!(fx.vm.fault(&space, page_at(1), Access::Read).is_ok());
    let taken = fx.take_all_but(0, Order::BASE);
    scope(|threads| {
        threads.spawn(|| {
            fx.run_on(1);
            for _ in 0..ROUNDS {
                assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::NoMemory));
            }
        });
        threads.spawn(|| {
            fx.run_on(2);
            let objects = fx.vm.objects();
            for _ in 0..ROUNDS {
                let held = objects.grab(&object, 0, 1, GrabWait::Always).unwrap();
                let more = objects.grab(&object, 5 * KIB4, 1, GrabWait::Always);
                assert_eq!(more.err(), Some(ObjectError::NoMemory));
                objects.release(held, false);
            }
        });
    });
    fx.give_back(taken, Order::BASE);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}
