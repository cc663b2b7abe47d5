//! Memory that was given back is there for who knows of it; what slabs and pools keep is memory,
//! too.

use std::cell::Cell;
use std::rc::Rc;

use crate::explorer::{NEXT, both, few, script};
use crate::scarce::{EXACT, FAR, RW, huge, starve};
use vellum::addr::{Order, Va};
use vellum::config::ZeroHuge;
use vellum::error::{FaultError, SpaceError};
use vellum::machine::Use;
use vellum::space::{Access, Advice, Fault, Placement, Rights};
use vellum::unstable::AllocRequest;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};
use vellum_proof::explore::{by_turns, explore};

const PAGE: u64 = 4096;
/// A reserved page in three tables of its own.
const LONE: Va = Va(0x2_0000_0000);

fn lone() -> Fixture {
    let fixture = few(2)();
    fixture.vm.map(fixture.space(), Placement::At(FAR), 4 * MIB2, RW).expect("memory");
    fixture.vm.map(fixture.space(), Placement::At(LONE), PAGE, RW).expect("memory");
    starve(&fixture, 0);
    fixture.enter(0);
    fixture
}

fn unmap(l: &Fixture) {
    assert_eq!(l.vm.unmap(l.space(), LONE, PAGE), Ok(()));
}

#[test]
fn a_map_is_not_refused_the_tables_of_what_is_unmapped() {
    both(&lone, unmap, |l| {
        let done = l.vm.map(l.space(), Placement::At(LONE), PAGE, RW);
        // Before the unmap it is occupied, after it there are tables.
        assert_ne!(done, Err(SpaceError::NoMemory));
    });
}

#[test]
fn a_store_is_not_refused_what_was_seen_to_be_unmapped() {
    both(&lone, unmap, |l| {
        if l.load(LONE) == Err(FaultError::Unmapped) {
            assert_eq!(l.store(FAR, 7), Ok(()), "three tables were given back");
        }
    });
}

#[test]
fn a_store_is_not_refused_what_the_exit_of_a_child_gave_back() {
    let make = || {
        let fixture = few(2)();
        fixture.vm.map(fixture.space(), Placement::At(FAR), 4 * MIB2, RW).expect("memory");
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        starve(&fixture, 0);
        fixture.enter(0);
        fixture
    };
    both(&make, Fixture::end_last, |l| {
        if let Ok(Fault::Reused(_)) = l.vm.fault(l.space(), AT, Access::Write) {
            assert_eq!(l.store(FAR, 7), Ok(()), "the child has given up the page, so it is over");
        }
    });
}

#[test]
fn a_page_of_exactly_2_mib_that_goes_to_the_pool_and_comes_is_not_refused() {
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Off);
        fixture.vm.map(&space, Placement::At(AT), MIB2, EXACT).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        assert_eq!(fixture.vm.pool(Order::HUGE, 1), Ok(()));
        fixture.keep(space);
        starve(&fixture, 0);
        // The page is the pool's block, and there is no other.
        assert_eq!(fixture.vm.pool(Order::HUGE, 0), Ok(()));
        starve(&fixture, 0);
        assert!(fixture.vm.pool(Order::HUGE, 1).is_err());
        fixture.vm.advise(&fixture.last(), AT, MIB2, Advice::DontNeed).expect("it is whole");
        fixture.enter(0);
        fixture
    };
    let fault = |l: &Fixture| {
        let done = l.vm.fault(&l.last(), NEXT, Access::Write);
        assert!(done.is_ok(), "{done:?}");
    };
    let comes_and_goes = move |l: &Fixture| {
        for _ in 0..2 {
            l.vm.advise(&l.last(), AT, MIB2, Advice::DontNeed).expect("it is whole");
            fault(l);
        }
    };
    let (fault, comes_and_goes) = (script(fault), script(comes_and_goes));
    for scripts in [[fault.clone(), comes_and_goes.clone()], [comes_and_goes, fault]] {
        println!("{:?}", explore(&make, &scripts, 3, 30_000));
    }
}

/// Regions that neighbours do not share.
const TURN: [Rights; 3] = [Rights::READ, Rights::NONE, Rights::ALL];

/// No frame is free, and of regions so many records. CPU 0 has a space and CPU 1 another.
fn records(free: u64) -> Fixture {
    let fixture = few(2)();
    let [other, third] = [4, 512].map(|pages| {
        let space = fixture.vm.create().expect("memory");
        fixture.vm.map(&space, Placement::At(AT), pages * PAGE, RW).expect("memory");
        space
    });
    for rights in [TURN[2], TURN[1]] {
        fixture.vm.protect(&other, AT, PAGE, rights).expect("memory");
    }
    let take = |n: u64| fixture.vm.protect(&third, Va(AT.0 + n * PAGE), PAGE, TURN[n as usize % 3]);
    (0..100).for_each(|n| take(n).expect("memory"));
    starve(&fixture, 0);
    let last = (100..512).find(|&n| take(n).is_err()).expect("it has an end");
    for n in last - 1 - free..last - 1 {
        // As its neighbour.
        let rights = TURN[(n + 1) as usize % 3];
        fixture.vm.protect(&third, Va(AT.0 + n * PAGE), PAGE, rights).expect("a neighbour has it");
    }
    fixture.keep(third);
    fixture.keep(other);
    fixture.enter(0);
    fixture
}

#[test]
fn a_record_that_comes_and_goes_is_not_refused() {
    let one = |l: &Fixture| l.vm.protect(l.space(), AT, PAGE, Rights::READ).is_ok();
    let turn = |l: &Fixture, n: usize| l.vm.protect(&l.last(), AT, PAGE, TURN[n % 3]).is_ok();
    // As many that it succeeds before, between and after the other's verbs.
    let enough = |&free: &u64| {
        (0..=4).all(|turns| {
            let fixture = records(free);
            fixture.enter(1);
            let done = (0..turns).all(|n| turn(&fixture, n));
            fixture.enter(0);
            done && one(&fixture)
        })
    };
    let free = (0..20).find(enough).expect("20 records are enough");
    let verb = script(move |l: &Fixture| assert!(one(l), "there was one all the time"));
    let turns = script(move |l: &Fixture| (0..4).for_each(|n| _ = turn(l, n)));
    for scripts in [[verb.clone(), turns.clone()], [turns, verb]] {
        println!("{:?}", explore(&|| records(free), &scripts, 2, 30_000));
    }
}

#[test]
fn a_create_is_not_refused_the_record_of_a_space_that_was_seen_to_end() {
    const PAGES: u64 = 64;
    let page = |n: u64| Va(FAR.0 + n * PAGE);
    // All records of spaces are in use, and no frame is free.
    let make = move || {
        let fixture = few(2)();
        fixture.vm.map(fixture.space(), Placement::At(FAR), PAGES * PAGE, RW).expect("memory");
        fixture.store(FAR, 1).expect("memory");
        let child = fixture.vm.fork(fixture.space()).expect("memory");
        starve(&fixture, 1);
        while let Ok(space) = fixture.vm.create() {
            fixture.keep(space);
            starve(&fixture, 1);
        }
        fixture.keep(child);
        starve(&fixture, 0);
        fixture.enter(0);
        fixture
    };
    // After so many stores there is a frame for a root and the record, if the child is over.
    let create = move |l: &Fixture, stores: u64| {
        let stored = (1..=stores).all(|n| l.store(page(n), 7).is_ok());
        stored && l.vm.create().map(|space| l.keep(space)).is_ok()
    };
    let enough = |&stores: &u64| {
        let fixture = make();
        fixture.end_last();
        fixture.vm.fault(fixture.space(), FAR, Access::Write).expect("it is its own");
        create(&fixture, stores)
    };
    let most = (0..20).take_while(enough).last().expect("the child had a frame");
    both(&make, Fixture::end_last, move |l| {
        if let Ok(Fault::Reused(_)) = l.vm.fault(l.space(), FAR, Access::Write) {
            assert!(create(l, most), "the child has given up the page, so it is over");
        }
    });
}

#[test]
fn the_last_of_two_calls_says_what_a_pool_holds() {
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Off);
        fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, EXACT).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        fixture.keep(space);
        fixture.enter(0);
        fixture
    };
    let over = Rc::new(Cell::new(false));
    let last = move |l: &Fixture| {
        if !over.replace(!over.get()) {
            return;
        }
        starve(l, 0);
        // Either the pool has a block and wants no other, or none, and then it wants none.
        let has = l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Write).is_ok();
        assert_eq!(l.vm.unmap(&l.last(), AT, MIB2), Ok(()));
        let block =
            l.vm.frames().alloc(l.vm.machine(), Order::HUGE, &AllocRequest::kernel(Use::Slab));
        assert_ne!(has, block.is_ok(), "2 MiB of the pool: {has}; 2 MiB that are free: {block:?}");
        l.held.borrow_mut().extend(block.map(|pfn| (pfn, Order::HUGE)));
    };
    let last = Rc::new(last);
    let hold = |blocks| {
        let last = last.clone();
        move |l: &Fixture| {
            assert_eq!(l.vm.pool(Order::HUGE, blocks), Ok(()));
            last(l);
        }
    };
    both(&make, hold(1), hold(0));
}

#[test]
fn an_exit_has_nothing_in_hand_while_it_waits_for_who_runs_in_the_space() {
    let make = || {
        let fixture = few(2)();
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        starve(&fixture, 0);
        fixture.enter(1);
        fixture.vm.activate(&fixture.last());
        fixture.enter(0);
        fixture
    };
    // Who is refused memory waits for all who have some in hand, and leaves the space after that.
    both(&make, Fixture::end_last, |l| {
        if let Ok(space) = l.vm.create() {
            l.keep(space);
        }
        l.vm.deactivate();
    });
}

/// Stores, each to a page of its own, in a loop beside forks that cannot succeed, by turns.
fn stores_beside_forks(stores: u64, forks: usize, free: usize, most: usize) {
    let cpus = stores as usize + forks;
    let make = move || {
        let fixture = few(cpus)();
        starve(&fixture, free);
        fixture
    };
    let over = Rc::new(Cell::new(0));
    let store = |n: u64| {
        let (at, over) = (Va(NEXT.0 + n * PAGE), over.clone());
        script(move |l: &Fixture| {
            for _ in 0..10 {
                assert_eq!(l.store(at, 7), Ok(()), "there is a frame for each");
                assert_eq!(l.vm.advise(l.space(), at, PAGE, Advice::DontNeed), Ok(()));
            }
            over.set((over.get() + 1) % cpus);
        })
    };
    let fork = || {
        let over = over.clone();
        script(move |l: &Fixture| {
            while over.get() < stores as usize {
                assert!(l.vm.fork(l.space()).is_err(), "a fork needs more");
            }
            over.set((over.get() + 1) % cpus);
        })
    };
    let scripts: Vec<_> = (0..stores).map(store).chain((0..forks).map(|_| fork())).collect();
    println!("{:?}", by_turns(&make, &scripts, most));
}

#[test]
fn stores_are_not_refused_beside_forks_that_cannot_succeed() {
    stores_beside_forks(1, 1, 1, 80);
    stores_beside_forks(1, 1, 2, 80);
    stores_beside_forks(2, 1, 2, 12);
    stores_beside_forks(1, 2, 2, 12);
}

#[test]
fn a_forced_write_that_was_refused_a_copy_is_refused_a_page() {
    let make = || {
        let fixture = few(2)();
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        starve(&fixture, 0);
        fixture
    };
    let forced = |l: &Fixture| {
        assert_eq!(l.vm.write_forced(l.space(), AT, &[7]), Err(FaultError::NoMemory));
    };
    // The child has the frame still.
    both(&make, forced, |l| {
        assert_eq!(l.vm.advise(l.space(), AT, PAGE, Advice::DontNeed), Ok(()));
    });
}
