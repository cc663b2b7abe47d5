//! An operation with acts of another CPU between its steps.
//!
//! Threads meet in a race when the clock favours it. These drivers find every race that needs a
//! single interruption, each time: an act runs to its end at each shared word that the operation
//! touches, in turn. An act that waits would wait for the operation, which stands still: that
//! schedule does not exist.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::flat::{end_who_waits, interleave, set_cpu, unless_it_waits};

/// What became of the acts that were put into an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// All that began ran to their ends.
    Ran,
    /// One waited, and was cut off. What it holds cannot be taken apart: the test drops the fixture
    /// as a whole.
    Waited,
}

/// Runs `operation` on CPU 0 and each of `acts` on CPU 1 when the operation has touched as many
/// shared words as the act says since the act before it. `None`: the operation ended before the
/// first act.
pub fn put_in<F: 'static, A: FnOnce(&F) + 'static>(
    fixture: &Rc<F>,
    acts: impl IntoIterator<Item = (u64, A)>,
    operation: impl FnOnce(&F),
) -> Option<Met> {
    let waited = Rc::new(Cell::new(false));
    let due = acts.into_iter().map(|(words, act)| {
        let (fixture, waited) = (Rc::clone(fixture), Rc::clone(&waited));
        let act = move || {
            set_cpu(1);
            if unless_it_waits(|| act(&fixture)).is_none() {
                waited.set(true);
                end_who_waits(true);
            }
        };
        (words, Box::new(act) as Box<dyn FnOnce()>)
    });
    set_cpu(0);
    let began = interleave(due.collect(), || {
        // An act that was cut off may have left a lock taken, and the operation then fails.
        let done = catch_unwind(AssertUnwindSafe(|| operation(fixture)));
        if let Err(why) = done
            && !waited.get()
        {
            resume_unwind(why);
        }
    });
    end_who_waits(false);
    if began == 0 {
        return None;
    }
    Some(if waited.get() { Met::Waited } else { Met::Ran })
}

/// Runs `operation` with `act` put in after each number of shared words in turn, each time on what
/// `make` makes; `check` looks at the outcome where the act ran. Says at how many places it did.
pub fn at_every_step<F: 'static>(
    make: impl Fn() -> Rc<F>,
    operation: impl Fn(&F),
    act: fn(&F),
    check: impl Fn(F),
) -> u32 {
    let mut places = 0;
    for at in 0.. {
        let fixture = make();
        match put_in(&fixture, [(at, act)], &operation) {
            None => break,
            Some(Met::Waited) => {}
            Some(Met::Ran) => {
                places += 1;
                check(Rc::into_inner(fixture).expect("the act is over"));
            }
        }
    }
    places
}
