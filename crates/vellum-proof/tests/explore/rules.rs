//! Interleavings that each lean on one rule of the library: without it, one of these fails.

use crate::explorer::{NEXT, base, check, few, huge, script};
use vellum::addr::Va;
use vellum::config::{Config, ZeroHuge};
use vellum::error::{FaultError, SpaceError};
use vellum::machine::MmuRules;
use vellum::space::{Access, Attrs, Page, Placement, Rights};
use vellum::stats::Counter;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};
use vellum_proof::explore::{Script, explore};

const GIB: u64 = 1 << 30;

fn unmap(bytes: u64) -> Script<Fixture> {
    script(move |l| assert_eq!(l.vm.unmap(l.space(), AT, bytes), Ok(())))
}

fn store_or_unmapped(at: Va) -> Script<Fixture> {
    script(move |l| {
        let done = l.store(at, 7);
        assert!(matches!(done, Ok(()) | Err(FaultError::Unmapped)), "{done:?}");
    })
}

#[test]
fn a_fault_that_began_before_its_region_changed_does_not_install_by_the_old_rights() {
    let store = script(|l| {
        let done = l.store(NEXT, 7);
        assert!(matches!(done, Ok(()) | Err(FaultError::Rights)), "{done:?}");
    });
    let protect = script(|l| {
        assert_eq!(l.vm.protect(l.space(), AT, 4 * 4096, Rights::READ), Ok(()));
        l.read_only.set(Some(NEXT));
    });
    check("store, protect", &few(2), &[store.clone(), protect.clone()], 2);
    check("huge store, protect", &huge(2), &[store, protect], 1);
}

#[test]
fn a_cpu_that_comes_back_to_a_space_has_dropped_what_was_changed_meanwhile() {
    let away = || {
        let fixture = Fixture::with_rules(2, 4, base(), MmuRules { asids: 8, ..MmuRules::X86_64 });
        fixture.enter(1);
        fixture.store(AT, 1).expect("memory");
        fixture.vm.deactivate();
        fixture.enter(0);
        fixture
    };
    for cut in [false, true] {
        let change = script(move |l| {
            if cut {
                assert_eq!(l.vm.unmap(l.space(), AT, 4096), Ok(()));
            } else {
                assert_eq!(l.vm.protect(l.space(), AT, 4096, Rights::READ), Ok(()));
                l.read_only.set(Some(AT));
            }
            l.told.set(true);
        });
        let come = script(|l| {
            l.vm.activate(l.space());
            let late = l.told.get();
            let done = l.store(AT, 5);
            assert!(!late || done.is_err(), "a store went through after the verb had returned");
        });
        check("change, activate", &away, &[change, come], 2);
    }
}

#[test]
fn a_table_stays_while_a_fault_has_an_entry_of_it_aside() {
    let shared = |pages, config: Config| {
        move || {
            let fixture = Fixture::with_space(2, pages, config);
            let child = fixture.vm.fork(fixture.space()).expect("memory");
            fixture.keep(child);
            fixture
        }
    };
    check("copy on write, unmap", &shared(4, base()), &[store_or_unmapped(AT), unmap(MIB2)], 2);
    check(
        "copy on write, unmap of all",
        &shared(4, base()),
        &[store_or_unmapped(AT), unmap(4 * 4096)],
        2,
    );
    check(
        "huge copy on write, unmap",
        &shared(512, Config::default()),
        &[store_or_unmapped(AT), unmap(GIB)],
        2,
    );
    let zeros = || {
        let fixture = few(2)();
        assert_eq!(fixture.load(NEXT), Ok(0));
        fixture
    };
    check("write to zeros, unmap", &zeros, &[store_or_unmapped(NEXT), unmap(MIB2)], 2);
}

#[test]
fn a_shared_huge_page_is_not_split_in_a_table_that_is_gone() {
    let tight = || {
        let fixture = Fixture::with_space(2, 512, Config::default());
        let child = fixture.vm.fork(fixture.space()).expect("memory");
        fixture.keep(child);
        (0..4).for_each(|_| fixture.take(9));
        fixture
    };
    check("split by a write, unmap", &tight, &[store_or_unmapped(AT), unmap(GIB)], 2);
}

#[test]
fn a_fault_reads_its_region_whole_while_its_neighbours_change() {
    let striped = || {
        let fixture = Fixture::with_space(2, 8, base());
        for page in [1, 3, 5] {
            let at = Va(AT.0 + page * 4096);
            fixture.vm.protect(fixture.space(), at, 4096, Rights::READ).expect("memory");
        }
        fixture
    };
    let store = || script(|l| l.store_to_stay(Va(AT.0 + 6 * 4096), 9));
    let refused =
        || script(|l| assert_eq!(l.store(Va(AT.0 + 5 * 4096), 9), Err(FaultError::Rights)));
    let merge = || {
        script(|l| {
            assert_eq!(l.vm.protect(l.space(), Va(AT.0 + 4096), 4096, Rights::READ_WRITE), Ok(()));
            assert_eq!(l.vm.protect(l.space(), Va(AT.0 + 2 * 4096), 4096, Rights::NONE), Ok(()));
        })
    };
    let cut = || script(|l| assert_eq!(l.vm.unmap(l.space(), AT, 4 * 4096), Ok(())));
    check("store, regions merge", &striped, &[store(), merge()], 2);
    check("store, regions go", &striped, &[store(), cut()], 2);
    check("refusal, regions merge", &striped, &[refused(), merge()], 2);
    check("refusal, regions go", &striped, &[refused(), cut()], 2);
}

#[test]
fn huge_pages_that_change_in_one_verb_are_all_flushed() {
    let two = || {
        let fixture = Fixture::with_space(2, 1024, Config::default());
        for cpu in [1, 0] {
            fixture.enter(cpu);
            [AT, Va(AT.0 + MIB2)].into_iter().for_each(|at| fixture.store(at, 3).expect("memory"));
        }
        fixture
    };
    let protect = script(|l| {
        assert_eq!(l.vm.protect(l.space(), AT, 2 * MIB2, Rights::READ), Ok(()));
        l.read_only.set(Some(Va(AT.0 + MIB2)));
    });
    let load = script(|l| assert_eq!(l.load(AT), Ok(3)));
    check("protect of two, load", &two, &[protect, load], 1);
}

/// A few pages that both CPUs have written and hold translations of.
fn held() -> Fixture {
    let fixture = few(2)();
    for cpu in [1, 0] {
        fixture.enter(cpu);
        pages().for_each(|at| fixture.store(at, 3).expect("memory"));
    }
    fixture
}

fn pages() -> impl Iterator<Item = Va> {
    (0..4).map(|page| Va(AT.0 + page * 4096))
}

#[test]
fn every_page_that_a_verb_changes_is_flushed_on_every_cpu() {
    let protect = script(|l| {
        assert_eq!(l.vm.protect(l.space(), AT, 4 * 4096, Rights::READ), Ok(()));
        l.told.set(true);
    });
    let refused = script(|l| {
        let late = l.told.get();
        pages().for_each(|at| {
            assert!(l.store(at, 9).is_err() || !late, "{at:?} was written after protect returned")
        });
    });
    check("protect, stores", &held, &[protect, refused], 1);
    let fork = script(|l| {
        l.vm.fork(l.space()).into_iter().for_each(|child| l.keep(child));
        l.told.set(true);
    });
    let store = script(|l| {
        let late = l.told.get();
        for at in pages() {
            assert_eq!(l.store(at, 9), Ok(()));
            let mut seen = [0; 4];
            assert!(!late || l.vm.copy_out(&l.last(), at, &mut seen).is_ok());
            assert!(
                !late || seen == [3, 0, 0, 0],
                "{at:?} of the child was written after fork returned"
            );
        }
    });
    check("fork, stores", &held, &[fork, store], 1);
    for zeros in [false, true] {
        // A page inside its region, which goes by the short way.
        let make = move || {
            let fixture = if zeros { few(2)() } else { held() };
            for cpu in [1, 0] {
                fixture.enter(cpu);
                assert_eq!(fixture.load(NEXT), Ok(if zeros { 0 } else { 3 }));
            }
            fixture
        };
        let unmap = script(|l| {
            assert_eq!(l.vm.unmap(l.space(), NEXT, 4096), Ok(()));
            l.told.set(true);
        });
        let load = script(|l| {
            let late = l.told.get();
            assert!(l.load(NEXT).is_err() || !late, "a page was read after unmap returned");
        });
        check("unmap of a page inside, load", &make, &[unmap, load], 1);
    }
}

/// Marks are set by faults, which drop no translation.
const SOFTWARE_MARKS: MmuRules =
    MmuRules { hardware_ad: false, fault_invalidates: false, ..MmuRules::X86_64 };

#[test]
fn a_mark_is_set_in_the_entry_that_was_seen_and_in_no_other() {
    let clean = || {
        let fixture = Fixture::with_rules(2, 4, base(), SOFTWARE_MARKS);
        fixture.store(NEXT, 1).expect("memory");
        for rights in [Rights::READ, Rights::READ_WRITE] {
            assert_eq!(fixture.vm.protect(fixture.space(), NEXT, 4096, rights), Ok(()));
        }
        fixture
    };
    let protect = script(|l| {
        assert_eq!(l.vm.protect(l.space(), NEXT, 4096, Rights::READ), Ok(()));
        l.read_only.set(Some(NEXT));
    });
    let store = script(|l| {
        let done = l.store(NEXT, 7);
        assert!(matches!(done, Ok(()) | Err(FaultError::Rights)), "{done:?}");
    });
    check("store to a clean page, protect", &clean, &[store, protect], 2);
}

#[test]
fn a_fault_that_makes_a_page_writable_is_the_only_one_where_faults_drop_no_translation() {
    let fixture = Fixture::with_rules(1, 4, base(), SOFTWARE_MARKS);
    let child = fixture.vm.fork(fixture.space()).expect("memory");
    fixture.vm.exit(child);
    assert_eq!(fixture.load(AT), Ok(1));
    let spurious = || fixture.vm.stats().get(Counter::FaultsSpurious);
    let before = spurious();
    assert_eq!(fixture.store(AT, 2), Ok(()));
    assert_eq!(spurious() - before, 0, "the store faulted again by the old translation");
}

#[test]
fn a_list_of_regions_that_goes_is_read_by_nobody() {
    // Two tables, each with a list of sixteen pairs that is full to its last word.
    let lists = || {
        let fixture = Fixture::with_space(2, 1024, base());
        for page in (0..2).flat_map(|table| (1..16).step_by(2).map(move |slot| table * 512 + slot))
        {
            let at = Va(AT.0 + page * 4096);
            assert_eq!(fixture.vm.protect(fixture.space(), at, 4096, Rights::READ), Ok(()));
        }
        fixture
    };
    for page in [500, 1012] {
        let load = script(move |l| {
            let done = l.load(Va(AT.0 + page * 4096));
            assert!(matches!(done, Ok(0) | Err(FaultError::Unmapped)), "{done:?}");
        });
        check("load, regions of two tables go", &lists, &[load, unmap(2 * MIB2)], 1);
    }
}

#[test]
fn a_childs_table_of_zeros_gives_way_to_a_huge_page_too() {
    let fixture = Fixture::with_space(
        1,
        1024,
        Config { zero_huge: ZeroHuge::TablePrivate, ..Config::default() },
    );
    let at = Va(AT.0 + MIB2);
    assert_eq!(fixture.load(at), Ok(0));
    let child = fixture.vm.fork(fixture.space()).expect("memory");
    assert_eq!(fixture.vm.copy_in(&child, at, &[7]), Ok(()));
    let page = fixture.vm.query(&child, at);
    assert!(matches!(page, Page::Mapped { level, zero: false, .. } if level.0 == 2), "{page:?}");
    fixture.vm.exit(child);
}

#[test]
fn a_region_is_read_whole_while_a_node_of_one_pair_gets_a_list() {
    let page = |n: u64| Va(AT.0 + n * 4096);
    let one = few(2);
    let several = script(move |l| {
        for n in [1, 3] {
            assert_eq!(l.vm.protect(l.space(), page(n), 4096, Rights::READ), Ok(()));
        }
    });
    check("store, protects", &one, &[script(move |l| l.store_to_stay(page(2), 9)), several], 2);
}

#[test]
fn a_list_that_is_put_back_is_not_followed() {
    let page = |n: u64| Va(AT.0 + n * 4096);
    let tight = || {
        let fixture = few(2)();
        let only_read = Attrs::anonymous(Rights::READ);
        // Somewhere else a list is used, so that its slab has room when memory has none.
        fixture
            .vm
            .map(fixture.space(), Placement::At(Va(GIB * 3)), 8 * 4096, only_read)
            .expect("memory");
        for n in [1, 3, 5] {
            fixture
                .vm
                .protect(fixture.space(), Va(GIB * 3 + n * 4096), 4096, Rights::NONE)
                .expect("memory");
        }
        fixture.vm.protect(fixture.space(), Va(AT.0 + 4096), 4096, Rights::READ).expect("memory");
        let mut left = usize::MAX;
        while left != fixture.held.borrow().len() {
            left = fixture.held.borrow().len();
            fixture.take(0);
        }
        fixture
    };
    let refused = script(|l| {
        let at = Placement::At(Va(AT.0 + MIB2 - 4096));
        let only_read = Attrs::anonymous(Rights::READ);
        assert_eq!(l.vm.map(l.space(), at, 2 * 4096, only_read), Err(SpaceError::NoMemory));
    });
    let again = script(move |l| assert!(l.vm.fault(l.space(), page(0), Access::Write).is_ok()));
    check("fault, list put back", &tight, &[again, refused], 2);
}

#[test]
fn a_block_is_cut_beside_a_fork_and_every_mapping_is_counted() {
    let shared = || {
        let fixture = huge(2)();
        let child = fixture.vm.fork(fixture.space()).expect("memory");
        fixture.keep(child);
        fixture
    };
    let fork = script(|l| {
        let child = l.vm.fork(&l.last()).expect("memory");
        l.keep(child);
    });
    check("unmap of a page, fork of the child", &shared, &[unmap(4096), fork], 2);
}

#[test]
fn what_a_table_of_zeros_translated_is_flushed_when_zeros_are_forbidden() {
    let far = Va(2 * GIB + 5 * 4096);
    let zeros = move || {
        let fixture =
            Fixture::with_space(2, 4, Config { zero_huge: ZeroHuge::Table, ..Config::default() });
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture.vm.map(fixture.space(), Placement::At(Va(2 * GIB)), MIB2, attrs).expect("memory");
        fixture.enter(1);
        assert_eq!(fixture.load(far), Ok(0));
        fixture.enter(0);
        fixture
    };
    let forbid = script(move |l| {
        l.vm.forbid_zeros(l.space());
        l.store_to_stay(far, 9);
        l.told.set(true);
    });
    let load = script(move |l| {
        let late = l.told.get();
        let seen = l.load(far);
        assert!(seen == Ok(9) || !late && seen == Ok(0), "{seen:?} was read, late: {late}");
    });
    check("forbid and store, load", &zeros, &[forbid, load], 1);
}

#[test]
fn a_query_tells_of_one_instant() {
    let query = script(|l| match l.vm.query(l.space(), AT) {
        Page::Mapped { rights, .. } => assert_eq!(rights, Rights::READ_WRITE),
        Page::Reserved { rights } => assert_eq!(rights, Rights::READ),
        other => panic!("{other:?} where a page was, and a reserved range is"),
    });
    let replace = script(|l| {
        let read = Attrs::anonymous(Rights::READ);
        assert_eq!(l.vm.map(l.space(), Placement::Replace(AT), 4 * 4096, read), Ok(AT));
    });
    check("query, map over", &few(2), &[query, replace], 2);
}

#[test]
fn a_query_in_a_table_that_goes_asks_nobody_above_it() {
    // In the middle of a table, two pages that may only be read; nothing was stored there yet. The
    // region around them goes on in the next table, so it is the table above that knows it.
    const ISLAND: Va = Va(AT.0 + 8 * 4096);
    let world = || {
        let fixture = Fixture::with_space(2, 1024, base());
        let read = Attrs::anonymous(Rights::READ);
        assert_eq!(
            fixture.vm.map(fixture.space(), Placement::Replace(ISLAND), 2 * 4096, read),
            Ok(ISLAND)
        );
        fixture
    };
    let query = script(|l| match l.vm.query(l.space(), ISLAND) {
        Page::Reserved { rights } => assert_eq!(rights, Rights::READ),
        other => assert_eq!(other, Page::Unmapped),
    });
    let unmap = script(|l| assert_eq!(l.vm.unmap(l.space(), AT, MIB2), Ok(())));
    // Half of a table's entries away: more schedules than the other tests need.
    let done = explore(&world, &[query, unmap], 2, 60_000);
    println!("query, unmap of the table: {done:?}");
    assert!(!done.cut, "{done:?}");
}

#[test]
fn a_query_tells_of_one_instant_though_the_entry_says_the_same_again() {
    // No frame is free, so that the page can only come back in the one that it had.
    let world = || {
        let fixture = few(4)();
        (0..2048).for_each(|_| fixture.take(0));
        fixture
    };
    let replace = |rights| {
        let attrs = Attrs::anonymous(rights);
        let over = Placement::Replace(AT);
        script(move |l| assert_eq!(l.vm.map(l.space(), over, 4 * 4096, attrs), Ok(AT)))
    };
    let query = script(|l| match l.vm.query(l.space(), AT) {
        Page::Mapped { rights, .. } => assert_eq!(rights, Rights::READ_WRITE),
        Page::Reserved { .. } => {}
        other => panic!("{other:?} where a page was, and a reserved range is"),
    });
    let (forbid, allow) = (replace(Rights::READ), replace(Rights::READ_WRITE));
    let store = script(|l| assert!(matches!(l.store(AT, 1), Ok(()) | Err(FaultError::Rights))));
    // A verb waits for the query at its end, and the next CPU of these goes on: after `forbid` the
    // query, after `allow` the store.
    let done = explore(&world, &[query, allow, store, forbid], 2, 60_000);
    println!("query, map over and back: {done:?}");
    assert!(!done.cut, "{done:?}");
}
