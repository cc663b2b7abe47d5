//! Locks keep others out and hand on what was written; sequence counts tell torn reads.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::atomic::{AtomicU64, Ordering};
use crate::machine::OneCpu;
use crate::model;
use crate::sync::{Lock, Node, SeqCount, Token};

struct Guarded {
    lock: Lock<Node>,
    value: UnsafeCell<u64>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Guarded {}

fn guarded() -> Arc<Guarded> {
    let g = Arc::new(Guarded { lock: Lock::new(), value: UnsafeCell::new(0) });
    assert!(!g.lock.is_locked());
    g
}

#[test]
fn a_lock_keeps_others_out_and_hands_on_what_was_written() {
    model(|| {
        let g = guarded();
        let add = |g: &Guarded, cpu| {
            let m = OneCpu(cpu);
            let mut top = Token::top();
            let _guard = g.lock.lock(&m, &mut top, 0);
            // SAFETY: the lock is held; loom sees it if not.
            g.value.with_mut(|value| unsafe { *value += 1 });
        };
        let other = thread::spawn({
            let g = g.clone();
            move || add(&g, 1)
        });
        add(&g, 0);
        other.join().expect("the other");
        // SAFETY: alone again.
        assert_eq!(g.value.with(|value| unsafe { *value }), 2);
    });
}

#[test]
fn a_lock_that_was_not_had_changes_nothing() {
    model(|| {
        let g = guarded();
        let try_add = |g: &Guarded, cpu| {
            let m = OneCpu(cpu);
            let mut top = Token::top();
            let got = g.lock.try_lock(&m, &mut top, 0);
            if got.is_some() {
                // SAFETY: the lock is held; loom sees it if not.
                g.value.with_mut(|value| unsafe { *value += 1 });
            }
            u64::from(got.is_some())
        };
        let other = thread::spawn({
            let g = g.clone();
            move || try_add(&g, 1)
        });
        let mine = try_add(&g, 0);
        let sum = mine + other.join().expect("the other");
        assert!(sum >= 1 && !g.lock.is_locked());
        // SAFETY: alone again.
        assert_eq!(g.value.with(|value| unsafe { *value }), sum);
    });
}

#[test]
fn what_a_sequence_count_calls_whole_is_whole() {
    struct Pair {
        count: SeqCount,
        words: [AtomicU64; 2],
    }
    model(|| {
        let pair = Arc::new(Pair { count: SeqCount::new(), words: Default::default() });
        pair.words.iter().for_each(|w| assert_eq!(w.load(Ordering::Relaxed), 0));
        assert!(!pair.count.changed(&OneCpu(0), 0));
        let reader = thread::spawn({
            let pair = pair.clone();
            move || {
                let m = OneCpu(1);
                let seen = pair.count.begin(&m);
                let words = [0, 1].map(|i: usize| pair.words[i].load(Ordering::Relaxed));
                if !pair.count.changed(&m, seen) {
                    assert_eq!(words[0], words[1], "a torn pair was called whole");
                }
            }
        });
        let m = OneCpu(0);
        let write = pair.count.write(&m);
        pair.words.iter().for_each(|w| w.store(1, Ordering::Relaxed));
        drop(write);
        reader.join().expect("the reader");
    });
}
