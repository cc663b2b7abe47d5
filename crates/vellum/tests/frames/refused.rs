//! Free memory is not refused while another CPU has it between two states.
//!
//! CPU 2 drains, and stops where it may hold the magazine of CPU 0 or a block. CPU 0 goes on
//! without those, lets CPU 2 come to its end, and stops in the middle. Then CPU 1 allocates what
//! was free all the time; when it waits, CPU 0 goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use vellum_testkit::prelude::*;

/// Where a thread stops.
#[derive(Default)]
struct Gate {
    is_there: AtomicBool,
    is_open: AtomicBool,
    is_done: AtomicBool,
}

impl Gate {
    /// Does `act` on a CPU, with `before` each of its steps, which is told its number. It stops
    /// before step `n` until the gate is open.
    fn passes(
        self: &Arc<Self>,
        (cpu, n): (usize, u64),
        before: impl Fn(u64, bool) + 'static,
        act: impl FnOnce(),
    ) {
        set_cpu(cpu);
        let (gate, mut step) = (self.clone(), 0);
        at_each_step(move |waits| {
            before(step, waits);
            if step == n {
                gate.is_there.store(true, SeqCst);
                wait_for(|| gate.is_open.load(SeqCst));
            }
            step += 1;
        });
        act();
        self.is_done.store(true, SeqCst);
    }

    /// Waits until the thread stands there; `false`: it came to its end without.
    fn is_reached(&self) -> bool {
        wait_for(|| self.is_there.load(SeqCst) || self.is_done.load(SeqCst));
        self.is_there.load(SeqCst)
    }

    fn let_go(&self) {
        self.is_open.store(true, SeqCst);
    }

    fn let_come_to_its_end(&self) {
        self.let_go();
        wait_for(|| self.is_done.load(SeqCst));
    }
}

fn wait_for(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// Memory, and the block that CPU 0 gives back. Without one it allocates a frame.
type Stage = (FramesFixture, Option<(Pfn, u8)>);

/// Before which of its steps the drain stops; before which step of CPU 0 it comes to its end, and
/// before which that CPU stops.
type Steps = (u64, u64, u64);

/// Whether CPU 1 gets a block of `wanted`. `Err`: who has no such step.
fn is_served(
    (fx, gives): &Stage,
    (stops, ends, at): Steps,
    wanted: u8,
) -> Result<bool, &'static str> {
    let (drain, act) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    thread::scope(|scope| {
        scope.spawn(|| drain.passes((2, stops), |_, _| {}, || fx.frames.drain(&fx.m)));
        if !drain.is_reached() {
            return Err("drain");
        }
        let drains = drain.clone();
        let before = move |step, waits| {
            if step == ends || waits {
                drains.let_come_to_its_end();
            }
        };
        scope.spawn(|| {
            act.passes((0, at), before, || match *gives {
                None => _ = fx.alloc(0).expect("frames are free"),
                Some((pfn, o)) => fx.free(pfn, o),
            });
        });
        let is_there = act.is_reached();
        drain.let_come_to_its_end();
        let served = is_there.then(|| {
            set_cpu(1);
            let acts = act.clone();
            at_each_step(move |waits| {
                if waits {
                    acts.let_go();
                }
            });
            let got = fx.alloc(wanted);
            at_each_step(|_| {});
            set_cpu(0);
            got.is_ok()
        });
        act.let_go();
        served.ok_or("act")
    })
}

/// Every schedule.
fn is_always_served(make: impl Fn() -> Stage, wanted: u8) {
    let (mut schedules, mut refused) = (0, vec![]);
    'drain: for stops in 0.. {
        'act: for at in 0.. {
            // Early, or as late as can be.
            for ends in (0..at.min(4)).chain([at]) {
                let steps = (stops, ends, at);
                match is_served(&make(), steps, wanted) {
                    Err("drain") => break 'drain,
                    // It may have more where the drain ends later.
                    Err(_) if ends < at => continue,
                    Err(_) => break 'act,
                    Ok(true) => {}
                    Ok(false) => refused.push(steps),
                }
                schedules += 1;
            }
        }
    }
    assert!(schedules > 50, "{schedules} schedules");
    assert!(refused.is_empty(), "refused in {} of {schedules}: {refused:?}", refused.len());
}

#[test]
fn a_block_on_its_way_to_be_opened_is_found() {
    // CPU 0 claims a block that is full, and has nothing in its magazine. The other block is free.
    let make = || {
        let fx = FramesFixture::new(flat(3, 1024));
        fx.take(512, 0);
        assert_eq!(fx.frames.free_frames(0), 512);
        (fx, None)
    };
    is_always_served(make, 0);
}

#[test]
fn a_block_on_its_way_to_be_closed_is_found() {
    // CPU 0 gives back the last frames of a block. Its magazine has a frame of the other block; or
    // of this one, which is then locked when that frame comes back to it.
    for (o, is_of_this) in [(0, false), (3, false), (0, true)] {
        let make = || {
            let fx = FramesFixture::new(flat(3, 1024));
            let mut low = fx.take(1024, 0);
            low.sort();
            let mut high = low.split_off(512);
            let last = high.split_off(512 - (1 << o));
            let kept = if is_of_this { &mut high } else { &mut low }.pop().expect("a frame");
            fx.free_all(high, 0);
            fx.frames.drain(&fx.m);
            fx.free(kept, 0);
            (fx, Some((last[0], o)))
        };
        is_always_served(make, 4);
    }
}

#[test]
fn frames_on_their_way_to_be_counted_are_found() {
    // All memory was taken. Of one block every second frame of 128 came back, which fill the
    // magazine of CPU 0; of the other, 16 frames in a row, which are not counted yet.
    let make = || {
        let fx = FramesFixture::new(flat(3, 1024));
        let mut low = fx.take(1024, 0);
        low.sort();
        let high = low.split_off(512);
        fx.frames.drain(&fx.m);
        fx.free_all(low.into_iter().step_by(2).take(64), 0);
        fx.free_all(high.into_iter().take(16), 0);
        (fx, None)
    };
    is_always_served(make, 3);
}
