//! The ends of the range of indices, limits, and large blocks.

use vellum::unstable::{INDEX_END, InsertError, Trie, TrieEntry};
use vellum_testkit::prelude::*;

/// Tests whose trie has those base pages; the frame is the index, as far as it goes.
fn with_pages(indices: &[u64], act: impl FnOnce(&Fixture, &Trie)) {
    let fx = fixture(2048, Config::default());
    let trie = fx.vm.tries().create();
    for &index in indices {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, of(index))).expect("memory");
    }
    act(&fx, &trie);
    let model = indices.iter().map(|&index| (index, of(index))).collect();
    fx.end_trie(trie, &model);
}

fn of(index: u64) -> TrieEntry {
    page(index & ((1 << 36) - 1))
}

const LAST: u64 = INDEX_END - 1;

#[test]
fn c_10_steps_past_either_end_find_nothing() {
    with_pages(&[0, 7, LAST], |fx, trie| {
        fx.with_cursor(trie, |mut cursor| {
            assert_eq!(cursor.lookup_lt(0), None);
            assert_eq!(cursor.lookup_le(0), Some((0, of(0))));
            assert_eq!(cursor.prev_entry(), None);
            assert_eq!(cursor.index(), 0);
            assert_eq!(cursor.next_entry(), Some((7, of(7))));
            assert_eq!(cursor.next_entry(), Some((LAST, of(LAST))));
            assert_eq!((cursor.next_entry(), cursor.next_entry()), (None, None));
            assert_eq!(cursor.prev_entry(), Some((7, of(7))));
            assert_eq!(cursor.lookup_gt(LAST), None);
            assert_eq!(cursor.lookup_gt(u64::MAX), None);
            assert_eq!(cursor.lookup_ge(u64::MAX), None);
            assert_eq!(cursor.lookup(u64::MAX), None);
            assert_eq!(cursor.lookup_le(u64::MAX), Some((LAST, of(LAST))));
            assert_eq!(cursor.lookup_lt(u64::MAX), Some((LAST, of(LAST))));
            assert_eq!(cursor.next_gap(LAST), None);
            assert_eq!(cursor.next_gap_of(8, LAST - 8), Some(8));
            assert_eq!(cursor.next_gap_of(8, LAST - 7), None);
            let mut out = [of(0); 4];
            assert_eq!(cursor.lookup_run(LAST, &mut out), 1);
        });
        let reader = fx.vm.tries().read(trie);
        assert_eq!((reader.lookup(LAST), reader.lookup(u64::MAX)), (Some(of(LAST)), None));
        assert_eq!(reader.lookup_run(LAST, &mut [of(0); 4]), 1);
    });
}

#[test]
fn c_10_a_limit_that_is_an_index_or_0_is_a_limit() {
    with_pages(&[0, 7, 9], |fx, trie| {
        fx.with_cursor(trie, |mut cursor| {
            cursor.set_limit(9);
            assert_eq!(cursor.lookup(9), None);
            assert_eq!(cursor.lookup_ge(8), None);
            assert_eq!(cursor.lookup_ge(1), Some((7, of(7))));
            assert_eq!((cursor.next_entry(), cursor.index()), (None, 8));
            assert_eq!(cursor.lookup_le(LAST), Some((7, of(7))));
            cursor.set_limit(8);
            assert_eq!((cursor.next_gap(7), cursor.next_gap(1)), (None, Some(1)));
            cursor.set_limit(0);
            assert_eq!((cursor.lookup(0), cursor.lookup_ge(0)), (None, None));
            assert_eq!((cursor.lookup_le(0), cursor.next_gap(0)), (None, None));
            assert_eq!((cursor.next_entry(), cursor.prev_entry()), (None, None));
            assert_eq!(cursor.lookup_run(0, &mut [of(0); 4]), 0);
        });
    });
}

#[test]
fn c_10_an_empty_trie_and_one_of_one_page_end_everywhere() {
    with_pages(&[], |fx, trie| {
        fx.with_cursor(trie, |mut cursor| {
            assert_eq!((cursor.lookup_ge(0), cursor.lookup_le(LAST)), (None, None));
            assert_eq!(
                (cursor.next_entry(), cursor.prev_entry(), cursor.remove()),
                (None, None, None)
            );
            assert_eq!(cursor.next_gap(LAST), Some(LAST));
            assert_eq!(cursor.remove_range(0, INDEX_END, |_, _| ()), 0);
        });
    });
    for only in [0, 5, (1 << 21) - 1, 1 << 21, LAST] {
        with_pages(&[only], |fx, trie| {
            fx.with_cursor(trie, |mut cursor| {
                assert_eq!(cursor.lookup_ge(0), Some((only, of(only))));
                assert_eq!(cursor.next_entry(), None);
                assert_eq!(cursor.lookup_le(LAST), Some((only, of(only))));
                assert_eq!(cursor.prev_entry(), None);
                // The same low bits.
                assert_eq!(cursor.lookup(only ^ 1 << 21), None);
                assert_eq!(cursor.lookup(only ^ 1 << 40), None);
            });
            let reader = fx.vm.tries().read(trie);
            assert_eq!(
                (reader.lookup(only), reader.lookup(only ^ 1 << 21)),
                (Some(of(only)), None)
            );
        });
    }
}

#[test]
fn an_entry_has_its_place_or_is_refused() {
    with_pages(&[512], |fx, trie| {
        let huge = block(512, Order::HUGE);
        fx.with_cursor(trie, |mut cursor| {
            assert_eq!(cursor.insert(1, huge), Err(InsertError::Index));
            assert_eq!(cursor.insert(INDEX_END, of(0)), Err(InsertError::Index));
            assert_eq!(cursor.insert(u64::MAX, of(0)), Err(InsertError::Index));
            assert_eq!(cursor.insert(512, huge), Err(InsertError::Occupied));
            assert_eq!(cursor.insert(512, of(0)), Err(InsertError::Occupied));
            assert_eq!(cursor.insert(0, block(0, Order::GIANT)), Err(InsertError::Occupied));
            assert_eq!(cursor.insert(1024, huge), Ok(()));
            assert_eq!(cursor.insert(1025, of(0)), Err(InsertError::Occupied));
            assert_eq!(cursor.insert(1024, huge), Err(InsertError::Occupied));
            assert_eq!(cursor.lookup(1535), Some(huge));
            assert_eq!(cursor.lookup_ge(1100), Some((1024, huge)));
            assert_eq!(cursor.next_entry(), None);
            // A block that crosses an end of the range stays.
            assert_eq!(cursor.remove_range(1025, 4096, |_, _| ()), 0);
            assert_eq!(cursor.remove_range(1024, 1536, |_, _| ()), 1);
        });
    });
}

#[test]
fn a_block_is_one_word_and_found_by_each_of_its_indices() {
    let fx = fixture(2048, Config::default());
    let trie = fx.vm.tries().create();
    let mut model = Model::new();
    fx.with_cursor(&trie, |mut cursor| {
        for (index, order) in [(0, 18), (1 << 18, 9), (1 << 50, 18), ((1 << 50) + (1 << 18), 9)] {
            let entry = block(1 << 18, Order::new(order).expect("an order"));
            assert_eq!(cursor.insert(index, entry), Ok(()));
            model.insert(index, entry);
        }
        for (&index, &entry) in &model {
            for inside in [0, 1, entry.order().frames() / 2, entry.order().frames() - 1] {
                assert_eq!(cursor.lookup(index + inside), Some(entry));
            }
            assert_eq!(cursor.lookup(index + (1 << 24)), None);
        }
    });
    let mut top = Token::top();
    let shape = fx.vm.tries().lock(&trie, &mut top).validate().expect("valid");
    // One where the two halves part, one for each half.
    assert_eq!((shape.entries, shape.small, shape.large), (4, 3, 0));
    let reader = fx.vm.tries().read(&trie);
    assert_eq!(reader.lookup((1 << 18) - 1), model.get(&0).copied());
    drop(reader);
    fx.end_trie(trie, &model);
}
