//! Verbs over a range, and the lives of spaces, without memory.

use crate::starve::*;
use vellum_testkit::prelude::*;

#[test]
fn create_fails_and_succeeds_whole() {
    each_thp(|fx, _| fx.vm.create().map(|space| fx.vm.exit(space)), 1);
}

#[test]
fn map_fails_and_succeeds_whole() {
    let odd = Attrs::anonymous(Rights::READ_EXEC);
    each_thp(
        |fx, space| memory(fx.vm.map(space, Placement::At(Va((1 << 39) + KIB4)), MIB2, odd)),
        3,
    );
    each_thp(
        |fx, space| memory(fx.vm.map(space, Placement::At(Va((1 << 39) - KIB4)), 2 * KIB4, odd)),
        5,
    );
    each_thp(
        |fx, space| memory(fx.vm.map(space, Placement::Replace(Va(GIB + KIB4)), KIB4, odd)),
        0,
    );
    each_thp(
        |fx, space| memory(fx.vm.map(space, Placement::Replace(Va(GIB - KIB4)), 3 * KIB4, odd)),
        0,
    );
    each_thp(
        |fx, space| memory(fx.vm.map(space, Placement::Replace(Va(3 * GIB - KIB4)), 2 * KIB4, odd)),
        2,
    );
    each_thp(|fx, space| memory(fx.vm.map(space, Placement::Anywhere, 9 * KIB4, odd)), 3);
}

#[test]
fn unmap_fails_and_succeeds_whole() {
    each_thp(|fx, space| memory(fx.vm.unmap(space, Va(2 * GIB + KIB4), KIB4)), 2);
    each_thp(|fx, space| memory(fx.vm.unmap(space, Va(2 * GIB + KIB4), GIB - 2 * KIB4)), 3);
    assert_eq!(
        starve(Config::default(), |fx, space| memory(fx.vm.unmap(space, Va(GIB + KIB4), KIB4))),
        1
    );
    // From the middle of a huge page to the middle of a promise: tables at both ends, or none.
    each_thp(|fx, space| memory(fx.vm.unmap(space, Va(GIB + KIB4), GIB)), 2);
}

#[test]
fn unmap_of_whole_promises_and_pages_takes_no_memory() {
    for config in [no_thp(), Config::default()] {
        for (va, bytes) in
            [(GIB, MIB2), (2 * GIB, GIB), (GIB - 4 * KIB4, 4 * KIB4 + MIB2), (0, 1 << 40)]
        {
            assert_eq!(starve(config, |fx, space| memory(fx.vm.unmap(space, Va(va), bytes))), 0);
        }
    }
}

#[test]
fn protect_fails_and_succeeds_whole() {
    for rights in [Rights::NONE, Rights::READ] {
        each_thp(|fx, space| memory(fx.vm.protect(space, Va(GIB + KIB4), KIB4, rights)), 0);
        each_thp(|fx, space| memory(fx.vm.protect(space, Va(GIB - KIB4), 2 * KIB4, rights)), 0);
        each_thp(|fx, space| memory(fx.vm.protect(space, Va(2 * GIB + KIB4), GIB / 2, rights)), 3);
        each_thp(|fx, space| memory(fx.vm.protect(space, Va(GIB - KIB4), MIB2 / 2, rights)), 0);
    }
}

#[test]
fn advice_fails_and_succeeds_whole() {
    for advice in [Advice::Huge, Advice::NoHuge, Advice::DontNeed] {
        each_thp(|fx, space| memory(fx.vm.advise(space, Va(2 * GIB + KIB4), MIB2, advice)), 2);
        each_thp(|fx, space| memory(fx.vm.advise(space, Va(GIB), MIB2, advice)), 0);
    }
    for write in [false, true] {
        each_thp(
            |fx, space| memory(fx.vm.advise(space, Va(2 * GIB), KIB4, Advice::Populate { write })),
            0,
        );
    }
}

#[test]
fn remap_fails_and_succeeds_whole() {
    let far = Va(6 * GIB + KIB4);
    each_thp(|fx, space| memory(fx.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::At(far))), 4);
    each_thp(|fx, space| memory(fx.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::Anywhere)), 0);
    each_thp(
        |fx, space| {
            memory(fx.vm.remap(space, Va(GIB - 4 * KIB4), MIB2, 2 * MIB2, Placement::At(far)))
        },
        4,
    );
    each_thp(
        |fx, space| memory(fx.vm.remap(space, Va(2 * GIB + KIB4), MIB2, MIB2, Placement::At(far))),
        4,
    );
    each_thp(
        |fx, space| {
            memory(fx.vm.remap(space, Va(GIB), MIB2, 2 * MIB2 + KIB4, Placement::At(Va(GIB))))
        },
        0,
    );
}

#[test]
fn fork_fails_and_succeeds_whole() {
    each_thp(|fx, space| fx.vm.fork(space).map(|child| fx.vm.exit(child)), 4);
}

#[test]
fn collapse_fails_and_succeeds_whole() {
    for whole in [false, true] {
        let (fx, space) = furnished(no_thp());
        let before = picture(&fx, &space);
        let taken = take_all(&fx);
        let has = |block: u64| taken.iter().filter(|pfn| pfn.0 >> 9 == block).count() == 512;
        let block = (1..9).find(|&block| has(block)).expect("a block that was all taken");
        // One whole block comes back, or half of every one.
        let (back, keep): (Vec<Pfn>, Vec<Pfn>) = taken
            .into_iter()
            .partition(|pfn| if whole { pfn.0 >> 9 == block } else { pfn.0 % 2 == 0 });
        give(&fx, back);
        let done = fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse);
        assert_eq!(done, if whole { Ok(()) } else { Err(SpaceError::NoMemory) });
        assert_eq!(picture(&fx, &space), before, "collapse changed contents");
        let level = match fx.vm.query(&space, Va(GIB)) {
            Page::Mapped { level, .. } => level,
            other => panic!("{other:?}"),
        };
        assert_eq!(level, if whole { Level::TWO } else { Level::ONE });
        give(&fx, keep);
        fx.end([space]);
    }
}

#[test]
fn a_remap_over_something_fails_and_succeeds_whole() {
    let to = Placement::Replace(Va(GIB - 4 * KIB4));
    let from = Va(2 * GIB + KIB4);
    each_thp(|fx, space| memory(fx.vm.remap(space, from, 4 * KIB4, 4 * KIB4, to)), 2);
    each_thp(|fx, space| memory(fx.vm.remap(space, from, MIB2, MIB2, to)), 2);
}

#[test]
fn a_remap_of_many_regions_fails_and_succeeds_whole() {
    for config in configs() {
        for to in [Placement::At(Va(6 * GIB + KIB4)), Placement::Replace(Va(GIB - 4 * KIB4))] {
            let stripes = |fx: &Fixture, space: &Space| {
                for page in 0..12 {
                    fx.poke(space, Va(2 * GIB + page * KIB4), page).expect("memory");
                    let rights =
                        [Rights::READ, Rights::READ_WRITE, Rights::NONE][page as usize % 3];
                    assert_eq!(
                        fx.vm.protect(space, Va(2 * GIB + page * KIB4), KIB4, rights),
                        Ok(())
                    );
                }
                None
            };
            starve_after(config, stripes, |fx, space, _| {
                memory(fx.vm.remap(space, Va(2 * GIB + KIB4), 10 * KIB4, 12 * KIB4, to))
            });
            starve_after(config, stripes, |fx, space, _| {
                memory(fx.vm.remap(space, Va(2 * GIB + KIB4), MIB2, 9 * KIB4, to))
            });
        }
    }
}

#[test]
fn an_exit_takes_no_memory() {
    for config in [no_thp(), Config::default()] {
        let (fx, space) = furnished(config);
        let child = fx.vm.fork(&space).expect("memory");
        let taken = take_all(&fx);
        fx.vm.exit(space);
        fx.vm.exit(child);
        give(&fx, taken);
        fx.check(&[]);
    }
}
