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
    /// The first space does something.
    fn first<R>(&self, act: impl FnOnce(&Vm<Flat<C>>, &Space) -> R) -> R {
        act(&self.fx.vm, &self.spaces.borrow()[0])
    }
    /// A space reads the huge page of zeros, and ends.
    fn use_once(&self) {
        self.fx.vm.exit(self.fx.zeros_read(MIB2));
    }
    fn fork_and_end(&self) {
        let child = self.first(|vm, space| vm.fork(space)).expect("memory");
        self.fx.vm.exit(child);
    }
    fn zero_at(&self, space: usize, va: u64) -> bool {
        let page = self.fx.vm.query(&self.spaces.borrow()[space], Va(va));
        matches!(page, Page::Mapped { zero: true, .. })
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
    let tables_of = |shared: &Shared<C>| {
        let nodes = shared.first(|vm, space| vm.usage(space)).table_nodes;
        (nodes, shared.fx.count(Counter::TablePages))
    };
    let tables = {
        let shared = shared_of::<C>(form, bytes);
        shared.fault(0, GIB, Access::Read);
        tables_of(&shared)
    };
    let places = everywhere::<C>(
        || shared_of(form, bytes),
        |shared| shared.fault(0, GIB, Access::Read),
        |shared| shared.fault(0, GIB + 8192, Access::Read),
        move |shared| {
            shared.all();
            assert!(shared.zero_at(0, GIB), "one mapping");
            assert_eq!(tables_of(shared), tables, "{form:?}: tables left over");
            if form == ZeroHuge::Page {
                let leaves = shared.first(|vm, space| vm.usage(space)).zero_huge_leaves;
                assert_eq!((leaves, shared.fx.vm.huge_zero_references()), (1, 2));
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
    shared.use_once();
    shared.fx.vm.shrink_zeros();
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
    let first: Act<X86_64> = |shared| shared.fault(0, GIB, Access::Read);
    let shrink: Act<X86_64> = |shared| _ = shared.fx.vm.shrink_zeros();
    let keep: Act<X86_64> = |shared| shared.fx.vm.keep_zeros().unwrap();
    for (name, act) in [("shrink", shrink), ("come and go", come_and_go)] {
        println!("the first use, and {name}");
        assert!(everywhere(|| shared(ZeroHuge::Page), first, act, live) > 5);
    }
    let used_once = || {
        let shared = shared::<X86_64>(ZeroHuge::Page);
        shared.use_once();
        shared
    };
    for (name, act) in [("first use", first), ("come and go", come_and_go), ("keep", keep)] {
        println!("shrink, and {name}");
        assert!(everywhere(used_once, shrink, act, live) >= 2);
    }
}

#[test]
fn d_15_a_huge_page_of_data_is_never_taken_for_the_zeros_it_was_before() {
    // Fork and unmap of real huge pages, while the page of zeros becomes data and data the page of
    // zeros.
    let with_data = || {
        let shared = shared::<X86_64>(ZeroHuge::Page);
        shared.use_once();
        shared.fx.poke(&shared.spaces.borrow()[0], Va(GIB), 1).unwrap();
        shared
    };
    let swap = |shared: &Shared<X86_64>| {
        shared.fx.vm.shrink_zeros();
        // Refused once it is unmapped.
        let _ = shared.first(|vm, space| vm.fault(space, Va(GIB + MIB2), Access::Write));
        shared.fault(1, GIB, Access::Read);
    };
    let unmap: Act<X86_64> =
        |shared| shared.first(|vm, space| vm.unmap(space, Va(GIB), 2 * MIB2)).unwrap();
    for (name, body) in [("unmap", unmap), ("fork", Shared::fork_and_end)] {
        println!("{name}");
        assert!(everywhere(with_data, body, swap, |shared| shared.all()) > 5);
    }
}

#[test]
fn d_08_a_first_use_in_the_middle_of_a_fork_is_the_childs_as_well() {
    let places = everywhere::<X86_64>(
        || shared(ZeroHuge::Page),
        |shared| {
            shared.fork_and_end();
            let child = shared.first(|vm, space| vm.fork(space)).unwrap();
            shared.spaces.borrow_mut().push(child);
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
            shared.fx.take_all(Order::HUGE);
        }
        shared
    };
    for act in [
        (|shared: &Shared<C>| shared.fault(0, GIB, Access::Write)) as Act<C>,
        |shared| shared.fault(0, GIB + 8192, Access::Write),
        |shared| _ = shared.first(|vm, space| vm.unmap(space, Va(GIB + 4096), 4096)),
        |shared| _ = shared.first(|vm, space| vm.protect(space, Va(GIB), MIB2, Rights::READ)),
        |shared| _ = shared.first(|vm, space| vm.advise(space, Va(GIB), MIB2, Advice::DontNeed)),
    ] {
        let write = |shared: &Shared<C>| {
            let _ = shared.first(|vm, space| vm.fault(space, Va(GIB), Access::Write));
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
    let forbid = |shared: &Shared<C>| shared.first(|vm, space| vm.forbid_zeros(space));
    let none = |shared: &Shared<C>| {
        shared.all();
        let zeros = [GIB, 2 * GIB].map(|va| shared.zero_at(0, va));
        assert_eq!(zeros, [false; 2], "{form:?}: zeros where they are forbidden");
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
