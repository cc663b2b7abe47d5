//! Verbs that run out of memory, with another CPU's act put in between any two of their steps.
//!
//! For every number of frames that is too few, and at every shared word the verb touches: if the
//! verb fails, the state is what the act alone makes of it, to the bit but for which frames it
//! took, or what it was if the act failed, too.

use std::cell::Cell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

/// Whether it was done; anything else than a lack of memory ends the test.
type Verb = fn(&Shared) -> bool;

struct Shared {
    fx: Fixture,
    /// The second one is a fork of the first where that matters.
    spaces: Vec<Space>,
}

fn shared(config: Config, fork: bool) -> Shared {
    let fx = fixture(3072, config);
    let space = fx.mapped(Va(GIB), MIB2, RW);
    fx.map(&space, Va(2 * GIB), GIB, RW);
    fx.poke(&space, Va(GIB + 3 * KIB4), 3).expect("memory");
    let mut spaces = vec![space];
    if fork {
        spaces.push(fx.vm.fork(&spaces[0]).expect("memory"));
    }
    Shared { fx, spaces }
}

impl Shared {
    /// The state without frame numbers: two runs may take different frames.
    fn shape(&self) -> State {
        let mut state = self.fx.state(&self.spaces.iter().collect::<Vec<_>>());
        state.tables.iter_mut().flatten().for_each(|raw| raw.2 &= !X86_64::FRAME);
        state
    }
    fn end(self) {
        self.fx.end_zeros(self.spaces);
    }
}

/// The state after the act alone, with enough frames but no block.
fn alone(config: Config, fork: bool, act: Verb) -> State {
    let shared = shared(config, fork);
    let taken = shared.fx.take_all_but_scattered(32);
    shared.fx.run_on(1);
    assert!(act(&shared), "an act that fails with 32 frames");
    shared.fx.run_on(0);
    shared.fx.give_back(taken, Order::BASE);
    let shape = shared.shape();
    shared.end();
    shape
}

/// Says how often the verb failed after the act.
fn starved(config: Config, fork: bool, verb: Verb, act: Verb) -> u32 {
    let after_act = alone(config, fork, act);
    let fresh = shared(config, fork);
    let before = fresh.shape();
    fresh.end();
    let (mut failures, mut room) = (0, 0);
    loop {
        let (mut at, mut failed) = (0, false);
        loop {
            let shared = Rc::new(shared(config, fork));
            shared.fx.run_on(0);
            let taken = shared.fx.take_all_but_scattered(room);
            let (acted, done) = (Rc::new(Cell::new(false)), Cell::new(true));
            let seen = Rc::clone(&acted);
            let act = move |shared: &Shared| seen.set(act(shared));
            let Some(met) = put_in(&shared, [(at, act)], |shared| done.set(verb(shared))) else {
                break;
            };
            at += 1;
            if met == Met::Waited {
                continue;
            }
            shared.fx.give_back(taken, Order::BASE);
            let after = shared.shape();
            if !done.get() {
                let wanted = if acted.get() { &after_act } else { &before };
                assert_same(wanted, &after, format_args!("{room} frames, after {at} words"));
                failures += u32::from(acted.get());
                failed = true;
            }
            Rc::into_inner(shared).expect("the act is over").end();
        }
        // Five are enough for the act, which takes three, and not for every verb beside it.
        if !failed && room >= 5 {
            return failures;
        }
        room += 1;
    }
}

fn fault(shared: &Shared, space: usize, va: u64, access: Access) -> bool {
    use vellum::error::FaultError::{NoMemory, Unmapped};
    let done = shared.fx.vm.fault(&shared.spaces[space], Va(va), access);
    // A remap may have unmapped it.
    assert!(matches!(done, Ok(_) | Err(NoMemory | Unmapped)), "{done:?}");
    done.is_ok()
}

const RESERVED: u64 = 2 * GIB + 5 * KIB4;

const WRITE_RESERVED: Verb = |shared| fault(shared, 0, RESERVED, Access::Write);
const READ_RESERVED: Verb = |shared| fault(shared, 0, RESERVED, Access::Read);
const WRITE_NEAR: Verb = |shared| fault(shared, 0, RESERVED + 9 * KIB4, Access::Write);
const WRITE_FAR: Verb = |shared| fault(shared, 0, RESERVED + 7 * MIB2, Access::Write);
const READ_FAR: Verb = |shared| fault(shared, 0, RESERVED + 7 * MIB2, Access::Read);
const WRITE_SHARED: Verb = |shared| fault(shared, 1, GIB + 3 * KIB4, Access::Write);
const PROTECT_THERE: Verb = |Shared { fx, spaces }| {
    fx.vm.protect(&spaces[0], Va(RESERVED), KIB4, Rights::READ_WRITE).is_ok()
};
const FORK: Verb =
    |Shared { fx, spaces }| fx.vm.fork(&spaces[0]).map(|child| fx.vm.exit(child)).is_ok();
const REMAP: Verb = |Shared { fx, spaces }| {
    fx.vm.remap(&spaces[0], Va(GIB), MIB2, MIB2, Placement::At(Va(6 * GIB + KIB4))).is_ok()
};
const REMAP_RESERVED: Verb = |Shared { fx, spaces }| {
    let to = Placement::Replace(Va(GIB + KIB4));
    fx.vm.remap(&spaces[0], Va(2 * GIB + KIB4), MIB2, 16 * KIB4, to).is_ok()
};

/// How often the verbs failed after the acts, with each of the settings.
fn all_starved(configs: &[Config], fork: bool, verbs: &[Verb], acts: &[Verb]) -> u32 {
    let mut failures = 0;
    for &config in configs {
        for (v, &verb) in verbs.iter().enumerate() {
            for (a, &act) in acts.iter().enumerate() {
                println!("{config:?}, verb {v}, act {a}");
                failures += starved(config, fork, verb, act);
            }
        }
    }
    failures
}

fn configs() -> [Config; 4] {
    let [table, private] = [ZeroHuge::Table, ZeroHuge::TablePrivate].map(with_zeros);
    [no_thp(), Config::default(), table, private]
}

#[test]
fn a_fault_that_fails_beside_another_fault_leaves_that_ones_tables_and_no_others() {
    let acts = [WRITE_NEAR, WRITE_FAR, READ_FAR, PROTECT_THERE];
    let failures = all_starved(&[no_thp()], false, &[WRITE_RESERVED], &acts)
        + all_starved(&configs(), false, &[READ_RESERVED], &[WRITE_FAR]);
    assert!(failures > 100, "{failures}");
}

#[test]
fn a_copy_that_fails_leaves_a_shared_huge_page_whole_whoever_faults_meanwhile() {
    let acts = [WRITE_RESERVED, WRITE_FAR];
    let failures = all_starved(&[Config::default()], true, &[WRITE_SHARED], &acts);
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_fork_that_fails_leaves_the_parent_to_its_faults() {
    let failures = all_starved(&configs(), false, &[FORK], &[WRITE_RESERVED, READ_FAR]);
    assert!(failures > 100, "{failures}");
}

#[test]
fn a_remap_that_fails_leaves_both_places_to_their_faults() {
    let configs = [no_thp(), with_zeros(ZeroHuge::Table)];
    let (verbs, acts) = ([REMAP, REMAP_RESERVED], [WRITE_RESERVED, WRITE_FAR]);
    let failures = all_starved(&configs, false, &verbs, &acts);
    assert!(failures > 100, "{failures}");
}
