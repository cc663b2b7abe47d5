//! The specification of what a program can tell: what it must explain, and the neighbours that it
//! must not.

use vellum::space::Rights;
use vellum_proof::matrix::acts::{Action, PageChoice, PageRange, Step};
use vellum_proof::matrix::failure::Failure;
use vellum_proof::matrix::model::{Cell, Model};
use vellum_proof::matrix::scenario::{Scenario, all, usual};
use vellum_proof::matrix::spec::{Event, Outcome, Refusal, Spec};
use vellum_proof::matrix::states::{EXTENTS, Places};

use Outcome::{Done, Refused, Saved, Value};

/// An event of a CPU in the parent, from one instant to another.
fn event(
    cpu: usize,
    (began, ended): (usize, usize),
    act: Action,
    value: u32,
    outcome: Outcome,
) -> Event {
    Event { cpu, step: Step { act, side: 0 }, value, began, ended, outcome }
}

fn is_explained(events: &[Event], after: &[Event], scarce: bool) -> bool {
    let places = Places::new(false);
    let mut pages = [None; EXTENTS];
    pages[..3].fill(Some(Cell::zero(Rights::READ_WRITE)));
    let mut start = Model::default();
    start.sides[0] = Some(pages);
    Spec { places: &places, scarce, by_page: false, events, failures: &[], after }
        .is_explained(&start)
}

const PAGE: PageChoice = PageChoice::Page;

#[test]
fn a_load_sees_a_store_that_returned_before_it_began() {
    let store = event(0, (1, 2), Action::Store(PAGE, 0), 7, Done);
    let load = |at, seen| event(1, at, Action::Load(PAGE, 0), 0, Value(seen));
    assert!(is_explained(&[store, load((3, 4), 7)], &[], false));
    assert!(!is_explained(&[store, load((3, 4), 0)], &[], false), "a stale load");
    let slow = Event { ended: 5, ..store };
    assert!(
        is_explained(&[slow, load((3, 4), 0)], &[], false),
        "a store under way may not be seen yet"
    );
    assert!(
        !is_explained(&[slow, load((2, 3), 7), load((4, 6), 0)], &[], false),
        "seen, and unseen again"
    );
}

#[test]
fn a_store_stays_until_something_takes_it_away() {
    let stores = [
        event(0, (1, 4), Action::Store(PAGE, 0), 7, Done),
        event(1, (2, 3), Action::Store(PAGE, 1), 8, Done),
    ];
    let look =
        |word, seen| event(0, (9 + word, 10 + word), Action::Load(PAGE, word), 0, Value(seen));
    assert!(is_explained(&stores, &[look(0, 7), look(1, 8)], false));
    assert!(
        !is_explained(&stores, &[look(0, 7), look(1, 0)], false),
        "a lost store to another word"
    );
    let forget = event(2, (3, 6), Action::DontNeed(PageRange::Page), 0, Done);
    let all = [stores[0], stores[1], forget];
    assert!(
        is_explained(&all, &[look(0, 0), look(1, 0)], false)
            && is_explained(&all, &[look(0, 7), look(1, 0)], false)
    );
}

#[test]
fn a_fork_is_one_instant() {
    let fork = event(0, (1, 9), Action::Fork, 0, Done);
    let stores = [
        event(1, (2, 3), Action::Store(PAGE, 0), 7, Done),
        event(1, (4, 5), Action::Store(PageChoice::Other, 0), 8, Done),
    ];
    let child = |at: PageChoice, seen| Event {
        step: Step { act: Action::Load(at, 0), side: 2 },
        ..event(0, (10, 11), Action::Fork, 0, Value(seen))
    };
    let holds = |x, y| {
        is_explained(
            &[fork, stores[0], stores[1]],
            &[child(PAGE, x), child(PageChoice::Other, y)],
            false,
        )
    };
    assert!(holds(0, 0) && holds(7, 0) && holds(7, 8));
    assert!(!holds(0, 8), "the effect without its cause");
}

#[test]
fn what_a_verb_promised_holds_when_it_has_returned_and_a_refusal_is_no_early_one() {
    let protect = event(0, (2, 5), Action::Protect(PageRange::Page, Rights::READ), 0, Done);
    let store = |at, outcome| event(1, at, Action::Store(PAGE, 0), 7, outcome);
    assert!(is_explained(&[protect, store((3, 4), Done)], &[], false));
    assert!(is_explained(&[protect, store((3, 4), Refused(Refusal::Rights))], &[], false));
    assert!(!is_explained(&[protect, store((6, 7), Done)], &[], false), "a right that was taken");
    assert!(
        !is_explained(&[store((0, 1), Refused(Refusal::Rights)), protect], &[], false),
        "refused before it was taken"
    );
    let other = Event { cpu: 2, ..store((4, 6), Done) };
    let early = [protect, store((3, 3), Refused(Refusal::Rights)), other];
    assert!(
        !is_explained(&early, &[], false),
        "one CPU lost the right while another went on to use it"
    );
}

#[test]
fn mappings_come_and_go_page_by_page_and_verbs_one_after_the_other() {
    let replace = event(0, (1, 6), Action::Replace(PageRange::Pair, Rights::READ_WRITE), 0, Done);
    let load = |outcome| event(1, (2, 3), Action::Load(PAGE, 0), 0, outcome);
    assert!(is_explained(&[replace, load(Value(0))], &[], false));
    assert!(
        !is_explained(&[replace, load(Refused(Refusal::Unmapped))], &[], false),
        "a map over leaves no hole"
    );
    let unmap = event(0, (1, 6), Action::Unmap(PageRange::Pair), 0, Done);
    let next = event(1, (4, 5), Action::Load(PageChoice::Next, 0), 0, Value(0));
    assert!(is_explained(&[unmap, load(Refused(Refusal::Unmapped)), next], &[], false));
    let map = event(1, (2, 5), Action::Map(PageRange::Page, Rights::READ), 0, Done);
    let look = |outcome| event(0, (9, 10), Action::Load(PAGE, 0), 0, outcome);
    assert!(is_explained(&[unmap, map], &[look(Value(0))], false));
    assert!(
        !is_explained(&[unmap, map], &[look(Refused(Refusal::Unmapped))], false),
        "mapped after it was unmapped"
    );
}

#[test]
fn only_where_memory_is_short_may_a_verb_say_so_and_then_nothing_happened() {
    let store = event(0, (1, 2), Action::Store(PAGE, 0), 7, Refused(Refusal::NoMemory));
    let look = |seen| event(0, (9, 10), Action::Load(PAGE, 0), 0, Value(seen));
    assert!(is_explained(&[store], &[look(0)], true) && !is_explained(&[store], &[look(0)], false));
    assert!(!is_explained(&[store], &[look(7)], true), "refused, and done all the same");
}

/// The pages are the first ones of an object.
fn is_explained_of_object(events: &[Event], failures: &[Failure]) -> bool {
    let places = Places::new(false);
    let mut pages = [None; EXTENTS];
    (0..3).for_each(|n| pages[n] = Some(Cell::of_object(Rights::READ_WRITE, n, false)));
    let mut start = Model::default();
    start.sides[0] = Some(pages);
    let by_page = false;
    let spec = Spec { places: &places, scarce: false, by_page, events, failures, after: &[] };
    spec.is_explained(&start)
}

#[test]
fn a_failure_of_the_pager_is_told_to_who_was_about_that_page_meanwhile() {
    let io = Refused(Refusal::Io);
    let load = |at| event(0, at, Action::Load(PAGE, 0), 0, io);
    let failure = Failure { page: 0, writes: false, from: 3, to: 5 };
    assert!(is_explained_of_object(&[load((1, 4))], &[failure]));
    assert!(!is_explained_of_object(&[load((1, 2))], &[failure]), "told before it failed");
    assert!(!is_explained_of_object(&[load((6, 7))], &[failure]), "told of an old failure");
    let other = Failure { page: 1, ..failure };
    assert!(!is_explained_of_object(&[load((1, 4))], &[other]), "another page's");
    let sync = event(0, (1, 4), Action::Sync, 0, io);
    assert!(!is_explained_of_object(&[sync], &[failure]), "a sync writes");
    assert!(is_explained_of_object(&[sync], &[Failure { writes: true, ..failure }]));
    let store = event(0, (1, 4), Action::Store(PAGE, 0), 7, io);
    let after = |seen| event(0, (8, 9), Action::Load(PAGE, 0), 0, Value(seen));
    assert!(is_explained_of_object(&[store, after(0)], &[failure]));
    assert!(!is_explained_of_object(&[store, after(7)], &[failure]), "refused, and done");
}

#[test]
fn a_sync_has_written_each_word_as_it_was_at_some_moment_of_the_call() {
    let store = |at, value| event(1, at, Action::Store(PAGE, 0), value, Done);
    let sync = |seen| {
        let mut pages = [[0; 2]; 4];
        pages[0][0] = seen;
        event(0, (3, 6), Action::Sync, 0, Saved(pages))
    };
    let explained =
        |seen, stores: &[Event]| is_explained_of_object(&[&[sync(seen)], stores].concat(), &[]);
    assert!(explained(7, &[store((1, 2), 7)]) && !explained(0, &[store((1, 2), 7)]));
    assert!(explained(7, &[store((4, 5), 7)]) && explained(0, &[store((4, 5), 7)]));
    assert!(!explained(7, &[store((7, 8), 7)]), "what was stored afterwards");
    assert!(!explained(7, &[store((0, 1), 7), store((2, 2), 8)]), "what was there before");
}

#[test]
fn names_of_scenarios_are_read_back_and_every_time_more_than_twenty_thousand_are_run() {
    let usual = usual();
    assert!(usual.len() > 20_000 && all().len() > 10 * usual.len());
    for one in usual.iter().step_by(97) {
        assert_eq!(one.to_string().parse::<Scenario>().as_ref(), Ok(one));
    }
    for bad in ["", "private", "private/x86/two/fork/nothing", "nowhere/x86/two/fork/fork"] {
        assert!(bad.parse::<Scenario>().is_err_and(|why| why.contains('`')));
    }
}

#[test]
fn a_scenario_that_is_none_is_refused_with_the_names_that_there_are() {
    let refused = |text: &str| text.parse::<Scenario>().expect_err("a name that is none");
    for (text, what, known) in [
        ("nowhere/x86/two/fork/store", "`nowhere` is no state; there are: ", "reserved"),
        ("shared/mips/two/fork/store", "`mips` is no MMU; there are: ", "x86-pcid"),
        ("shared/x86/six/fork/store", "`six` is no third CPU; there are: ", "held-load"),
        ("shared/x86/two/fork-unmap/store", "`fork-unmap` is no script; there are: ", "unmap-map"),
    ] {
        let said = refused(text);
        let names = said.strip_prefix(what).unwrap_or_else(|| panic!("{said}"));
        let names: Vec<&str> = names.split(", ").collect();
        assert!(names.contains(&known) && said.lines().count() == 1, "{said}");
    }
    assert!("shared/x86/two/fork/store".parse::<Scenario>().is_ok());
}
