//! Memory in hand: an allocation that finds none waits for those that may free some, and finds it.
//! One waits at a time.

use crate::atomic::{AtomicU64, Ordering, contents};
use crate::fixture::{Memory, model, race};
use crate::machines::OneCpu;
use crate::sync::Hands;

/// One frame, or none. Nothing but the hands orders who takes it.
struct Frame {
    hands: Hands,
    free: AtomicU64,
}

fn frame(memory: &mut Memory) -> Frame {
    // SAFETY: zeroed memory of that layout, which is never freed.
    let hands = unsafe { Hands::new(2, memory.take(Hands::layout(2))) };
    Frame { hands, free: AtomicU64::new(1) }
}

impl Frame {
    fn take(&self) -> bool {
        self.free.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes it for nothing.
    fn lose(&self, m: &OneCpu) {
        let _in_hand = self.hands.begin(m);
        if self.take() {
            self.free.store(1, Ordering::Relaxed);
            self.hands.untook(m, 1);
        }
    }

    /// Takes it, after a wait if need be.
    fn want(&self, m: &OneCpu) {
        if !self.take() {
            self.hands.wait(m, || ());
            assert!(self.hands.untaken(m).0 > 0, "nothing was given back");
            assert!(self.take(), "what was given back is not found");
        }
        self.free.store(1, Ordering::Relaxed);
    }
}

#[test]
fn what_another_gives_back_is_found() {
    model(3, frame, |f| {
        race(|| f.want(&OneCpu(0)), || f.lose(&OneCpu(1)));
    });
}

#[test]
fn two_in_one_line_are_both_waited_for() {
    model(3, frame, |f| {
        let twice = || {
            let _other = f.hands.begin(&OneCpu(1));
            f.lose(&OneCpu(1));
        };
        race(|| f.want(&OneCpu(0)), twice);
    });
}

/// What a turn guards.
const LOOKED_FOR: u64 = 1;

#[test]
fn a_turn_keeps_others_out_and_hands_on_what_was_written() {
    model(3, frame, |f| {
        let look = |cpu| {
            move || {
                let m = OneCpu(cpu);
                let _turn = f.hands.turn(&m, || ());
                contents(LOOKED_FOR, true);
            }
        };
        race(look(0), look(1));
    });
}
