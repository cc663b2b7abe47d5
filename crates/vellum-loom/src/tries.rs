//! A writer of a trie beside a reader without locks.

use crate::addr::{Order, Pfn};
use crate::atomic::{AtomicU64, Ordering, contents};
use crate::fixture::{Memory, model, race};
use crate::machines::Metal;
use crate::object::{Trie, TrieCursor, TrieEntry, TriePlace};
use crate::sync::Token;
use crate::vm::Vm;

/// A machine, and a trie with some base pages.
struct Fixture {
    vm: Vm<Metal>,
    trie: Trie,
    /// Set by the writer when it is done.
    done: AtomicU64,
}

/// What a page holds.
const PAGE: u64 = 1 << 40;

fn of(index: u64) -> TrieEntry {
    TrieEntry::new(Pfn(index + 3), Order::BASE).expect("a frame")
}

impl Fixture {
    fn with(indices: &[u64]) -> impl FnOnce(&mut Memory) -> Fixture {
        |memory| {
            let vm = Metal::vm(memory, 1024, false);
            let trie = vm.tries().create();
            let fixture = Fixture { vm, trie, done: AtomicU64::new(0) };
            fixture.write(|cursor| {
                indices.iter().for_each(|&at| cursor.insert(at, of(at)).expect("memory"));
            });
            fixture
        }
    }

    fn write(&self, act: impl FnOnce(&mut TrieCursor<'_, '_, Metal>)) {
        let mut top = Token::top();
        let mut guard = self.vm.tries().lock(&self.trie, &mut top);
        act(&mut guard.cursor());
    }

    fn read(&self, index: u64) -> Option<TrieEntry> {
        self.vm.tries().read(&self.trie).lookup(index)
    }

    fn check(&self) {
        let mut top = Token::top();
        self.vm.tries().lock(&self.trie, &mut top).validate().expect("a valid trie");
    }
}

fn remove(cursor: &mut TrieCursor<'_, '_, Metal>, index: u64) {
    cursor.lookup(index);
    assert!(cursor.remove().is_some());
}

#[test]
fn a_published_node_shows_what_is_in_it() {
    model(2, Fixture::with(&[0]), |f| {
        let write = || f.write(|cursor| cursor.insert(1, of(1)).expect("memory"));
        let read = || {
            assert_eq!(f.read(0), Some(of(0)));
            assert!([None, Some(of(1))].contains(&f.read(1)));
        };
        race(write, read);
        f.check();
    });
}

#[test]
fn a_node_that_is_spliced_out_still_shows_what_stays() {
    model(2, Fixture::with(&[0, 1, 8]), |f| {
        let write = || f.write(|cursor| remove(cursor, 8));
        race(write, || assert_eq!(f.read(0), Some(of(0))));
        f.check();
    });
}

#[test]
fn a_node_is_not_used_again_while_a_reader_is_in_it() {
    model(2, Fixture::with(&[0, 8]), |f| {
        let write = || {
            let mut top = Token::top();
            let mut guard = f.vm.tries().lock(&f.trie, &mut top);
            remove(&mut guard.cursor(), 0);
            guard.free_dead();
            // The same memory, in which the page is in another slot.
            guard.cursor().insert(72, of(72)).expect("memory");
        };
        race(write, || assert_eq!(f.read(8), Some(of(8))));
        f.check();
    });
}

#[test]
fn a_group_that_is_exchanged_shows_all_of_it() {
    let all: Vec<u64> = (0..64).collect();
    model(1, Fixture::with(&all), |f| {
        let write = || f.write(|cursor| cursor.insert(64, of(64)).expect("memory"));
        race(write, || assert_eq!(f.read(63), Some(of(63))));
        f.check();
    });
}

#[test]
fn a_place_in_a_dead_node_is_given_up() {
    model(2, Fixture::with(&[0, 8]), |f| {
        let write = || {
            f.write(|cursor| {
                remove(cursor, 8);
                cursor.insert(1, of(1)).expect("memory");
            });
            f.done.store(1, Ordering::Release);
        };
        let read = || {
            let reader = f.vm.tries().read(&f.trie);
            let mut place = TriePlace::START;
            assert_eq!(reader.lookup_near(&mut place, 0), Some(of(0)));
            let is_done = f.done.load(Ordering::Acquire) == 1;
            let found = reader.lookup_near(&mut place, 1);
            assert!(found == Some(of(1)) || (found.is_none() && !is_done), "{found:?}");
        };
        race(write, read);
        f.check();
    });
}

#[test]
fn a_node_published_below_another_shows_what_is_in_it() {
    model(2, Fixture::with(&[0, 8]), |f| {
        let write = || f.write(|cursor| cursor.insert(1, of(1)).expect("memory"));
        let read = || {
            let reader = f.vm.tries().read(&f.trie);
            let mut place = TriePlace::START;
            // The second time from the node above.
            for _ in 0..2 {
                assert_eq!(reader.lookup_near(&mut place, 0), Some(of(0)));
            }
        };
        race(write, read);
        f.check();
    });
}

#[test]
fn what_was_written_to_a_page_before_it_came_in_is_seen() {
    model(2, Fixture::with(&[0, 1]), |f| {
        let write = || {
            contents(PAGE, true);
            f.write(|cursor| cursor.insert(2, of(2)).expect("an empty slot"));
        };
        let read = || {
            if f.read(2).is_some() {
                contents(PAGE, false);
            }
        };
        race(write, read);
        f.check();
    });
}
