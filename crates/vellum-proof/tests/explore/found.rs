//! What was found wrong between two verbs, each in the smallest script that showed it.

use std::cell::Cell;
use std::rc::Rc;

use crate::explorer::{NEXT, base, both, check, few, huge, script, small};
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::error::FaultError;
use vellum::machine::{Machine, MmuRules, Use};
use vellum::space::{Access, Advice, Attrs, LeafSize, Page, Placement, Rights};
use vellum::unstable::AllocRequest;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};
use vellum_proof::explore::{Script, explore};

/// Another word of the first page.
const WORD: Va = Va(AT.0 + 1000);
/// The page after the next one.
const THIRD: Va = Va(AT.0 + 2 * 4096);

/// Scripts of which the last to end looks at what came of all.
fn then(scripts: Vec<Script<Fixture>>, last: impl Fn(&Fixture) + 'static) -> Vec<Script<Fixture>> {
    let (all, done, last) = (scripts.len(), Rc::new(Cell::new(0)), Rc::new(last));
    let one = |act: Script<Fixture>| {
        let (done, last) = (done.clone(), last.clone());
        script(move |l: &Fixture| {
            act(l);
            done.set((done.get() + 1) % all);
            if done.get() == 0 {
                last(l);
            }
        })
    };
    scripts.into_iter().map(one).collect()
}

fn fork() -> Script<Fixture> {
    script(|l| l.vm.fork(l.space()).into_iter().for_each(|child| l.keep(child)))
}

fn store(at: Va, value: u32) -> Script<Fixture> {
    script(move |l| assert_eq!(l.store(at, value), Ok(())))
}

/// What the child that was kept last sees.
fn child(l: &Fixture, at: Va) -> u32 {
    let mut bytes = [0; 4];
    l.vm.copy_out(&l.last(), at, &mut bytes).expect("memory");
    u32::from_le_bytes(bytes)
}

/// Whether a store, or its refusal, is one of those that can be explained beside an unmap and a
/// protect.
fn stored_or_refused(done: Result<(), FaultError>) {
    assert!(matches!(done, Ok(()) | Err(FaultError::Unmapped | FaultError::Rights)), "{done:?}");
}

#[test]
fn a_store_through_an_old_translation_is_not_lost_while_another_thread_copies_the_page() {
    // CPU 2 may write the page without a fault; CPU 1 has no translation of it.
    let held = || {
        let fixture = few(3)();
        fixture.enter(2);
        fixture.store(AT, 1).expect("memory");
        fixture.enter(0);
        fixture
    };
    type Write = fn(&Fixture);
    let writes: [(&str, Write); 4] = [
        ("store", |l| assert_eq!(l.store(WORD, 3), Ok(()))),
        ("copy_in", |l| assert_eq!(l.vm.copy_in(l.space(), WORD, &[3, 0, 0, 0]), Ok(()))),
        ("write_forced", |l| assert_eq!(l.vm.write_forced(l.space(), WORD, &[3, 0, 0, 0]), Ok(()))),
        ("populate, store", |l| {
            assert_eq!(l.vm.advise(l.space(), AT, 4096, Advice::Populate { write: true }), Ok(()));
            assert_eq!(l.store(WORD, 3), Ok(()));
        }),
    ];
    for (name, write) in writes {
        let scripts = then(vec![fork(), script(write), store(AT, 2)], |l| {
            assert_eq!((l.load(AT), l.load(WORD)), (Ok(2), Ok(3)), "a store was lost");
        });
        check(&format!("fork, {name}, store"), &held, &scripts, 2);
    }
}

#[test]
fn a_child_that_sees_a_store_sees_those_before_it() {
    let far = Va(AT.0 + MIB2);
    let two = move || {
        let fixture = Fixture::with_space(2, 1024, base());
        fixture.store(far, 1).expect("memory");
        fixture
    };
    let both = || {
        script(move |l: &Fixture| {
            assert_eq!(l.store(AT, 2), Ok(()));
            assert_eq!(l.store(far, 2), Ok(()));
        })
    };
    let fresh = || {
        script(move |l: &Fixture| {
            assert_eq!(l.store(NEXT, 2), Ok(()));
            assert_eq!(l.store(far, 2), Ok(()));
        })
    };
    for (name, first, writer) in [("a page", AT, both()), ("a reserved range", NEXT, fresh())] {
        let scripts = then(vec![fork(), writer], move |l| {
            let (x, y) = (child(l, first), child(l, far));
            assert!(y != 2 || x == 2, "the child has the second store and not the first: {x}, {y}");
        });
        check(&format!("fork, stores to {name} and behind it"), &two, &scripts, 2);
    }
}

fn zeros(cpus: usize, form: ZeroHuge) -> impl Fn() -> Fixture {
    move || {
        let fixture =
            Fixture::with_space(cpus, 512, Config { zero_huge: form, ..Config::default() });
        assert_eq!(fixture.vm.advise(fixture.space(), AT, MIB2, Advice::DontNeed), Ok(()));
        assert_eq!(fixture.load(AT), Ok(0));
        fixture
    }
}

const FORMS: [ZeroHuge; 3] = [ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];

#[test]
fn verbs_that_take_pages_out_leave_alone_what_a_fault_has_aside() {
    for form in FORMS {
        let write = || script(|l| stored_or_refused(l.store(NEXT, 7)));
        let unmap = script(|l| assert_eq!(l.vm.unmap(l.space(), AT, MIB2), Ok(())));
        check(&format!("write to zeros, unmap: {form:?}"), &zeros(2, form), &[write(), unmap], 2);
        let part = script(|l| assert_eq!(l.vm.unmap(l.space(), AT, 4 * 4096), Ok(())));
        check(
            &format!("write to zeros, unmap of a part: {form:?}"),
            &zeros(2, form),
            &[write(), part],
            2,
        );
        let over = script(|l| {
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            assert_eq!(l.vm.map(l.space(), Placement::Replace(AT), MIB2, attrs), Ok(AT));
        });
        check(&format!("write to zeros, map over: {form:?}"), &zeros(2, form), &[write(), over], 2);
    }
}

#[test]
fn dontneed_leaves_alone_what_a_fault_has_aside_that_came_behind_it() {
    let read_write = || {
        script(|l| {
            assert!(l.load(NEXT).is_ok());
            assert_eq!(l.store(NEXT, 7), Ok(()));
        })
    };
    let forget = |bytes| {
        script(move |l: &Fixture| {
            assert_eq!(l.vm.advise(l.space(), AT, bytes, Advice::DontNeed), Ok(()))
        })
    };
    check("dontneed, load and store", &few(2), &[forget(4 * 4096), read_write()], 2);
    for form in FORMS {
        let reserved = move || {
            let fixture = zeros(2, form)();
            assert_eq!(fixture.vm.advise(fixture.space(), AT, MIB2, Advice::DontNeed), Ok(()));
            fixture
        };
        check(
            &format!("dontneed, load and store: {form:?}"),
            &reserved,
            &[forget(MIB2), read_write()],
            2,
        );
        let tight = move || {
            let fixture = reserved();
            (0..4).for_each(|_| fixture.take(9));
            fixture
        };
        check(
            &format!("dontneed, load and store without blocks: {form:?}"),
            &tight,
            &[forget(MIB2), read_write()],
            2,
        );
    }
}

/// Four pages whose second has a region of its own, between two that are alike.
fn between(around: Rights, inside: Rights) -> impl Fn() -> Fixture {
    move || {
        let fixture = few(2)();
        assert_eq!(fixture.vm.protect(fixture.space(), AT, 4 * 4096, around), Ok(()));
        assert_eq!(fixture.vm.protect(fixture.space(), NEXT, 4096, inside), Ok(()));
        fixture
    }
}

/// Exchanges the second page for one of another mapping.
fn another(rights: Rights) -> Script<Fixture> {
    script(move |l| {
        assert_eq!(l.vm.unmap(l.space(), NEXT, 4096), Ok(()));
        assert_eq!(
            l.vm.map(l.space(), Placement::At(NEXT), 4096, Attrs::anonymous(rights)),
            Ok(NEXT)
        );
    })
}

#[test]
fn a_fault_does_not_install_by_a_region_whose_place_another_mapping_has_taken() {
    let write = || script(|l| stored_or_refused(l.store(NEXT, 7)));
    let ends = |rights: Rights| {
        move |l: &Fixture| {
            let refused = |access| l.vm.fault(l.space(), NEXT, access).is_err();
            for cpu in 0..2 {
                l.enter(cpu);
                assert!(
                    rights.write || l.store(NEXT, 9) == Err(FaultError::Rights),
                    "a store went through"
                );
                assert!(
                    !rights.is_none() || l.load(NEXT) == Err(FaultError::Rights),
                    "a load went through"
                );
                assert!(rights.exec || refused(Access::Exec), "code may be fetched");
            }
        }
    };
    for rights in [Rights::READ, Rights::NONE] {
        let make = between(rights, Rights::READ_WRITE);
        check(
            &format!("store, unmap and map {rights:?}"),
            &make,
            &then(vec![write(), another(rights)], ends(rights)),
            1,
        );
        let populate = script(|l| {
            let _ = l.vm.advise(l.space(), NEXT, 4096, Advice::Populate { write: true });
        });
        let scripts = then(vec![populate, another(rights)], ends(rights));
        check(&format!("populate, unmap and map {rights:?}"), &make, &scripts, 1);
    }
    // Executable pages between pages that are not.
    let make = between(Rights::READ_WRITE, Rights::ALL);
    let scripts = then(vec![write(), another(Rights::READ_WRITE)], |l| {
        let page = l.vm.query(l.space(), NEXT);
        assert!(
            !format!("{page:?}").contains("exec: true"),
            "a page is executable by a region that is gone: {page:?}"
        );
    });
    check("store to code, unmap and map", &make, &scripts, 1);
    // Several pages at once.
    let wide = move || {
        let fixture = Fixture::with_space(2, 8, base());
        assert_eq!(fixture.vm.protect(fixture.space(), AT, 8 * 4096, Rights::READ), Ok(()));
        assert_eq!(fixture.vm.protect(fixture.space(), NEXT, 4 * 4096, Rights::READ_WRITE), Ok(()));
        fixture
    };
    let scripts = then(
        vec![
            script(|l| {
                let _ = l.vm.advise(l.space(), NEXT, 4 * 4096, Advice::Populate { write: true });
            }),
            script(|l| {
                assert_eq!(l.vm.unmap(l.space(), NEXT, 4 * 4096), Ok(()));
                let attrs = Attrs::anonymous(Rights::READ);
                assert_eq!(l.vm.map(l.space(), Placement::At(NEXT), 4 * 4096, attrs), Ok(NEXT));
            }),
        ],
        |l| assert_eq!(l.store(THIRD, 9), Err(FaultError::Rights)),
    );
    check("populate of four, unmap and map", &wide, &scripts, 1);
}

#[test]
fn no_cpu_reads_the_old_page_when_another_has_written_the_new_one() {
    // CPU 0 runs the space; the two others come while it breaks the sharing of a page.
    let alone = |fixture: Fixture| {
        for cpu in [1, 2] {
            fixture.enter(cpu);
            fixture.vm.deactivate();
        }
        fixture.enter(0);
        fixture
    };
    let forked = move || {
        let fixture = few(3)();
        let child = fixture.vm.fork(fixture.space()).expect("memory");
        fixture.keep(child);
        alone(fixture)
    };
    let zero = move || {
        let fixture = few(3)();
        assert_eq!(fixture.load(NEXT), Ok(0));
        alone(fixture)
    };
    let large = move || alone(zeros(3, ZeroHuge::Page)());
    let worlds: [(&str, &dyn Fn() -> Fixture, Va); 3] =
        [("page", &forked, AT), ("zeros", &zero, NEXT), ("huge zeros", &large, AT)];
    for (name, make, at) in worlds {
        let copies = store(Va(at.0 + 1000), 5);
        let writes = script(move |l: &Fixture| {
            l.vm.activate(l.space());
            assert_eq!(l.store(at, 9), Ok(()));
            l.told.set(true);
        });
        let reads = script(move |l: &Fixture| {
            l.vm.activate(l.space());
            assert!(l.load(at).is_ok());
            l.vm.machine().relax();
            let told = l.told.get();
            let seen = l.load(at);
            assert!(!told || seen == Ok(9), "told of 9, and saw {seen:?}");
        });
        let done = explore(make, &[copies, writes, reads], 2, 20_000);
        println!("{name}: {done:?}");
        assert!(std::env::var("VELLUM_SCHEDULE").is_ok() || done.schedules > 1000, "{done:?}");
    }
}

#[test]
fn a_page_that_becomes_the_huge_zeros_under_a_fault_is_not_taken_for_the_programs_own() {
    let mine = || {
        let fixture =
            Fixture::with_space(2, 512, Config { zero_huge: ZeroHuge::Page, ..Config::default() });
        let child = fixture.vm.fork(fixture.space()).expect("memory");
        fixture.vm.exit(child);
        (0..4).for_each(|_| fixture.take(9));
        fixture
    };
    let write = || script(|l| assert_eq!(l.store(NEXT, 7), Ok(())));
    let again = || {
        script(|l| {
            assert_eq!(l.vm.advise(l.space(), AT, MIB2, Advice::DontNeed), Ok(()));
            assert!(l.load(AT).is_ok());
        })
    };
    check("store to a page that was shared, dontneed and load", &mine, &[write(), again()], 1);
    let shared = || {
        let fixture = huge(2)();
        fixture.vm.fork(fixture.space()).into_iter().for_each(|child| fixture.keep(child));
        fixture
    };
    check("store to a page that is shared, dontneed and load", &shared, &[write(), again()], 1);
}

#[test]
fn no_access_is_refused_in_a_mapping_whose_table_goes() {
    type Act = fn(&Fixture);
    let verbs: [(&str, Act); 2] = [
        ("collapse", |l| assert_eq!(l.vm.advise(l.space(), AT, MIB2, Advice::Collapse), Ok(()))),
        ("dontneed", |l| assert_eq!(l.vm.advise(l.space(), AT, MIB2, Advice::DontNeed), Ok(()))),
    ];
    let accesses: [(&str, Act); 6] = [
        ("load", |l| assert!(l.load(NEXT).is_ok())),
        ("store", |l| assert_eq!(l.store(NEXT, 7), Ok(()))),
        ("query", |l| assert_ne!(l.vm.query(l.space(), NEXT), Page::Unmapped)),
        ("copy_in", |l| assert_eq!(l.vm.copy_in(l.space(), NEXT, &[7]), Ok(()))),
        ("write_forced", |l| assert_eq!(l.vm.write_forced(l.space(), NEXT, &[7]), Ok(()))),
        ("populate", |l| {
            assert_eq!(
                l.vm.advise(l.space(), NEXT, 2 * 4096, Advice::Populate { write: true }),
                Ok(())
            );
        }),
    ];
    for (verb, goes) in verbs {
        for (name, access) in accesses {
            check(&format!("{name}, {verb}"), &small(2), &[script(access), script(goes)], 1);
        }
    }
    // A private table of zeros gives way to a huge page.
    let make = zeros(2, ZeroHuge::TablePrivate);
    for (name, access) in accesses {
        let gives_way = script(|l| assert_eq!(l.store(AT, 7), Ok(())));
        check(&format!("{name}, store to zeros"), &make, &[script(access), gives_way], 1);
    }
}

#[test]
fn no_access_is_refused_where_one_mapping_takes_the_place_of_another() {
    let over = |bytes| {
        script(move |l: &Fixture| {
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            assert_eq!(l.vm.map(l.space(), Placement::Replace(NEXT), bytes, attrs), Ok(NEXT));
        })
    };
    let write = || script(|l| assert_eq!(l.store(NEXT, 7), Ok(())));
    check("store to a reserved range, map over", &few(2), &[write(), over(4096)], 1);
    let page = || {
        let fixture = few(2)();
        fixture.store(NEXT, 1).expect("memory");
        fixture
    };
    check("store to a page, map over", &page, &[write(), over(4096)], 1);
    check("store to a page of a table, map over", &page, &[write(), over(MIB2)], 1);
    // What is beside it gives no right to write.
    let between = between(Rights::READ, Rights::ALL);
    check("store between others, map over", &between, &[write(), over(4096)], 1);
    let moved = || {
        script(|l| {
            let from = Va(AT.0 + 3 * MIB2);
            assert_eq!(l.vm.remap(l.space(), from, 4096, 4096, Placement::Replace(NEXT)), Ok(NEXT));
        })
    };
    let two = move || {
        let fixture = page();
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture
            .vm
            .map(fixture.space(), Placement::At(Va(AT.0 + 3 * MIB2)), 4 * 4096, attrs)
            .expect("a hole");
        fixture
    };
    check("store to a page, remap over", &two, &[write(), moved()], 1);
}

/// Takes a frame where some are free.
fn take_one() -> Script<Fixture> {
    script(|l| {
        let got =
            l.vm.frames().alloc(l.vm.machine(), Order::BASE, &AllocRequest::kernel(Use::Slab));
        l.held.borrow_mut().push((got.expect("a frame is free"), Order::BASE));
    })
}

#[test]
fn free_memory_is_not_refused_while_another_cpu_opens_it() {
    // CPU 1 claims a block that is full, and keeps another whole, which is all that is free.
    let make = || {
        let fixture = Fixture::new(2, 1024, Config::default(), MmuRules::X86_64);
        fixture.enter(1);
        fixture.take(9);
        (0..512).for_each(|_| fixture.take(0));
        assert_eq!(fixture.held.borrow().len(), 513);
        fixture.take(0);
        assert_eq!(fixture.held.borrow().len(), 513, "all is had");
        fixture.give(0);
        fixture.enter(0);
        fixture
    };
    check("alloc, alloc", &make, &[take_one(), take_one()], 2);
}

#[test]
fn free_memory_is_not_refused_while_another_cpu_drains() {
    // 74 frames come back by CPU 1, of which 64 go on its stack and are had again: 10 are free, in
    // their block.
    let make = || {
        let fixture = Fixture::new(2, 1024, Config::default(), MmuRules::X86_64);
        fixture.enter(1);
        let mut left = usize::MAX;
        while left != fixture.held.borrow().len() {
            left = fixture.held.borrow().len();
            fixture.take(0);
        }
        (0..74).for_each(|_| fixture.give(left - 74));
        (0..64).for_each(|_| fixture.take(0));
        assert_eq!(fixture.held.borrow().len(), left - 10);
        fixture.enter(0);
        fixture
    };
    let drain = script(|l| l.vm.frames().drain(l.vm.machine()));
    check("alloc, drain", &make, &[take_one(), drain], 2);
}

#[test]
fn a_query_does_not_tell_of_zeros_where_a_page_was_before() {
    const SECOND: Va = Va(AT.0 + MIB2);
    let make = || {
        let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
        let fixture = Fixture::with_space(2, 1024, config);
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        (0..4).for_each(|_| fixture.take(9));
        fixture.give(0);
        fixture
    };
    let query = |l: &Fixture| {
        if let Page::Mapped { zero, level, .. } = l.vm.query(l.space(), AT) {
            assert!(!zero && level == Level::TWO, "never anything but a page with a word in it");
        }
    };
    // The frame of the shared page becomes the zeros of the page beside it.
    both(&make, query, |l: &Fixture| {
        assert_eq!(l.store(AT, 7), Ok(()));
        assert_eq!(l.vm.advise(&l.last(), AT, MIB2, Advice::DontNeed), Ok(()));
        assert_eq!(l.load(SECOND), Ok(0));
    });
}

/// The base frames of one 2 MiB block are free, some of them kept by the last CPU, and nothing
/// else. The second 2 MiB of a space, kept by the world, want a page of exactly that size.
fn exactly(cpus: usize) -> Fixture {
    let fixture = Fixture::new(cpus, 2048, Config::default(), MmuRules::X86_64);
    fixture.enter(0);
    let space = fixture.vm.create().expect("memory");
    let attrs =
        Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..Attrs::anonymous(Rights::READ_WRITE) };
    fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, attrs).expect("memory");
    // A table for them, which comes with the first.
    assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
    fixture.keep(space);
    let mut left = usize::MAX;
    while left != fixture.held.borrow().len() {
        left = fixture.held.borrow().len();
        fixture.take(0);
    }
    for _ in 0..4 {
        assert!(fixture.vm.fault(&fixture.last(), Va(AT.0 + MIB2), Access::Write).is_err());
    }
    // All of one aligned block comes back, frame by frame.
    let first = {
        let held = fixture.held.borrow();
        let has = |pfn: Pfn| held.iter().any(|h| h.0 == pfn);
        let whole =
            |first: &Pfn| first.0.is_multiple_of(512) && (0..512).all(|i| has(first.add(i)));
        held.iter().map(|h| h.0).find(whole).expect("a block that was had whole")
    };
    fixture.enter(cpus - 1);
    for i in 0..512 {
        let n = fixture.held.borrow().iter().position(|h| h.0 == first.add(i)).expect("held");
        fixture.give(n);
    }
    fixture.enter(0);
    fixture
}

fn fault_for_exactly(l: &Fixture) {
    let done = l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Write);
    assert!(done.is_ok(), "{done:?} with 512 frames of a block free");
}

#[test]
fn a_fault_for_exactly_2_mib_is_served_when_2_mib_are_free() {
    let fixture = exactly(1);
    fault_for_exactly(&fixture);
    fixture.end_last();
}

#[test]
fn a_fault_for_exactly_2_mib_is_served_while_another_cpu_drains() {
    let drain = script(|l| l.vm.frames().drain(l.vm.machine()));
    check("drain, fault for exactly 2 MiB", &|| exactly(2), &[drain, script(fault_for_exactly)], 2);
}
