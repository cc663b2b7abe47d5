//! Small scripts of two and three CPUs, in every interleaving of few preemptions.

use crate::explorer::{NEXT, base, check, few, grown, huge, script, small};
use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::error::{FaultError, SpaceError};
use vellum::machine::MmuRules;
use vellum::space::{Access, Advice, Attrs, Placement, Rights};
use vellum_proof::explore::Script;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};

#[test]
fn a_fault_and_an_unmap_of_its_table() {
    let unmap = || script(|l| assert_eq!(l.vm.unmap(l.space(), AT, MIB2), Ok(())));
    let refused = |got: Result<(), _>| assert!(matches!(got, Ok(()) | Err(FaultError::Unmapped)));
    check("fault, unmap", &few(2), &[script(move |l| refused(l.store(NEXT, 7))), unmap()], 2);
    check("read, unmap", &few(2), &[script(move |l| refused(l.load(NEXT).map(drop))), unmap()], 2);
    check("huge fault, unmap", &huge(2), &[script(move |l| refused(l.store(NEXT, 7))), unmap()], 2);
}

#[test]
fn a_question_and_an_unmap_that_frees_the_table_which_becomes_another_spaces() {
    let ask = script(|l| {
        let _ = l.vm.query(l.space(), NEXT);
    });
    let reuse = script(|l| {
        assert_eq!(l.vm.unmap(l.space(), AT, MIB2), Ok(()));
        l.take(0);
        if let Ok(space) = l.vm.create() {
            l.keep(space);
        }
    });
    check("query, unmap and reuse", &few(2), &[ask, reuse], 2);
}

#[test]
fn a_store_that_went_through_outlives_verbs_that_keep_contents() {
    type Verb = fn(&Fixture);
    let verbs: [(&str, Verb); 6] = [
        ("protect", |l| {
            let _ = l.vm.protect(l.space(), AT, 2 * 4096, Rights::READ);
            let _ = l.vm.protect(l.space(), AT, 2 * 4096, Rights::READ_WRITE);
        }),
        ("fork", |l| {
            if let Ok(child) = l.vm.fork(l.space()) {
                l.vm.exit(child);
            }
        }),
        ("fork, kept", |l| l.vm.fork(l.space()).into_iter().for_each(|child| l.keep(child))),
        ("collapse", |l| {
            let _ = l.vm.advise(l.space(), AT, MIB2, Advice::Collapse);
        }),
        ("populate", |l| {
            let _ = l.vm.advise(l.space(), AT, 4 * 4096, Advice::Populate { write: true });
        }),
        ("poison", |l| {
            let _ = l.vm.poison(l.space(), AT);
            let _ = l.vm.poison(l.space(), NEXT);
        }),
    ];
    for (name, verb) in verbs {
        check(name, &few(2), &[script(|l| l.store_to_stay(AT, 0x1111)), script(verb)], 2);
        check(name, &few(2), &[script(|l| l.store_to_stay(NEXT, 0x2222)), script(verb)], 2);
        check(name, &small(2), &[script(|l| l.store_to_stay(NEXT, 0x2222)), script(verb)], 1);
        check(name, &grown(2), &[script(|l| l.store_to_stay(NEXT, 0x4444)), script(verb)], 1);
        check(name, &huge(2), &[script(|l| l.store_to_stay(NEXT, 0x3333)), script(verb)], 1);
    }
}

#[test]
fn two_faults_on_one_page_and_on_one_huge_page() {
    let store = |value| script(move |l: &Fixture| assert_eq!(l.store(NEXT, value), Ok(())));
    check("two writes", &few(2), &[store(1), store(2)], 3);
    check("read and write", &few(2), &[store(1), script(|l| assert!(l.load(NEXT).is_ok()))], 3);
    let fresh = || {
        let fixture = Fixture::with_space(2, 512, Config::default());
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture
            .vm
            .map(fixture.space(), Placement::At(Va(AT.0 + MIB2)), MIB2, attrs)
            .expect("a hole");
        fixture
    };
    let far =
        |value| script(move |l: &Fixture| assert_eq!(l.store(Va(AT.0 + MIB2), value), Ok(())));
    check("two huge writes", &fresh, &[far(1), far(2)], 2);
}

#[test]
fn both_sides_of_a_fork_write_at_once() {
    let forked = |config: Config| {
        move || {
            let pages = if config.thp == Thp::Never { 4 } else { 512 };
            let fixture = Fixture::with_space(2, pages, config);
            let child = fixture.vm.fork(fixture.space()).expect("memory");
            fixture.keep(child);
            fixture
        }
    };
    let parent = || script(|l| l.store_to_stay(AT, 0x4444));
    let child = || script(|l| assert!(l.vm.copy_in(&l.last(), AT, &[9; 4]).is_ok()));
    check("writes", &forked(base()), &[parent(), child()], 2);
    check("huge writes", &forked(Config::default()), &[parent(), child()], 1);
    let exit = || script(|l| l.end_last());
    check("write, exit", &forked(base()), &[parent(), exit()], 2);
}

#[test]
fn contents_move_with_their_mapping_or_are_refused_but_never_lost() {
    let moves = || {
        script(|l| {
            let to = Va(AT.0 + 8 * MIB2);
            let _ = l.vm.remap(l.space(), AT, 4 * 4096, 4 * 4096, Placement::At(to));
            assert_eq!(l.load(to), Ok(1));
        })
    };
    let read = || {
        script(|l| {
            let seen = l.load(AT);
            assert!(
                matches!(seen, Ok(1) | Err(_)),
                "saw {seen:?}; library says {:?}",
                l.vm.query(l.space(), AT)
            );
        })
    };
    let map = || {
        script(|l| {
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            let _ =
                l.vm.map(l.space(), Placement::At(Va(AT.0 + 8 * MIB2 + 16 * 4096)), 4096, attrs);
        })
    };
    check("remap, read", &few(2), &[moves(), read()], 2);
    check("remap of a huge page, read", &huge(2), &[moves(), read()], 1);
    check("remap, map", &few(2), &[moves(), map()], 1);
    check("remap of a part, read", &small(2), &[moves(), read()], 1);
}

#[test]
fn the_kernels_copy_and_an_unmap() {
    let copy = |access| {
        script(move |l: &Fixture| {
            let mut bytes = [0; 8];
            let done = match access {
                Access::Read => l.vm.copy_out(l.space(), AT, &mut bytes),
                _ => l.vm.copy_in(l.space(), AT, &bytes),
            };
            assert!(matches!(done, Ok(()) | Err(FaultError::Unmapped)), "{done:?}");
        })
    };
    let forget =
        || script(|l| assert_eq!(l.vm.advise(l.space(), AT, 4 * 4096, Advice::DontNeed), Ok(())));
    let unmap = || script(|l| assert_eq!(l.vm.unmap(l.space(), AT, 4096), Ok(())));
    for access in [Access::Read, Access::Write] {
        check("copy, dontneed", &few(2), &[copy(access), forget()], 2);
        check("copy, unmap", &few(2), &[copy(access), unmap()], 2);
        check("copy, unmap of a part of a huge page", &huge(2), &[copy(access), unmap()], 1);
    }
}

#[test]
fn three_cpus_in_one_table() {
    let store = script(|l| {
        let _ = l.store(NEXT, 5);
    });
    let forget = script(|l| {
        assert!(matches!(
            l.vm.advise(l.space(), AT, 2 * 4096, Advice::DontNeed),
            Ok(()) | Err(SpaceError::Unmapped)
        ))
    });
    let unmap = script(|l| assert_eq!(l.vm.unmap(l.space(), AT, MIB2), Ok(())));
    check("store, dontneed, unmap", &few(3), &[store, forget, unmap], 2);
}

/// Frames of few blocks, some of them held: by order, as they were taken.
fn frames(cpus: usize, count: u64, before: &'static [u8]) -> impl Fn() -> Fixture {
    move || {
        let fixture = Fixture::new(cpus, count, base(), MmuRules::X86_64);
        for (n, &order) in before.iter().enumerate() {
            fixture.vm.machine().run_on(n % cpus);
            fixture.take(order);
        }
        for cpu in (0..cpus).rev() {
            fixture.vm.machine().run_on(cpu);
            use vellum::machine::Machine;
            fixture.vm.frames().drain(fixture.vm.machine());
            assert_eq!(fixture.vm.machine().cpu(), cpu);
        }
        fixture
    }
}

fn take(order: u8) -> Script<Fixture> {
    script(move |l| l.take(order))
}

fn give_all() -> Script<Fixture> {
    script(|l| {
        while !l.held.borrow().is_empty() {
            l.give(0);
        }
        l.vm.frames().drain(l.vm.machine());
    })
}

#[test]
fn two_cpus_take_blocks_of_every_two_sizes() {
    for first in [0, 3, 7, 9] {
        for second in [0, 6, 9] {
            check(
                &format!("take {first}, take {second}"),
                &frames(2, 1024, &[0, 9]),
                &[take(first), take(second)],
                2,
            );
        }
    }
}

#[test]
fn a_block_is_emptied_while_another_cpu_takes_from_it() {
    for order in [0, 2, 6, 8, 9] {
        check(
            &format!("take {order}, give all"),
            &frames(2, 512, &[0, 3, 7]),
            &[take(order), give_all()],
            2,
        );
        check(
            &format!("give all, take {order}"),
            &frames(2, 1024, &[9, 8]),
            &[give_all(), take(order)],
            2,
        );
    }
}

#[test]
fn magazines_are_emptied_by_who_needs_their_frames() {
    let busy = script(|l| {
        l.take(0);
        l.give(0);
        l.take(0);
    });
    check("pair, take whole", &frames(2, 512, &[]), &[busy.clone(), take(9)], 3);
    check(
        "pair, drain",
        &frames(2, 512, &[0]),
        &[busy, script(|l| l.vm.frames().drain(l.vm.machine()))],
        2,
    );
}

#[test]
fn three_cpus_take_and_give() {
    check("take, take, give all", &frames(3, 512, &[0, 7, 3]), &[take(0), take(7), give_all()], 1);
}
