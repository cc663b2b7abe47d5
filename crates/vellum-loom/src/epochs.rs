//! Epochs: what a reader found is not freed before the reader has left.

use crate::atomic::{AtomicU64, Ordering, contents};
use crate::fixture::{Memory, model, race};
use crate::machines::OneCpu;
use crate::sync::{Epochs, Token};

/// A node behind a link.
struct Linked {
    epochs: Epochs,
    link: AtomicU64,
}

const NODE: u64 = 1;

fn linked(memory: &mut Memory) -> Linked {
    // SAFETY: zeroed memory of that layout, which is never freed.
    let epochs = unsafe { Epochs::new(2, memory.take(Epochs::layout(2))) };
    Linked { epochs, link: AtomicU64::new(1) }
}

impl Linked {
    fn read(&self, m: &OneCpu) {
        let _epoch = self.epochs.enter(m);
        if self.link.load(Ordering::Acquire) == 1 {
            contents(NODE, false);
        }
    }

    fn free(&self, m: &OneCpu) {
        self.link.store(0, Ordering::Release);
        self.epochs.synchronize(m, &mut Token::top());
        contents(NODE, true);
    }
}

#[test]
fn what_a_reader_found_stays_until_it_leaves() {
    model(3, linked, |l| {
        race(|| l.free(&OneCpu(0)), || l.read(&OneCpu(1)));
    });
}

#[test]
fn a_reader_that_comes_back_is_waited_for_once_only() {
    model(3, linked, |l| {
        let twice = || {
            l.read(&OneCpu(1));
            l.read(&OneCpu(1));
        };
        race(|| l.free(&OneCpu(0)), twice);
    });
}

#[test]
fn a_reader_inside_twice_is_waited_for_until_it_is_outside() {
    model(3, linked, |l| {
        let nested = || {
            let m = OneCpu(1);
            let _outer = l.epochs.enter(&m);
            l.read(&m);
            l.read(&m);
        };
        race(|| l.free(&OneCpu(0)), nested);
    });
}

#[test]
fn a_reader_that_goes_deeper_has_not_been_outside() {
    model(3, linked, |l| {
        let deeper = || {
            let m = OneCpu(1);
            let _outer = l.epochs.enter(&m);
            let found = l.link.load(Ordering::Acquire) == 1;
            let _inner = l.epochs.enter(&m);
            if found {
                contents(NODE, false);
            }
        };
        race(|| l.free(&OneCpu(0)), deeper);
    });
}
