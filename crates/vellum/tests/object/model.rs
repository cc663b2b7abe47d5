//! A trie agrees with a sorted map, whatever is done to it.

use vellum::unstable::{PageMark, TrieEntry};
use vellum_testkit::index::{self, join, step};
use vellum_testkit::prelude::*;

/// Operations of each distribution of indices; three of them make a million.
const STEPS: u64 = 340_000;

fn agrees(keys: Keys, seed: u64) {
    let fx = fixture(8192, Config::default());
    let (mut model, mut random) = (Model::new(), Random::new(seed));
    let trie = fx.vm.tries().create();
    let mut done = 0;
    while done < STEPS {
        let mut reserve = fx.vm.tries().reserve();
        let mut can_split = reserve.fill_to_split().is_ok();
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
        for _ in 0..20 {
            let (index, pages) = (keys.one(&mut random), 1 + random.below(512));
            cursor.lookup(index);
            let block = covering(&model, index).filter(|(_, entry)| entry.order() == Order::HUGE);
            assert_eq!(cursor.split(pages, &mut reserve), can_split && block.is_some(), "{index}");
            if let Some((first, block)) = block.filter(|_| can_split) {
                can_split = false;
                for page in 0..pages {
                    let marks = PageMark::ALL.into_iter().filter(|mark| block.is_marked(*mark));
                    let entry = index::page(block.pfn().0 + page);
                    model.insert(first + page, marks.fold(entry, TrieEntry::with_mark));
                }
            }
        }
        for _ in 0..random.below(3) {
            join(&mut cursor, &mut model, keys.one(&mut random), &mut random);
        }
        drop(cursor);
        // Now and then most of it goes.
        if random.one_in(20) {
            let (from, end) = (keys.one(&mut random), keys.one(&mut random));
            let mut gone = Vec::new();
            let count = guard.cursor().remove_range(from, end, |at, e| gone.push((at, e)));
            let inside = |at: u64, e: TrieEntry| at + e.order().frames() <= end;
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
