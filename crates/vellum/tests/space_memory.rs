//! Every verb with room for no allocation, for one, for two, and so on until it succeeds: each failure leaves everything as it
//! was, and the success is a success.

mod space_lab;

use space_lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, NumaPolicy};
use vellum::error::{FaultError, NoMemory, SpaceError};
use vellum::frame::Want;
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Advice, Attrs, Fault, LeafSize, Page, Placement, Rights, Space};

/// What a program could tell of a space: rights and contents of every page around the places the tests use.
fn picture(lab: &Lab, space: &Space) -> Vec<(u64, Rights, u64)> {
    let mut seen = Vec::new();
    for base in [GIB - 8 * KIB4, GIB, GIB + 510 * KIB4, 2 * GIB, 3 * GIB - 8 * KIB4, 6 * GIB, 1 << 39] {
        for va in (base..base + 20 * KIB4).step_by(KIB4 as usize) {
            let (rights, value) = match lab.vm.query(space, Va(va)) {
                Page::Unmapped => continue,
                Page::Reserved { rights } => (rights, 0),
                Page::Mapped { rights, .. } => (rights, lab.peek(space, Va(va)).expect("a page that is there")),
                Page::Parked { .. } => (Rights::NONE, 1),
            };
            seen.push((va, rights, value));
        }
    }
    let usage = lab.vm.usage(space);
    seen.push((usage.mapped_pages, Rights::NONE, usage.parked_pages));
    seen
}

/// A 1 GiB promise with a few pages, 2 MiB with a huge page, some small mappings.
fn furnished(config: Config) -> (Lab, Space) {
    let lab = lab(4096, config);
    let space = lab.vm.create().expect("memory");
    lab.map(&space, Va(2 * GIB), GIB, RW);
    lab.map(&space, Va(GIB), MIB2, RW);
    lab.map(&space, Va(GIB - 4 * KIB4), 4 * KIB4, Attrs::anonymous(Rights::ALL));
    for va in [GIB - 2 * KIB4, GIB, GIB + 511 * KIB4] {
        lab.poke(&space, Va(va), va).expect("memory");
    }
    (lab, space)
}

type Picture = [(u64, Rights, u64)];

/// Every frame there is, taken one by one.
fn take_all(lab: &Lab) -> Vec<Pfn> {
    let take = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Table };
    std::iter::from_fn(|| lab.vm.frames().alloc(lab.vm.machine(), Order::BASE, &take).ok()).collect()
}

fn give(lab: &Lab, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| lab.vm.frames().free(lab.vm.machine(), pfn, Order::BASE));
}

/// Runs a verb with room for 0, 1, 2, ... frames until it has enough; says how many it took. One that fails leaves every table and
/// leaf as it was.
fn starve(config: Config, verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>) -> u64 {
    starve_as(config, true, verb)
}

/// The same; if not `exact`, a failure may leave tables behind, or large leaves in pieces, which no program can tell.
fn starve_as(config: Config, exact: bool, verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>) -> u64 {
    starve_but(config, exact, verb, |before, after| before == after)
}

/// As [`starve_as`], where `fits` says what a failure may have changed that a program can tell.
fn starve_but(
    config: Config,
    exact: bool,
    verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>,
    fits: impl Fn(&Picture, &Picture) -> bool,
) -> u64 {
    for room in 0..64 {
        let (lab, space) = furnished(config);
        let (before, usage) = (picture(&lab, &space), lab.vm.usage(&space));
        let mut taken = take_all(&lab);
        // Frames come back from all over, so that no block is whole.
        for _ in 0..room {
            let pfn = taken.swap_remove(taken.len() * 7 / 11);
            give(&lab, [pfn]);
        }
        let done = verb(&lab, &space);
        if done.is_err() {
            let after = picture(&lab, &space);
            assert!(fits(&before, &after), "failed with {room} frames: {before:x?} became {after:x?}");
            assert!(!exact || lab.vm.usage(&space) == usage, "failed with {room} frames and changed the table");
        }
        give(&lab, taken);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
        if done.is_ok() {
            return room;
        }
    }
    panic!("64 frames were not enough");
}

fn memory<T>(done: Result<T, SpaceError>) -> Result<(), NoMemory> {
    match done {
        Ok(_) => Ok(()),
        Err(SpaceError::NoMemory) => Err(NoMemory),
        Err(error) => panic!("{error:?}"),
    }
}

fn each_thp(verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>, at_least: u64) {
    each_thp_as(true, verb, at_least)
}

fn each_thp_as(exact: bool, verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>, at_least: u64) {
    for config in [never(), Config::default()] {
        assert!(starve_as(config, exact, &verb) >= at_least, "the verb was expected to need memory");
    }
}

#[test]
fn create_fails_and_succeeds_whole() {
    each_thp(|lab, _| lab.vm.create().map(|space| lab.vm.exit(space)), 1);
}

#[test]
fn map_fails_and_succeeds_whole() {
    let odd = Attrs::anonymous(Rights::READ_EXEC);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::At(Va((1 << 39) + KIB4)), MIB2, odd)), 3);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::At(Va((1 << 39) - KIB4)), 2 * KIB4, odd)), 5);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::Replace(Va(GIB + KIB4)), KIB4, odd)), 0);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::Replace(Va(GIB - KIB4)), 3 * KIB4, odd)), 0);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::Replace(Va(3 * GIB - KIB4)), 2 * KIB4, odd)), 2);
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::Anywhere, 9 * KIB4, odd)), 3);
}

#[test]
fn unmap_fails_and_succeeds_whole() {
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(2 * GIB + KIB4), KIB4)), 2);
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(2 * GIB + KIB4), GIB - 2 * KIB4)), 3);
    assert_eq!(starve(Config::default(), |lab, space| memory(lab.vm.unmap(space, Va(GIB + KIB4), KIB4))), 1);
    // From the middle of a huge page to the middle of a promise: tables at both ends, or none.
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(GIB + KIB4), GIB)), 2);
}

#[test]
fn unmap_of_whole_promises_and_pages_takes_no_memory() {
    for config in [never(), Config::default()] {
        for (va, bytes) in [(GIB, MIB2), (2 * GIB, GIB), (GIB - 4 * KIB4, 4 * KIB4 + MIB2), (0, 1 << 40)] {
            assert_eq!(starve(config, |lab, space| memory(lab.vm.unmap(space, Va(va), bytes))), 0);
        }
    }
}

#[test]
fn protect_fails_and_succeeds_whole() {
    for rights in [Rights::NONE, Rights::READ] {
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(GIB + KIB4), KIB4, rights)), 0);
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(GIB - KIB4), 2 * KIB4, rights)), 0);
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(2 * GIB + KIB4), GIB / 2, rights)), 3);
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(GIB - KIB4), MIB2 / 2, rights)), 0);
    }
}

#[test]
fn advice_fails_and_succeeds_whole() {
    for advice in [Advice::Huge, Advice::NoHuge, Advice::DontNeed] {
        each_thp(|lab, space| memory(lab.vm.advise(space, Va(2 * GIB + KIB4), MIB2, advice)), 2);
        each_thp(|lab, space| memory(lab.vm.advise(space, Va(GIB), MIB2, advice)), 0);
    }
    for write in [false, true] {
        each_thp_as(
            false,
            |lab, space| memory(lab.vm.advise(space, Va(2 * GIB), 4 * KIB4, Advice::Populate { write })),
            2,
        );
    }
}

#[test]
fn remap_fails_and_succeeds_whole() {
    let far = Va(6 * GIB + KIB4);
    each_thp_as(false, |lab, space| memory(lab.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::At(far))), 4);
    each_thp_as(false, |lab, space| memory(lab.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::Anywhere)), 0);
    each_thp_as(
        false,
        |lab, space| memory(lab.vm.remap(space, Va(GIB - 4 * KIB4), MIB2, 2 * MIB2, Placement::At(far))),
        4,
    );
    each_thp_as(false, |lab, space| memory(lab.vm.remap(space, Va(2 * GIB + KIB4), MIB2, MIB2, Placement::At(far))), 4);
    each_thp_as(
        false,
        |lab, space| memory(lab.vm.remap(space, Va(GIB), MIB2, 2 * MIB2 + KIB4, Placement::At(Va(GIB)))),
        0,
    );
}

#[test]
fn fork_fails_and_succeeds_whole() {
    each_thp(|lab, space| lab.vm.fork(space).map(|child| lab.vm.exit(child)), 4);
}

#[test]
fn faults_fail_and_succeed_whole() {
    let fault = |va, access| {
        move |lab: &Lab, space: &Space| match lab.vm.fault(space, Va(va), access) {
            Ok(_) => Ok(()),
            Err(FaultError::NoMemory) => Err(NoMemory),
            Err(error) => panic!("{error:?}"),
        }
    };
    each_thp_as(false, fault(2 * GIB + 5 * KIB4, Access::Write), 3);
    each_thp_as(false, fault(2 * GIB + 5 * KIB4, Access::Read), 2);
    each_thp_as(false, fault(GIB - KIB4, Access::Exec), 0);
}

#[test]
fn writing_to_a_shared_huge_page_fails_and_succeeds_whole() {
    let took = starve_as(Config::default(), false, |lab, space| {
        let child = lab.vm.fork(space)?;
        let done = lab.vm.copy_in(&child, Va(GIB), &[1; 8]);
        lab.vm.exit(child);
        match done {
            Ok(()) => Ok(()),
            Err(FaultError::NoMemory) => Err(NoMemory),
            Err(error) => panic!("{error:?}"),
        }
    });
    // The child's tables, then a table and a page for the piece that is written.
    assert!(took >= 6, "{took}");
}

#[test]
fn writing_to_a_shared_base_page_fails_and_succeeds_whole() {
    let took = starve(never(), |lab, space| {
        let child = lab.vm.fork(space)?;
        let parent = lab.vm.fault(space, Va(GIB), Access::Write).map(drop);
        let both = parent.and_then(|()| lab.vm.fault(&child, Va(GIB + 511 * KIB4), Access::Write).map(drop));
        lab.vm.exit(child);
        both.map_err(|error| assert_eq!(error, FaultError::NoMemory)).map_err(|()| NoMemory)
    });
    // The child's root and tables, and two pages.
    assert!(took >= 6, "{took}");
}

#[test]
fn a_fault_that_must_have_a_huge_page_fails_whole_without_one() {
    let (lab, space) = furnished(Config::default());
    let huge = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    lab.map(&space, Va(6 * GIB), MIB2, huge);
    let before = picture(&lab, &space);
    let taken = take_all(&lab);
    let (keep, back): (Vec<Pfn>, Vec<Pfn>) = taken.into_iter().partition(|pfn| pfn.0 % 2 == 0);
    give(&lab, back);
    for access in [Access::Read, Access::Write] {
        assert_eq!(lab.vm.fault(&space, Va(6 * GIB + KIB4), access), Err(FaultError::NoMemory));
        assert_eq!(picture(&lab, &space), before);
    }
    give(&lab, keep);
    assert_eq!(lab.vm.fault(&space, Va(6 * GIB + KIB4), Access::Write), Ok(Fault::Huge));
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn collapse_fails_and_succeeds_whole() {
    for whole in [false, true] {
        let (lab, space) = furnished(never());
        let before = picture(&lab, &space);
        let taken = take_all(&lab);
        let has = |block: u64| taken.iter().filter(|pfn| pfn.0 >> 9 == block).count() == 512;
        let block = (1..9).find(|&block| has(block)).expect("a block that was all taken");
        // One whole block comes back, or half of every one.
        let (back, keep): (Vec<Pfn>, Vec<Pfn>) =
            taken.into_iter().partition(|pfn| if whole { pfn.0 >> 9 == block } else { pfn.0 % 2 == 0 });
        give(&lab, back);
        let done = lab.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse);
        assert_eq!(done, if whole { Ok(()) } else { Err(SpaceError::NoMemory) });
        assert_eq!(picture(&lab, &space), before, "collapse changed contents");
        let level = match lab.vm.query(&space, Va(GIB)) {
            Page::Mapped { level, .. } => level,
            other => panic!("{other:?}"),
        };
        assert_eq!(level, if whole { Level::TWO } else { Level::ONE });
        give(&lab, keep);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn a_copy_that_runs_out_has_done_whole_pages_and_no_more() {
    const PAGES: u64 = 5;
    let start = Va(2 * GIB + 510 * KIB4);
    for room in 0..64 {
        let (lab, space) = furnished(never());
        let mut taken = take_all(&lab);
        give(&lab, taken.drain(..room));
        let done = lab.vm.copy_in(&space, start, &[7; (PAGES * KIB4) as usize]);
        let written: Vec<bool> = (0..PAGES)
            .map(|n| {
                let ends = [0, KIB4 as usize - 8].map(|offset| match lab.vm.query(&space, Va(start.0 + n * KIB4)) {
                    Page::Mapped { pfn, .. } => {
                        let mut bytes = [0; 8];
                        lab.vm.machine().read(pfn, offset, &mut bytes);
                        bytes
                    }
                    other => {
                        assert_eq!(other, Page::Reserved { rights: Rights::READ_WRITE });
                        [0; 8]
                    }
                });
                assert!(ends == [[7; 8]; 2] || ends == [[0; 8]; 2], "half a page was written");
                ends[0] == [7; 8]
            })
            .collect();
        assert!(written.is_sorted_by(|a, b| a >= b), "{written:?}");
        give(&lab, taken);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
        if done.is_ok() {
            assert!(written.iter().all(|&page| page));
            // Two tables of level 1, one above them, and the pages.
            return assert!(room as u64 >= PAGES, "{room} failures");
        }
        assert_eq!(done, Err(FaultError::NoMemory));
        assert!(!written[PAGES as usize - 1]);
    }
    panic!("64 frames were not enough");
}

#[test]
fn reading_by_the_kernel_fails_and_succeeds_whole() {
    // It makes pages present one after another, like a program that reads: the tables it made stay.
    each_thp_as(
        false,
        |lab, space| {
            let done = lab.vm.copy_out(space, Va(2 * GIB + 5 * KIB4 - 4), &mut [0; 8]);
            done.map_err(|error| assert_eq!(error, FaultError::NoMemory)).map_err(|()| NoMemory)
        },
        2,
    );
}

#[test]
fn a_remap_over_something_that_fails_keeps_what_moves_and_the_rest() {
    // What was to be replaced may be gone, as a whole.
    let target = GIB - 4 * KIB4..GIB;
    let fits = |before: &Picture, after: &Picture| {
        let outside = |all: &Picture| all.iter().filter(|page| !target.contains(&page.0)).count();
        let same = |all: &Picture| {
            all.iter().filter(|p| !target.contains(&p.0) && p.0 > GIB - GIB / 2).copied().collect::<Vec<_>>()
        };
        before == after || outside(before) == outside(after) && same(before) == same(after)
    };
    for config in [never(), Config::default()] {
        let to = Placement::Replace(Va(GIB - 4 * KIB4));
        let from = Va(2 * GIB + KIB4);
        let took =
            starve_but(config, false, |lab, space| memory(lab.vm.remap(space, from, 4 * KIB4, 4 * KIB4, to)), fits);
        assert!(took >= 2, "{took}");
    }
}

#[test]
fn an_exit_takes_no_memory() {
    for config in [never(), Config::default()] {
        let (lab, space) = furnished(config);
        let child = lab.vm.fork(&space).expect("memory");
        let taken = take_all(&lab);
        lab.vm.exit(space);
        lab.vm.exit(child);
        give(&lab, taken);
        lab.check(&[]);
    }
}
