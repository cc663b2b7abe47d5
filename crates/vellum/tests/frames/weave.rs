//! The allocator with another CPU's act put between any two steps of an operation: at every shared
//! word it touches, in turn.
//!
//! Threads find a race when the clock favours it; this finds every one that needs a single
//! interruption, each time. The act that is put in runs to its end. If it waits, it waits for the
//! operation that stands still, and the schedule does not exist.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::flat::{Flat, FrameHands, Meta, Waits, Woven, flat, weave};
use vellum::addr::{Order, Pfn};
use vellum::machine::{Machine, Use};
use vellum::unstable::{Frames, Token, Want};

struct Rig {
    frames: Frames,
    m: Flat,
    /// What CPUs 0 and 1 have.
    held: [RefCell<Vec<(Pfn, u8)>>; 2],
    _meta: Meta,
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Alloc(u8),
    /// The same, which must not be refused.
    Surely(u8),
    /// All that there is, in single frames.
    TakeAll,
    /// The oldest thing the CPU has.
    FreeOne,
    FreeAll,
    /// Every 2 MiB block it has into frames, every second of which is freed.
    Shatter,
    Drain,
    /// Gives back what it has, to the blocks.
    GiveBack,
    /// Every second thing it has becomes the other CPU's.
    HandOver,
    /// Everything it has, through the pending queue.
    Retire,
    /// Gives back what it has and takes all it can as 2 MiB.
    GrabWhole,
    /// The same, and shatters that.
    GrabAndShatter,
}

impl Rig {
    fn new(frames: u64) -> Rig {
        let m = flat(2, frames);
        let meta = Meta::new(Frames::layout(m.topology()).unwrap());
        // SAFETY: zeroed memory of that layout, kept beside the value.
        let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
        Rig { frames, m, held: Default::default(), _meta: meta }
    }

    fn act(&self, cpu: usize, act: Act) {
        self.m.run_on(cpu);
        let mine = &self.held[cpu];
        let free = |(pfn, o): (Pfn, u8)| self.frames.put(&self.m, pfn, order(o));
        match act {
            Act::Alloc(o) => {
                if let Ok(pfn) = self.frames.alloc(&self.m, order(o), &Want::kernel(Use::Table)) {
                    mine.borrow_mut().push((pfn, o));
                }
            }
            Act::Surely(o) => {
                let before = mine.borrow().len();
                self.act(cpu, Act::Alloc(o));
                assert!(mine.borrow().len() > before, "free memory of order {o} refused");
            }
            Act::TakeAll => {
                let mut before = usize::MAX;
                while before != mine.borrow().len() {
                    before = mine.borrow().len();
                    self.act(cpu, Act::Alloc(0));
                }
            }
            Act::FreeOne => {
                if !mine.borrow().is_empty() {
                    free(mine.borrow_mut().remove(0));
                }
            }
            Act::FreeAll => mine.take().into_iter().for_each(free),
            Act::Shatter => {
                for (pfn, o) in mine.take() {
                    if o < 9 {
                        mine.borrow_mut().push((pfn, o));
                        continue;
                    }
                    self.frames.cut(&self.m, pfn, order(o), Order::BASE);
                    for i in 0..1 << o {
                        mine.borrow_mut().push((pfn.add(i), 0));
                    }
                    for i in (0..1 << o).step_by(2) {
                        mine.borrow_mut().retain(|h| h.0 != pfn.add(i));
                        free((pfn.add(i), 0));
                    }
                }
            }
            Act::Drain => self.frames.drain(&self.m),
            Act::HandOver => {
                for (i, block) in mine.take().into_iter().enumerate() {
                    self.held[(cpu + i) % 2].borrow_mut().push(block);
                }
            }
            Act::GiveBack => {
                self.act(cpu, Act::FreeAll);
                self.frames.drain(&self.m);
            }
            Act::Retire => {
                let mut top = Token::top();
                for (i, (pfn, o)) in mine.take().into_iter().enumerate() {
                    self.frames.retire_at(&self.m, &mut top, (pfn, order(o)), i as u64);
                }
                self.frames.completed(&self.m, &mut top, u64::MAX);
            }
            Act::GrabWhole | Act::GrabAndShatter => {
                self.act(cpu, Act::GiveBack);
                for _ in 0..4 {
                    self.act(cpu, Act::Alloc(9));
                }
                if let Act::GrabAndShatter = act {
                    self.act(cpu, Act::Shatter);
                }
            }
        }
    }

    fn check(&self, what: &str) {
        let mut taken = std::collections::BTreeSet::new();
        let mut used = 0;
        for cpu in 0..2 {
            for &(pfn, o) in self.held[cpu].borrow().iter() {
                used += 1 << o;
                (0..1 << o).for_each(|i| {
                    assert!(taken.insert(pfn.add(i)), "{:?} had twice: {what}", pfn.add(i))
                });
            }
        }
        let counts = self.frames.audit(&self.m).unwrap_or_else(|e| panic!("{e}: {what}"));
        assert_eq!((counts.used, counts.pending), (used, 0), "{what}");
        for cpu in 0..2 {
            self.act(cpu, Act::FreeAll);
        }
        self.frames.drain(&self.m);
        let counts =
            self.frames.audit(&self.m).unwrap_or_else(|e| panic!("{e}, all freed: {what}"));
        assert_eq!(counts.free, counts.total, "all freed: {what}");
    }
}

/// Runs `operation` on CPU 0 after `before` (acts of each CPU), with the first of `acts` by CPU 1
/// at each of its steps in turn and the next ones as many steps later as they say. Says how many
/// schedules there were, and how many of them had an act wait.
fn every_step(
    frames: u64,
    before: &[(usize, Act)],
    operation: Act,
    acts: &[(u64, Act)],
) -> (u64, u64) {
    let mut waits = 0;
    for n in 0.. {
        let what = format!("{before:?}, then {operation:?} with {acts:?} at step {n}");
        let r = Rc::new(Rig::new(frames));
        before.iter().for_each(|&(cpu, act)| r.act(cpu, act));
        let waited = Rc::new(Cell::new(false));
        let put_in = acts.iter().enumerate().map(|(i, &(later, act))| -> Woven {
            let (r, waited) = (r.clone(), waited.clone());
            let run = move || {
                let result = catch_unwind(AssertUnwindSafe(|| r.act(1, act)));
                if let Err(panic) = result {
                    waited.set(true);
                    if !panic.is::<Waits>() {
                        resume_unwind(panic);
                    }
                }
            };
            (if i == 0 { n } else { later }, Box::new(run))
        });
        // The later acts may find no step left to come before; the first one, none when all have
        // been tried.
        if weave(put_in.collect(), || r.act(0, operation)) == 0 {
            return (n, waits);
        }
        if waited.get() {
            waits += 1;
        } else {
            r.check(&what);
        }
    }
    unreachable!()
}

const OPERATIONS: [Act; 10] = [
    Act::Alloc(0),
    Act::Alloc(2),
    Act::Alloc(6),
    Act::Alloc(7),
    Act::Alloc(9),
    Act::Alloc(10),
    Act::FreeOne,
    Act::FreeAll,
    Act::Drain,
    Act::Retire,
];

const ACTS: [Act; 10] = [
    Act::Alloc(0),
    Act::Alloc(7),
    Act::Alloc(9),
    Act::FreeAll,
    Act::Shatter,
    Act::Drain,
    Act::GiveBack,
    Act::Retire,
    Act::GrabWhole,
    Act::GrabAndShatter,
];

fn all(frames: u64, before: &[(usize, Act)]) -> (u64, u64) {
    let mut sum = (0, 0);
    for operation in OPERATIONS {
        for act in ACTS {
            let (schedules, waits) = every_step(frames, before, operation, &[(0, act)]);
            sum = (sum.0 + schedules, sum.1 + waits);
        }
    }
    sum
}

#[test]
fn any_two_acts_on_fresh_memory_can_meet_anywhere() {
    let (schedules, waits) = all(2048, &[]);
    assert!(schedules > 200 && waits == 0, "{schedules} schedules, {waits} waits");
}

#[test]
fn any_two_acts_on_memory_in_use_can_meet_anywhere() {
    let before = [
        (0, Act::Alloc(0)),
        (1, Act::Alloc(0)),
        (0, Act::Alloc(3)),
        (1, Act::Alloc(7)),
        (0, Act::Alloc(8)),
        (1, Act::Alloc(9)),
    ];
    let (schedules, _) = all(3072, &before);
    assert!(schedules > 500, "{schedules} schedules");
}

#[test]
fn a_block_that_a_cpu_keeps_whole_may_be_cut_up_while_another_acts() {
    // CPU 0 keeps a block of 2 MiB and nothing else; in the second case there is nothing else.
    for frames in [1024, 512] {
        let before = [(0, Act::Alloc(9)), (0, Act::FreeAll)];
        let (schedules, _) = all(frames, &before);
        assert!(schedules > 100, "{schedules} schedules");
        // Once cut up, its pieces are had by both, and come back to it from both.
        let mut before = before.to_vec();
        before.extend([
            (0, Act::Alloc(3)),
            (0, Act::Alloc(6)),
            (1, Act::Alloc(5)),
            (0, Act::HandOver),
        ]);
        all(frames, &before);
    }
}

#[test]
fn any_two_acts_on_full_memory_can_meet_anywhere() {
    for piece in [7, 8] {
        let mut before = [(0, Act::Alloc(piece)), (1, Act::Alloc(piece))].repeat(256 >> piece);
        before.push((0, Act::Drain));
        all(512, &before);
    }
}

#[test]
fn a_block_that_gets_frames_back_while_it_is_noted_as_full_is_not_forgotten() {
    // CPU 0 has used up the block it claims, and CPU 1 gives frames of it back just then.
    let mut before = [(0, Act::Alloc(0))].repeat(512);
    before.push((0, Act::HandOver));
    for act in [Act::GiveBack, Act::FreeAll, Act::GrabWhole] {
        every_step(1024, &before, Act::Alloc(0), &[(0, act)]);
    }
}

/// One block open for a class of orders and claimed by nobody, all others had whole by CPU 1: who
/// takes from it for another class does so without a claim, and it may be emptied, closed, had
/// whole and shattered before the taker looks again.
fn scarce() -> Vec<Vec<(usize, Act)>> {
    let pieces = [0, 3, 6, 8];
    let before = |piece| vec![(1, Act::Alloc(9)), (1, Act::Alloc(piece)), (0, Act::Drain)];
    pieces.into_iter().map(before).collect()
}

#[test]
fn any_two_acts_on_scarce_memory_can_meet_anywhere() {
    for before in scarce() {
        all(1024, &before);
    }
}

#[test]
fn who_splits_a_block_waits_for_nobody_who_came_too_late() {
    // The taker knows the block to be open; it is emptied and had whole; the taker goes for it; it
    // is split.
    let mut waits = 0;
    for before in scarce() {
        for o in [0, 2, 6, 7, 8] {
            for later in 0..4 {
                for last in [Act::Shatter, Act::GrabAndShatter, Act::FreeAll] {
                    let acts = [(0, Act::GrabWhole), (later, last)];
                    waits += every_step(1024, &before, Act::Alloc(o), &acts).1;
                }
            }
        }
    }
    assert_eq!(waits, 0);
}

#[test]
fn an_allocation_gives_others_time_before_it_is_refused_what_they_are_at() {
    // All that is free lies in one block, and CPU 0 has locked that just now.
    let mut waits = 0;
    for before in scarce() {
        for o in [0, 6] {
            waits += every_step(1024, &before, Act::Alloc(o), &[(0, Act::Alloc(3))]).1;
        }
    }
    assert!(waits > 0, "no schedule had it wait");
}

#[test]
fn an_allocation_waits_for_a_magazine_that_has_all_that_is_free() {
    // Two frames are free, in the magazine of CPU 0 or on their way out of it; then in blocks, or
    // on their way into it.
    let mut before = vec![(0, Act::TakeAll), (0, Act::FreeOne), (0, Act::FreeOne)];
    for drained in [false, true] {
        let mut sum = (0, 0);
        for operation in [Act::Drain, Act::FreeOne, Act::Alloc(0), Act::Alloc(3)] {
            let (schedules, waits) = every_step(1024, &before, operation, &[(0, Act::Surely(0))]);
            sum = (sum.0 + schedules, sum.1 + waits);
        }
        assert!(sum.0 > 5 && sum.1 > 0, "drained: {drained}, {} schedules, {} waits", sum.0, sum.1);
        before.push((0, Act::Drain));
    }
}

#[test]
fn a_run_of_groups_that_another_takes_from_is_put_back() {
    // 128 MiB are a group. The first two of them are had; of the next two CPU 1 takes from the
    // second.
    let (schedules, _) =
        every_step(6 << 15, &[(0, Act::Alloc(16))], Act::Alloc(16), &[(0, Act::Alloc(9))]);
    assert!(schedules > 2, "{schedules} schedules");
}

#[test]
fn frames_that_cpus_hand_to_each_other_can_come_back_anywhere() {
    // Each CPU has frames of the other's block, more than go on its stack: some find that block
    // locked.
    let mut before = [(0, Act::Alloc(0)), (1, Act::Alloc(0))].repeat(70);
    before.extend([(0, Act::HandOver), (1, Act::HandOver)]);
    for operation in [Act::FreeOne, Act::FreeAll, Act::Alloc(0), Act::Alloc(4), Act::Drain] {
        for act in [
            Act::FreeOne,
            Act::FreeAll,
            Act::Alloc(0),
            Act::Alloc(4),
            Act::Drain,
            Act::GiveBack,
            Act::GrabWhole,
        ] {
            every_step(2048, &before, operation, &[(0, act)]);
        }
    }
}

#[test]
fn a_block_whose_last_frames_two_cpus_free_at_once_closes() {
    // Nothing is on a stack, nothing claimed: 2 frames of a block each, and nothing else in it.
    for o in [0, 3, 6] {
        let mut before = vec![(0, Act::Alloc(9)), (1, Act::Alloc(9))];
        before.extend([(0, Act::Alloc(o)), (1, Act::Alloc(o))].repeat(2));
        before.extend([(0, Act::HandOver), (1, Act::HandOver), (0, Act::Drain)]);
        for operation in [Act::FreeOne, Act::FreeAll, Act::Drain] {
            for act in [Act::FreeOne, Act::FreeAll, Act::GiveBack, Act::GrabWhole] {
                for (later, last) in [(0, Act::Alloc(9)), (1, Act::Drain), (2, Act::FreeAll)] {
                    every_step(3072, &before, operation, &[(0, act), (later, last)]);
                }
            }
        }
    }
}
