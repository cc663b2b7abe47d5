//! Behaviours of walk caches.

use super::*;

fn caches() -> WalkCache {
    WalkCache::new(&WalkCacheShape { levels: [Some((4, 4)), Some((2, 2)), Some((1, 1)), None] })
}

fn entry(level: u8, va: u64, ctx: u16) -> TableEntry {
    TableEntry {
        va,
        table: 0x1000 * u64::from(level),
        source: u64::from(level),
        ctx,
        level,
        ..BLANK
    }
}

#[test]
fn a_lookup_starts_the_walk_at_the_deepest_cached_level() {
    let mut w = caches();
    let va = 0x7f12_3456_7000;
    assert!(w.lookup(1, va, 4).is_none());
    for level in [4, 3, 2] {
        assert!(w.insert(entry(level, va, 1)));
        assert_eq!(
            w.lookup(1, va, 4).map(|e| (e.level, e.table)),
            Some((level, 0x1000 * u64::from(level)))
        );
    }
    let neighbour = va ^ 1 << 21;
    assert_eq!(w.lookup(1, neighbour, 4).map(|e| e.level), Some(3), "same 1 GiB, another 2 MiB");
    let far = va ^ 1 << 38;
    assert_eq!(w.lookup(1, far, 4).map(|e| e.level), Some(4), "same 512 GiB");
    assert!(w.lookup(2, va, 4).is_none(), "another context");
    w.validate().expect("consistent");
}

#[test]
fn a_level_without_a_cache_keeps_nothing() {
    let mut w = caches();
    assert!(!w.insert(entry(5, 0, 1)));
    assert_eq!(w.live(), 0);
}

#[test]
fn the_least_recently_used_table_leaves() {
    let mut w = caches();
    for region in 0..5u64 {
        w.insert(entry(2, region << 21, 1));
    }
    assert!(w.lookup(1, 0, 4).is_none() && w.lookup(1, 4 << 21, 4).is_some());
    assert_eq!(w.live(), 4);
}

#[test]
fn invalidating_an_address_drops_every_level_on_its_way() {
    let fill = || {
        let mut w = caches();
        for level in [2, 3, 4] {
            w.insert(entry(level, 5 << 30, 1));
        }
        w.insert(entry(2, 9 << 21, 2));
        w
    };
    assert_eq!(fill().invalidate_page(Some(1), (5 << 30) + 4096), 3);
    assert_eq!(fill().invalidate_page(Some(2), (5 << 30) + 4096), 0);
    assert_eq!(
        fill().invalidate_page(None, 9 << 21),
        2,
        "the 512 GiB entry of context 1, the 2 MiB entry of context 2"
    );
    assert_eq!(fill().invalidate_range(Some(1), (5 << 30) + (1 << 21), 1 << 29), 2);
    assert_eq!(fill().invalidate_context(1), 3);
    assert_eq!(fill().invalidate_all(), 4);
}

#[test]
fn a_change_of_a_table_entry_marks_the_copy_of_it() {
    let mut w = caches();
    w.insert(entry(2, 5 << 21, 1));
    w.insert(entry(3, 0, 1));
    assert_eq!(w.mark_stale(5 << 21, 2), 1);
    assert_eq!(w.mark_stale(5 << 21, 99), 0);
    assert!(w.lookup(1, 5 << 21, 4).expect("held").stale);
    assert_eq!(w.mark_stale_range(0, 1 << 30, |e| e.level == 3), 1);
    w.validate().expect("consistent");
}
