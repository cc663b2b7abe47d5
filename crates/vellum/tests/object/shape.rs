//! How many nodes there are, and how much memory.

use vellum::unstable::Trie;
use vellum_testkit::prelude::*;

/// Bytes of nodes for each of that many entries at a distance.
fn bytes_each(stride: u64, entries: u64) -> f64 {
    let fx = fixture(1 << 14, Config::default());
    let trie = fx.vm.tries().create();
    let mut top = Token::top();
    let mut guard = fx.vm.tries().lock(&trie, &mut top);
    let mut cursor = guard.cursor();
    for n in 0..entries {
        cursor.insert(n * stride, page(n)).expect("memory");
    }
    drop(cursor);
    let shape = guard.validate().expect("a valid trie");
    drop(guard);
    fx.vm.tries().destroy(trie, |_, _| ());
    shape.bytes() as f64 / entries as f64
}

#[test]
fn entries_at_any_distance_take_few_bytes() {
    let each: Vec<f64> = (0..=12).map(|shift| bytes_each(1 << shift, 1 << 15)).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    println!("{each:.1?}, mean {mean:.1}");
    assert!(each[0] <= 8.5 && each[9] <= 21.0, "dense, and at a distance of 512: {each:?}");
    assert!(mean <= 36.0 && each.iter().all(|each| *each <= 81.0), "{each:?}");
}

fn remove_in(order: impl Fn(&mut Vec<u64>, &mut Random) -> u64, keys: Keys, seed: u64) {
    let fx = fixture(1 << 13, Config::default());
    let (trie, mut random): (Trie, _) = (fx.vm.tries().create(), Random::new(seed));
    let mut model = Model::new();
    let mut top = Token::top();
    let mut guard = fx.vm.tries().lock(&trie, &mut top);
    for _ in 0..1500 {
        let index = keys.one(&mut random);
        if guard.cursor().insert(index, page(1)).is_ok() {
            model.insert(index, page(1));
        }
    }
    let mut left: Vec<u64> = model.keys().copied().collect();
    while !left.is_empty() {
        let index = order(&mut left, &mut random);
        let mut cursor = guard.cursor();
        assert_eq!((cursor.lookup(index), cursor.remove()), (Some(page(1)), Some(page(1))));
        drop(cursor);
        // Which wants two words in each node that does not hold a leaf alone.
        let shape = guard.validate().expect("a valid trie");
        assert_eq!(shape.entries, left.len() as u64);
    }
    let shape = guard.validate().expect("a valid trie");
    assert_eq!((shape.small, shape.large), (0, 0));
    guard.free_dead();
    drop(guard);
    assert_eq!(fx.count(Counter::ObjectNodes), 0, "nodes without an entry");
    fx.end_trie(trie, &Model::new());
    fx.check(&[]);
}

#[test]
fn c_11_no_node_is_left_with_one_child_and_none_without_entries() {
    for keys in [Keys::Dense, Keys::Strided, Keys::Sparse] {
        remove_in(|left, _| left.pop().expect("some"), keys, 1);
        remove_in(|left, _| left.remove(0), keys, 2);
        let any = |left: &mut Vec<u64>, random: &mut Random| {
            left.swap_remove(random.below(left.len() as u64) as usize)
        };
        remove_in(any, keys, 3);
    }
}

#[test]
fn nodes_that_left_are_freed_in_batches() {
    let fx = fixture(1 << 12, Config::default());
    let trie = fx.vm.tries().create();
    let mut most = 0;
    for round in 0..2000u64 {
        // A node comes and goes.
        fx.with_cursor(&trie, |mut cursor| {
            cursor.insert(round, page(1)).expect("memory");
            cursor.insert(round + 8, page(1)).expect("memory");
            cursor.remove();
            cursor.lookup(round);
            cursor.remove();
        });
        most = most.max(fx.count(Counter::ObjectNodes));
    }
    assert!((100..=300).contains(&most), "{most} nodes at most waited to be freed");
    fx.end_trie(trie, &Model::new());
}
