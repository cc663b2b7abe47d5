//! Huge zeros with an act of another CPU at every shared word that an operation touches: statements
//! D-4, D-5, D-15 and the fork of D-8.

use std::cell::RefCell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

/// Every setting that reads huge zeros.
const FORMS: [ZeroHuge; 3] = [ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];

struct Shared<C: Arch> {
    fx: Fixture<C>,
    spaces: RefCell<Vec<Space>>,
}

type Act<C> = fn(&Shared<C>);

fn shared<C: Arch>(form: ZeroHuge) -> Rc<Shared<C>> {
    shared_of(form, 2 * MIB2)
}

fn shared_of<C: Arch>(form: ZeroHuge, bytes: u64) -> Rc<Shared<C>> {
    let fx = fixture_of::<C>(3, 8192, with_zeros(form));
    let spaces = (0..2).map(|_| fx.mapped(Va(GIB), bytes, RW)).collect();
    Rc::new(Shared { fx, spaces: RefCell::new(spaces) })
}

impl<C: Arch> Shared<C> {
    /// A fault of a space, told by its place in the list.
    fn fault(&self, space: usize, va: u64, access: Access) {
        self.fx.vm.fault(&self.spaces.borrow()[space], Va(va), access).expect("there is memory");
    }
    fn all(&self) {
        let spaces = self.spaces.borrow();
        self.fx.check(&spaces.iter().collect::<Vec<_>>());
    }
    fn zero_at(&self, space: usize, va: u64) -> bool {
        matches!(
            self.fx.vm.query(&self.spaces.borrow()[space], Va(va)),
            Page::Mapped { zero: true, .. }
        )
    }
}

/// As [`at_every_step`]; each outcome is checked, and nothing is lost when the spaces end.
fn everywhere<C: Arch>(
    make: impl Fn() -> Rc<Shared<C>>,
    body: impl Fn(&Shared<C>),
    act: Act<C>,
    check: impl Fn(&Shared<C>),
) -> u32 {
    at_every_step(make, body, act, |shared| {
        check(&shared);
        shared.fx.end(shared.spaces.take());
        shared.fx.vm.shrink_zeros();
        shared.fx.check(&[]);
        assert_eq!(shared.fx.count(Counter::TablePages), 0, "tables lost");
    })
}

fn d_04<C: Arch>(form: ZeroHuge, bytes: u64) {
    // The tables that one thread alone allocates.
    let tables = {
        let shared = shared_of::<C>(form, bytes);
        shared.fault(0, GIB, Access::Read);
        (
            shared.fx.usage(&shared.spaces.borrow()[0]).table_nodes,
            shared.fx.count(Counter::TablePages),
        )
    };
    let places = everywhere::<C>(
        || shared_of(form, bytes),
        |shared| shared.fault(0, GIB, Access::Read),
        |shared| shared.fault(0, GIB + 8192, Access::Read),
        move |shared| {
            shared.all();
            assert!(shared.zero_at(0, GIB), "one mapping");
            let usage = shared.fx.usage(&shared.spaces.borrow()[0]);
            assert_eq!(
                (usage.table_nodes, shared.fx.count(Counter::TablePages)),
                tables,
                "{form:?}: tables left over"
            );
            if form == ZeroHuge::Page {
                assert_eq!((usage.zero_huge_leaves, shared.fx.vm.huge_zero_references()), (1, 2));
            }
        },
    );
    assert!(places > 3, "{places} places");
}

#[test]
fn d_04_two_threads_read_one_place_at_once_and_there_is_one_mapping_and_one_reference() {
    for form in FORMS {
        // With the tables above in place, and without them.
        for bytes in [2 * MIB2, GIB] {
            d_04::<X86_64>(form, bytes);
            d_04::<Aarch64>(form, bytes);
        }
    }
}

#[test]
fn d_05_two_spaces_race_on_the_first_use_ever_and_end_with_one_page_and_count_three() {
    let places = everywhere::<X86_64>(
        || shared(ZeroHuge::Page),
        |shared| shared.fault(0, GIB, Access::Read),
        |shared| shared.fault(1, GIB, Access::Read),
        |shared| {
            shared.all();
            assert_eq!(shared.fx.vm.huge_zero_references(), 3);
            assert_eq!(shared.fx.count(Counter::ThpZeroAlloc), 1);
            assert!(shared.zero_at(0, GIB) && shared.zero_at(1, GIB));
        },
    );
    assert!(places > 5, "{places} places");
}

#[test]
fn d_05_within_one_space_the_count_ends_at_two() {
    everywhere::<X86_64>(
        || shared(ZeroHuge::Page),
        |shared| shared.fault(0, GIB, Access::Read),
        |shared| shared.fault(0, GIB + MIB2, Access::Read),
        |shared| {
            shared.all();
            assert_eq!(shared.fx.vm.huge_zero_references(), 2);
        },
    );
}

/// A space uses the page and ends, the shrinker frees the page, and a new one is allocated: all in
/// one act.
fn come_and_go(shared: &Shared<X86_64>) {
    let vm = &shared.fx.vm;
    let space = vm.create().unwrap();
    shared.fx.map(&space, Va(GIB), MIB2, RW);
    vm.fault(&space, Va(GIB), Access::Read).unwrap();
    vm.exit(space);
    vm.shrink_zeros();
    shared.fault(1, GIB + MIB2, Access::Read);
}

#[test]
fn d_15_a_live_page_is_always_recognised_whatever_a_shrinker_does_in_between() {
    let live = |shared: &Shared<X86_64>| {
        shared.all();
        let spaces = shared.spaces.borrow();
        for (at, space) in [(GIB, &spaces[0]), (GIB + MIB2, &spaces[1])] {
            if let Page::Mapped { pfn, level: Level::TWO, zero, .. } =
                shared.fx.vm.query(space, Va(at))
            {
                assert!(zero && shared.fx.vm.is_zero(pfn) && shared.fx.vm.is_zero(pfn.add(511)));
                assert!(!shared.fx.vm.is_zero(pfn.add(512)));
                assert_eq!(shared.fx.vm.huge_zero(), Some(pfn));
            }
        }
    };
    // The first use, interrupted by the shrinker and by the life of another space; the shrinker,
    // interrupted by uses.
    let first = |shared: &Shared<X86_64>| shared.fault(0, GIB, Access::Read);
    assert!(
        everywhere(
            || shared(ZeroHuge::Page),
            first,
            |shared| {
                shared.fx.vm.shrink_zeros();
            },
            live
        ) > 5
    );
    assert!(everywhere(|| shared(ZeroHuge::Page), first, come_and_go, live) > 5);
    let used_once = || {
        let shared = shared::<X86_64>(ZeroHuge::Page);
        let space = shared.fx.vm.create().unwrap();
        shared.fx.map(&space, Va(GIB), MIB2, RW);
        shared.fx.vm.fault(&space, Va(GIB), Access::Read).unwrap();
        shared.fx.vm.exit(space);
        shared
    };
    let shrink = |shared: &Shared<X86_64>| {
        shared.fx.vm.shrink_zeros();
    };
    assert!(everywhere(used_once, shrink, |shared| shared.fault(0, GIB, Access::Read), live) >= 2);
    assert!(everywhere(used_once, shrink, come_and_go, live) >= 2);
    assert!(
        everywhere(
            used_once,
            shrink,
            |shared| {
                shared.fx.vm.keep_zeros().unwrap();
            },
            live
        ) >= 2
    );
}

#[test]
fn d_15_a_huge_page_of_data_is_never_taken_for_the_zeros_it_was_before() {
    // Fork and unmap of real huge pages, while the page of zeros becomes data and data the page of
    // zeros.
    let with_data = || {
        let shared = shared::<X86_64>(ZeroHuge::Page);
        let space = shared.fx.vm.create().unwrap();
        shared.fx.map(&space, Va(GIB), MIB2, RW);
        shared.fx.vm.fault(&space, Va(GIB), Access::Read).unwrap();
        shared.fx.vm.exit(space);
        shared.fx.poke(&shared.spaces.borrow()[0], Va(GIB), 1).unwrap();
        shared
    };
    let swap = |shared: &Shared<X86_64>| {
        shared.fx.vm.shrink_zeros();
        // Refused once it is unmapped.
        let _ = shared.fx.vm.fault(&shared.spaces.borrow()[0], Va(GIB + MIB2), Access::Write);
        shared.fault(1, GIB, Access::Read);
    };
    let unmap = |shared: &Shared<X86_64>| {
        shared.fx.vm.unmap(&shared.spaces.borrow()[0], Va(GIB), 2 * MIB2).unwrap()
    };
    assert!(everywhere(with_data, unmap, swap, |shared| shared.all()) > 5);
    let fork = |shared: &Shared<X86_64>| {
        let child = shared.fx.vm.fork(&shared.spaces.borrow()[0]).unwrap();
        shared.fx.vm.exit(child);
    };
    assert!(everywhere(with_data, fork, swap, |shared| shared.all()) > 5);
}

#[test]
fn d_08_a_first_use_in_the_middle_of_a_fork_is_the_childs_as_well() {
    let forked = |shared: &Shared<X86_64>| {
        let child = shared.fx.vm.fork(&shared.spaces.borrow()[0]).unwrap();
        shared.spaces.borrow_mut().push(child);
    };
    let places = everywhere::<X86_64>(
        || shared(ZeroHuge::Page),
        |shared| {
            let child = shared.fx.vm.fork(&shared.spaces.borrow()[0]).unwrap();
            shared.fx.vm.exit(child);
            forked(shared);
        },
        |shared| shared.fault(0, GIB + MIB2, Access::Read),
        |shared| {
            // `validate` counts: each space that maps the page holds a reference.
            shared.all();
            assert!(shared.fx.vm.huge_zero_references() >= 2);
        },
    );
    assert!(places > 20, "{places} places");
}

fn writes_meet<C: Arch>(form: ZeroHuge, huge: bool) {
    let read = || {
        let shared = shared::<C>(form);
        shared.fault(0, GIB, Access::Read);
        if !huge {
            // No huge page is to be had; a few base pages are.
            let want = vellum::unstable::AllocRequest::kernel(vellum::machine::Use::Slab);
            while shared.fx.vm.frames().alloc(shared.fx.m(), Order::HUGE, &want).is_ok() {}
        }
        shared
    };
    for act in [
        (|shared: &Shared<C>| shared.fault(0, GIB, Access::Write)) as Act<C>,
        |shared| shared.fault(0, GIB + 8192, Access::Write),
        |shared| {
            let _ = shared.fx.vm.unmap(&shared.spaces.borrow()[0], Va(GIB + 4096), 4096);
        },
        |shared| {
            let _ = shared.fx.vm.protect(
                &shared.spaces.borrow()[0],
                Va(GIB),
                MIB2,
                vellum::space::Rights::READ,
            );
        },
        |shared| {
            let _ = shared.fx.vm.advise(
                &shared.spaces.borrow()[0],
                Va(GIB),
                MIB2,
                vellum::space::Advice::DontNeed,
            );
        },
    ] {
        let write = |shared: &Shared<C>| {
            let _ = shared.fx.vm.fault(&shared.spaces.borrow()[0], Va(GIB), Access::Write);
        };
        let places = at_every_step(read, write, act, |shared| {
            let spaces = shared.spaces.borrow();
            shared.fx.vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("everything adds up");
        });
        assert!(places > 3, "{places} places");
    }
}

#[test]
fn a_write_meets_any_other_change_at_any_step_and_everything_adds_up() {
    for huge in [true, false] {
        for form in FORMS {
            writes_meet::<X86_64>(form, huge);
            writes_meet::<Aarch64>(form, huge);
        }
    }
}

/// Zeros are mapped in a second table as well, so that there is a mapping to remove and another
/// lock.
fn shared_twice<C: Arch>(form: ZeroHuge) -> Rc<Shared<C>> {
    let shared = shared::<C>(form);
    shared.fx.map(&shared.spaces.borrow()[0], Va(2 * GIB), MIB2, RW);
    shared.fault(0, 2 * GIB, Access::Read);
    shared
}

fn forbidden<C: Arch>(form: ZeroHuge) {
    let read = |shared: &Shared<C>| shared.fault(0, GIB, Access::Read);
    let forbid = |shared: &Shared<C>| shared.fx.vm.forbid_zeros(&shared.spaces.borrow()[0]);
    let none = |shared: &Shared<C>| {
        shared.all();
        assert!(
            !shared.zero_at(0, GIB) && !shared.zero_at(0, 2 * GIB),
            "{form:?}: zeros where they are forbidden"
        );
    };
    for (body, act) in [(read as Act<C>, forbid as Act<C>), (forbid, read)] {
        let places = everywhere::<C>(|| shared_twice(form), body, act, none);
        assert!(places > 3, "{form:?}: {places} places");
    }
}

#[test]
fn no_zeros_are_mapped_once_they_are_forbidden_whatever_a_fault_does_meanwhile() {
    for form in FORMS {
        forbidden::<X86_64>(form);
        forbidden::<Aarch64>(form);
    }
}
