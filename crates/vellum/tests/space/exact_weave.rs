//! Verbs that run out of memory, with another CPU's act put in between any two of their steps.
//!
//! For every number of frames that is too few, and at every shared word the verb touches: if the
//! verb fails, the state is what the act alone makes of it, to the bit but for which frames it
//! took, or what it was if the act failed, too. An act that waits for the verb, which stands still,
//! is a schedule that does not exist.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::flat::{FrameHands, unless_it_waits, weave};
use crate::lab::state::{State, difference};
use crate::lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Config, NumaPolicy, ZeroHuge};
use vellum::entry::{Codec, X86_64};
use vellum::machine::Use;
use vellum::space::{Access, Placement, Rights, Space};
use vellum::unstable::Want;

/// Whether it was done; anything else than a lack of memory ends the test.
type Verb = fn(&Rig) -> bool;

struct Rig {
    lab: Lab,
    /// The second one is a fork of the first where that matters.
    spaces: Vec<Space>,
}

fn rig(config: Config, fork: bool) -> Rig {
    let lab = lab(3072, config);
    let space = lab.vm.create().expect("memory");
    lab.map(&space, Va(GIB), MIB2, RW);
    lab.map(&space, Va(2 * GIB), GIB, RW);
    lab.poke(&space, Va(GIB + 3 * KIB4), 3).expect("memory");
    let mut spaces = vec![space];
    if fork {
        spaces.push(lab.vm.fork(&spaces[0]).expect("memory"));
    }
    Rig { lab, spaces }
}

impl Rig {
    /// All there is but for which frames: the tables' entries without them.
    fn shape(&self) -> State {
        let mut state = self.lab.state(&self.spaces.iter().collect::<Vec<_>>());
        state.tables.iter_mut().flatten().for_each(|raw| raw.2 &= !X86_64::FRAME);
        state
    }
    /// Leaves that many frames, from all over.
    fn starve(&self, room: usize) -> Vec<Pfn> {
        let take = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Table };
        let frames = self.lab.vm.frames();
        let all =
            std::iter::from_fn(|| frames.alloc(self.lab.vm.machine(), Order::BASE, &take).ok());
        let mut taken: Vec<Pfn> = all.collect();
        for _ in 0..room {
            let pfn = taken.swap_remove(taken.len() * 7 / 11);
            frames.put(self.lab.vm.machine(), pfn, Order::BASE);
        }
        taken
    }
    fn feed(&self, taken: Vec<Pfn>) {
        taken
            .into_iter()
            .for_each(|pfn| self.lab.vm.frames().put(self.lab.vm.machine(), pfn, Order::BASE));
    }
    fn end(self) {
        self.spaces.into_iter().for_each(|space| self.lab.vm.exit(space));
        self.lab.vm.shrink_zeros();
        self.lab.check(&[]);
    }
}

/// What is left when the act alone was done, with frames enough but no block.
fn alone(config: Config, fork: bool, act: Verb) -> State {
    let rig = rig(config, fork);
    let taken = rig.starve(32);
    rig.lab.vm.machine().run_on(1);
    assert!(act(&rig), "an act that fails with 32 frames");
    rig.lab.vm.machine().run_on(0);
    rig.feed(taken);
    let shape = rig.shape();
    rig.end();
    shape
}

/// Says how often the verb failed with the act done.
fn starved(config: Config, fork: bool, verb: Verb, act: Verb) -> u32 {
    let after_act = alone(config, fork, act);
    let fresh = rig(config, fork);
    let before = fresh.shape();
    fresh.end();
    let (mut failures, mut room) = (0, 0);
    loop {
        let (mut at, mut failed) = (0, false);
        loop {
            let rig = Rc::new(rig(config, fork));
            rig.lab.vm.machine().run_on(0);
            let taken = rig.starve(room);
            let (acted, waited) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let woven = {
                let (rig, acted, waited) = (Rc::clone(&rig), Rc::clone(&acted), Rc::clone(&waited));
                Box::new(move || {
                    rig.lab.vm.machine().run_on(1);
                    match unless_it_waits(|| act(&rig)) {
                        Some(done) => acted.set(done),
                        None => waited.set(true),
                    }
                })
            };
            let mut done = true;
            let began = weave(vec![(at, woven as Box<dyn FnOnce()>)], || {
                match catch_unwind(AssertUnwindSafe(|| verb(&rig))) {
                    Ok(did) => done = did,
                    Err(why) if !waited.get() => resume_unwind(why),
                    Err(_) => {}
                }
            });
            if began == 0 {
                break;
            }
            at += 1;
            if waited.get() {
                // What the half-done act holds cannot be taken apart; the rig's memory goes as a
                // whole.
                continue;
            }
            rig.feed(taken);
            let after = rig.shape();
            if !done {
                let wanted = if acted.get() { &after_act } else { &before };
                assert!(
                    after == *wanted,
                    "{room} frames, after {at} words: {}",
                    difference(wanted, &after)
                );
                failures += u32::from(acted.get());
                failed = true;
            }
            Rc::into_inner(rig).expect("the act is over").end();
        }
        // With five there is enough for the act, which takes three, and not for every verb beside
        // it.
        if !failed && room >= 5 {
            return failures;
        }
        room += 1;
    }
}

fn fault(rig: &Rig, space: usize, va: u64, access: Access) -> bool {
    use vellum::error::FaultError::{NoMemory, Unmapped};
    let done = rig.lab.vm.fault(&rig.spaces[space], Va(va), access);
    // Nothing is mapped any more where a remap has taken it away.
    assert!(matches!(done, Ok(_) | Err(NoMemory | Unmapped)), "{done:?}");
    done.is_ok()
}

const PROMISED: u64 = 2 * GIB + 5 * KIB4;

fn write_promised(rig: &Rig) -> bool {
    fault(rig, 0, PROMISED, Access::Write)
}
fn read_promised(rig: &Rig) -> bool {
    fault(rig, 0, PROMISED, Access::Read)
}
fn write_near(rig: &Rig) -> bool {
    fault(rig, 0, PROMISED + 9 * KIB4, Access::Write)
}
fn write_far(rig: &Rig) -> bool {
    fault(rig, 0, PROMISED + 7 * MIB2, Access::Write)
}
fn read_far(rig: &Rig) -> bool {
    fault(rig, 0, PROMISED + 7 * MIB2, Access::Read)
}
fn write_shared(rig: &Rig) -> bool {
    fault(rig, 1, GIB + 3 * KIB4, Access::Write)
}
fn protect_there(rig: &Rig) -> bool {
    rig.lab.vm.protect(&rig.spaces[0], Va(PROMISED), KIB4, Rights::READ_WRITE).is_ok()
}
fn fork(rig: &Rig) -> bool {
    rig.lab.vm.fork(&rig.spaces[0]).map(|child| rig.lab.vm.exit(child)).is_ok()
}
fn remap(rig: &Rig) -> bool {
    let to = Placement::At(Va(6 * GIB + KIB4));
    rig.lab.vm.remap(&rig.spaces[0], Va(GIB), MIB2, MIB2, to).is_ok()
}
fn remap_promised(rig: &Rig) -> bool {
    let to = Placement::Replace(Va(GIB + KIB4));
    rig.lab.vm.remap(&rig.spaces[0], Va(2 * GIB + KIB4), MIB2, 16 * KIB4, to).is_ok()
}

fn configs() -> [Config; 4] {
    let with = |zero_huge| Config { zero_huge, ..Config::default() };
    [never(), Config::default(), with(ZeroHuge::Table), with(ZeroHuge::TablePrivate)]
}

#[test]
fn a_fault_that_fails_beside_another_fault_leaves_that_ones_tables_and_no_others() {
    let mut failures = 0;
    for act in [write_near, write_far, read_far, protect_there] {
        failures += starved(never(), false, write_promised, act);
    }
    for config in configs() {
        failures += starved(config, false, read_promised, write_far);
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn a_copy_that_fails_leaves_a_shared_huge_page_whole_whoever_faults_meanwhile() {
    let mut failures = 0;
    for act in [write_promised, write_far] {
        failures += starved(Config::default(), true, write_shared, act);
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_fork_that_fails_leaves_the_parent_to_its_faults() {
    let mut failures = 0;
    for config in configs() {
        for act in [write_promised, read_far] {
            failures += starved(config, false, fork, act);
        }
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn a_remap_that_fails_leaves_both_places_to_their_faults() {
    let mut failures = 0;
    for config in [never(), Config { zero_huge: ZeroHuge::Table, ..Config::default() }] {
        for verb in [remap as Verb, remap_promised] {
            for act in [write_promised as Verb, write_far] {
                failures += starved(config, false, verb, act);
            }
        }
    }
    assert!(failures > 100, "{failures}");
}
