//! Interleavings that each lean on one rule of the library: without it, one of these fails.

mod explorer;

use explorer::{NEXT, base, check, few, huge, script};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::error::FaultError;
use vellum::machine::MmuRules;
use vellum::space::Rights;
use vellum_proof::explore::Script;
use vellum_proof::explore::worlds::{AT, Lab, MIB2, RULES};

const GIB: u64 = 1 << 30;

fn unmap(bytes: u64) -> Script<Lab> {
    script(move |l| assert_eq!(l.vm.unmap(l.space(), AT, bytes), Ok(())))
}

fn store_or_unmapped(at: Va) -> Script<Lab> {
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
        let lab = Lab::with_rules(2, 4, base(), MmuRules { contexts: 8, ..RULES });
        lab.enter(1);
        lab.store(AT, 1).expect("memory");
        lab.vm.idle();
        lab.enter(0);
        lab
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
            let lab = Lab::with_space(2, pages, config);
            let child = lab.vm.fork(lab.space()).expect("memory");
            lab.keep(child);
            lab
        }
    };
    check("copy on write, unmap", &shared(4, base()), &[store_or_unmapped(AT), unmap(MIB2)], 2);
    check("copy on write, unmap of all", &shared(4, base()), &[store_or_unmapped(AT), unmap(4 * 4096)], 2);
    check("huge copy on write, unmap", &shared(512, Config::default()), &[store_or_unmapped(AT), unmap(GIB)], 2);
    let zeros = || {
        let lab = few(2)();
        assert_eq!(lab.load(NEXT), Ok(0));
        lab
    };
    check("write to zeros, unmap", &zeros, &[store_or_unmapped(NEXT), unmap(MIB2)], 2);
}

#[test]
fn a_shared_huge_page_is_not_split_in_a_table_that_is_gone() {
    let tight = || {
        let lab = Lab::with_space(2, 512, Config::default());
        let child = lab.vm.fork(lab.space()).expect("memory");
        lab.keep(child);
        (0..4).for_each(|_| lab.take(9));
        lab
    };
    check("split by a write, unmap", &tight, &[store_or_unmapped(AT), unmap(GIB)], 2);
}

#[test]
fn a_fault_reads_its_region_whole_while_its_neighbours_change() {
    let striped = || {
        let lab = Lab::with_space(2, 8, base());
        for page in [1, 3, 5] {
            let at = Va(AT.0 + page * 4096);
            lab.vm.protect(lab.space(), at, 4096, Rights::READ).expect("memory");
        }
        lab
    };
    let store = || script(|l| l.store_to_stay(Va(AT.0 + 6 * 4096), 9));
    let refused = || script(|l| assert_eq!(l.store(Va(AT.0 + 5 * 4096), 9), Err(FaultError::Rights)));
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
        let lab = Lab::with_space(2, 1024, Config::default());
        for cpu in [1, 0] {
            lab.enter(cpu);
            [AT, Va(AT.0 + MIB2)].into_iter().for_each(|at| lab.store(at, 3).expect("memory"));
        }
        lab
    };
    let protect = script(|l| {
        assert_eq!(l.vm.protect(l.space(), AT, 2 * MIB2, Rights::READ), Ok(()));
        l.read_only.set(Some(Va(AT.0 + MIB2)));
    });
    let load = script(|l| assert_eq!(l.load(AT), Ok(3)));
    check("protect of two, load", &two, &[protect, load], 1);
}
