//! Locks exclude others and publish what was written. Sequence counts detect torn reads.

use crate::atomic::{AtomicU64, Ordering, contents};
use crate::fixture::{model, race};
use crate::machines::OneCpu;
use crate::sync::{Lock, SeqCount, TableLock, Token};

/// What the lock guards.
const GUARDED: u64 = 1;

#[test]
fn a_lock_keeps_others_out_and_hands_on_what_was_written() {
    model(
        3,
        |_| Lock::<TableLock>::new(),
        |lock| {
            let change = |cpu| {
                move || {
                    let m = OneCpu(cpu);
                    let mut top = Token::top();
                    let _guard = lock.lock(&m, &mut top, 0);
                    contents(GUARDED, true);
                }
            };
            race(change(0), change(1));
            assert!(!lock.is_locked());
        },
    );
}

#[test]
fn a_lock_that_was_not_had_changes_nothing() {
    model(
        3,
        |_| Lock::<TableLock>::new(),
        |lock| {
            let try_change = |cpu| {
                move || {
                    let m = OneCpu(cpu);
                    let mut top = Token::top();
                    let got = lock.try_lock(&m, &mut top, 0);
                    if got.is_some() {
                        contents(GUARDED, true);
                    }
                    got.is_some()
                }
            };
            let (a, b) = race(try_change(0), try_change(1));
            assert!((a || b) && !lock.is_locked());
        },
    );
}

#[test]
fn what_a_sequence_count_calls_whole_is_whole() {
    model(
        3,
        |_| (SeqCount::new(), [const { AtomicU64::new(0) }; 2]),
        |(count, words)| {
            let write = || {
                let m = OneCpu(0);
                let _write = count.write(&m);
                words.iter().for_each(|w| w.store(1, Ordering::Relaxed));
            };
            let read = || {
                let m = OneCpu(1);
                let seen = count.begin(&m);
                let words = [0, 1].map(|i: usize| words[i].load(Ordering::Relaxed));
                if !count.changed(&m, seen) {
                    assert_eq!(words[0], words[1], "a torn pair was called whole");
                }
            };
            race(write, read);
        },
    );
}
