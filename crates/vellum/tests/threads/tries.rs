//! Readers of a trie beside one writer.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vellum_testkit::prelude::*;

/// Indices that are present throughout, among those that come and go: in other nodes, in the same,
/// and where nodes are exchanged.
fn kept() -> Vec<u64> {
    let near = (0..40).map(|n| n * 37);
    near.chain((0..20).map(|n| (5 << 30) + n * 64)).chain([1 << 40, (1 << 45) + 3]).collect()
}

/// The frame of an index says which index it is.
fn of(index: u64) -> vellum::unstable::TrieEntry {
    page(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30)
}

fn churn(fx: &Fixture, trie: &vellum::unstable::Trie, kept: &[u64], rounds: u64) {
    let mut random = Random::new(11);
    let bases = [0, 5 << 30, 1 << 40, 1 << 45];
    for _ in 0..rounds {
        let mut top = Token::top();
        let mut guard = fx.vm.tries().lock(trie, &mut top);
        let mut cursor = guard.cursor();
        let from = bases[random.below(4) as usize] + random.below(1500);
        let many = 1 + random.below(300);
        for index in from..from + many {
            let _ = cursor.insert(index, of(index));
        }
        let from = bases[random.below(4) as usize] + random.below(1500);
        let mut next = from;
        while let Some((index, _)) = cursor.lookup_ge(next) {
            next = index + 1;
            if index > from + 600 {
                break;
            }
            if !kept.contains(&index) {
                cursor.remove();
            }
        }
    }
}

#[test]
fn c_12_readers_without_locks_find_what_is_there_throughout() {
    let fx = Fixture::new(flat(3, 1 << 14), Config::default());
    let (trie, kept, done) = (fx.vm.tries().create(), kept(), AtomicBool::new(false));
    for &index in &kept {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, of(index))).expect("memory");
    }
    std::thread::scope(|scope| {
        for cpu in [1, 2] {
            let (fx, trie, kept, done) = (&fx, &trie, &kept, &done);
            scope.spawn(move || {
                fx.run_on(cpu);
                let mut random = Random::new(cpu as u64);
                let mut run = [of(0); 64];
                while !done.load(Ordering::Acquire) {
                    let reader = fx.vm.tries().read(trie);
                    let mut place = vellum::unstable::TriePlace::START;
                    for (n, &index) in kept.iter().enumerate() {
                        assert_eq!(reader.lookup(index), Some(of(index)), "{index}");
                        let near = reader.lookup_near(&mut place, index);
                        assert_eq!(near, Some(of(index)), "{index}, near");
                        // What else is found belongs there.
                        let other = index + random.below(700);
                        assert!(reader.lookup(other).is_none_or(|e| e == of(other)), "{other}");
                        if n % 8 == 0 {
                            let count = reader.lookup_run(index, &mut run);
                            assert!(count >= 1, "{index}");
                            let right = (index..).map(of).zip(&run[..count]).all(|(a, b)| a == *b);
                            assert!(right, "a run from {index}");
                        }
                    }
                }
            });
        }
        fx.run_on(0);
        churn(&fx, &trie, &kept, 3000);
        done.store(true, Ordering::Release);
    });
    let mut top = Token::top();
    let guard = fx.vm.tries().lock(&trie, &mut top);
    guard.validate().expect("a valid trie");
    drop(guard);
    fx.vm.tries().destroy(trie, |_, _| ());
    fx.check(&[]);
}

#[test]
fn a_node_is_freed_after_the_readers_that_may_be_in_it() {
    let fx = fixture(512, Config::default());
    let tries = fx.vm.tries();
    let trie = tries.create();
    {
        let mut top = Token::top();
        let mut guard = tries.lock(&trie, &mut top);
        let mut cursor = guard.cursor();
        for index in [0, 8] {
            cursor.insert(index, page(index)).unwrap();
        }
        // The node with both leaves the trie.
        cursor.lookup(0);
        cursor.remove();
    }
    assert_eq!(fx.count(Counter::ObjectNodes), 1);
    let (freed, inside) = (AtomicBool::new(false), Barrier::new(2));
    on_cpus([0, 1], |cpu| {
        if cpu == 1 {
            inside.wait();
            fx.vm.tries().lock(&trie, &mut Token::top()).free_dead();
            return freed.store(true, Ordering::Release);
        }
        let _reader = fx.vm.tries().read(&trie);
        inside.wait();
        for _ in 0..1000 {
            thread::yield_now();
            assert!(!freed.load(Ordering::Acquire), "a reader may be in it");
        }
    });
    assert_eq!(fx.count(Counter::ObjectNodes), 0);
    tries.destroy(trie, |_, _| {});
    fx.check(&[]);
}
