//! A verb happens at one moment: what another thread finds in two accesses, one after the other, is
//! what there was before it, or after it, or first the one and then the other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::explorer::{NEXT, both, few, script};
use crate::scarce::{FAR, RW};
use vellum::addr::Va;
use vellum::error::FaultError;
use vellum::space::{Access, Advice, Page, Placement, Rights};
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};
use vellum_proof::explore::{Script, explore};

const PAGE: u64 = 4096;

/// An instruction fetch of a program, with the faults it takes.
fn fetch(l: &Fixture, at: Va) -> Result<(), FaultError> {
    for _ in 0..50 {
        if l.vm.machine().fetch(at).is_ok() {
            return Ok(());
        }
        l.vm.fault(l.space(), at, Access::Exec)?;
    }
    panic!("it faults for ever");
}

fn protect(at: Va, rights: Rights) -> Script<Fixture> {
    script(move |l: &Fixture| assert_eq!(l.vm.protect(l.space(), at, PAGE, rights), Ok(())))
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Look {
    Load,
    Store,
    Fetch,
    Query,
    In,
    Out,
    Fault(Access),
}

impl Look {
    const ALL: [Look; 8] = [
        Look::Load,
        Look::Store,
        Look::Fetch,
        Look::Query,
        Look::In,
        Look::Out,
        Look::Fault(Access::Write),
        Look::Fault(Access::Exec),
    ];

    /// Whether what it finds is what a page with those rights shows.
    fn finds(self, l: &Fixture, at: Va) -> impl Fn(Rights) -> bool {
        let (access, done) = match self {
            Look::Load => (Access::Read, l.load(at).is_ok()),
            Look::Store => (Access::Write, l.store(at, 7).is_ok()),
            Look::Fetch => (Access::Exec, fetch(l, at).is_ok()),
            Look::In => (Access::Write, l.vm.copy_in(l.space(), at, &[1]).is_ok()),
            Look::Out => (Access::Read, l.vm.copy_out(l.space(), at, &mut [1]).is_ok()),
            Look::Fault(access) => (access, l.vm.fault(l.space(), at, access).is_ok()),
            Look::Query => (Access::Read, false),
        };
        let told = (self == Look::Query).then(|| match l.vm.query(l.space(), at) {
            Page::Mapped { rights, .. } | Page::Reserved { rights } => rights,
            _ => Rights::NONE,
        });
        move |rights| told.map_or(rights.allows(access) == done, |told| told == rights)
    }
}

/// Every change of rights of a page beside two looks, by a CPU that has all translations there can
/// be.
fn rights_change_at_one_moment(shared: bool, looks: &[Look]) {
    let all = [Rights::NONE, Rights::READ, Rights::READ_WRITE, Rights::READ_EXEC, Rights::ALL];
    let pairs = all.into_iter().flat_map(|from| all.map(|to| (from, to)));
    let changes = pairs.filter(|(from, to)| from != to);
    let bad = Rc::new(RefCell::new(BTreeSet::new()));
    for (from, to) in changes {
        let make = move || {
            let fixture = few(2)();
            if shared {
                fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
            }
            fixture.vm.protect(fixture.space(), AT, PAGE, from).expect("memory");
            fixture.enter(1);
            if from.read {
                fixture.load(AT).expect("it may be read");
            }
            if from.exec {
                fetch(&fixture, AT).expect("it may be executed");
            }
            if from.write && !shared {
                fixture.store(AT, 1).expect("it may be written");
            }
            fixture.enter(0);
            fixture
        };
        for (a, b) in looks.iter().flat_map(|&a| looks.iter().map(move |&b| (a, b))) {
            let bad = bad.clone();
            let look = script(move |l: &Fixture| {
                let (first, then) = (a.finds(l, AT), b.finds(l, AT));
                if ![(from, from), (from, to), (to, to)].iter().any(|&(x, y)| first(x) && then(y)) {
                    bad.borrow_mut().insert(format!("{from:?} to {to:?}: {a:?}, {b:?}"));
                }
            });
            explore(&make, &[protect(AT, to), look], 1, u64::MAX);
        }
    }
    assert!(bad.borrow().is_empty(), "found after it and then before it: {:#?}", bad.borrow());
}

#[test]
fn the_rights_of_a_page_change_at_one_moment() {
    rights_change_at_one_moment(false, &Look::ALL);
}

#[test]
fn the_rights_of_a_shared_page_change_at_one_moment() {
    rights_change_at_one_moment(true, &[Look::Load, Look::Store, Look::Fetch, Look::Query]);
}

#[test]
fn a_page_is_not_written_by_who_could_after_another_has_executed_it() {
    let make = || {
        let fixture = few(3)();
        fixture.enter(2);
        fixture.store(AT, 1).expect("memory");
        fixture.enter(0);
        fixture
    };
    let executes = script(|l: &Fixture| l.told.set(fetch(l, AT).is_ok()));
    let writes = script(|l: &Fixture| {
        if l.told.get() {
            assert_eq!(l.store(AT, 7), Err(FaultError::Rights), "another CPU has executed it");
        }
    });
    let scripts = [protect(AT, Rights::READ_EXEC), executes, writes];
    println!("{:?}", explore(&make, &scripts, 2, 200_000));
}

#[test]
fn what_one_page_gets_and_another_loses_changes_at_one_moment() {
    let make = || {
        let fixture = few(2)();
        fixture.vm.protect(fixture.space(), NEXT, PAGE, Rights::NONE).expect("memory");
        fixture.enter(1);
        fixture.store(AT, 1).expect("memory");
        fixture.enter(0);
        fixture
    };
    let protect = |l: &Fixture| {
        assert_eq!(l.vm.protect(l.space(), AT, 2 * PAGE, Rights::READ), Ok(()));
    };
    both(&make, protect, |l| {
        if l.load(NEXT).is_ok() {
            assert_eq!(l.store(AT, 7), Err(FaultError::Rights), "the other page may be read");
        }
    });
}

#[test]
fn a_tail_that_a_remap_cuts_off_is_gone_when_the_rest_has_moved() {
    const LAST: Va = Va(AT.0 + 3 * PAGE);
    let make = || {
        let fixture = few(2)();
        fixture.store(LAST, 5).expect("memory");
        fixture
    };
    let remap = |l: &Fixture| {
        let to = Placement::At(FAR);
        assert_eq!(l.vm.remap(l.space(), AT, 4 * PAGE, 2 * PAGE, to), Ok(FAR));
    };
    both(&make, remap, |l| {
        if l.load(FAR).is_ok() {
            assert_eq!(l.load(LAST), Err(FaultError::Unmapped), "the rest has moved");
        }
    });
}

/// DONTNEED of a page that CPU 1 has a translation of, and of a reserved range to which it stores.
fn dontneed_is_at_one_moment(reserved: Va, bytes: u64) {
    let make = || {
        let fixture = few(2)();
        let beyond = Va(AT.0 + 4 * PAGE);
        fixture
            .vm
            .map(fixture.space(), Placement::At(beyond), 2 * MIB2 - 4 * PAGE, RW)
            .expect("memory");
        fixture.enter(1);
        fixture.store(AT, 5).expect("memory");
        fixture.enter(0);
        fixture
    };
    let (read, over) = (Rc::new(Cell::new(Ok(0))), Rc::new(Cell::new(0)));
    let last = {
        let read = read.clone();
        Rc::new(move |l: &Fixture| {
            over.set((over.get() + 1) % 2);
            if over.get() == 0 && l.load(reserved) == Ok(1) {
                // The store came after it, so the load did.
                assert_ne!(read.get(), Ok(5), "the store came after it, the load before it");
            }
        })
    };
    let also = last.clone();
    let forget = move |l: &Fixture| {
        assert_eq!(l.vm.advise(l.space(), AT, bytes, Advice::DontNeed), Ok(()));
        also(l);
    };
    both(&make, forget, move |l| {
        assert_eq!(l.store(reserved, 1), Ok(()));
        read.set(l.load(AT));
        last(l);
    });
}

#[test]
fn dontneed_of_a_reserved_range_is_at_the_moment_of_that_of_a_page() {
    dontneed_is_at_one_moment(NEXT, 2 * PAGE);
}

#[test]
fn dontneed_of_a_reserved_range_of_2_mib_is_at_the_moment_of_that_of_a_page() {
    // Another page of it than that whose translation has the place of AT's.
    dontneed_is_at_one_moment(Va(AT.0 + MIB2 + PAGE), 2 * MIB2);
}
