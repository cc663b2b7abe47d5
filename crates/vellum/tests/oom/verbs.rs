//! Verbs over a range, and the lives of spaces, without memory.

use crate::starve::*;
use vellum_testkit::prelude::*;

/// Reserved by one entry: `furnished` maps 1 GiB there.
const RESERVED: Va = Va(2 * GIB + KIB4);
/// 2 MiB of pages, or one huge page.
const PAGES: Va = Va(GIB);
/// The last of the small mappings before it.
const SMALL: Va = Va(GIB - KIB4);
const FAR: Placement = Placement::At(Va(6 * GIB + KIB4));

#[test]
fn create_fails_and_succeeds_whole() {
    starve_each(1, |fx, _| fx.vm.create().map(|space| fx.vm.exit(space)));
}

#[test]
fn map_fails_and_succeeds_whole() {
    use Placement::{Anywhere, At, Replace};
    for (to, bytes, needs) in [
        (At(Va((1 << 39) + KIB4)), MIB2, 3),
        (At(Va((1 << 39) - KIB4)), 2 * KIB4, 5),
        (Replace(Va(GIB + KIB4)), KIB4, 0),
        (Replace(SMALL), 3 * KIB4, 0),
        (Replace(Va(3 * GIB - KIB4)), 2 * KIB4, 2),
        (Anywhere, 9 * KIB4, 3),
    ] {
        let attrs = Attrs::anonymous(Rights::READ_EXEC);
        starve_each(needs, |fx, space| fx.vm.map(space, to, bytes, attrs));
    }
}

#[test]
fn unmap_fails_and_succeeds_whole() {
    // The last one is from the middle of a huge page to the middle of a reserved entry: tables at
    // both ends, or none.
    for (va, bytes, needs) in
        [(RESERVED, KIB4, 2), (RESERVED, GIB - 2 * KIB4, 3), (Va(GIB + KIB4), GIB, 2)]
    {
        starve_each(needs, |fx, space| fx.vm.unmap(space, va, bytes));
    }
    let middle = |fx: &Fixture, space: &Space| fx.vm.unmap(space, Va(GIB + KIB4), KIB4);
    assert_eq!(starve(Config::default(), middle), 1);
}

#[test]
fn unmap_of_whole_entries_and_pages_takes_no_memory() {
    for config in [no_thp(), Config::default()] {
        for (va, bytes) in
            [(GIB, MIB2), (2 * GIB, GIB), (GIB - 4 * KIB4, 4 * KIB4 + MIB2), (0, 1 << 40)]
        {
            assert_eq!(starve(config, |fx, space| fx.vm.unmap(space, Va(va), bytes)), 0);
        }
    }
}

#[test]
fn protect_fails_and_succeeds_whole() {
    for rights in [Rights::NONE, Rights::READ] {
        for (va, bytes, needs) in [
            (Va(GIB + KIB4), KIB4, 0),
            (SMALL, 2 * KIB4, 0),
            (RESERVED, GIB / 2, 3),
            (SMALL, MIB2 / 2, 0),
        ] {
            starve_each(needs, |fx, space| fx.vm.protect(space, va, bytes, rights));
        }
    }
}

#[test]
fn advice_fails_and_succeeds_whole() {
    for advice in [Advice::Huge, Advice::NoHuge, Advice::DontNeed] {
        starve_each(2, |fx, space| fx.vm.advise(space, RESERVED, MIB2, advice));
        starve_each(0, |fx, space| fx.vm.advise(space, PAGES, MIB2, advice));
    }
    for advice in [false, true].map(|write| Advice::Populate { write }) {
        starve_each(0, |fx, space| fx.vm.advise(space, Va(2 * GIB), KIB4, advice));
    }
}

#[test]
fn remap_fails_and_succeeds_whole() {
    let over = Placement::Replace(Va(GIB - 4 * KIB4));
    for (from, old, new, to, needs) in [
        (PAGES, MIB2, MIB2, FAR, 4),
        (PAGES, MIB2, MIB2, Placement::Anywhere, 0),
        (Va(GIB - 4 * KIB4), MIB2, 2 * MIB2, FAR, 4),
        (RESERVED, MIB2, MIB2, FAR, 4),
        (PAGES, MIB2, 2 * MIB2 + KIB4, Placement::At(PAGES), 0),
        // Tables as they are: below one of the second level that is new, one of the third, and one
        // that moves itself. The last is alone in its table, and so are the small ones.
        (PAGES, MIB2, MIB2, Placement::At(Va(6 * GIB + 3 * MIB2)), 1),
        (PAGES, MIB2, MIB2, Placement::At(Va((1 << 39) + MIB2)), 2),
        (Va(GIB - 4 * KIB4), 4 * KIB4, 4 * KIB4, Placement::At(Va(8 * GIB - 4 * KIB4)), 0),
        (Va(GIB - 4 * KIB4), 4 * KIB4, 4 * KIB4, Placement::At(Va(6 * GIB + 4 * KIB4)), 2),
        // Over something.
        (RESERVED, 4 * KIB4, 4 * KIB4, over, 2),
        (RESERVED, MIB2, MIB2, over, 2),
    ] {
        starve_each(needs, |fx, space| fx.vm.remap(space, from, old, new, to));
    }
}

#[test]
fn fork_fails_and_succeeds_whole() {
    starve_each(4, |fx, space| fx.vm.fork(space).map(|child| fx.vm.exit(child)));
}

#[test]
fn collapse_fails_and_succeeds_whole() {
    for whole in [false, true] {
        let (fx, space) = furnished(no_thp());
        let before = picture(&fx, &space);
        let taken = fx.take_all(Order::BASE);
        let has = |block: u64| taken.iter().filter(|pfn| pfn.0 >> 9 == block).count() == 512;
        let block = (1..9).find(|&block| has(block)).expect("a block that was all taken");
        // One whole block is freed, or half of every block.
        let (back, keep): (Vec<Pfn>, Vec<Pfn>) = taken
            .into_iter()
            .partition(|pfn| if whole { pfn.0 >> 9 == block } else { pfn.0 % 2 == 0 });
        fx.give_back(back, Order::BASE);
        let done = fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse);
        assert_eq!(done, if whole { Ok(()) } else { Err(SpaceError::NoMemory) });
        assert_eq!(picture(&fx, &space), before, "collapse changed contents");
        assert_eq!(fx.usage(&space).huge_leaves, u64::from(whole));
        fx.give_back(keep, Order::BASE);
        fx.end([space]);
    }
}

#[test]
fn a_remap_of_many_regions_fails_and_succeeds_whole() {
    let rights = [Rights::READ, Rights::READ_WRITE, Rights::NONE];
    let stripes = |fx: &Fixture, space: &Space| {
        for page in 0..12 {
            let va = Va(2 * GIB + page * KIB4);
            fx.poke(space, va, page).expect("memory");
            assert_eq!(fx.vm.protect(space, va, KIB4, rights[page as usize % 3]), Ok(()));
        }
        None
    };
    for config in configs() {
        for to in [FAR, Placement::Replace(Va(GIB - 4 * KIB4))] {
            for (old, new) in [(10 * KIB4, 12 * KIB4), (MIB2, 9 * KIB4)] {
                starve_after(config, stripes, |fx, all| {
                    fx.vm.remap(&all[0], RESERVED, old, new, to)
                });
            }
        }
        // A table that leaves as a whole, and does not come as one.
        let to = Placement::At(Va(6 * GIB + 3 * MIB2));
        starve_after(config, stripes, |fx, all| fx.vm.remap(&all[0], Va(2 * GIB), MIB2, MIB2, to));
    }
}

#[test]
fn a_page_that_is_alone_moves_without_memory_where_its_tables_can_move() {
    let (a, b) = (Va((8 << 39) + GIB), Va((16 << 39) + GIB));
    let to = |va: Va| Placement::At(Va(va.0 + 8 * GIB));
    // The region of the new place and how far it lies are known then.
    let first = |fx: &Fixture, space: &Space| {
        for va in [a, b] {
            fx.map(space, va, KIB4, RW);
            fx.poke(space, va, 7).expect("memory");
        }
        fx.vm.remap(space, a, KIB4, KIB4, to(a)).expect("memory");
        None
    };
    let needs = starve_after(no_thp(), first, |fx, all| fx.vm.remap(&all[0], b, KIB4, KIB4, to(b)));
    assert_eq!(needs, 0);
}

#[test]
fn a_remap_that_drops_index_shifts_fails_and_succeeds_whole() {
    // Of so many all but ten are of regions that are gone: the last remap is the one that looks.
    let shifted = |fx: &Fixture, space: &Space| {
        let from = Va(12 * GIB);
        for n in 0..63 {
            let to = Va(32 * GIB + n * n * KIB4);
            fx.map(space, from, KIB4, RW);
            fx.poke(space, from, n).expect("memory");
            assert_eq!(fx.vm.remap(space, from, KIB4, KIB4, Placement::At(to)), Ok(to));
            if n >= 10 {
                assert_eq!(fx.vm.unmap(space, to, KIB4), Ok(()));
            }
        }
        None
    };
    let to = Placement::At(Va((8 << 39) + 3 * KIB4));
    let needs = starve_after(no_thp(), shifted, |fx, all| {
        fx.vm.remap(&all[0], RESERVED, MIB2 / 2, MIB2 / 2, to)
    });
    assert!(needs > 0, "nothing was refused");
}

#[test]
fn an_exit_takes_no_memory() {
    for config in [no_thp(), Config::default()] {
        let (fx, space) = furnished(config);
        let child = fx.vm.fork(&space).expect("memory");
        let taken = fx.take_all(Order::BASE);
        fx.vm.exit(space);
        fx.vm.exit(child);
        fx.give_back(taken, Order::BASE);
        fx.check(&[]);
    }
}
