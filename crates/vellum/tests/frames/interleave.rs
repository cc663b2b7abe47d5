//! The allocator with acts of another CPU at every shared word that an operation touches.

use std::cell::RefCell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

struct TwoCpus {
    of: FramesFixture,
    /// What CPUs 0 and 1 have.
    held: [RefCell<Vec<(Pfn, u8)>>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Alloc(u8),
    /// The same, which must succeed.
    Surely(u8),
    /// All free frames, one by one.
    TakeAll,
    /// The oldest block that the CPU has.
    FreeOne,
    FreeAll,
    /// Splits every 2 MiB block that the CPU has into frames, and frees every second one.
    Split,
    Drain,
    /// Frees what the CPU has, and drains its magazine.
    GiveBack,
    /// Every second block that the CPU has becomes the other CPU's.
    HandOver,
    /// Frees all that the CPU has through the pending queue.
    Retire,
    /// Frees what the CPU has and allocates all it can as 2 MiB.
    TakeWhole,
    /// The same, and splits that.
    TakeAndSplit,
}

impl TwoCpus {
    fn act(&self, cpu: usize, act: Act) {
        self.of.m.run_on(cpu);
        let mine = &self.held[cpu];
        let free = |(pfn, o)| self.of.free(pfn, o);
        match act {
            Act::Alloc(o) => {
                let got = self.of.alloc(o);
                mine.borrow_mut().extend(got.map(|pfn| (pfn, o)));
            }
            Act::Surely(o) => {
                let before = mine.borrow().len();
                self.act(cpu, Act::Alloc(o));
                assert!(mine.borrow().len() > before, "free memory of order {o} refused");
            }
            Act::TakeAll => {
                let got = self.of.take_all(0);
                mine.borrow_mut().extend(got.into_iter().map(|pfn| (pfn, 0)));
            }
            Act::FreeOne => {
                if !mine.borrow().is_empty() {
                    free(mine.borrow_mut().remove(0));
                }
            }
            Act::FreeAll => mine.take().into_iter().for_each(free),
            Act::Split => {
                for (pfn, o) in mine.take() {
                    if o < 9 {
                        mine.borrow_mut().push((pfn, o));
                        continue;
                    }
                    self.of.split(pfn, o, 0);
                    for i in (0..1 << o).step_by(2) {
                        mine.borrow_mut().push((pfn.add(i + 1), 0));
                        free((pfn.add(i), 0));
                    }
                }
            }
            Act::Drain => self.of.frames.drain(&self.of.m),
            Act::HandOver => {
                for (i, block) in mine.take().into_iter().enumerate() {
                    self.held[(cpu + i) % 2].borrow_mut().push(block);
                }
            }
            Act::GiveBack => {
                self.act(cpu, Act::FreeAll);
                self.of.frames.drain(&self.of.m);
            }
            Act::Retire => {
                let mut top = Token::top();
                for (i, (pfn, o)) in mine.take().into_iter().enumerate() {
                    self.of.frames.retire_at(&self.of.m, &mut top, (pfn, order(o)), i as u64);
                }
                self.of.frames.completed(&self.of.m, &mut top, u64::MAX);
            }
            Act::TakeWhole | Act::TakeAndSplit => {
                self.act(cpu, Act::GiveBack);
                for _ in 0..4 {
                    self.act(cpu, Act::Alloc(9));
                }
                if let Act::TakeAndSplit = act {
                    self.act(cpu, Act::Split);
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
        let recount = || self.of.frames.audit(&self.of.m).unwrap_or_else(|e| panic!("{e}: {what}"));
        let counts = recount();
        assert_eq!((counts.used, counts.pending), (used, 0), "{what}");
        (0..2).for_each(|cpu| self.act(cpu, Act::FreeAll));
        self.of.frames.drain(&self.of.m);
        let counts = recount();
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
        let of = FramesFixture::new(flat(2, frames));
        let fx = Rc::new(TwoCpus { of, held: Default::default() });
        before.iter().for_each(|&(cpu, act)| fx.act(cpu, act));
        // The later acts may find no step left to come before; the first one, none when all have
        // been tried.
        let put = acts.iter().enumerate().map(|(i, &(later, act))| {
            (if i == 0 { n } else { later }, move |fx: &TwoCpus| fx.act(1, act))
        });
        match put_in(&fx, put, |fx| fx.act(0, operation)) {
            None => return (n, waits),
            Some(Met::Waited) => waits += 1,
            Some(Met::Ran) => {
                fx.check(&format!("{before:?}, then {operation:?} with {acts:?} at step {n}"));
            }
        }
    }
    unreachable!()
}

/// Every operation with every act.
fn all(frames: u64, before: &[(usize, Act)]) -> (u64, u64) {
    use Act::*;
    let allocs = [0, 2, 6, 7, 9, 10].map(Alloc);
    let operations = [&allocs[..], &[FreeOne, FreeAll, Drain, Retire]].concat();
    let allocs = [0, 7, 9].map(Alloc);
    let others = [FreeAll, Split, Drain, GiveBack, Retire, TakeWhole, TakeAndSplit];
    every_pair(frames, before, &operations, &[&allocs[..], &others].concat())
}

/// Each of the operations with each of the acts put in, as [`every_step`].
fn every_pair(
    frames: u64,
    before: &[(usize, Act)],
    operations: &[Act],
    acts: &[Act],
) -> (u64, u64) {
    let mut sum = (0, 0);
    for &operation in operations {
        for &act in acts {
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
    let before =
        [(0, 0), (1, 0), (0, 3), (1, 7), (0, 8), (1, 9)].map(|(cpu, o)| (cpu, Act::Alloc(o)));
    let (schedules, _) = all(3072, &before);
    assert!(schedules > 500, "{schedules} schedules");
}

#[test]
fn a_huge_block_that_a_cpu_caches_may_be_split_while_another_acts() {
    // CPU 0 keeps a block of 2 MiB and nothing else; in the second case there is nothing else.
    for frames in [1024, 512] {
        let before = [(0, Act::Alloc(9)), (0, Act::FreeAll)];
        let (schedules, _) = all(frames, &before);
        assert!(schedules > 100, "{schedules} schedules");
        // After a split both CPUs have parts of it, and both free them.
        let split =
            [(0, Act::Alloc(3)), (0, Act::Alloc(6)), (1, Act::Alloc(5)), (0, Act::HandOver)];
        all(frames, &[&before[..], &split].concat());
    }
}

#[test]
fn any_two_acts_on_full_memory_can_meet_anywhere() {
    for o in [7, 8] {
        let mut before = [(0, Act::Alloc(o)), (1, Act::Alloc(o))].repeat(256 >> o);
        before.push((0, Act::Drain));
        all(512, &before);
    }
}

#[test]
fn a_block_that_gets_frames_back_while_it_is_noted_as_full_is_not_forgotten() {
    // CPU 0 has used up the block that it claims, and CPU 1 frees frames of it just then.
    let mut before = [(0, Act::Alloc(0))].repeat(512);
    before.push((0, Act::HandOver));
    every_pair(1024, &before, &[Act::Alloc(0)], &[Act::GiveBack, Act::FreeAll, Act::TakeWhole]);
}

/// One block is open for a class of orders and claimed by nobody; CPU 1 has all others whole. A CPU
/// that allocates from it for another class does so without a claim: the block may be emptied,
/// closed, allocated whole and split before that CPU looks again.
fn scarce() -> Vec<Vec<(usize, Act)>> {
    let orders = [0, 3, 6, 8];
    let before = |o| vec![(1, Act::Alloc(9)), (1, Act::Alloc(o)), (0, Act::Drain)];
    orders.into_iter().map(before).collect()
}

#[test]
fn any_two_acts_on_scarce_memory_can_meet_anywhere() {
    for before in scarce() {
        all(1024, &before);
    }
}

#[test]
fn a_split_waits_for_no_cpu_that_came_too_late() {
    // One CPU has found the block open; the block is emptied and allocated whole; the CPU tries to
    // allocate from it; it is split.
    let mut waits = 0;
    for before in scarce() {
        for o in [0, 2, 6, 7, 8] {
            for later in 0..4 {
                for last in [Act::Split, Act::TakeAndSplit, Act::FreeAll] {
                    let acts = [(0, Act::TakeWhole), (later, last)];
                    waits += every_step(1024, &before, Act::Alloc(o), &acts).1;
                }
            }
        }
    }
    assert_eq!(waits, 0);
}

#[test]
fn an_allocation_waits_for_others_before_it_is_refused() {
    // All that is free lies in one block, and CPU 0 has locked that just now.
    let mut waits = 0;
    for before in scarce() {
        waits += every_pair(1024, &before, &[0, 6].map(Act::Alloc), &[Act::Alloc(3)]).1;
    }
    assert!(waits > 0, "no schedule had it wait");
}

#[test]
fn an_allocation_waits_for_a_magazine_that_has_all_that_is_free() {
    // Two frames are free, in the magazine of CPU 0 or on their way out of it; then in blocks, or
    // on their way into it.
    let mut before = vec![(0, Act::TakeAll), (0, Act::FreeOne), (0, Act::FreeOne)];
    for drained in [false, true] {
        let operations = [Act::Drain, Act::FreeOne, Act::Alloc(0), Act::Alloc(3)];
        let (schedules, waits) = every_pair(1024, &before, &operations, &[Act::Surely(0)]);
        assert!(
            schedules > 5 && waits > 0,
            "drained: {drained}, {schedules} schedules, {waits} waits"
        );
        before.push((0, Act::Drain));
    }
}

#[test]
fn a_run_of_groups_that_another_takes_from_is_put_back() {
    // 128 MiB are a group. The first two groups are allocated; CPU 1 allocates from the second of
    // the next two.
    let (schedules, _) =
        every_step(6 << 15, &[(0, Act::Alloc(16))], Act::Alloc(16), &[(0, Act::Alloc(9))]);
    assert!(schedules > 2, "{schedules} schedules");
}

#[test]
fn frames_that_cpus_hand_to_each_other_can_come_back_anywhere() {
    // Each CPU has more frames of the other's block than fit its magazine: some find that block
    // locked.
    let mut before = [(0, Act::Alloc(0)), (1, Act::Alloc(0))].repeat(70);
    before.extend([(0, Act::HandOver), (1, Act::HandOver)]);
    use Act::*;
    let acts = [FreeOne, FreeAll, Alloc(0), Alloc(4), Drain, GiveBack, TakeWhole];
    every_pair(2048, &before, &acts[..5], &acts);
}

#[test]
fn a_block_whose_last_frames_two_cpus_free_at_once_closes() {
    // The magazines are empty and nothing is claimed: each CPU has two sub-blocks of a block, and
    // nothing else is in it.
    for o in [0, 3, 6] {
        let mut before = vec![(0, Act::Alloc(9)), (1, Act::Alloc(9))];
        before.extend([(0, Act::Alloc(o)), (1, Act::Alloc(o))].repeat(2));
        before.extend([(0, Act::HandOver), (1, Act::HandOver), (0, Act::Drain)]);
        for operation in [Act::FreeOne, Act::FreeAll, Act::Drain] {
            for act in [Act::FreeOne, Act::FreeAll, Act::GiveBack, Act::TakeWhole] {
                for (later, last) in [(0, Act::Alloc(9)), (1, Act::Drain), (2, Act::FreeAll)] {
                    every_step(3072, &before, operation, &[(0, act), (later, last)]);
                }
            }
        }
    }
}
