//! A trie agrees with a sorted map, whatever is done to it.

use vellum_testkit::index::step;
use vellum_testkit::prelude::*;

/// Operations of each distribution of indices; three of them make a million.
const STEPS: u64 = 340_000;

fn agrees(keys: Keys, seed: u64) {
    let fx = fixture(4096, Config::default());
    let (mut model, mut random) = (Model::new(), Random::new(seed));
    let trie = fx.vm.tries().create();
    let mut done = 0;
    while done < STEPS {
        let mut top = Token::top();
        let mut guard = fx.vm.tries().lock(&trie, &mut top);
        let mut cursor = guard.cursor();
        for _ in 0..random.below(2000) {
            step(&mut cursor, &mut model, keys, &mut random);
            done += 1;
            if random.one_in(50) {
                let token = cursor.into_token();
                cursor = guard.resume(token);
            }
        }
        drop(cursor);
        // Now and then most of it goes.
        if random.one_in(20) {
            let (from, end) = (keys.one(&mut random), keys.one(&mut random));
            let mut gone = Vec::new();
            let count = guard.cursor().remove_range(from, end, |at, e| gone.push((at, e)));
            let inside = |at: u64, e: vellum::unstable::TrieEntry| at + e.order().frames() <= end;
            let whole: Vec<_> = if from < end {
                model
                    .range(from..end)
                    .map(|(&at, &e)| (at, e))
                    .filter(|(at, e)| inside(*at, *e))
                    .collect()
            } else {
                Vec::new()
            };
            assert_eq!((count, &gone), (whole.len() as u64, &whole), "{from}..{end}");
            whole.iter().for_each(|(at, _)| {
                model.remove(at);
            });
        }
        let shape = guard.validate().expect("a valid trie");
        assert_eq!(shape.entries, model.len() as u64);
        drop(guard);
        let reader = fx.vm.tries().read(&trie);
        for _ in 0..200 {
            let index = keys.one(&mut random);
            let there = covering(&model, index).map(|(_, entry)| entry);
            assert_eq!(reader.lookup(index), there, "{index}");
        }
    }
    fx.end_trie(trie, &model);
    fx.check(&[]);
}

#[test]
fn c_1_a_dense_trie_agrees_with_a_sorted_map() {
    agrees(Keys::Dense, 1);
}

#[test]
fn c_1_a_strided_trie_agrees_with_a_sorted_map() {
    agrees(Keys::Strided, 2);
}

#[test]
fn c_1_a_sparse_trie_agrees_with_a_sorted_map() {
    agrees(Keys::Sparse, 3);
}
