//! Small nodes become a large one, and back. Marks and entries stay.

use vellum::unstable::{PageMark, Shape, Trie};
use vellum_testkit::prelude::*;

fn shape(fx: &Fixture, trie: &Trie) -> Shape {
    let mut top = Token::top();
    fx.vm.tries().lock(trie, &mut top).validate().expect("a valid trie")
}

#[test]
fn a_trie_that_is_appended_to_has_large_nodes() {
    let fx = fixture(4096, Config::default());
    let (trie, mut model) = (fx.vm.tries().create(), Model::new());
    let mut append = |range: std::ops::Range<u64>| {
        for index in range {
            fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(index))).expect("memory");
            model.insert(index, page(index));
        }
        let shape = shape(&fx, &trie);
        (shape.small, shape.large)
    };
    assert_eq!(append(0..1), (0, 0));
    assert_eq!(append(1..8), (1, 0));
    assert_eq!(append(8..64), (9, 0));
    assert_eq!(append(64..65), (0, 1));
    assert_eq!(append(65..512), (0, 1));
    // A node where the two groups part, and a leaf in it.
    assert_eq!(append(512..513), (1, 1));
    assert_eq!(append(513..1024), (1, 2));
    // Above large nodes fewer are enough, and they are seen where the group gets a node.
    assert_eq!(append(1024..25 * 512), (4, 25));
    assert_eq!(append(25 * 512..25 * 512 + 1), (0, 26));
    assert_eq!(append(25 * 512 + 1..100 * 512), (0, 101));
    fx.end_trie(trie, &model);
}

#[test]
fn a_large_node_above_others_goes_back_when_few_are_left() {
    let fx = fixture(4096, Config::default());
    let (trie, mut model) = (fx.vm.tries().create(), Model::new());
    for index in 0..26 * 512 {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(index))).expect("memory");
        model.insert(index, page(index));
    }
    assert_eq!(shape(&fx, &trie).large, 27);
    for index in (16 * 512..26 * 512).rev() {
        let gone = fx.with_cursor(&trie, |mut cursor| {
            cursor.lookup(index);
            cursor.remove()
        });
        assert_eq!(gone, model.remove(&index));
        // A page there and away again exchanges no node.
        let above = (index > 16 * 512) as u64;
        if index % 512 == 0 {
            let large = shape(&fx, &trie).large;
            assert_eq!(large, index / 512 + above, "{index}");
        }
    }
    fx.end_trie(trie, &model);
}

#[test]
fn entries_of_2_mib_are_no_large_nodes() {
    let fx = fixture(4096, Config::default());
    let (trie, mut model) = (fx.vm.tries().create(), Model::new());
    for index in (0..64).map(|block| block * 512) {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(index))).expect("memory");
        model.insert(index, page(index));
    }
    assert_eq!(shape(&fx, &trie).large, 0, "64 pages have no table of 4 KiB");
    fx.end_trie(trie, &model);
}

#[test]
fn a_group_of_many_small_nodes_becomes_a_large_one_and_goes_back() {
    let fx = fixture(4096, Config::default());
    let (trie, mut model, mut random) = (fx.vm.tries().create(), Model::new(), Random::new(9));
    // Somewhere where the words in the group are high ones, too.
    let base = 3 << 40;
    let mut was_large = false;
    while model.len() < 512 {
        let index = base + random.below(512);
        if model.contains_key(&index) {
            continue;
        }
        let entry =
            if random.one_in(3) { page(index & 511).with_mark(PageMark::Dirty) } else { page(7) };
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, entry)).expect("memory");
        model.insert(index, entry);
        let shape = shape(&fx, &trie);
        assert!(shape.small < 20 && (shape.large == 0 || shape.small == 0), "{shape:?}");
        assert!(shape.large == 1 || !was_large, "one that became large stays so: {shape:?}");
        was_large = shape.large == 1;
    }
    let mut left: Vec<u64> = model.keys().copied().collect();
    while left.len() > 1 {
        let index = left.swap_remove(random.below(left.len() as u64) as usize);
        let gone = fx.with_cursor(&trie, |mut cursor| {
            cursor.lookup(index);
            cursor.remove()
        });
        assert_eq!(gone, model.remove(&index));
        let shape = shape(&fx, &trie);
        assert_eq!(shape.large, (left.len() > 16) as u64, "{} left", left.len());
        let reader = fx.vm.tries().read(&trie);
        assert!(model.iter().all(|(&index, &entry)| reader.lookup(index) == Some(entry)));
        drop(reader);
        fx.with_cursor(&trie, |mut cursor| {
            let marked = model.iter().find(|(_, entry)| entry.is_marked(PageMark::Dirty));
            let marked = marked.map(|(&index, &entry)| (index, entry));
            assert_eq!(cursor.next_marked(0, PageMark::Dirty), marked);
        });
    }
    fx.end_trie(trie, &model);
}

#[test]
fn a_large_node_stays_while_there_is_no_memory_for_small_ones() {
    let fx = fixture(1024, Config::default());
    let (trie, mut model) = (fx.vm.tries().create(), Model::new());
    // Level 21 and above: a last leaf has no room there, so the large node holds it alone.
    let base = 5 << 27;
    for index in (base..base + 200).chain([1 << 45]) {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(1))).expect("memory");
        model.insert(index, page(1));
    }
    let taken = fx.take_all(Order::BASE);
    let mut reserves = Vec::new();
    loop {
        let mut reserve = fx.vm.tries().reserve();
        let full = reserve.fill(&mut Token::top()).is_err();
        reserves.push(reserve);
        if full {
            break;
        }
    }
    for index in base..base + 199 {
        fx.with_cursor(&trie, |mut cursor| {
            cursor.lookup(index);
            assert_eq!(cursor.remove(), Some(page(1)));
        });
        model.remove(&index);
        assert_eq!(shape(&fx, &trie).large, 1, "at {index}");
    }
    fx.give_back(taken, Order::BASE);
    drop(reserves);
    fx.with_cursor(&trie, |mut cursor| {
        cursor.insert(base, page(1)).expect("memory");
        cursor.remove();
    });
    assert_eq!(shape(&fx, &trie).large, 0);
    fx.end_trie(trie, &model);
    fx.check(&[]);
}
