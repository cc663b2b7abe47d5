use std::collections::BTreeSet;

use vellum_sim::schedule::Rng;

use super::*;

fn insert(nodes: &mut Nodes, key: u64) {
    let mut place = Place::root(0);
    assert!(!nodes.lookup(&mut place, key));
    nodes.insert(&mut place, key);
}

#[test]
fn it_agrees_with_a_sorted_map_from_the_root_and_from_any_place() {
    for (seed, reach) in [(1, 64), (2, 4096), (3, u64::MAX)] {
        let (mut nodes, mut model, mut rng) = (Nodes::default(), BTreeSet::new(), Rng::new(seed));
        let mut place = Place::root(0);
        for _ in 0..20_000 {
            let key = rng.below(reach) << rng.below(3);
            if rng.one_in(3) {
                nodes.remove(0, key);
                model.remove(&key);
                place = Place::root(0);
            } else {
                let found = nodes.lookup(&mut place, key);
                assert_eq!(found, model.contains(&key));
                if !found {
                    let before = model.range(..key).next_back().copied();
                    assert_eq!(nodes.predecessor_near(&place, key), before);
                    assert_eq!(nodes.predecessor(0, key), before);
                    nodes.insert(&mut place, key);
                    model.insert(key);
                }
                assert!(nodes.lookup(&mut Place::root(0), key));
            }
        }
        assert!(nodes.count() < model.len().max(1));
        nodes.clear(0);
        assert_eq!(nodes.count(), 0);
    }
}

#[test]
fn it_takes_the_bytes_that_were_measured_of_the_published_trie() {
    const ENTRIES: u64 = 1 << 20;
    for (stride, published) in [(1, 10.1), (512, 20.3)] {
        let mut nodes = Nodes::default();
        let mut place = Place::root(0);
        for key in 0..ENTRIES {
            nodes.lookup(&mut place, key * stride);
            nodes.insert(&mut place, key * stride);
        }
        let bytes = (nodes.count() as u64 * NODE_BYTES) as f64 / ENTRIES as f64;
        assert!((bytes - published).abs() < 0.05, "{bytes} bytes an entry, {published} measured");
    }
}

#[test]
fn an_insertion_where_a_lookup_has_failed_visits_nothing() {
    let (mut nodes, mut rng) = (Nodes::default(), Rng::new(1));
    for _ in 0..5_000 {
        let (mut place, key) = (Place::root(0), rng.below(1 << 30));
        if !nodes.lookup(&mut place, key) {
            let before = nodes.steps;
            nodes.insert(&mut place, key);
            assert_eq!(nodes.steps, before);
        }
    }
}

#[test]
fn a_cursor_fills_a_run_with_a_climb_for_each_sixteen_pages() {
    let mut nodes = Nodes::default();
    (0..256).for_each(|key| insert(&mut nodes, key));
    nodes.steps = Steps::default();
    let mut place = Place::root(0);
    for key in 256..512 {
        nodes.lookup(&mut place, key);
        nodes.insert(&mut place, key);
    }
    let Steps { visits, climbs } = nodes.steps;
    assert!(climbs <= 256 / 15 + 2 && visits < 512, "{visits} visits, {climbs} climbs");
}

#[test]
fn lines_of_a_visit_are_those_of_the_head_and_the_slot() {
    let mut nodes = Nodes::default();
    (0..17).for_each(|key| insert(&mut nodes, key));
    nodes.lines = Some(Vec::new());
    nodes.lookup(&mut Place::root(0), 15);
    // The first node has bytes 0 to 151, the one above it 152 to 303.
    assert_eq!(nodes.lines, Some(vec![2, 0, 2]));
}
