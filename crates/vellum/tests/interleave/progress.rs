//! Faults and queries get on whatever another thread does to their region, and however often.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;

use vellum_testkit::prelude::*;

/// Steps that a verb may take. A verb that another thread makes retry each time never ends.
const ENOUGH: u32 = 10_000;

type Verb<C> = fn(&Fixture<C>, &Space);

/// Runs a verb while another CPU edits its region in two ways by turns: it begins at each step
/// whose number modulo `period` is `phase`, and at each step runs until it waits or is done. Says
/// how many steps the verb took.
fn beside<C: Arch>(
    (fx, space): (&Fixture<C>, &Space),
    verb: Verb<C>,
    edits: [Verb<C>; 2],
    (period, phase): (u32, u32),
) -> u32 {
    let (go, gone) = channel::<()>();
    // Whether the edit that was begun is done.
    let (done, is_done) = channel::<bool>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            fx.run_on(1);
            let gone = Rc::new(gone);
            let waits = (Rc::clone(&gone), done.clone());
            at_each_step(move |wait| {
                // The verb may be over already.
                if wait && waits.1.send(false).is_ok() {
                    let _over = waits.0.recv();
                }
            });
            for edit in edits.into_iter().cycle() {
                if gone.recv().is_err() {
                    return;
                }
                edit(fx, space);
                let _over = done.send(true);
            }
        });
        let verb = scope.spawn(move || {
            fx.run_on(0);
            let steps = Rc::new(Cell::new(0));
            let count = Rc::clone(&steps);
            let mut idle = true;
            at_each_step(move |_| {
                count.set(count.get() + 1);
                // From here the verb runs alone.
                if count.get() > ENOUGH {
                    return;
                }
                if !idle || count.get() % period == phase {
                    go.send(()).expect("the other thread");
                    idle = is_done.recv().expect("the other thread");
                }
            });
            verb(fx, space);
            steps.get()
        });
        verb.join().expect("a verb that is served")
    })
}

fn rights<C: Arch>(fx: &Fixture<C>, space: &Space, rights: Rights) {
    fx.vm.protect(space, Va(GIB), 2 * MIB2, rights).expect("memory");
}

/// At which steps of a verb the other CPU begins: periods up to `periods`, and each phase.
fn steps(periods: u32) -> impl Iterator<Item = (u32, u32)> {
    (1..=periods).flat_map(|period| (0..period).map(move |phase| (period, phase)))
}

fn progress<C: Arch>(config: Config, attrs: Attrs, verbs: usize) {
    let all: [(&str, Verb<C>); 5] = [
        ("read", |fx, space| assert!(fx.vm.fault(space, Va(GIB), Access::Read).is_ok())),
        ("write", |fx, space| assert!(fx.vm.fault(space, Va(GIB), Access::Write).is_ok())),
        ("read and write", |fx, space| {
            assert!(fx.vm.fault(space, Va(GIB), Access::Read).is_ok());
            assert!(fx.vm.fault(space, Va(GIB), Access::Write).is_ok());
        }),
        ("forced write", |fx, space| assert_eq!(fx.vm.write_forced(space, Va(GIB), &[7]), Ok(()))),
        ("query", |fx, space| assert_ne!(fx.vm.query(space, Va(GIB)), Page::Unmapped)),
    ];
    for (name, verb) in all.into_iter().take(verbs) {
        let mut most = 0;
        let fx = fixture_of::<C>(2, 8192, config);
        for at in steps(11) {
            let space = fx.mapped(Va(GIB), 4 * MIB2, attrs);
            // Every access is allowed at any time.
            let edits: [Verb<C>; 2] =
                [|l, s| rights(l, s, Rights::ALL), |l, s| rights(l, s, Rights::READ_WRITE)];
            most = most.max(beside((&fx, &space), verb, edits, at));
            fx.end_zeros([space]);
        }
        let Config { thp, zero_huge, .. } = config;
        println!("{name}, {:?}, {thp:?}, {zero_huge:?}: {most} steps at most", attrs.leaf);
        assert!(most <= ENOUGH, "it never ends");
    }
}

fn by_form(zero_huge: ZeroHuge) {
    progress::<X86_64>(with_zeros(zero_huge), RW, 3);
}

#[test]
fn a_verb_ends_though_its_region_changes_at_every_step() {
    by_form(ZeroHuge::Off);
}

#[test]
fn a_verb_ends_with_a_huge_page_of_zeros() {
    by_form(ZeroHuge::Page);
}

#[test]
fn a_verb_ends_with_a_table_of_zeros() {
    by_form(ZeroHuge::Table);
}

#[test]
fn a_verb_ends_with_a_private_table_of_zeros() {
    by_form(ZeroHuge::TablePrivate);
}

#[test]
fn a_verb_ends_with_base_pages() {
    progress::<X86_64>(no_thp(), RW, 3);
}

#[test]
fn a_verb_ends_where_faults_drop_no_translation() {
    progress::<Aarch64>(Config::default(), RW, 5);
}

#[test]
fn a_verb_ends_where_the_size_is_asked_for() {
    // The page must have that size: it is cleared under the lock.
    progress::<X86_64>(Config::default(), EXACTLY_HUGE, 2);
}

/// The other CPU undoes what it did, so that the verb may see either state at any step: it ends all
/// the same, with success or an error.
fn beside_what_comes_and_goes(what: &str, orders: &[[Verb<X86_64>; 2]]) {
    for config in ZERO_FORMS.map(with_zeros).into_iter().chain([no_thp()]) {
        verbs_beside(what, config, orders);
    }
}

fn verbs_beside(what: &str, config: Config, orders: &[[Verb<X86_64>; 2]]) {
    let verbs: [(&str, Verb<X86_64>); 8] = [
        ("read", |fx, space| _ = fx.vm.fault(space, Va(GIB), Access::Read)),
        ("write", |fx, space| _ = fx.vm.fault(space, Va(GIB), Access::Write)),
        ("execute", |fx, space| _ = fx.vm.fault(space, Va(GIB), Access::Exec)),
        ("forced write", |fx, space| _ = fx.vm.write_forced(space, Va(GIB), &[7])),
        ("query", |fx, space| _ = fx.vm.query(space, Va(GIB))),
        ("copy in", |fx, space| _ = fx.vm.copy_in(space, Va(GIB), &[7])),
        ("copy out", |fx, space| _ = fx.vm.copy_out(space, Va(GIB), &mut [0])),
        ("populate", |fx, space| _ = fx.populate(space, Va(GIB), 4096)),
    ];
    for (name, verb) in verbs {
        for touched in [false, true] {
            let mut most = 0;
            let fx = fixture(8192, config);
            let all = steps(8).flat_map(|at| orders.iter().map(move |edits| (at, *edits)));
            for (at, edits) in all {
                let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
                if touched {
                    assert!(fx.vm.fault(&space, Va(GIB), Access::Write).is_ok());
                }
                most = most.max(beside((&fx, &space), verb, edits, at));
                fx.end_zeros([space]);
            }
            println!("{name} beside {what}, touched {touched}: {most} steps at most");
            assert!(most <= ENOUGH, "it never ends");
        }
    }
}

#[test]
fn a_verb_ends_though_rights_come_and_go() {
    let none: Verb<X86_64> = |l, s| rights(l, s, Rights::NONE);
    let all: Verb<X86_64> = |l, s| rights(l, s, Rights::ALL);
    beside_what_comes_and_goes("protect", &[[none, all], [all, none]]);
}

#[test]
fn a_verb_ends_though_its_region_comes_and_goes() {
    let unmap: Verb<X86_64> = |l, s| l.vm.unmap(s, Va(GIB), 4 * MIB2).expect("memory");
    let map: Verb<X86_64> = |l, s| {
        l.vm.map(s, Placement::Replace(Va(GIB)), 4 * MIB2, RW).expect("memory");
    };
    beside_what_comes_and_goes("unmap", &[[unmap, map], [map, unmap]]);
}

#[test]
fn a_verb_ends_though_its_page_goes_again_and_again() {
    let forget: Verb<X86_64> = |l, s| {
        l.vm.advise(s, Va(GIB), 4 * MIB2, Advice::DontNeed).expect("memory");
    };
    beside_what_comes_and_goes("advise", &[[forget, forget]]);
}
