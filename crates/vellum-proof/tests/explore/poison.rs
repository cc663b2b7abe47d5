//! Poison beside other verbs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::explorer::{NEXT, both, few, script};
use vellum::addr::{Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::space::{Attrs, Page, Placement, Rights, Space};
use vellum::vm::{Object, ObjectPart};
use vellum_proof::explore::explore;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};

#[test]
fn a_page_whose_old_frame_becomes_the_huge_zeros_is_not_refused_as_zeros() {
    // A huge page that parent and child share. One block is free, and 2 MiB behind it are reserved.
    let world = || {
        let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
        let fixture = Fixture::with_space(2, 1024, config);
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        (0..4).for_each(|_| fixture.take(9));
        let held = fixture.held.borrow().len();
        fixture.give(held - 1);
        fixture.enter(0);
        fixture
    };
    // The page holds 1 all the time.
    let poison = script(|l: &Fixture| assert_eq!(l.vm.poison(l.space(), AT), Ok(())));
    let copy = script(|l: &Fixture| {
        assert_eq!(l.store(NEXT, 7), Ok(()));
        l.end_last();
        assert_eq!(l.load(Va(AT.0 + MIB2)), Ok(0));
    });
    let done = explore(&world, &[poison, copy], 1, u64::MAX);
    println!("poison, copy and zeros: {done:?}");
    assert!(!done.cut, "{done:?}");
}

/// A page that has been moved and that parent and child share. 62 others were moved and all but one
/// unmapped since, so the next remap drops the shifts of those.
fn moved_often() -> Fixture {
    let fixture = few(2)();
    fixture.store(AT, 1).expect("memory");
    moves(&fixture, AT, far(0));
    for n in 1..63 {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture.vm.map(fixture.space(), Placement::At(AT), 4096, attrs).expect("a hole");
        moves(&fixture, AT, far(n));
        if n < 62 {
            fixture.vm.unmap(fixture.space(), far(n), 4096).expect("what was moved");
        }
    }
    fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
    fixture.enter(0);
    fixture
}

fn far(n: u64) -> Va {
    Va(AT.0 + (n + 1) * (MIB2 + 4096))
}

fn moves(l: &Fixture, from: Va, to: Va) {
    assert_eq!(l.vm.remap(l.space(), from, 4096, 4096, Placement::At(to)), Ok(to));
}

#[test]
fn poison_finds_a_moved_page_while_the_space_makes_a_new_list_of_its_shifts() {
    let object: Rc<RefCell<Option<Object>>> = Rc::default();
    let frame: Rc<Cell<Option<Pfn>>> = Rc::default();
    let mapped = |l: &Fixture, space: &Space| match l.vm.query(space, far(0)) {
        Page::Mapped { pfn, .. } => Some(pfn),
        _ => None,
    };
    let world = {
        let (object, frame) = (object.clone(), frame.clone());
        move || {
            let fixture = moved_often();
            *object.borrow_mut() = fixture.vm.objects().create(4096).ok();
            frame.set(mapped(&fixture, fixture.space()));
            fixture
        }
    };
    let moved = move |l: &Fixture| {
        moves(l, far(62), far(63));
        // What keeps where an object is mapped takes the memory that the old list had.
        let object = object.borrow_mut().take().expect("an object");
        let (part, attrs) =
            (ObjectPart { object: &object, offset: 0 }, Attrs::anonymous(Rights::READ_WRITE));
        l.vm.map_object(l.space(), Placement::At(far(64)), 4096, attrs, part).expect("memory");
        l.vm.objects().discard(object);
    };
    both(&world, moved, move |l| {
        assert_eq!(l.vm.poison(&l.last(), far(0)), Ok(()));
        for space in [l.space(), &*l.last()] {
            let now = mapped(l, space);
            assert!(now.is_some() && now != frame.get(), "the page is mapped at {now:?} still");
        }
        assert_eq!(l.load(far(0)), Ok(1));
    });
}
