//! The huge page of zeros with another CPU's act put between any two steps: at every shared word an
//! operation touches, in turn.
//!
//! The act that is put in runs to its end. If it waits, it waits for the operation that stands
//! still, and that schedule does not exist. Statements D-4, D-5, D-15 and the fork of D-8, each for
//! every place there is.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::flat::{Flat, VmHands, unless_it_waits, weave};
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Page, Space};
use vellum::stats::Counter;

/// Every setting that reads huge zeros.
const FORMS: [ZeroHuge; 3] = [ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];

struct Rig<C: Codec> {
    lab: Lab<C>,
    spaces: RefCell<Vec<Space>>,
}

type Act<C> = fn(&Rig<C>);

fn rig<C: Codec>(rules: MmuRules, form: ZeroHuge) -> Rc<Rig<C>> {
    rig_of(rules, form, 2 * MIB2)
}

fn rig_of<C: Codec>(rules: MmuRules, form: ZeroHuge, bytes: u64) -> Rc<Rig<C>> {
    let config = Config { zero_huge: form, ..Config::default() };
    let lab = lab_on::<C>(Flat::new(Topology::flat(3, Pfn(512), 8192), rules), config);
    let spaces = (0..2)
        .map(|_| {
            let space = lab.vm.create().unwrap();
            lab.map(&space, Va(GIB), bytes, RW);
            space
        })
        .collect();
    Rc::new(Rig { lab, spaces: RefCell::new(spaces) })
}

impl<C: Codec> Rig<C> {
    /// A fault of a space, told by its place in the list.
    fn fault(&self, space: usize, va: u64, access: Access) {
        self.lab.vm.fault(&self.spaces.borrow()[space], Va(va), access).expect("there is memory");
    }
    fn all(&self) {
        let spaces = self.spaces.borrow();
        self.lab.check(&spaces.iter().collect::<Vec<_>>());
    }
    fn zero_at(&self, space: usize, va: u64) -> bool {
        matches!(
            self.lab.vm.query(&self.spaces.borrow()[space], Va(va)),
            Page::Mapped { zero: true, .. }
        )
    }
}

/// Runs `body` on CPU 0 with `act` on CPU 1 put in after `at` shared words, for every `at` there
/// is; `check` looks at each outcome, told whether the act ran. Says in how many places it did.
fn everywhere<C: Codec + 'static>(
    make: impl Fn() -> Rc<Rig<C>>,
    body: impl Fn(&Rig<C>),
    act: Act<C>,
    check: impl Fn(&Rig<C>),
) -> u32 {
    let mut places = 0;
    for at in 0.. {
        let rig = make();
        let (ran, waited) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let woven = {
            let (rig, ran, waited) = (Rc::clone(&rig), Rc::clone(&ran), Rc::clone(&waited));
            Box::new(move || {
                rig.lab.vm.machine().run_on(1);
                ran.set(unless_it_waits(|| act(&rig)).is_some());
                waited.set(!ran.get());
            })
        };
        rig.lab.vm.machine().run_on(0);
        let began = weave(vec![(at, woven as Box<dyn FnOnce()>)], || {
            // An act that was cut off while it waited may have left a lock taken: that schedule
            // ends here.
            let done = catch_unwind(AssertUnwindSafe(|| body(&rig)));
            if let Err(why) = done
                && !waited.get()
            {
                resume_unwind(why);
            }
        });
        if began == 0 {
            return places;
        }
        if ran.get() {
            places += 1;
            check(&rig);
        }
        if waited.get() {
            // What the half-done act holds cannot be taken apart; the rig's memory goes as a whole.
            continue;
        }
        let spaces = rig.spaces.take();
        spaces.into_iter().for_each(|space| rig.lab.vm.exit(space));
        rig.lab.vm.shrink_zeros();
        rig.lab.check(&[]);
        assert_eq!(rig.lab.vm.stats().get(Counter::TablePages), 0, "tables lost");
    }
    unreachable!()
}

fn d_04<C: Codec + 'static>(rules: MmuRules, form: ZeroHuge, bytes: u64) {
    // What one thread alone takes: its tables, and no more, whoever else tries.
    let tables = {
        let rig = rig_of::<C>(rules, form, bytes);
        rig.fault(0, GIB, Access::Read);
        (rig.lab.vm.usage(&rig.spaces.borrow()[0]).table_nodes, rig.lab.count(Counter::TablePages))
    };
    let places = everywhere::<C>(
        || rig_of(rules, form, bytes),
        |rig| rig.fault(0, GIB, Access::Read),
        |rig| rig.fault(0, GIB + 8192, Access::Read),
        move |rig| {
            rig.all();
            assert!(rig.zero_at(0, GIB), "one mapping");
            let usage = rig.lab.vm.usage(&rig.spaces.borrow()[0]);
            assert_eq!(
                (usage.table_nodes, rig.lab.count(Counter::TablePages)),
                tables,
                "{form:?}: tables left over"
            );
            if form == ZeroHuge::Page {
                assert_eq!((usage.zero_huge_leaves, rig.lab.vm.huge_zero_references()), (1, 2));
            }
        },
    );
    assert!(places > 3, "{places} places");
}

#[test]
fn d_04_two_threads_read_one_place_at_once_and_there_is_one_mapping_and_one_reference() {
    for form in FORMS {
        // With the tables above them there, and with those to be made as well.
        for bytes in [2 * MIB2, GIB] {
            d_04::<X86_64>(MmuRules::X86_64, form, bytes);
            d_04::<Aarch64>(MmuRules::AARCH64, form, bytes);
        }
    }
}

#[test]
fn d_05_two_spaces_race_on_the_first_use_ever_and_end_with_one_page_and_count_three() {
    let places = everywhere::<X86_64>(
        || rig(MmuRules::X86_64, ZeroHuge::Page),
        |rig| rig.fault(0, GIB, Access::Read),
        |rig| rig.fault(1, GIB, Access::Read),
        |rig| {
            rig.all();
            assert_eq!(rig.lab.vm.huge_zero_references(), 3);
            assert_eq!(rig.lab.vm.stats().get(Counter::ThpZeroAlloc), 1);
            assert!(rig.zero_at(0, GIB) && rig.zero_at(1, GIB));
        },
    );
    assert!(places > 5, "{places} places");
}

#[test]
fn d_05_within_one_space_the_count_ends_at_two() {
    everywhere::<X86_64>(
        || rig(MmuRules::X86_64, ZeroHuge::Page),
        |rig| rig.fault(0, GIB, Access::Read),
        |rig| rig.fault(0, GIB + MIB2, Access::Read),
        |rig| {
            rig.all();
            assert_eq!(rig.lab.vm.huge_zero_references(), 2);
        },
    );
}

/// A space uses the page, leaves, the shrinker frees it, and a new one is made: all as one act.
fn come_and_go(rig: &Rig<X86_64>) {
    let vm = &rig.lab.vm;
    let space = vm.create().unwrap();
    rig.lab.map(&space, Va(GIB), MIB2, RW);
    vm.fault(&space, Va(GIB), Access::Read).unwrap();
    vm.exit(space);
    vm.shrink_zeros();
    rig.fault(1, GIB + MIB2, Access::Read);
}

#[test]
fn d_15_a_live_page_is_always_recognised_whatever_a_shrinker_does_in_between() {
    let live = |rig: &Rig<X86_64>| {
        rig.all();
        let spaces = rig.spaces.borrow();
        for (at, space) in [(GIB, &spaces[0]), (GIB + MIB2, &spaces[1])] {
            if let Page::Mapped { pfn, level: Level::TWO, zero, .. } =
                rig.lab.vm.query(space, Va(at))
            {
                assert!(zero && rig.lab.vm.is_zero(pfn) && rig.lab.vm.is_zero(pfn.add(511)));
                assert!(!rig.lab.vm.is_zero(pfn.add(512)));
                assert_eq!(rig.lab.vm.huge_zero(), Some(pfn));
            }
        }
    };
    // The first use, interrupted by the shrinker; by another's whole life; the shrinker,
    // interrupted by uses.
    let first = |rig: &Rig<X86_64>| rig.fault(0, GIB, Access::Read);
    assert!(
        everywhere(
            || rig(MmuRules::X86_64, ZeroHuge::Page),
            first,
            |rig| {
                rig.lab.vm.shrink_zeros();
            },
            live
        ) > 5
    );
    assert!(everywhere(|| rig(MmuRules::X86_64, ZeroHuge::Page), first, come_and_go, live) > 5);
    let used_once = || {
        let rig = rig::<X86_64>(MmuRules::X86_64, ZeroHuge::Page);
        let space = rig.lab.vm.create().unwrap();
        rig.lab.map(&space, Va(GIB), MIB2, RW);
        rig.lab.vm.fault(&space, Va(GIB), Access::Read).unwrap();
        rig.lab.vm.exit(space);
        rig
    };
    let shrink = |rig: &Rig<X86_64>| {
        rig.lab.vm.shrink_zeros();
    };
    assert!(everywhere(used_once, shrink, |rig| rig.fault(0, GIB, Access::Read), live) >= 2);
    assert!(everywhere(used_once, shrink, come_and_go, live) >= 2);
    assert!(
        everywhere(
            used_once,
            shrink,
            |rig| {
                rig.lab.vm.keep_zeros().unwrap();
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
        let rig = rig::<X86_64>(MmuRules::X86_64, ZeroHuge::Page);
        let space = rig.lab.vm.create().unwrap();
        rig.lab.map(&space, Va(GIB), MIB2, RW);
        rig.lab.vm.fault(&space, Va(GIB), Access::Read).unwrap();
        rig.lab.vm.exit(space);
        rig.lab.poke(&rig.spaces.borrow()[0], Va(GIB), 1).unwrap();
        rig
    };
    let swap = |rig: &Rig<X86_64>| {
        rig.lab.vm.shrink_zeros();
        // Refused once it is unmapped.
        let _ = rig.lab.vm.fault(&rig.spaces.borrow()[0], Va(GIB + MIB2), Access::Write);
        rig.fault(1, GIB, Access::Read);
    };
    let unmap =
        |rig: &Rig<X86_64>| rig.lab.vm.unmap(&rig.spaces.borrow()[0], Va(GIB), 2 * MIB2).unwrap();
    assert!(everywhere(with_data, unmap, swap, |rig| rig.all()) > 5);
    let fork = |rig: &Rig<X86_64>| {
        let child = rig.lab.vm.fork(&rig.spaces.borrow()[0]).unwrap();
        rig.lab.vm.exit(child);
    };
    assert!(everywhere(with_data, fork, swap, |rig| rig.all()) > 5);
}

#[test]
fn d_08_a_first_use_in_the_middle_of_a_fork_is_the_childs_as_well() {
    let forked = |rig: &Rig<X86_64>| {
        let child = rig.lab.vm.fork(&rig.spaces.borrow()[0]).unwrap();
        rig.spaces.borrow_mut().push(child);
    };
    let places = everywhere::<X86_64>(
        || rig(MmuRules::X86_64, ZeroHuge::Page),
        |rig| {
            let child = rig.lab.vm.fork(&rig.spaces.borrow()[0]).unwrap();
            rig.lab.vm.exit(child);
            forked(rig);
        },
        |rig| rig.fault(0, GIB + MIB2, Access::Read),
        |rig| {
            // Which holds them to: whoever maps the page holds it.
            rig.all();
            assert!(rig.lab.vm.huge_zero_references() >= 2);
        },
    );
    assert!(places > 20, "{places} places");
}

fn writes_meet<C: Codec + 'static>(rules: MmuRules, form: ZeroHuge, huge: bool) {
    let read = || {
        let rig = rig::<C>(rules, form);
        rig.fault(0, GIB, Access::Read);
        if !huge {
            // No huge page is to be had; a few base pages are.
            let want = vellum::unstable::Want::kernel(vellum::machine::Use::Slab);
            while rig.lab.vm.frames().alloc(rig.lab.vm.machine(), Order::HUGE, &want).is_ok() {}
        }
        rig
    };
    for act in [
        (|rig: &Rig<C>| rig.fault(0, GIB, Access::Write)) as Act<C>,
        |rig| rig.fault(0, GIB + 8192, Access::Write),
        |rig| {
            let _ = rig.lab.vm.unmap(&rig.spaces.borrow()[0], Va(GIB + 4096), 4096);
        },
        |rig| {
            let _ = rig.lab.vm.protect(
                &rig.spaces.borrow()[0],
                Va(GIB),
                MIB2,
                vellum::space::Rights::READ,
            );
        },
        |rig| {
            let _ = rig.lab.vm.advise(
                &rig.spaces.borrow()[0],
                Va(GIB),
                MIB2,
                vellum::space::Advice::DontNeed,
            );
        },
    ] {
        let mut places = 0;
        for at in 0.. {
            let rig = read();
            let ran = Rc::new(Cell::new(false));
            let woven = {
                let (rig, ran) = (Rc::clone(&rig), Rc::clone(&ran));
                Box::new(move || {
                    rig.lab.vm.machine().run_on(1);
                    ran.set(unless_it_waits(|| act(&rig)).is_some())
                })
            };
            rig.lab.vm.machine().run_on(0);
            let began = weave(vec![(at, woven as Box<dyn FnOnce()>)], || {
                let _ = rig.lab.vm.fault(&rig.spaces.borrow()[0], Va(GIB), Access::Write);
            });
            if began == 0 {
                break;
            }
            if ran.get() {
                places += 1;
                let spaces = rig.spaces.borrow();
                rig.lab.vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("everything adds up");
            }
            // Where the act waited it holds what it held: the rig's memory goes as a whole.
        }
        assert!(places > 3, "{places} places");
    }
}

#[test]
fn a_write_meets_any_other_change_at_any_step_and_everything_adds_up() {
    for huge in [true, false] {
        for form in FORMS {
            writes_meet::<X86_64>(MmuRules::X86_64, form, huge);
            writes_meet::<Aarch64>(MmuRules::AARCH64, form, huge);
        }
    }
}

/// Zeros mapped in a second table, so that there is something to take away, and another lock to
/// wait for.
fn rig_of_two<C: Codec>(rules: MmuRules, form: ZeroHuge) -> Rc<Rig<C>> {
    let rig = rig::<C>(rules, form);
    rig.lab.map(&rig.spaces.borrow()[0], Va(2 * GIB), MIB2, RW);
    rig.fault(0, 2 * GIB, Access::Read);
    rig
}

fn forbidden<C: Codec + 'static>(rules: MmuRules, form: ZeroHuge) {
    let read = |rig: &Rig<C>| rig.fault(0, GIB, Access::Read);
    let forbid = |rig: &Rig<C>| rig.lab.vm.forbid_zeros(&rig.spaces.borrow()[0]);
    let none = |rig: &Rig<C>| {
        rig.all();
        assert!(
            !rig.zero_at(0, GIB) && !rig.zero_at(0, 2 * GIB),
            "{form:?}: zeros where they are forbidden"
        );
    };
    for (body, act) in [(read as Act<C>, forbid as Act<C>), (forbid, read)] {
        let places = everywhere::<C>(|| rig_of_two(rules, form), body, act, none);
        assert!(places > 3, "{form:?}: {places} places");
    }
}

#[test]
fn no_zeros_are_mapped_once_they_are_forbidden_whatever_a_fault_does_meanwhile() {
    for form in FORMS {
        forbidden::<X86_64>(MmuRules::X86_64, form);
        forbidden::<Aarch64>(MmuRules::AARCH64, form);
    }
}
