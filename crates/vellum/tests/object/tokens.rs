//! What is kept of a cursor while the guard is not held.

use vellum::unstable::Trie;
use vellum_testkit::prelude::*;

fn filled(fx: &Fixture, indices: impl IntoIterator<Item = u64>) -> Trie {
    let trie = fx.vm.tries().create();
    for index in indices {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(index))).expect("memory");
    }
    trie
}

/// Kept and restarted cursors so far.
fn counts(fx: &Fixture) -> (i64, i64) {
    (fx.count(Counter::CursorKept), fx.count(Counter::CursorRestarted))
}

fn visits(fx: &Fixture, act: impl FnOnce()) -> i64 {
    let before = fx.count(Counter::ObjectNodeVisits);
    act();
    fx.count(Counter::ObjectNodeVisits) - before
}

#[test]
fn c_6_a_token_goes_on_at_its_node_while_no_node_has_left() {
    let fx = fixture(2048, Config::default());
    let trie = filled(&fx, (0..3000).filter(|n| n % 512 != 5));
    let mut top = Token::top();
    let mut token = {
        let mut guard = fx.vm.tries().lock(&trie, &mut top);
        let mut cursor = guard.cursor();
        assert_eq!(cursor.lookup(1029), None);
        cursor.into_token()
    };
    // Others store entries, in this node and elsewhere.
    fx.with_cursor(&trie, |mut cursor| {
        cursor.insert(517, page(517)).expect("memory");
        cursor.lookup(1030);
        cursor.remove();
    });
    let visited = visits(&fx, || {
        let mut guard = fx.vm.tries().lock(&trie, &mut top);
        let mut cursor = guard.resume(token);
        assert_eq!(cursor.index(), 1029);
        assert_eq!((cursor.lookup(1029), cursor.lookup(1030)), (None, None));
        cursor.insert(1029, page(1)).expect("an empty slot");
        token = cursor.into_token();
    });
    assert_eq!((visited, counts(&fx)), (0, (1, 0)));
    // It is inert: it may be used twice, or dropped.
    let mut guard = fx.vm.tries().lock(&trie, &mut top);
    drop(guard.resume(token));
    drop(guard.resume(token));
    drop(guard);
    fx.vm.tries().destroy(trie, |_, _| ());
}

#[test]
fn c_6_a_token_begins_at_the_root_after_a_node_has_left() {
    let fx = fixture(2048, Config::default());
    let trie = filled(&fx, (0..64).map(|n| n * 3));
    let mut top = Token::top();
    let token = {
        let mut guard = fx.vm.tries().lock(&trie, &mut top);
        let mut cursor = guard.cursor();
        assert_eq!(cursor.lookup(30), Some(page(30)));
        cursor.into_token()
    };
    // All nodes go, are freed, and their memory is used for something else.
    let mut guard = fx.vm.tries().lock(&trie, &mut top);
    assert_eq!(guard.cursor().remove_range(0, 1 << 30, |_, _| ()), 64);
    guard.free_dead();
    drop(guard);
    assert_eq!(fx.count(Counter::ObjectNodes), 0);
    let taken = fx.take_all(Order::BASE);
    for pfn in &taken {
        fx.m().poke(*pfn, 0, &[0xff; 4096]);
    }
    let mut guard = fx.vm.tries().lock(&trie, &mut top);
    let mut cursor = guard.resume(token);
    assert_eq!((cursor.lookup(30), cursor.lookup_ge(0), cursor.lookup_le(999)), (None, None, None));
    cursor.insert(30, page(7)).expect("no node is needed");
    assert_eq!(cursor.next_entry(), None);
    drop(cursor);
    drop(guard);
    assert_eq!(counts(&fx), (0, 1));
    fx.give_back(taken, Order::BASE);
    fx.end_trie(trie, &Model::from([(30, page(7))]));
}

#[test]
#[should_panic(expected = "a token of another trie")]
fn a_token_of_another_trie_is_refused() {
    let fx = fixture(2048, Config::default());
    let (one, other) = (filled(&fx, 0..20), filled(&fx, 0..20));
    let token = fx.with_cursor(&one, |mut cursor| {
        cursor.lookup(3);
        cursor.into_token()
    });
    let mut top = Token::top();
    let mut guard = fx.vm.tries().lock(&other, &mut top);
    drop(guard.resume(token));
}

#[test]
#[should_panic(expected = "a trie of another Vm")]
fn a_trie_of_another_vm_is_refused() {
    let (one, other) = (fixture(2048, Config::default()), fixture(2048, Config::default()));
    let trie = one.vm.tries().create();
    let _ = other.vm.tries().read(&trie).lookup(0);
}
