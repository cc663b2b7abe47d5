//! Every verb with room for no allocation, for one, for two, and so on until it succeeds: each
//! failure leaves everything as it was, and the success is a success.

use crate::flat::VmHands;
use crate::flat::{FrameHands, MachineHands};
use crate::lab::state::difference;
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Colours, Config, NumaPolicy, ZeroHuge};
use vellum::error::{FaultError, NoMemory, SpaceError};
use vellum::machine::Use;
use vellum::space::{Access, Advice, Attrs, Fault, LeafSize, Page, Placement, Rights, Space};
use vellum::unstable::Want;

/// What a program could read around the places the tests use.
fn picture(lab: &Lab, space: &Space) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    for base in
        [GIB - 8 * KIB4, GIB, GIB + 510 * KIB4, 2 * GIB, 3 * GIB - 8 * KIB4, 6 * GIB, 1 << 39]
    {
        for va in (base..base + 20 * KIB4).step_by(KIB4 as usize) {
            match lab.vm.query(space, Va(va)) {
                Page::Mapped { .. } => {
                    seen.push((va, lab.peek(space, Va(va)).expect("a page that is there")))
                }
                Page::Reserved { .. } => seen.push((va, 0)),
                Page::Unmapped | Page::Parked { .. } => {}
            }
        }
    }
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

/// Every frame there is, taken one by one.
fn take_all(lab: &Lab) -> Vec<Pfn> {
    let take = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Table };
    std::iter::from_fn(|| lab.vm.frames().alloc(lab.vm.machine(), Order::BASE, &take).ok())
        .collect()
}

fn give(lab: &Lab, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| lab.vm.frames().put(lab.vm.machine(), pfn, Order::BASE));
}

/// The switches that decide what a fault makes: base pages, huge pages, several colours of zeros,
/// each form of huge zeros.
fn configs() -> Vec<Config> {
    let with = |zero_huge| Config { zero_huge, ..Config::default() };
    let colours = Order::new(2).map_or(Colours::L1d, Colours::Exactly);
    let mut all = vec![never(), Config::default(), Config { zero_colours: colours, ..never() }];
    all.extend([ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate].map(with));
    all
}

/// Runs a verb with room for 0, 1, 2, ... frames until it has enough; says how many it took. One
/// that fails leaves every entry of every table, every frame in its use and every gauge as it was.
fn starve(config: Config, verb: impl Fn(&Lab, &Space) -> Result<(), NoMemory>) -> u64 {
    starve_after(config, |_, _| None, |lab, space, _| verb(lab, space))
}

/// The same after something that was done with all the memory there is, and may have made another
/// space.
fn starve_after(
    config: Config,
    first: impl Fn(&Lab, &Space) -> Option<Space>,
    verb: impl Fn(&Lab, &Space, Option<&Space>) -> Result<(), NoMemory>,
) -> u64 {
    for room in 0..64 {
        let (lab, space) = furnished(config);
        let other = first(&lab, &space);
        let all: Vec<&Space> = [&space].into_iter().chain(&other).collect();
        let read = || all.iter().map(|space| picture(&lab, space)).collect::<Vec<_>>();
        let (before, contents) = (lab.state(&all), read());
        let mut taken = take_all(&lab);
        // Frames come back from all over, so that no block is whole.
        for _ in 0..room {
            let pfn = taken.swap_remove(taken.len() * 7 / 11);
            give(&lab, [pfn]);
        }
        let done = verb(&lab, &space, other.as_ref());
        give(&lab, taken);
        let after = lab.state(&all);
        if done.is_err() {
            assert!(before == after, "failed with {room} frames: {}", difference(&before, &after));
            assert_eq!(read(), contents, "failed with {room} frames");
        }
        assert_eq!(after.audit.other_frames, 0, "frames lost");
        drop(all);
        lab.vm.exit(space);
        other.into_iter().for_each(|other| lab.vm.exit(other));
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
    for config in configs() {
        assert!(starve(config, &verb) >= at_least, "the verb was expected to need memory");
    }
}

fn fault(done: Result<impl Sized, FaultError>) -> Result<(), NoMemory> {
    done.map(drop).map_err(|error| assert_eq!(error, FaultError::NoMemory)).map_err(|()| NoMemory)
}

#[test]
fn create_fails_and_succeeds_whole() {
    each_thp(|lab, _| lab.vm.create().map(|space| lab.vm.exit(space)), 1);
}

#[test]
fn map_fails_and_succeeds_whole() {
    let odd = Attrs::anonymous(Rights::READ_EXEC);
    each_thp(
        |lab, space| memory(lab.vm.map(space, Placement::At(Va((1 << 39) + KIB4)), MIB2, odd)),
        3,
    );
    each_thp(
        |lab, space| memory(lab.vm.map(space, Placement::At(Va((1 << 39) - KIB4)), 2 * KIB4, odd)),
        5,
    );
    each_thp(
        |lab, space| memory(lab.vm.map(space, Placement::Replace(Va(GIB + KIB4)), KIB4, odd)),
        0,
    );
    each_thp(
        |lab, space| memory(lab.vm.map(space, Placement::Replace(Va(GIB - KIB4)), 3 * KIB4, odd)),
        0,
    );
    each_thp(
        |lab, space| {
            memory(lab.vm.map(space, Placement::Replace(Va(3 * GIB - KIB4)), 2 * KIB4, odd))
        },
        2,
    );
    each_thp(|lab, space| memory(lab.vm.map(space, Placement::Anywhere, 9 * KIB4, odd)), 3);
}

#[test]
fn unmap_fails_and_succeeds_whole() {
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(2 * GIB + KIB4), KIB4)), 2);
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(2 * GIB + KIB4), GIB - 2 * KIB4)), 3);
    assert_eq!(
        starve(Config::default(), |lab, space| memory(lab.vm.unmap(space, Va(GIB + KIB4), KIB4))),
        1
    );
    // From the middle of a huge page to the middle of a promise: tables at both ends, or none.
    each_thp(|lab, space| memory(lab.vm.unmap(space, Va(GIB + KIB4), GIB)), 2);
}

#[test]
fn unmap_of_whole_promises_and_pages_takes_no_memory() {
    for config in [never(), Config::default()] {
        for (va, bytes) in
            [(GIB, MIB2), (2 * GIB, GIB), (GIB - 4 * KIB4, 4 * KIB4 + MIB2), (0, 1 << 40)]
        {
            assert_eq!(starve(config, |lab, space| memory(lab.vm.unmap(space, Va(va), bytes))), 0);
        }
    }
}

#[test]
fn protect_fails_and_succeeds_whole() {
    for rights in [Rights::NONE, Rights::READ] {
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(GIB + KIB4), KIB4, rights)), 0);
        each_thp(|lab, space| memory(lab.vm.protect(space, Va(GIB - KIB4), 2 * KIB4, rights)), 0);
        each_thp(
            |lab, space| memory(lab.vm.protect(space, Va(2 * GIB + KIB4), GIB / 2, rights)),
            3,
        );
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
        each_thp(
            |lab, space| {
                memory(lab.vm.advise(space, Va(2 * GIB), KIB4, Advice::Populate { write }))
            },
            0,
        );
    }
}

#[test]
fn remap_fails_and_succeeds_whole() {
    let far = Va(6 * GIB + KIB4);
    each_thp(|lab, space| memory(lab.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::At(far))), 4);
    each_thp(|lab, space| memory(lab.vm.remap(space, Va(GIB), MIB2, MIB2, Placement::Anywhere)), 0);
    each_thp(
        |lab, space| {
            memory(lab.vm.remap(space, Va(GIB - 4 * KIB4), MIB2, 2 * MIB2, Placement::At(far)))
        },
        4,
    );
    each_thp(
        |lab, space| {
            memory(lab.vm.remap(space, Va(2 * GIB + KIB4), MIB2, MIB2, Placement::At(far)))
        },
        4,
    );
    each_thp(
        |lab, space| {
            memory(lab.vm.remap(space, Va(GIB), MIB2, 2 * MIB2 + KIB4, Placement::At(Va(GIB))))
        },
        0,
    );
}

#[test]
fn fork_fails_and_succeeds_whole() {
    each_thp(|lab, space| lab.vm.fork(space).map(|child| lab.vm.exit(child)), 4);
}

#[test]
fn faults_fail_and_succeed_whole() {
    let at =
        |va, access| move |lab: &Lab, space: &Space| fault(lab.vm.fault(space, Va(va), access));
    each_thp(at(2 * GIB + 5 * KIB4, Access::Write), 3);
    each_thp(at(2 * GIB + 5 * KIB4, Access::Read), 1);
    each_thp(at(GIB - KIB4, Access::Exec), 0);
    each_thp(at(GIB - KIB4, Access::Write), 1);
}

#[test]
fn faults_far_from_every_table_fail_and_succeed_whole() {
    let far = Va(1 << 39);
    for attrs in [RW, Attrs::anonymous(Rights::ALL)] {
        for access in [Access::Read, Access::Write] {
            for config in configs() {
                let map = |lab: &Lab, space: &Space| {
                    lab.map(space, far, 1 << 39, attrs);
                    None
                };
                // From the entry of 512 GiB that is all there is down to a page.
                let took = starve_after(config, map, |lab, space, _| {
                    fault(lab.vm.fault(space, Va(far.0 + 3 * GIB + 7 * KIB4), access))
                });
                assert!(took >= 1, "{took}");
            }
        }
    }
}

#[test]
fn a_forced_write_fails_and_succeeds_whole() {
    let write = |va: u64| {
        move |lab: &Lab, space: &Space, _: Option<&Space>| {
            fault(lab.vm.write_forced(space, Va(va), &[7; 8]))
        }
    };
    for config in configs() {
        for read_first in [false, true] {
            let first = |lab: &Lab, space: &Space| {
                lab.map(space, Va(1 << 39), GIB, Attrs::anonymous(Rights::READ));
                if read_first {
                    lab.peek(space, Va((1 << 39) + KIB4)).expect("memory");
                }
                None
            };
            starve_after(config, first, write((1 << 39) + KIB4));
        }
    }
}

#[test]
fn a_write_after_a_read_fails_and_succeeds_whole() {
    let va = Va(2 * GIB + 5 * KIB4);
    for config in configs() {
        let read = |lab: &Lab, space: &Space| {
            lab.peek(space, va).expect("memory");
            None
        };
        starve_after(config, read, |lab, space, _| fault(lab.vm.fault(space, va, Access::Write)));
        starve_after(config, read, |lab, space, _| memory(lab.vm.unmap(space, va, KIB4)));
        starve_after(config, read, |lab, space, _| {
            memory(lab.vm.protect(space, va, KIB4, Rights::READ))
        });
        starve_after(config, read, |lab, space, _| {
            lab.vm.fork(space).map(|child| lab.vm.exit(child))
        });
        starve_after(config, read, |lab, space, _| {
            memory(lab.vm.remap(
                space,
                Va(2 * GIB + KIB4),
                2 * MIB2,
                2 * MIB2,
                Placement::At(Va(6 * GIB)),
            ))
        });
    }
}

fn forked(lab: &Lab, space: &Space) -> Option<Space> {
    Some(lab.vm.fork(space).expect("memory"))
}

#[test]
fn writing_to_a_shared_huge_page_fails_and_succeeds_whole() {
    let write = |lab: &Lab, _: &Space, child: Option<&Space>| {
        fault(lab.vm.copy_in(child.expect("a child"), Va(GIB), &[1; 8]))
    };
    // A table and a page for the piece that is written.
    assert_eq!(starve_after(Config::default(), forked, write), 2);
}

#[test]
fn writing_to_a_shared_base_page_fails_and_succeeds_whole() {
    for va in [GIB, GIB + 511 * KIB4] {
        let write = |lab: &Lab, space: &Space, _: Option<&Space>| {
            fault(lab.vm.fault(space, Va(va), Access::Write))
        };
        assert_eq!(starve_after(never(), forked, write), 1);
    }
}

#[test]
fn writing_to_a_shared_giant_page_fails_and_succeeds_whole() {
    let giant = Attrs { leaf: LeafSize::Exactly(Order::GIANT), ..RW };
    let lab = lab(3 << 18, never());
    let space = lab.vm.create().expect("memory");
    lab.map(&space, Va(GIB), GIB, giant);
    let va = Va(GIB + 5 * MIB2 + 7 * KIB4);
    lab.poke(&space, va, 77).expect("memory");
    let child = lab.vm.fork(&space).expect("memory");
    let before = [lab.entries(&space), lab.entries(&child)];
    let mut taken = take_all(&lab);
    // A node this large keeps a reserve from data, so more frames come back than the three that are
    // taken.
    let mut failed = 0;
    while fault(lab.vm.fault(&child, va, Access::Write)).is_err() {
        assert!(
            [lab.entries(&space), lab.entries(&child)] == before,
            "failed with {failed} frames"
        );
        let pfn = taken.swap_remove(taken.len() * 7 / 11);
        give(&lab, [pfn]);
        failed += 1;
    }
    assert!(failed >= 3, "{failed} failures");
    give(&lab, taken);
    lab.check(&[&space, &child]);
    // A table of huge pages and one of base pages.
    assert_eq!(lab.vm.usage(&child).table_nodes, lab.vm.usage(&space).table_nodes + 2);
    assert_eq!(lab.peek(&child, va), Ok(77));
    lab.vm.exit(space);
    lab.vm.exit(child);
    lab.check(&[]);
}

#[test]
fn a_fault_that_must_have_a_huge_page_fails_whole_without_one() {
    let (lab, space) = furnished(Config::default());
    let huge = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    lab.map(&space, Va(6 * GIB), MIB2, huge);
    let before = lab.entries(&space);
    let taken = take_all(&lab);
    let (keep, back): (Vec<Pfn>, Vec<Pfn>) = taken.into_iter().partition(|pfn| pfn.0 % 2 == 0);
    give(&lab, back);
    for access in [Access::Read, Access::Write] {
        assert_eq!(lab.vm.fault(&space, Va(6 * GIB + KIB4), access), Err(FaultError::NoMemory));
        assert_eq!(lab.entries(&space), before);
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
        let (back, keep): (Vec<Pfn>, Vec<Pfn>) = taken
            .into_iter()
            .partition(|pfn| if whole { pfn.0 >> 9 == block } else { pfn.0 % 2 == 0 });
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
        let nodes = lab.vm.usage(&space).table_nodes;
        let mut taken = take_all(&lab);
        give(&lab, taken.drain(..room));
        let done = lab.vm.copy_in(&space, start, &[7; (PAGES * KIB4) as usize]);
        let written: Vec<bool> = (0..PAGES)
            .map(|n| {
                let ends = [0, KIB4 as usize - 8].map(|offset| {
                    match lab.vm.query(&space, Va(start.0 + n * KIB4)) {
                        Page::Mapped { pfn, .. } => {
                            let mut bytes = [0; 8];
                            lab.vm.machine().peek(pfn, offset, &mut bytes);
                            bytes
                        }
                        other => {
                            assert_eq!(other, Page::Reserved { rights: Rights::READ_WRITE });
                            [0; 8]
                        }
                    }
                });
                assert!(ends == [[7; 8]; 2] || ends == [[0; 8]; 2], "half a page was written");
                ends[0] == [7; 8]
            })
            .collect();
        assert!(written.is_sorted_by(|a, b| a >= b), "{written:?}");
        // Two pages lie in the first table of level 1; whatever was not written has no table of its
        // own.
        let pages = written.iter().filter(|&&page| page).count();
        let tables = [0, 2, 2, 3, 3, 3][pages];
        assert_eq!(lab.vm.usage(&space).table_nodes, nodes + tables, "{pages} pages");
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
    each_thp(|lab, space| fault(lab.vm.copy_out(space, Va(2 * GIB + 5 * KIB4), &mut [0; 8])), 0);
}

#[test]
fn a_remap_over_something_fails_and_succeeds_whole() {
    let to = Placement::Replace(Va(GIB - 4 * KIB4));
    let from = Va(2 * GIB + KIB4);
    each_thp(|lab, space| memory(lab.vm.remap(space, from, 4 * KIB4, 4 * KIB4, to)), 2);
    each_thp(|lab, space| memory(lab.vm.remap(space, from, MIB2, MIB2, to)), 2);
}

#[test]
fn a_remap_of_many_regions_fails_and_succeeds_whole() {
    for config in configs() {
        for to in [Placement::At(Va(6 * GIB + KIB4)), Placement::Replace(Va(GIB - 4 * KIB4))] {
            let stripes = |lab: &Lab, space: &Space| {
                for page in 0..12 {
                    lab.poke(space, Va(2 * GIB + page * KIB4), page).expect("memory");
                    let rights =
                        [Rights::READ, Rights::READ_WRITE, Rights::NONE][page as usize % 3];
                    assert_eq!(
                        lab.vm.protect(space, Va(2 * GIB + page * KIB4), KIB4, rights),
                        Ok(())
                    );
                }
                None
            };
            starve_after(config, stripes, |lab, space, _| {
                memory(lab.vm.remap(space, Va(2 * GIB + KIB4), 10 * KIB4, 12 * KIB4, to))
            });
            starve_after(config, stripes, |lab, space, _| {
                memory(lab.vm.remap(space, Va(2 * GIB + KIB4), MIB2, 9 * KIB4, to))
            });
        }
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

#[test]
fn what_is_unmapped_keeps_no_region() {
    for bytes in [KIB4, MIB2] {
        let lab = lab(2048, Config::default());
        let space = lab.vm.create().unwrap();
        let at = |n: u64| Va(GIB + n * bytes);
        // 514 regions, since no neighbours are alike.
        let rights = [Rights::READ, Rights::READ_WRITE];
        (0..514)
            .for_each(|n| lab.map(&space, at(n), bytes, Attrs::anonymous(rights[n as usize % 2])));
        let slabs = || lab.vm.audit(&[&space]).expect("a valid state").slab_frames;
        let many = slabs();
        // In two tables, of which both keep something.
        lab.vm.unmap(&space, at(1), 512 * bytes).expect("mapped");
        let few = slabs();
        assert!(few + 4 < many, "{many} frames for 514 regions, {few} for two of them");
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn what_one_collapse_gives_back_is_there_for_the_next() {
    for pieces in 1..=5 {
        let lab = lab(8192, never());
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), 8 * MIB2, RW);
        let mut held = lab.hog(Order::BASE);
        let mut free_a_block = || {
            let of = |block: u64| held.iter().filter(move |pfn| pfn.0 / 512 == block);
            let whole = |block: &u64| of(*block).count() == 512;
            let block = (1..20).find(whole).expect("a block of which all is held");
            let (free, rest) = held.iter().partition(|pfn| pfn.0 / 512 == block);
            lab.give_back(free, Order::BASE);
            held = rest;
        };
        // Each table and 511 pages in it are all of a block.
        for piece in 0..pieces {
            free_a_block();
            for page in 0..511 {
                lab.poke(&space, Va(GIB + piece * MIB2 + page * KIB4), page).expect("memory");
            }
        }
        // One block for the first.
        free_a_block();
        let done = lab.vm.advise_part(&space, Va(GIB), pieces * MIB2, Advice::Collapse);
        assert_eq!(done, (pieces * MIB2, Ok(())), "{pieces} pieces");
        lab.give_back(held, Order::BASE);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}
