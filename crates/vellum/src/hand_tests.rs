//! Memory in hand: who is refused, who is waited for, and the counts that tell.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::{array, iter};

use crate::addr::{Order, Pfn};
use crate::frame::AllocRequest;
use crate::machine::{Machine, Use};
use crate::memory::retry::Refusal;
use crate::testkit::prelude::{
    Fixture, FramesExt, FramesFixture, VmExt, at_each_step, flat, switch_tasks,
};
use crate::width_tests::{RawState, fixture, take};

/// Of a magazine's word.
const MAGAZINE_LOCKED: u64 = 1 << 63;

#[test]
fn a_refusal_takes_two_looks_and_more_while_memory_comes_back() {
    let r = fixture();
    let m = r.vm.machine();
    let looks = |meanwhile: &dyn Fn()| {
        let mut refusal = Refusal::default();
        let look = |_| {
            meanwhile();
            r.vm.layers.look_again(&mut refusal)
        };
        (0..100).map(look).take_while(|again| *again).count()
    };
    let one = || take(&r.vm.layers.frames, m, 0);
    let on_another = |act: &dyn Fn()| r.on_cpu(1, act);
    let never = looks(&|| ());
    let its_own = looks(&|| r.vm.layers.untake(one(), Order::BASE));
    let used = looks(&|| on_another(&|| _ = one()));
    let freed = looks(&|| on_another(&|| r.vm.layers.frames.give_back(m, one(), Order::BASE)));
    let untaken = looks(&|| on_another(&|| r.vm.layers.untake(one(), Order::BASE)));
    assert_eq!([never, its_own, used, freed, untaken], [1, 1, 63, 63, 63]);
}

#[test]
fn a_refused_verb_does_not_take_its_own_refusal_for_memory_that_came_back() {
    let r = fixture();
    let m = r.vm.machine();
    let space = r.space();
    r.write(&space);
    let mut all = r.take_all(Order::BASE);
    // Each attempt that was refused counts once.
    let attempts = |verb: &dyn Fn() -> bool| {
        let before = r.vm.layers.hands.untaken(m).0;
        assert!(verb());
        (r.vm.layers.hands.untaken(m).0 - before) >> 40
    };
    assert_eq!(attempts(&|| r.vm.create().is_err()), 2);
    // A fork has the first of its child's four tables, and takes them apart again.
    r.give_back(all.drain(..2), Order::BASE);
    assert_eq!(attempts(&|| r.vm.fork(&space).is_err()), 2);
}

#[test]
fn a_refused_verb_does_not_take_the_use_of_others_for_its_own() {
    let r = Rc::new(fixture());
    let last = r.take_all(Order::BASE).pop();
    // Once in each attempt another CPU frees its page and takes it again.
    let (theirs, attempts) = (r.clone(), Rc::new(Cell::new(0)));
    let (mut page, counted, mut begun) = (last.expect("a page"), attempts.clone(), false);
    at_each_step(move |_| {
        let (vm, tried) = (&theirs.vm, theirs.vm.layers.hands.at_work() > 0);
        if tried && !begun {
            counted.set(counted.get() + 1);
            theirs.on_cpu(1, || {
                vm.layers.frames.put(vm.machine(), page, Order::BASE);
                page = take(&vm.layers.frames, vm.machine(), 0);
            });
        }
        begun = tried;
    });
    assert!(r.vm.create().is_err());
    at_each_step(|_| ());
    assert_eq!(attempts.get(), 64, "refused though memory was used and freed");
}

#[test]
fn a_refused_task_does_not_take_for_its_own_what_another_gave_back_on_its_cpu() {
    let r: &'static _ = Box::leak(Box::new(fixture()));
    let (m, frames, hands) = (r.vm.machine(), &r.vm.layers.frames, &r.vm.layers.hands);
    let one = || frames.alloc(m, Order::BASE, &AllocRequest::kernel(Use::Data)).ok();
    let _first = r.space();
    r.give_back(r.take_all(Order::BASE).drain(..2), Order::BASE);

    // The new space takes one. The other task takes both frames in vain, twice: it has the CPU from
    // one point to the next.
    let create = |points: [usize; 4]| {
        let (mut hand, count) = (None, Rc::new(Cell::new(0)));
        let seen = count.clone();
        at_each_step(move |waits| {
            if m.preempt_depth() != 0 {
                return;
            }
            seen.set(seen.get() + 1);
            if points.contains(&seen.get()) || waits {
                hand = match hand.take() {
                    Some((in_hand, had)) => {
                        let had: Vec<Pfn> = had;
                        had.into_iter().for_each(|pfn| r.vm.layers.untake(pfn, Order::BASE));
                        drop(in_hand);
                        None
                    }
                    None if waits => None,
                    None => Some((hands.begin(m), iter::from_fn(one).collect())),
                };
                switch_tasks();
            }
        });
        let done = r.vm.create();
        // It gives back what it may still have.
        m.relax();
        at_each_step(|_| ());
        let space = done.unwrap_or_else(|_| panic!("refused beside a task that ran at {points:?}"));
        r.vm.exit(space);
        assert_eq!(hands.at_work(), 0);
        count.get()
    };
    // A create that is refused twice has no more points.
    const POINTS: usize = 36;
    let mut most = 0;
    for a in 1..POINTS {
        for b in a + 1..POINTS {
            for c in b + 1..POINTS {
                most = (c + 1..POINTS).map(|d| create([a, b, c, d])).fold(most, usize::max);
            }
        }
    }
    println!("up to {most} points");
}

#[test]
fn a_refusal_sees_what_came_back_while_it_read_the_counts() {
    let mut first = 1;
    loop {
        let r = Rc::new(fixture());
        let m = r.vm.machine();
        let one = || take(&r.vm.layers.frames, m, 0);
        let in_vain = r.on_cpu(1, one);
        // The first look goes by while another CPU gives back what it had taken in vain.
        let (steps, theirs) = (Rc::new(Cell::new(0)), r.clone());
        let counted = steps.clone();
        at_each_step(move |_| {
            counted.set(counted.get() + 1);
            if counted.get() == first {
                theirs.on_cpu(1, || theirs.vm.layers.untake(in_vain, Order::BASE));
            }
        });
        let mut refusal = Refusal::default();
        assert!(r.vm.layers.look_again(&mut refusal));
        let ended = steps.replace(first) < first;
        at_each_step(|_| ());
        if ended {
            break;
        }
        // It takes it once more, for use now, before the page is looked for again.
        r.on_cpu(1, one);
        assert!(r.vm.layers.look_again(&mut refusal), "refused after step {first}");
        first += 1;
    }
    assert!(first > 4, "the counts were read in {first} steps");
}

#[test]
fn counts_of_what_came_and_went_are_of_one_moment() {
    let fx = Rc::new(FramesFixture::new(flat(1, 2048)));
    let FramesFixture { frames, m, .. } = &*fx;
    let had = take(frames, m, 0);
    let (word, filled) = (frames.raw(0, 0).word, frames.raw(0, 0).filled);
    let before = frames.turnover(m);
    assert!(before.is_some());

    // Another CPU, half-way through a refill, ends it when it is waited for.
    let locked = MAGAZINE_LOCKED;
    word.fetch_or(locked, Relaxed);
    filled.fetch_add(1, Relaxed);
    let theirs = fx.clone();
    at_each_step(move |waits| {
        if waits {
            theirs.frames.raw(0, 0).word.fetch_add(1, Relaxed);
            theirs.frames.raw(0, 0).word.fetch_and(!locked, Relaxed);
        }
    });
    assert_eq!(frames.turnover(m), before);
    assert_eq!(word.load(Relaxed) & locked, 0, "nobody waited");

    // The same of one that has a block in which a frame is not counted yet.
    let block = had.0 as usize / 512;
    word.fetch_or(locked, Relaxed);
    frames.put(m, had, Order::BASE);
    word.fetch_and(!locked, Relaxed);
    assert_eq!(frames.turnover(m), before.map(|n| n + 1));
    frames.raw(0, 0).state(block).fetch_or(RawState::LOCKED, Relaxed);
    let theirs = fx.clone();
    at_each_step(move |waits| {
        if waits {
            theirs.frames.raw(0, 0).state(block).fetch_and(!RawState::LOCKED, Relaxed);
        }
    });
    assert_eq!(frames.turnover(m), before.map(|n| n + 1));
    assert_eq!(frames.raw(0, 0).state(block).load(Relaxed) & RawState::LOCKED, 0, "nobody waited");

    // Who never ends is not waited for for ever.
    at_each_step(|_| ());
    word.fetch_or(locked, Relaxed);
    assert_eq!(frames.turnover(m), None);
}

#[test]
fn what_only_a_block_will_do_for_waits_for_the_parts_that_another_has() {
    // Of 1 to 4.
    const BLOCK: usize = 2;
    for magazine in [false, true] {
        let r = Rc::new(fixture());
        let want = AllocRequest::kernel(Use::Data);
        let had = r.take_all(Order::BASE);
        let of_block: Vec<_> = had.iter().filter(|pfn| pfn.0 / 512 == BLOCK as u64).collect();
        assert_eq!(of_block.len(), 512);

        // All of a block comes back while another CPU is at it, or has a magazine with its last.
        let set = move |r: &Fixture, locked: bool| {
            let raw = r.vm.layers.frames.raw(0, 1);
            let state = raw.state(BLOCK);
            match (magazine, locked) {
                (false, true) => _ = state.fetch_or(RawState::LOCKED, Relaxed),
                (false, false) => _ = state.fetch_and(!RawState::LOCKED, Relaxed),
                (true, true) => _ = raw.word.fetch_or(MAGAZINE_LOCKED, Relaxed),
                (true, false) => _ = raw.word.fetch_and(!MAGAZINE_LOCKED, Relaxed),
            }
        };
        set(&r, !magazine);
        r.on_cpu(1, || r.give_back(of_block.into_iter().copied(), Order::BASE));
        set(&r, true);
        let (theirs, waited) = (r.clone(), Rc::new(Cell::new(false)));
        let came = waited.clone();
        at_each_step(move |waits| {
            if waits && !came.replace(true) {
                set(&theirs, false);
            }
        });
        assert!(r.vm.layers.alloc_exactly(Order::HUGE, &want).is_ok(), "magazine: {magazine}");
        at_each_step(|_| ());
        assert!(waited.get(), "nobody waited");
    }
}

#[test]
fn hands_are_waited_for_but_not_those_that_come_later() {
    let r = fixture();
    let (m, hands) = (r.vm.machine(), &r.vm.layers.hands);
    let hand: [_; 4] = array::from_fn(|_| RefCell::new(None));
    let begin = |n: usize| _ = hand[n].replace(Some(hands.begin(m)));
    let end = |n: usize| drop(hand[n].take().expect("it began"));
    let turns = Cell::new(0);
    let turn = || turns.replace(turns.get() + 1);

    begin(0);
    assert_eq!(r.complaint(&[]), "memory in hand at rest");
    // At no time is nobody at work.
    hands.wait(m, || match turn() {
        0 => begin(1),
        1 => end(0),
        _ => panic!("waited for whoever came later"),
    });
    assert_eq!((turns.take(), hands.at_work()), (2, 1));

    // Two wait: the second for all who were there when it came, whichever ends first.
    hands.wait(m, || {
        begin(2);
        hands.wait(m, || match turn() {
            0 => end(1),
            1 => begin(3),
            2 => end(2),
            _ => panic!("waited for whoever came later"),
        });
    });
    assert_eq!((turns.take(), hands.at_work()), (3, 1));
    hands.wait(m, || {
        begin(0);
        hands.wait(m, || match turn() {
            0 => end(0),
            _ => end(3),
        });
    });
    assert_eq!((turns.get(), hands.at_work()), (2, 0));
    r.vm.audit(&[]).unwrap();
}
