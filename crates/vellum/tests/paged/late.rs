//! Pagers that answer later, and from another CPU.

use std::thread::{Scope, ScopedJoinHandle, scope, yield_now};

use super::*;

const LATE: Habits = Habits { late: true, fails_reads: false, fails_writes: false, most: None };

/// Runs `act` as a CPU of its own.
fn on<'s, C: Arch, R: Send + 's>(
    threads: &'s Scope<'s, '_>,
    f: &'s Paged<C>,
    cpu: usize,
    act: impl FnOnce(&Paged<C>) -> R + Send + 's,
) -> ScopedJoinHandle<'s, R> {
    threads.spawn(move || {
        f.fx.run_on(cpu);
        act(f)
    })
}

/// Answers what the disk was asked, once it was asked `calls` times.
fn answer<C: Arch>(f: &Paged<C>, calls: usize) {
    let mut left = calls;
    while left != 0 {
        for answer in f.disk().waiting(f.fx.m()) {
            f.fx.vm.objects().answer(answer);
            left -= 1;
        }
        yield_now();
    }
}

on_both!(two_wait, who_comes_while_a_page_is_read_waits_for_the_same_answer);

fn two_wait<C: Arch>() {
    for fails_reads in [false, true] {
        let f = paged::<C>(8 * KIB4);
        f.disk().set(Habits { fails_reads, ..LATE });
        let seen = scope(|threads| {
            let others = [1, 2, 3].map(|cpu| on(threads, &f, cpu, |f| f.peek(1)));
            // All of them are there before the answer comes, or ask for themselves.
            while f.disk().calls().is_empty() {
                yield_now();
            }
            while others.iter().any(|other| !other.is_finished()) {
                for answer in f.disk().waiting(f.fx.m()) {
                    f.fx.vm.objects().answer(answer);
                }
                yield_now();
            }
            others.map(|other| other.join().unwrap())
        });
        let wanted = if fails_reads { Err(FaultError::Io) } else { Ok(2) };
        assert_eq!(seen, [wanted; 3]);
        f.fx.check(&[&f.space]);
        f.end([]);
    }
}

on_both!(written_meanwhile, what_is_stored_while_a_page_is_written_is_dirty_after);

fn written_meanwhile<C: Arch>() {
    for fails_writes in [false, true] {
        let f = paged::<C>(8 * KIB4);
        f.poke(1, 10).unwrap();
        f.disk().calls();
        f.disk().set(Habits { fails_writes, ..LATE });
        let synced = scope(|threads| {
            let sync = on(threads, &f, 1, |f| f.sync());
            while f.disk().calls().is_empty() {
                yield_now();
            }
            // The page may be read and written meanwhile; it is not freed.
            assert_eq!(f.peek(1), Ok(10));
            f.poke(1, 11).unwrap();
            assert_eq!((f.evict(), f.dirty()), (0, 1));
            assert_eq!(f.fx.count(Counter::WritebackPages), 1);
            answer(&f, 1);
            sync.join().unwrap()
        });
        let wanted = if fails_writes { Err(ObjectError::Io) } else { Ok(()) };
        assert_eq!((synced, f.dirty()), (wanted, 1));
        f.fx.check(&[&f.space]);
        f.disk().set(Habits::default());
        assert_eq!((f.sync(), f.disk().word(FILE, 1), f.dirty()), (Ok(()), 11, 0));
        f.end([]);
    }
}

on_both!(second_sync, a_sync_waits_for_what_another_one_writes);

fn second_sync<C: Arch>() {
    for fails_writes in [false, true] {
        let f = paged::<C>(8 * KIB4);
        f.poke(1, 10).unwrap();
        f.disk().calls();
        f.disk().set(Habits { fails_writes, ..LATE });
        let objects = f.fx.vm.objects();
        let other = objects.another(&f.object);
        scope(|threads| {
            let first = on(threads, &f, 1, |f| f.sync());
            while f.disk().calls().is_empty() {
                yield_now();
            }
            let all = |f: &Paged<C>| f.fx.vm.objects().sync(&other, 0, u64::MAX);
            let second = on(threads, &f, 2, move |f| (all(f), f.disk().word(FILE, 1)));
            for _ in 0..2000 {
                assert!(!second.is_finished(), "it says that a page is written which is not");
                yield_now();
            }
            answer(&f, 1);
            f.disk().set(Habits::default());
            // A page that the first could not write is written by the second.
            answer_all_until(&f, || first.is_finished() && second.is_finished());
            // Both handles are told that it failed, whoever has written the page since.
            let told = if fails_writes { Err(ObjectError::Io) } else { Ok(()) };
            assert_eq!(first.join().unwrap(), told);
            assert_eq!(second.join().unwrap(), (told, 10));
        });
        objects.discard(other);
        assert_eq!(f.dirty(), 0);
        f.fx.check(&[&f.space]);
        f.end([]);
    }
}

fn answer_all_until<C: Arch>(f: &Paged<C>, is_over: impl Fn() -> bool) {
    while !is_over() {
        for answer in f.disk().waiting(f.fx.m()) {
            f.fx.vm.objects().answer(answer);
        }
        yield_now();
    }
}

on_both!(cut, who_takes_a_page_out_waits_for_its_pager);

fn cut<C: Arch>() {
    for writes in [false, true] {
        let f = paged::<C>(8 * KIB4);
        if writes {
            f.poke(1, 10).unwrap();
            f.disk().calls();
        }
        f.disk().set(LATE);
        let looked = scope(|threads| {
            let first = on(threads, &f, 1, move |f| match writes {
                true => f.sync().map(|()| 10).map_err(|_| FaultError::Io),
                false => f.peek(1),
            });
            while f.disk().calls().is_empty() {
                yield_now();
            }
            let resized = on(threads, &f, 2, |f| f.fx.vm.objects().resize(&f.object, 100));
            for _ in 0..2000 {
                assert!(!resized.is_finished(), "a page went while a pager was at it");
                yield_now();
            }
            answer(&f, 1);
            let looked = first.join().unwrap();
            assert_eq!(resized.join().unwrap(), Ok(()));
            looked
        });
        // It was read before the object became shorter, or finds that it is.
        let may = [Ok(if writes { 10 } else { 2 }), Err(FaultError::Beyond)];
        assert!(may.contains(&looked), "{looked:?}");
        assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 0);
        f.fx.check(&[&f.space]);
        f.end([]);
    }
}

#[test]
fn an_object_stays_until_its_last_run_is_answered() {
    let f = paged::<X86_64>(8 * KIB4);
    f.disk().set(LATE);
    let Paged { fx, object, space } = f;
    let waits = scope(|threads| {
        let (fx, object, space) = (&fx, &object, &space);
        let fault = threads.spawn(move || {
            fx.run_on(1);
            fx.vm.fault(space, AT, Access::Read)
        });
        let waiting = loop {
            let mut waiting = fx.m().disk.waiting(fx.m());
            if let Some(answer) = waiting.pop() {
                break answer;
            }
            yield_now();
        };
        let _ = object;
        assert_eq!(fx.vm.unmap(space, AT, 8 * KIB4), Ok(()));
        fx.vm.objects().answer(waiting);
        fault.join().unwrap()
    });
    assert!([Ok(Fault::Object), Err(FaultError::Unmapped)].contains(&waits), "{waits:?}");
    fx.vm.objects().discard(object);
    fx.end([space]);
    assert_eq!(fx.count(Counter::FilePages), 0);
}

on_both!(all_changes, c_9_a_fault_goes_on_though_all_else_changed_while_its_pager_read);

fn all_changes<C: Arch>() {
    let f = paged::<C>(600 * KIB4);
    f.disk().set(LATE);
    scope(|threads| {
        let fault = on(threads, &f, 1, |f| f.peek(300));
        while f.disk().calls().is_empty() {
            yield_now();
        }
        f.disk().set(Habits::default());
        // Small nodes of the trie become large ones, and go again.
        for round in 0..2 {
            let others = || (0..600).filter(|n| *n != 300);
            others().for_each(|n| assert_eq!(f.word(n), Ok(n + 1), "round {round}"));
            assert_eq!(f.evict(), 599);
        }
        assert!(!fault.is_finished(), "a page is shown that is not read");
        answer(&f, 1);
        assert_eq!(fault.join().unwrap(), Ok(301));
    });
    assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 1);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(not_around, a_page_that_is_being_read_is_not_mapped_around_a_fault);

fn not_around<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    assert_eq!((f.word(2), f.word(4)), (Ok(3), Ok(5)));
    f.disk().calls();
    f.disk().set(LATE);
    scope(|threads| {
        let reader = on(threads, &f, 1, |f| f.word(3));
        while f.disk().calls().is_empty() {
            yield_now();
        }
        assert_eq!(f.peek(2), Ok(3));
        let mapped = (0..8).filter(|&n| f.fx.frame_at(&f.space, page_at(n)).is_some());
        assert_eq!(mapped.collect::<Vec<_>>(), [2, 4]);
        answer(&f, 1);
        assert_eq!(reader.join().unwrap(), Ok(4));
    });
    assert_eq!(f.peek(3), Ok(4));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(stopped, who_waits_for_a_page_and_is_to_end_does_not_wait_any_longer);

fn stopped<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    f.disk().set(LATE);
    let stop = |waits: fn(&Paged<C>) -> String| {
        scope(|threads| {
            let waiting = threads.spawn(|| {
                f.fx.run_on(1);
                waits(&f)
            });
            while f.disk().calls().is_empty() {
                yield_now();
            }
            assert!(!waiting.is_finished());
            f.fx.m().stop(Some(1));
            let said = waiting.join().unwrap();
            f.fx.m().stop(None);
            said
        })
    };
    assert_eq!(stop(|f| format!("{:?}", f.peek(1))), "Err(Stopped)");
    assert_eq!(stop(|f| format!("{:?}", f.word(2))), "Err(Stopped)");
    let grab = |f: &Paged<C>| {
        let got = f.fx.vm.objects().grab(&f.object, 3 * KIB4, 1, GrabWait::Always);
        format!("{:?}", got.err())
    };
    assert_eq!(stop(grab), "Some(Stopped)");
    // The pages are read all the same.
    f.disk().waiting(f.fx.m()).into_iter().for_each(|done| f.fx.vm.objects().answer(done));
    f.disk().set(Habits::default());
    assert_eq!([1, 2, 3].map(|n| f.peek(n)), [Ok(2), Ok(3), Ok(4)]);
    assert_eq!(f.calls(false), []);
    f.fx.check(&[&f.space]);
    f.end([]);
}
