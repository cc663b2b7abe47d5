//! How many nodes are visited.

use vellum::unstable::Trie;
use vellum_testkit::prelude::*;

/// Nodes that a cursor, which begins at the root, visits meanwhile.
fn visits<R>(
    fx: &Fixture,
    trie: &Trie,
    act: impl FnOnce(vellum::unstable::TrieCursor<'_, '_, Flat>) -> R,
) -> i64 {
    let before = fx.count(Counter::ObjectNodeVisits);
    fx.with_cursor(trie, act);
    fx.count(Counter::ObjectNodeVisits) - before
}

#[test]
fn c_2_an_insertion_after_a_failed_lookup_visits_nothing() {
    for keys in [Keys::Dense, Keys::Strided, Keys::Sparse] {
        let fx = fixture(4096, Config::default());
        let (trie, mut random) = (fx.vm.tries().create(), Random::new(4));
        let mut deepest = 0;
        for _ in 0..4000 {
            let index = keys.one(&mut random);
            let mut there = false;
            let alone = visits(&fx, &trie, |mut cursor| there = cursor.lookup(index).is_some());
            if there {
                continue;
            }
            let both = visits(&fx, &trie, |mut cursor| {
                assert_eq!(cursor.lookup(index), None);
                cursor.insert(index, page(3)).expect("memory");
                assert_eq!(cursor.lookup(index), Some(page(3)));
            });
            assert_eq!(both, alone, "{keys:?} {index}");
            deepest = deepest.max(both);
        }
        assert!(deepest >= 3, "{keys:?}: a descent of {deepest} nodes shows nothing");
        fx.vm.tries().destroy(trie, |_, _| ());
    }
}

#[test]
fn c_2_filling_in_order_visits_less_than_two_nodes_a_page() {
    const PAGES: u64 = 100_000;
    let fx = fixture(4096, Config::default());
    let (filled, other) = (fx.vm.tries().create(), fx.vm.tries().create());
    let by_cursor = visits(&fx, &filled, |mut cursor| {
        for index in 0..PAGES {
            assert_eq!(cursor.lookup(index), None);
            cursor.insert(index, page(index)).expect("memory");
        }
    });
    let mut from_root = 0;
    for index in 0..PAGES {
        from_root += visits(&fx, &other, |mut cursor| cursor.insert(index, page(index)));
    }
    // Up to the node above, once for each large node, and down again.
    assert!(by_cursor < PAGES as i64 / 50, "{by_cursor} visits of {PAGES} pages");
    assert!(from_root > PAGES as i64 * 3 / 2, "{from_root} visits of {PAGES} pages");
    for trie in [filled, other] {
        let read = visits(&fx, &trie, |mut cursor| {
            (0..PAGES).for_each(|index| assert_eq!(cursor.lookup(index), Some(page(index))));
        });
        assert!(read < PAGES as i64 / 50, "{read} visits of {PAGES} lookups");
        fx.vm.tries().destroy(trie, |_, _| ());
    }
}

#[test]
fn a_neighbour_is_found_from_the_node_above_and_what_is_far_from_the_root() {
    const FAR: u64 = 1 << 18;
    let fx = fixture(4096, Config::default());
    let trie = fx.vm.tries().create();
    // A root, below it two nodes, and below each two nodes of base pages.
    fx.with_cursor(&trie, |mut cursor| {
        for base in [0, 512, FAR, FAR + 512] {
            (base..base + 130).for_each(|index| cursor.insert(index, page(1)).expect("memory"));
        }
    });
    let look = |indices: &[u64]| {
        visits(&fx, &trie, |mut cursor| {
            indices.iter().for_each(|&index| assert_eq!(cursor.lookup(index), Some(page(1))));
        })
    };
    assert_eq!(look(&[0]), 3);
    assert_eq!(look(&[0, 512]), 3 + 2);
    assert_eq!(look(&[0, FAR]), 3 + 3);
    fx.vm.tries().destroy(trie, |_, _| ());
}

#[test]
fn a_marked_page_is_found_past_nodes_without_marks() {
    let fx = fixture(4096, Config::default());
    let trie = fx.vm.tries().create();
    fx.with_cursor(&trie, |mut cursor| {
        (0..100_000).for_each(|index| cursor.insert(index, page(index)).expect("memory"));
        cursor.lookup(99_999);
        assert!(cursor.set_mark(vellum::unstable::PageMark::Dirty));
    });
    let dirty = vellum::unstable::PageMark::Dirty;
    let visited = visits(&fx, &trie, |mut cursor| {
        assert_eq!(cursor.next_marked(0, dirty).map(|found| found.0), Some(99_999));
        assert_eq!(cursor.next_marked(100_000, dirty), None);
    });
    assert!(visited < 16, "{visited} visits");
    fx.vm.tries().destroy(trie, |_, _| ());
}
