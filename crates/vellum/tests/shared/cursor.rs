//! A fault puts its page where its lookup ended (`alloc.cursor`).

use vellum_testkit::prelude::*;

/// Pages of the object: nodes of several levels.
const PAGES: u64 = 1500;

fn on_or_off<C: Arch>(alloc_cursor: bool) -> Fixture<C> {
    fixture_of(1, 4096, Config { alloc_cursor, ..no_thp() })
}

/// What the counters say of filling an object in some order: nodes visited, cursors kept, cursors
/// that began again.
fn fill<C: Arch>(alloc_cursor: bool, order: impl Fn(u64) -> u64) -> [i64; 3] {
    let fx = on_or_off::<C>(alloc_cursor);
    let object = fx.object(PAGES * KIB4);
    let space = fx.with_object(AT, PAGES * KIB4, &object);
    let read = || {
        [Counter::ObjectNodeVisits, Counter::CursorKept, Counter::CursorRestarted]
            .map(|counter| fx.count(counter))
    };
    let before = read();
    for page in (0..PAGES).map(order) {
        let fault = fx.vm.fault(&space, page_at(page), Access::Write);
        assert_eq!(fault, Ok(Fault::Object), "page {page}");
    }
    let after = read();
    assert_eq!(fx.vm.objects().usage(&object).pages, PAGES);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
    [0, 1, 2].map(|n| after[n] - before[n])
}

on_both!(one_descent, c_2_an_insertion_goes_on_where_the_lookup_ended);

fn one_descent<C: Arch>() {
    // Ascending, descending, and each page far from the last one: 1499 and 1500 have no divisor in
    // common with 7 and 401.
    let orders: [fn(u64) -> u64; 4] =
        [|n| n, |n| PAGES - 1 - n, |n| n * 7 % PAGES, |n| n * 401 % PAGES];
    for (n, order) in orders.into_iter().enumerate() {
        let [with, kept, restarted] = fill::<C>(true, order);
        let [without, none, _] = fill::<C>(false, order);
        // The first page of an empty object has no node to go on at, and a page whose table is
        // missing is looked up again.
        let tables = PAGES.div_ceil(512) as i64 + 1;
        assert!(kept >= PAGES as i64 - tables - 1, "order {n}: {kept} places kept");
        assert_eq!((restarted, none), (0, 0), "order {n}");
        // Without the place each insertion descends again: as many visits as the lookup made. What
        // remains of the difference are climbs, where a node was inserted above.
        assert!(with * 10 <= without * 6, "order {n}: {with} visits with the place, {without} not");
    }
}

on_both!(same_pages, switched_off_it_gives_the_same_pages);

fn same_pages<C: Arch>() {
    const BYTES: u64 = 64 * KIB4;
    let pages = |alloc_cursor| {
        let fx = on_or_off::<C>(alloc_cursor);
        let object = fx.object(BYTES);
        let space = fx.with_object(AT, BYTES, &object);
        fx.map(&space, page_at(64), BYTES, RW);
        for n in 0..64 {
            let page = n * 5 % 64;
            fx.poke(&space, page_at(page), n).expect("memory");
            fx.poke(&space, page_at(64 + page), n).expect("memory");
        }
        let values: Vec<_> = (0..128).map(|n| fx.peek(&space, page_at(n))).collect();
        assert_eq!(values[..64], values[64..]);
        let same = [Counter::ShmemPages, Counter::AnonPages, Counter::Mapped, Counter::Faults];
        let counts = same.map(|counter| fx.count(counter));
        fx.vm.objects().discard(object);
        fx.end([space]);
        (values, counts)
    };
    assert_eq!(pages(true), pages(false));
}

on_both!(dead_nodes, dead_nodes_do_not_pile_up_where_only_faults_change_the_trie);

fn dead_nodes<C: Arch>() {
    const GROUPS: u64 = 64;
    let fx = on_or_off::<C>(true);
    let object = fx.object(GROUPS * MIB2);
    let space = fx.with_object(AT, GROUPS * MIB2, &object);
    // In each 2 MiB 24 pairs of pages, each in a small node of its own: when there are 20 such
    // nodes they leave the trie, and a large one comes.
    for page in (0..GROUPS * 48).map(|n| n / 48 * 512 + n % 48 / 2 * 16 + n % 2) {
        let fault = fx.vm.fault(&space, page_at(page), Access::Write);
        assert_eq!(fault, Ok(Fault::Object), "page {page}");
    }
    // The large ones, a few above, and those that wait: 256 small ones and one group's more.
    let nodes = fx.count(Counter::ObjectNodes);
    assert!(nodes as u64 <= GROUPS + 16 + 256 + 24, "{nodes} nodes");
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}
