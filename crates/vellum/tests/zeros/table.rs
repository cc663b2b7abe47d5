//! Tables of zeros through real verbs: statements D-1, D-2, D-3, D-9 and D-12 of part D for
//! `zero.huge=table` and `table-private`.

use crate::flat::Flat;
use crate::lab::state::difference;
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::error::{FaultError, SpaceError};
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Advice, Attrs, Fault, HugeAdvice, Page, Placement, Rights, Space};
use vellum::stats::Counter;

const MIB: u64 = 1 << 20;

fn lab_of<C: Codec>(rules: MmuRules, form: ZeroHuge, frames: u64) -> Lab<C> {
    let config = Config { zero_huge: form, ..Config::default() };
    lab_on::<C>(Flat::new(Topology::flat(2, Pfn(512), frames), rules), config)
}

fn shared(frames: u64) -> Lab {
    lab_of(MmuRules::X86_64, ZeroHuge::Table, frames)
}

fn read_all<C: Codec>(lab: &Lab<C>, space: &Space, start: u64, bytes: u64) {
    for at in (0..bytes).step_by(4096) {
        assert_eq!(lab.peek(space, Va(start + at)), Ok(0));
    }
}

#[test]
fn d_01_reading_200_mib_by_private_tables_costs_100_tables_and_no_page() {
    let lab = lab_of::<X86_64>(MmuRules::X86_64, ZeroHuge::TablePrivate, 4096);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 200 * MIB, RW);
    let before = lab.vm.usage(&space);
    read_all(&lab, &space, GIB, 200 * MIB);
    let after = lab.vm.usage(&space);
    assert_eq!((after.rss_pages, after.zero_leaves), (0, 51_200));
    assert_eq!(after.table_nodes - before.table_nodes, 100);
    assert_eq!((lab.count(Counter::FaultsZeroTable), lab.count(Counter::ThpZeroAlloc)), (100, 0));
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_01_reading_200_mib_by_the_shared_table_costs_nothing_of_the_space() {
    let lab = shared(4096);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 200 * MIB, RW);
    let before = lab.vm.usage(&space);
    read_all(&lab, &space, GIB, 200 * MIB);
    let after = lab.vm.usage(&space);
    assert_eq!((after.rss_pages, after.zero_leaves, after.zero_tables), (0, 0, 100));
    assert_eq!(after.table_nodes, before.table_nodes);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

fn d_12<C: Codec>(rules: MmuRules) {
    let lab = lab_of::<C>(rules, ZeroHuge::Table, 8192);
    let space = lab.vm.create().unwrap();
    // GiB-aligned: what the space had before the reads is all it has after them.
    lab.map(&space, Va(16 * GIB), 8 * GIB, RW);
    let before = lab.vm.usage(&space).table_nodes;
    for at in (0..8 * GIB).step_by(64 << 10) {
        assert_eq!(lab.peek(&space, Va(16 * GIB + at)), Ok(0));
    }
    let usage = lab.vm.usage(&space);
    assert!(usage.table_nodes - before <= 2, "at most 8 KiB");
    assert_eq!((usage.table_nodes - before, usage.zero_tables, usage.rss_pages), (0, 8, 0));
    assert_eq!(lab.count(Counter::Faults), 8);
    // A huge page: one table of 1 GiB's entries.
    lab.poke(&space, Va(17 * GIB + 5 * MIB2 + 4096), 1).unwrap();
    assert_eq!(lab.vm.usage(&space).table_nodes - before, 1);
    assert_eq!(lab.count(Counter::ZeroTableUnshare), 1);
    assert_eq!((lab.vm.usage(&space).rss_pages, lab.vm.usage(&space).zero_tables), (512, 7 + 511));
    // Another in the same GiB: none.
    lab.poke(&space, Va(17 * GIB + 7 * MIB2), 2).unwrap();
    assert_eq!(lab.count(Counter::ZeroTableUnshare), 1);
    lab.check(&[&space]);
    // Without huge pages: two tables in a fresh GiB, one where the middle table is the space's own
    // already.
    let hogged = lab.hog(Order::HUGE);
    lab.poke(&space, Va(20 * GIB + 3 * MIB2 + 8192), 3).unwrap();
    assert_eq!(lab.count(Counter::ZeroTableUnshare), 3);
    lab.poke(&space, Va(20 * GIB + 9 * MIB2 + 8192), 4).unwrap();
    assert_eq!(lab.count(Counter::ZeroTableUnshare), 4);
    assert_eq!(lab.vm.usage(&space).rss_pages, 1024 + 2);
    for (at, value) in [
        (17 * GIB + 5 * MIB2 + 4096, 1),
        (17 * GIB + 7 * MIB2, 2),
        (20 * GIB + 3 * MIB2 + 8192, 3),
        (20 * GIB + 9 * MIB2 + 8192, 4),
        (20 * GIB + 9 * MIB2 + 4096, 0),
        (17 * GIB + 5 * MIB2, 0),
        (17 * GIB + 6 * MIB2, 0),
    ] {
        assert_eq!(lab.peek(&space, Va(at)), Ok(value), "{at:#x}");
    }
    lab.give_back(hogged, Order::HUGE);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
    assert_eq!(lab.count(Counter::TablePages), 0);
}

#[test]
fn d_12_8_gib_read_cost_no_table_and_a_write_unshares_one_for_each_shared_level() {
    d_12::<X86_64>(MmuRules::X86_64);
    d_12::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn d_12_a_region_that_is_not_aligned_costs_one_middle_and_one_leaf_table_for_each_ragged_end() {
    let lab = shared(8192);
    let space = lab.vm.create().unwrap();
    let (start, end) = (16 * GIB + 3 * MIB2 + 5 * KIB4, 24 * GIB + 9 * MIB2 + 7 * KIB4);
    lab.map(&space, Va(start), end - start, RW);
    for va in (start..end).step_by(4096) {
        if va % (64 << 10) == 0 || va < start + 2 * MIB2 || va > end - 2 * MIB2 {
            assert_eq!(lab.peek(&space, Va(va)), Ok(0));
        }
    }
    // Root, one of 512 GiB, and at each end a middle and a leaf table.
    assert_eq!(lab.vm.usage(&space).table_nodes, 2 + 2 + 2);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

fn d_02<C: Codec>(rules: MmuRules, form: ZeroHuge, reached: u64) {
    let lab = lab_of::<C>(rules, form, 8192);
    let (space, other) = (lab.vm.create().unwrap(), lab.vm.create().unwrap());
    for s in [&space, &other] {
        lab.map(s, Va(GIB), reached, RW);
        assert!(matches!(lab.vm.fault(s, Va(GIB + 5), Access::Read), Ok(Fault::ZeroTable(_))));
    }
    let child = lab.vm.fork(&space).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(GIB + 12345), Access::Write), Ok(Fault::Huge));
    lab.poke(&space, Va(GIB + 0x3038), 7).unwrap();
    assert_eq!(lab.vm.usage(&space).rss_pages, 512);
    for at in (0..MIB2).step_by(8) {
        assert_eq!(lab.peek(&space, Va(GIB + at)), Ok(if at == 0x3038 { 7 } else { 0 }));
    }
    assert_eq!((lab.peek(&other, Va(GIB + 0x3038)), lab.vm.usage(&other).rss_pages), (Ok(0), 0));
    assert_eq!((lab.peek(&child, Va(GIB + 0x3038)), lab.vm.usage(&child).rss_pages), (Ok(0), 0));
    lab.check(&[&space, &other, &child]);
    assert_eq!(lab.vm.fault(&child, Va(GIB), Access::Write), Ok(Fault::Huge));
    lab.check(&[&space, &other, &child]);
    [space, other, child].into_iter().for_each(|s| lab.vm.exit(s));
    lab.check(&[]);
    assert_eq!(lab.count(Counter::TablePages), 0);
}

#[test]
fn d_02_one_write_makes_a_huge_page_and_others_go_on_seeing_zeros() {
    for reached in [MIB2, GIB] {
        d_02::<X86_64>(MmuRules::X86_64, ZeroHuge::Table, reached);
        d_02::<Aarch64>(MmuRules::AARCH64, ZeroHuge::Table, reached);
    }
    d_02::<X86_64>(MmuRules::X86_64, ZeroHuge::TablePrivate, MIB2);
    d_02::<Aarch64>(MmuRules::AARCH64, ZeroHuge::TablePrivate, MIB2);
}

#[test]
fn d_03_without_a_huge_page_a_private_table_keeps_511_zeros_with_one_flush() {
    for form in [ZeroHuge::TablePrivate, ZeroHuge::Table] {
        let lab = lab_of::<X86_64>(MmuRules::X86_64, form, 4096);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), MIB2, RW);
        assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
        lab.vm.activate(&space);
        let hogged = lab.hog(Order::HUGE);
        let flushes = || lab.count(Counter::FlushLocalOne) + lab.count(Counter::FlushLocalAll);
        let before = (flushes(), lab.count(Counter::FlushLocalOne));
        assert_eq!(
            lab.vm.fault(&space, Va(GIB + 77 * KIB4), Access::Write),
            Ok(Fault::Copied(Level::ONE))
        );
        assert_eq!(
            (flushes() - before.0, lab.count(Counter::FlushLocalOne) - before.1),
            (1, 1),
            "one page"
        );
        lab.poke(&space, Va(GIB + 77 * KIB4), 9).unwrap();
        let usage = lab.vm.usage(&space);
        assert_eq!((usage.rss_pages, usage.zero_leaves), (1, 511));
        assert_eq!(lab.count(Counter::ThpFaultFallback), 1);
        for page in 0..512 {
            assert_eq!(lab.peek(&space, Va(GIB + page * KIB4)), Ok(if page == 77 { 9 } else { 0 }));
        }
        lab.vm.idle();
        lab.give_back(hogged, Order::HUGE);
        // A table with a page in it stays one: its next write makes a base page.
        assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

fn starves<C: Codec>(rules: MmuRules) {
    for (form, reached, needs) in
        [(ZeroHuge::Table, GIB, 3), (ZeroHuge::Table, MIB2, 2), (ZeroHuge::TablePrivate, MIB2, 1)]
    {
        for left in 0..=needs {
            let lab = lab_of::<C>(rules, form, 4096);
            let space = lab.vm.create().unwrap();
            lab.map(&space, Va(GIB), reached, RW);
            assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
            let mut hogged = lab.hog(Order::BASE);
            lab.give_back(hogged.split_off(hogged.len() - left), Order::BASE);
            let before = lab.state(&[&space]);
            let got = lab.vm.fault(&space, Va(GIB + 5000), Access::Write);
            if left == needs {
                assert_eq!(got, Ok(Fault::Copied(Level::ONE)), "{form:?} {reached:#x} {left}");
            } else {
                assert_eq!(got, Err(FaultError::NoMemory), "{form:?} {reached:#x} {left}");
                let after = lab.state(&[&space]);
                assert!(
                    after == before,
                    "{form:?} {reached:#x} {left}: {}",
                    difference(&before, &after)
                );
            }
            lab.give_back(hogged, Order::BASE);
            lab.check(&[&space]);
            lab.vm.exit(space);
            lab.check(&[]);
        }
    }
}

#[test]
fn d_03_each_allocation_of_a_write_fails_in_turn_and_nothing_changes() {
    starves::<X86_64>(MmuRules::X86_64);
    starves::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn d_03_a_huge_page_without_room_for_its_table_becomes_base_pages() {
    let lab = shared(2048);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), GIB, RW);
    assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
    // One huge block is left, and not one frame beside it.
    let huge = lab.hog(Order::HUGE);
    let small = lab.hog(Order::BASE);
    let (kept, given) = huge.split_at(huge.len() - 1);
    lab.give_back(given.to_vec(), Order::HUGE);
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(lab.vm.usage(&space).rss_pages, 1);
    lab.give_back(kept.to_vec(), Order::HUGE);
    lab.give_back(small, Order::BASE);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_03_without_memory_for_the_shared_tables_a_read_maps_base_zeros() {
    let lab = shared(2048);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, RW);
    let mut hogged = lab.hog(Order::BASE);
    // One frame: for the node below, not for the shared table as well... which comes first and
    // takes it.
    lab.give_back(hogged.split_off(hogged.len() - 1), Order::BASE);
    assert!(matches!(
        lab.vm.fault(&space, Va(GIB), Access::Read),
        Ok(Fault::ZeroTable(Level::TWO))
    ));
    let other = lab.vm.create();
    assert!(other.is_err());
    lab.give_back(hogged, Order::BASE);
    lab.vm.exit(space);
    lab.check(&[]);

    let lab = shared(2048);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), GIB, RW);
    let mut hogged = lab.hog(Order::BASE);
    assert_eq!(
        lab.vm.fault(&space, Va(GIB), Access::Read),
        Err(FaultError::NoMemory),
        "not even a node"
    );
    lab.give_back(hogged.split_off(hogged.len() - 1), Order::BASE);
    // The leaf table was made; the middle one finds nothing, and neither do nodes.
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Read), Err(FaultError::NoMemory));
    assert!(lab.count(Counter::ThpZeroAllocFailed) >= 1);
    lab.give_back(hogged, Order::BASE);
    assert!(matches!(
        lab.vm.fault(&space, Va(GIB), Access::Read),
        Ok(Fault::ZeroTable(Level::THREE))
    ));
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_09_a_cut_into_a_shared_table_makes_private_ones_that_say_the_same() {
    fn cut<C: Codec>(rules: MmuRules) {
        let lab = lab_of::<C>(rules, ZeroHuge::Table, 8192);
        let space = lab.vm.create().unwrap();
        let before = lab.vm.usage(&space);
        lab.map(&space, Va(GIB), GIB, RW);
        read_all(&lab, &space, GIB, MIB2);
        lab.vm.unmap(&space, Va(GIB + 100 * MIB2 + 3 * KIB4), KIB4).unwrap();
        let usage = lab.vm.usage(&space);
        assert_eq!((usage.zero_tables, usage.zero_leaves, usage.rss_pages), (511, 511, 0));
        assert_eq!(lab.vm.query(&space, Va(GIB + 100 * MIB2 + 3 * KIB4)), Page::Unmapped);
        assert_eq!(lab.peek(&space, Va(GIB + 100 * MIB2 + 4 * KIB4)), Ok(0));
        lab.check(&[&space]);
        // DontNeed of whole 2 MiB leaves promises; the next read maps the table again.
        lab.vm.advise(&space, Va(GIB + 4 * MIB2), 2 * MIB2, Advice::DontNeed).unwrap();
        assert!(matches!(lab.vm.query(&space, Va(GIB + 4 * MIB2)), Page::Reserved { .. }));
        assert!(matches!(
            lab.vm.fault(&space, Va(GIB + 4 * MIB2), Access::Read),
            Ok(Fault::ZeroTable(Level::TWO))
        ));
        lab.check(&[&space]);
        lab.vm.unmap(&space, Va(GIB), GIB).unwrap();
        assert_eq!(lab.vm.usage(&space), before);
        lab.vm.exit(space);
        lab.check(&[]);
    }
    cut::<X86_64>(MmuRules::X86_64);
    cut::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn d_09_a_cut_that_finds_no_memory_changes_nothing() {
    for left in 0..3 {
        let lab = shared(4096);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), GIB, RW);
        read_all(&lab, &space, GIB, KIB4);
        let mut hogged = lab.hog(Order::BASE);
        lab.give_back(hogged.split_off(hogged.len() - left), Order::BASE);
        let got = lab.vm.unmap(&space, Va(GIB + KIB4), KIB4);
        assert_eq!(got, if left < 2 { Err(SpaceError::NoMemory) } else { Ok(()) });
        lab.give_back(hogged, Order::BASE);
        assert_eq!(lab.vm.usage(&space).mapped_pages, (1 << 18) - u64::from(got.is_ok()));
        read_all(&lab, &space, GIB + 2 * KIB4, MIB2);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn d_09_protect_never_gives_more_than_to_read_and_execution_takes_tables_of_its_own() {
    let lab = shared(8192);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), GIB, Attrs::anonymous(Rights::READ));
    read_all(&lab, &space, GIB, KIB4);
    lab.vm.protect(&space, Va(GIB), GIB, Rights::READ_WRITE).unwrap();
    assert_eq!(lab.vm.usage(&space).zero_tables, 1);
    assert!(matches!(
        lab.vm.query(&space, Va(GIB)),
        Page::Mapped { zero: true, flags, .. } if !flags.write
    ));
    lab.vm.protect(&space, Va(GIB), GIB, Rights::READ_EXEC).unwrap();
    assert_eq!(lab.vm.usage(&space).zero_tables, 0);
    assert!(matches!(
        lab.vm.fault(&space, Va(GIB), Access::Exec),
        Ok(Fault::ZeroTable(Level::TWO))
    ));
    assert_eq!((lab.vm.usage(&space).zero_tables, lab.vm.usage(&space).zero_leaves), (0, 512));
    lab.check(&[&space]);
    lab.vm.protect(&space, Va(GIB), GIB, Rights::NONE).unwrap();
    assert_eq!(lab.vm.usage(&space).zero_leaves, 0);
    lab.vm.protect(&space, Va(GIB), GIB, Rights::READ_WRITE).unwrap();
    lab.poke(&space, Va(GIB + 8), 1).unwrap();
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_09_a_remap_moves_the_mapping_and_the_zeros_with_it() {
    for to in [4 * GIB, 4 * GIB + 5 * KIB4] {
        let lab = shared(8192);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), GIB + MIB2, RW);
        read_all(&lab, &space, GIB, MIB2);
        lab.poke(&space, Va(GIB + 6 * MIB2), 4).unwrap();
        lab.vm.remap(&space, Va(GIB), GIB + MIB2, GIB + MIB2, Placement::At(Va(to))).unwrap();
        assert_eq!(lab.vm.query(&space, Va(GIB)), Page::Unmapped);
        assert_eq!((lab.peek(&space, Va(to)), lab.peek(&space, Va(to + 6 * MIB2))), (Ok(0), Ok(4)));
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn d_10_a_forced_write_never_touches_the_zeros() {
    for form in [ZeroHuge::Table, ZeroHuge::TablePrivate] {
        let lab = lab_of::<X86_64>(MmuRules::X86_64, form, 8192);
        let (space, other) = (lab.vm.create().unwrap(), lab.vm.create().unwrap());
        for s in [&space, &other] {
            lab.map(s, Va(GIB), GIB, Attrs::anonymous(Rights::READ));
            assert!(matches!(lab.vm.fault(s, Va(GIB), Access::Read), Ok(Fault::ZeroTable(_))));
        }
        lab.vm.write_forced(&space, Va(GIB + 4090), b"breakpoint").unwrap();
        let mut bytes = [0; 10];
        lab.vm.copy_out(&space, Va(GIB + 4090), &mut bytes).unwrap();
        assert_eq!((&bytes, lab.peek(&other, Va(GIB + 4096))), (b"breakpoint", Ok(0)));
        assert_eq!(lab.vm.fault(&space, Va(GIB + 4090), Access::Write), Err(FaultError::Rights));
        lab.check(&[&space, &other]);
        lab.vm.exit(space);
        lab.vm.exit(other);
        lab.check(&[]);
    }
}

#[test]
fn tables_of_zeros_are_for_regions_where_a_huge_page_would_be_used() {
    let lab = shared(8192);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), GIB, Attrs { thp: Some(HugeAdvice::NoHuge), ..RW });
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::Zero));
    lab.map(&space, Va(2 * GIB), GIB, RW);
    lab.vm.advise(&space, Va(2 * GIB), 4 * MIB2, Advice::Populate { write: false }).unwrap();
    assert_eq!((lab.vm.usage(&space).zero_tables, lab.count(Counter::FaultsZeroTable)), (1, 1));
    // Once huge pages are not wanted any more, what is written becomes base pages.
    lab.vm.advise(&space, Va(2 * GIB), GIB, Advice::NoHuge).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(2 * GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(lab.kernel_peek(&space, Va(2 * GIB + 5 * MIB2)), Ok(0));
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}
