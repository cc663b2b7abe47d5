//! Insertions with memory for no node, for one, for two, and so on.

use vellum::unstable::{InsertError, NodeReserve, Trie};
use vellum_testkit::prelude::*;

/// A trie that has one small node, which its end gives back.
fn of_one_node(fx: &Fixture) -> Trie {
    let trie = fx.vm.tries().create();
    for index in [0, 1] {
        fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(0))).expect("memory");
    }
    trie
}

/// Takes all memory for nodes.
fn exhaust(fx: &Fixture) -> Vec<NodeReserve<'_, Flat>> {
    let mut taken = Vec::new();
    loop {
        let mut reserve = fx.vm.tries().reserve();
        let full = reserve.fill(&mut Token::top()).is_err();
        taken.push(reserve);
        if full {
            return taken;
        }
    }
}

/// Entries of a trie, in order.
fn contents(fx: &Fixture, trie: &Trie) -> Model {
    fx.with_cursor(trie, |mut cursor| {
        let mut all = Model::new();
        all.extend(cursor.lookup_ge(0));
        while let Some((index, entry)) = cursor.next_entry() {
            all.insert(index, entry);
        }
        all
    })
}

/// Inserts `index` into a trie with `there` when there is room for 0, 1, ... small nodes, until it
/// succeeds. How many that took.
fn starve(there: &[u64], index: u64) -> usize {
    for room in 0..8 {
        let fx = fixture(1024, Config::default());
        let trie = fx.vm.tries().create();
        for &index in there {
            fx.with_cursor(&trie, |mut cursor| cursor.insert(index, page(index & 0xff)))
                .expect("memory");
        }
        let spare: Vec<Trie> = (0..room).map(|_| of_one_node(&fx)).collect();
        let frames = fx.take_all(Order::BASE);
        let nodes = exhaust(&fx);
        spare.into_iter().for_each(|trie| fx.vm.tries().destroy(trie, |_, _| ()));
        let before = contents(&fx, &trie);
        let state = fx.state(&[]);
        let mut top = Token::top();
        let mut guard = fx.vm.tries().lock(&trie, &mut top);
        let shape = guard.validate();
        let mut cursor = guard.cursor();
        assert_eq!(cursor.lookup(index), None);
        let done = cursor.insert(index, page(1));
        if done.is_err() {
            assert_eq!(done, Err(InsertError::NoNodes));
            // The cursor stands where it stood, and may try again.
            assert_eq!((cursor.index(), cursor.lookup(index)), (index, None));
            assert_eq!(cursor.insert(index, page(1)), Err(InsertError::NoNodes));
        }
        drop(cursor);
        if done.is_err() {
            assert_eq!(guard.validate(), shape, "room for {room}");
            drop(guard);
            assert_eq!(contents(&fx, &trie), before);
            assert_same(&state, &fx.state(&[]), format_args!("room for {room}"));
            assert_eq!(fx.count(Counter::CursorRestarted), 0);
        } else {
            drop(guard);
        }
        drop(nodes);
        fx.give_back(frames, Order::BASE);
        let mut model = before;
        if done.is_ok() {
            model.insert(index, page(1));
        }
        fx.end_trie(trie, &model);
        fx.check(&[]);
        if done.is_ok() {
            return room;
        }
    }
    panic!("8 nodes were not enough");
}

#[test]
fn c_3_c_5_an_insertion_that_finds_no_node_leaves_no_trace() {
    assert_eq!(starve(&[], 1 << 40), 1, "one that holds the high bits");
    assert_eq!(starve(&[], 5), 0);
    assert_eq!(starve(&[5], 9), 1, "where two part");
    assert_eq!(starve(&[5], 1 << 40), 3, "where two part, and one for each");
    assert_eq!(starve(&[5, 1 << 45], 1 << 40), 2);
    assert_eq!(starve(&[5, 6], 7), 0);
    let appended: Vec<u64> = (0..64).collect();
    assert_eq!(starve(&appended, 64), 1, "a small node does where no large one is to be had");
    // 19 small nodes: the next would be a large one.
    let pairs = (0..32).map(|n| n % 16 * 8 + n / 16);
    let crowd: Vec<u64> = pairs.chain([128]).collect();
    assert_eq!(starve(&crowd, 129), 1, "the same where there are many small ones");
}

#[test]
fn a_reserve_is_all_that_an_insertion_with_it_uses() {
    let fx = fixture(1024, Config::default());
    let (tries, mut model) = (fx.vm.tries(), Model::new());
    let trie = tries.create();
    let mut reserve = tries.reserve();
    let mut refills = 0;
    for n in 0..2000u64 {
        let index = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let mut token = None;
        loop {
            let mut top = Token::top();
            let mut guard = tries.lock(&trie, &mut top);
            let mut cursor = match token {
                Some(token) => guard.resume(token),
                None => guard.cursor(),
            };
            match cursor.insert_with(index, page(n), &mut reserve) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, InsertError::NoNodes),
            }
            token = Some(cursor.into_token());
            drop(guard);
            reserve.fill(&mut Token::top()).expect("memory");
            refills += 1;
        }
        model.insert(index, page(n));
    }
    assert!(refills > 500, "{refills}");
    assert_eq!(fx.count(Counter::CursorKept), refills, "nothing left the trie meanwhile");
    drop(reserve);
    fx.end_trie(trie, &model);
    fx.check(&[]);
}
