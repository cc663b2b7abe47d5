//! Faults, and accesses of the kernel, without memory.

use crate::starve::*;
use vellum_testkit::prelude::*;

/// In 1 GiB that one entry reserves.
const RESERVED: Va = Va(2 * GIB + 5 * KIB4);
/// In the last of the small mappings, which has a page before it.
const SMALL: Va = Va(GIB - KIB4);

#[test]
fn faults_fail_and_succeed_whole() {
    for (va, access, needs) in [
        (RESERVED, Access::Write, 3),
        (RESERVED, Access::Read, 1),
        (SMALL, Access::Exec, 0),
        (SMALL, Access::Write, 1),
    ] {
        starve_each(needs, |fx, space| fx.vm.fault(space, va, access));
    }
}

#[test]
fn faults_far_from_every_table_fail_and_succeed_whole() {
    let far = Va(1 << 39);
    for attrs in [RW, Attrs::anonymous(Rights::ALL)] {
        for access in [Access::Read, Access::Write] {
            for config in configs() {
                let map = |fx: &Fixture, space: &Space| {
                    fx.map(space, far, 1 << 39, attrs);
                    None
                };
                // From the entry of 512 GiB that is all there is down to a page.
                let va = Va(far.0 + 3 * GIB + 7 * KIB4);
                let took = starve_after(config, map, |fx, all| fx.vm.fault(&all[0], va, access));
                assert!(took >= 1, "{took}");
            }
        }
    }
}

#[test]
fn a_forced_write_fails_and_succeeds_whole() {
    let va = Va((1 << 39) + KIB4);
    for config in configs() {
        for read_first in [false, true] {
            let first = |fx: &Fixture, space: &Space| {
                fx.map(space, Va(1 << 39), GIB, Attrs::anonymous(Rights::READ));
                if read_first {
                    fx.peek(space, va).expect("memory");
                }
                None
            };
            starve_after(config, first, |fx, all| fx.vm.write_forced(&all[0], va, &[7; 8]));
        }
    }
}

#[test]
fn a_write_after_a_read_fails_and_succeeds_whole() {
    let (va, to) = (RESERVED, Placement::At(Va(6 * GIB)));
    for config in configs() {
        let read = |fx: &Fixture, space: &Space| {
            fx.peek(space, va).expect("memory");
            None
        };
        starve_after(config, read, |fx, all| fx.vm.fault(&all[0], va, Access::Write));
        starve_after(config, read, |fx, all| fx.vm.unmap(&all[0], va, KIB4));
        starve_after(config, read, |fx, all| fx.vm.protect(&all[0], va, KIB4, Rights::READ));
        starve_after(config, read, |fx, all| fx.vm.fork(&all[0]).map(|child| fx.vm.exit(child)));
        starve_after(config, read, |fx, all| {
            fx.vm.remap(&all[0], Va(2 * GIB + KIB4), 2 * MIB2, 2 * MIB2, to)
        });
    }
}

fn forked(fx: &Fixture, space: &Space) -> Option<Space> {
    Some(fx.vm.fork(space).expect("memory"))
}

#[test]
fn a_fork_in_vain_leaves_the_other_members_of_the_family_as_they_were() {
    let fork = |fx: &Fixture, all: &[Space]| fx.vm.fork(&all[0]).map(|child| fx.vm.exit(child));
    let grandchild = |fx: &Fixture, all: &[Space]| fx.vm.fork(&all[1]).map(|it| fx.vm.exit(it));
    assert_eq!(starve_after(no_thp(), forked, fork), starve_after(no_thp(), forked, grandchild));
}

#[test]
fn writing_to_a_shared_huge_page_fails_and_succeeds_whole() {
    // A table and a page for the sub-page that is written.
    let write = |fx: &Fixture, all: &[Space]| fx.vm.copy_in(&all[1], Va(GIB), &[1; 8]);
    assert_eq!(starve_after(Config::default(), forked, write), 2);
}

#[test]
fn writing_to_a_shared_base_page_fails_and_succeeds_whole() {
    for va in [GIB, GIB + 511 * KIB4].map(Va) {
        let write = |fx: &Fixture, all: &[Space]| fx.vm.fault(&all[0], va, Access::Write);
        assert_eq!(starve_after(no_thp(), forked, write), 1);
    }
}

#[test]
fn writing_to_a_shared_giant_page_fails_and_succeeds_whole() {
    let fx = fixture(3 << 18, no_thp());
    let space = fx.mapped(Va(GIB), GIB, EXACTLY_GIANT);
    let va = Va(GIB + 5 * MIB2 + 7 * KIB4);
    fx.poke(&space, va, 77).expect("memory");
    let child = fx.vm.fork(&space).expect("memory");
    let before = [fx.entries(&space), fx.entries(&child)];
    let mut taken = fx.take_all(Order::BASE);
    // A node this large keeps a reserve from data, so more frames come back than the three that are
    // taken.
    let mut failed = 0;
    while !fx.vm.fault(&child, va, Access::Write).succeeds() {
        assert!([fx.entries(&space), fx.entries(&child)] == before, "failed with {failed} frames");
        let pfn = taken.swap_remove(taken.len() * 7 / 11);
        fx.give_back([pfn], Order::BASE);
        failed += 1;
    }
    assert!(failed >= 3, "{failed} failures");
    fx.give_back(taken, Order::BASE);
    fx.check(&[&space, &child]);
    // A table of huge pages and one of base pages.
    assert_eq!(fx.usage(&child).table_nodes, fx.usage(&space).table_nodes + 2);
    assert_eq!(fx.peek(&child, va), Ok(77));
    fx.end([space, child]);
}

#[test]
fn a_fault_that_must_have_a_huge_page_fails_whole_without_one() {
    let (fx, space) = furnished(Config::default());
    fx.map(&space, Va(6 * GIB), MIB2, EXACTLY_HUGE);
    let before = fx.entries(&space);
    let taken = fx.take_all(Order::BASE);
    let (keep, back): (Vec<Pfn>, Vec<Pfn>) = taken.into_iter().partition(|pfn| pfn.0 % 2 == 0);
    fx.give_back(back, Order::BASE);
    for access in [Access::Read, Access::Write] {
        assert_eq!(fx.vm.fault(&space, Va(6 * GIB + KIB4), access), Err(FaultError::NoMemory));
        assert_eq!(fx.entries(&space), before);
    }
    fx.give_back(keep, Order::BASE);
    assert_eq!(fx.vm.fault(&space, Va(6 * GIB + KIB4), Access::Write), Ok(Fault::Huge));
    fx.end([space]);
}

#[test]
fn a_copy_that_runs_out_has_done_whole_pages_and_no_more() {
    const PAGES: u64 = 5;
    let start = Va(2 * GIB + 510 * KIB4);
    for room in 0..64 {
        let (fx, space) = furnished(no_thp());
        let nodes = fx.usage(&space).table_nodes;
        let mut taken = fx.take_all(Order::BASE);
        fx.give_back(taken.drain(..room), Order::BASE);
        let done = fx.vm.copy_in(&space, start, &[7; (PAGES * KIB4) as usize]);
        let written = [0, 1, 2, 3, 4].map(|n| {
            let va = Va(start.0 + n * KIB4);
            let mut ends = [[0; 8]; 2];
            if let Some(pfn) = fx.frame_at(&space, va) {
                fx.m().peek(pfn, 0, &mut ends[0]);
                fx.m().peek(pfn, KIB4 as usize - 8, &mut ends[1]);
            } else {
                let rights = Rights::READ_WRITE;
                assert_eq!(fx.vm.query(&space, va), Page::Reserved { rights });
            }
            assert!(ends == [[7; 8]; 2] || ends == [[0; 8]; 2], "half a page was written");
            ends[0] == [7; 8]
        });
        assert!(written.is_sorted_by(|a, b| a >= b), "{written:?}");
        // Two pages lie in the first table of level 1; pages that were not written have no table.
        let pages = written.iter().filter(|&&page| page).count();
        let tables = [0, 2, 2, 3, 3, 3][pages];
        assert_eq!(fx.usage(&space).table_nodes, nodes + tables, "{pages} pages");
        fx.give_back(taken, Order::BASE);
        fx.end([space]);
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
    starve_each(0, |fx, space| fx.vm.copy_out(space, RESERVED, &mut [0; 8]));
}
