//! Tables of zeros: statements D-1, D-2, D-9, D-10 and D-12 for `zero.huge=table` and
//! `table-private`.

use vellum_testkit::prelude::*;

fn shared(frames: u64) -> Fixture {
    fixture_of::<X86_64>(2, frames, with_zeros(ZeroHuge::Table))
}

/// 200 MiB are read; the space has so many shared and private tables for that, and no page.
fn d_01(form: ZeroHuge, shared: u64, private: u64) {
    let fx = fixture(4096, with_zeros(form));
    let space = fx.mapped(Va(GIB), 200 * MIB, RW);
    let before = fx.usage(&space);
    fx.reads_zeros(&space, GIB, 200 * MIB);
    let after = fx.usage(&space);
    assert_eq!((after.rss_pages, after.zero_leaves), (0, 512 * private));
    assert_eq!((after.zero_tables, after.table_nodes - before.table_nodes), (shared, private));
    assert_eq!((fx.count(Counter::FaultsZeroTable), fx.count(Counter::ThpZeroAlloc)), (100, 0));
    fx.end([space]);
}

#[test]
fn d_01_reading_200_mib_by_private_tables_costs_100_tables_and_no_page() {
    d_01(ZeroHuge::TablePrivate, 0, 100);
}

#[test]
fn d_01_reading_200_mib_by_the_shared_table_costs_nothing_of_the_space() {
    d_01(ZeroHuge::Table, 100, 0);
}

fn d_12<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, with_zeros(ZeroHuge::Table));
    let space = fx.vm.create().unwrap();
    // GiB-aligned: what the space had before the reads is all it has after them.
    fx.map(&space, Va(16 * GIB), 8 * GIB, RW);
    let before = fx.usage(&space).table_nodes;
    for at in (0..8 * GIB).step_by(64 << 10) {
        assert_eq!(fx.peek(&space, Va(16 * GIB + at)), Ok(0));
    }
    let usage = fx.usage(&space);
    assert!(usage.table_nodes - before <= 2, "at most 8 KiB");
    assert_eq!((usage.table_nodes - before, usage.zero_tables, usage.rss_pages), (0, 8, 0));
    assert_eq!(fx.count(Counter::Faults), 8);
    // A huge page: one table of 1 GiB's entries.
    let unshared = || fx.count(Counter::ZeroTableUnshare);
    fx.poke(&space, Va(17 * GIB + 5 * MIB2 + 4096), 1).unwrap();
    assert_eq!((fx.usage(&space).table_nodes - before, unshared()), (1, 1));
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_tables), (512, 7 + 511));
    // Another in the same GiB: none.
    fx.poke(&space, Va(17 * GIB + 7 * MIB2), 2).unwrap();
    assert_eq!(unshared(), 1);
    fx.check(&[&space]);
    // Without huge pages: two tables in a fresh GiB, one where the middle table is the space's own
    // already.
    let taken = fx.take_all(Order::HUGE);
    fx.poke(&space, Va(20 * GIB + 3 * MIB2 + 8192), 3).unwrap();
    assert_eq!(unshared(), 3);
    fx.poke(&space, Va(20 * GIB + 9 * MIB2 + 8192), 4).unwrap();
    assert_eq!(unshared(), 4);
    assert_eq!(fx.usage(&space).rss_pages, 1024 + 2);
    for (at, value) in [
        (17 * GIB + 5 * MIB2 + 4096, 1),
        (17 * GIB + 7 * MIB2, 2),
        (20 * GIB + 3 * MIB2 + 8192, 3),
        (20 * GIB + 9 * MIB2 + 8192, 4),
        (20 * GIB + 9 * MIB2 + 4096, 0),
        (17 * GIB + 5 * MIB2, 0),
        (17 * GIB + 6 * MIB2, 0),
    ] {
        assert_eq!(fx.peek(&space, Va(at)), Ok(value), "{at:#x}");
    }
    fx.give_back(taken, Order::HUGE);
    fx.end([space]);
    assert_eq!(fx.count(Counter::TablePages), 0);
}

on_both!(d_12, d_12_8_gib_read_cost_no_table_and_a_write_unshares_one_for_each_shared_level);

#[test]
fn d_12_a_region_that_is_not_aligned_costs_one_middle_and_one_leaf_table_for_each_ragged_end() {
    let fx = shared(8192);
    let space = fx.vm.create().unwrap();
    let (start, end) = (16 * GIB + 3 * MIB2 + 5 * KIB4, 24 * GIB + 9 * MIB2 + 7 * KIB4);
    fx.map(&space, Va(start), end - start, RW);
    for va in (start..end).step_by(4096) {
        if va % (64 << 10) == 0 || va < start + 2 * MIB2 || va > end - 2 * MIB2 {
            assert_eq!(fx.peek(&space, Va(va)), Ok(0));
        }
    }
    // Root, one of 512 GiB, and at each end a middle and a leaf table.
    assert_eq!(fx.usage(&space).table_nodes, 2 + 2 + 2);
    fx.end([space]);
}

fn d_02<C: Arch>(form: ZeroHuge, reached: u64) {
    let fx = fixture_of::<C>(2, 8192, with_zeros(form));
    let (space, other) = (fx.vm.create().unwrap(), fx.vm.create().unwrap());
    for s in [&space, &other] {
        fx.map(s, Va(GIB), reached, RW);
        assert!(matches!(fx.vm.fault(s, Va(GIB + 5), Access::Read), Ok(Fault::ZeroTable(_))));
    }
    let child = fx.vm.fork(&space).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(GIB + 12345), Access::Write), Ok(Fault::Huge));
    fx.poke(&space, Va(GIB + 0x3038), 7).unwrap();
    assert_eq!(fx.usage(&space).rss_pages, 512);
    for at in (0..MIB2).step_by(8) {
        assert_eq!(fx.peek(&space, Va(GIB + at)), Ok(if at == 0x3038 { 7 } else { 0 }));
    }
    for s in [&other, &child] {
        assert_eq!((fx.peek(s, Va(GIB + 0x3038)), fx.usage(s).rss_pages), (Ok(0), 0));
    }
    fx.check(&[&space, &other, &child]);
    assert_eq!(fx.vm.fault(&child, Va(GIB), Access::Write), Ok(Fault::Huge));
    fx.end([space, other, child]);
    assert_eq!(fx.count(Counter::TablePages), 0);
}

#[test]
fn d_02_one_write_makes_a_huge_page_and_others_go_on_seeing_zeros() {
    for (form, reached) in
        [(ZeroHuge::Table, MIB2), (ZeroHuge::Table, GIB), (ZeroHuge::TablePrivate, MIB2)]
    {
        println!("{form:?}, {reached:#x} bytes");
        d_02::<X86_64>(form, reached);
        d_02::<Aarch64>(form, reached);
    }
}

fn splits<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, with_zeros(ZeroHuge::Table));
    let space = fx.vm.create().unwrap();
    let before = fx.usage(&space);
    fx.map(&space, Va(GIB), GIB, RW);
    fx.reads_zeros(&space, GIB, MIB2);
    fx.vm.unmap(&space, Va(GIB + 100 * MIB2 + 3 * KIB4), KIB4).unwrap();
    let usage = fx.usage(&space);
    assert_eq!((usage.zero_tables, usage.zero_leaves, usage.rss_pages), (511, 511, 0));
    assert_eq!(fx.vm.query(&space, Va(GIB + 100 * MIB2 + 3 * KIB4)), Page::Unmapped);
    assert_eq!(fx.peek(&space, Va(GIB + 100 * MIB2 + 4 * KIB4)), Ok(0));
    fx.check(&[&space]);
    // DontNeed of whole 2 MiB leaves reserved entries; the next read maps the table again.
    fx.vm.advise(&space, Va(GIB + 4 * MIB2), 2 * MIB2, Advice::DontNeed).unwrap();
    let va = Va(GIB + 4 * MIB2);
    assert!(matches!(fx.vm.query(&space, va), Page::Reserved { .. }));
    assert_eq!(fx.vm.fault(&space, va, Access::Read), Ok(Fault::ZeroTable(Level::TWO)));
    fx.check(&[&space]);
    fx.vm.unmap(&space, Va(GIB), GIB).unwrap();
    assert_eq!(fx.usage(&space), before);
    fx.end([space]);
}

on_both!(splits, d_09_a_split_of_a_shared_table_makes_equal_private_ones);

#[test]
fn d_09_a_split_that_finds_no_memory_changes_nothing() {
    for left in 0..3 {
        let fx = shared(4096);
        let space = fx.mapped(Va(GIB), GIB, RW);
        fx.reads_zeros(&space, GIB, KIB4);
        let taken = fx.take_all_but(left, Order::BASE);
        let got = fx.vm.unmap(&space, Va(GIB + KIB4), KIB4);
        assert_eq!(got, if left < 2 { Err(SpaceError::NoMemory) } else { Ok(()) });
        fx.give_back(taken, Order::BASE);
        assert_eq!(fx.usage(&space).mapped_pages, (1 << 18) - u64::from(got.is_ok()));
        fx.reads_zeros(&space, GIB + 2 * KIB4, MIB2);
        fx.end([space]);
    }
}

#[test]
fn d_09_protect_never_gives_more_than_to_read_and_execution_takes_tables_of_its_own() {
    let fx = shared(8192);
    let space = fx.mapped(Va(GIB), GIB, Attrs::anonymous(Rights::READ));
    fx.reads_zeros(&space, GIB, KIB4);
    fx.vm.protect(&space, Va(GIB), GIB, Rights::READ_WRITE).unwrap();
    assert_eq!(fx.usage(&space).zero_tables, 1);
    let Leaf { flags, zero, .. } = fx.leaf(&space, Va(GIB));
    assert!(zero && !flags.write);
    fx.vm.protect(&space, Va(GIB), GIB, Rights::READ_EXEC).unwrap();
    assert_eq!(fx.usage(&space).zero_tables, 0);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Exec), Ok(Fault::ZeroTable(Level::TWO)));
    assert_eq!((fx.usage(&space).zero_tables, fx.usage(&space).zero_leaves), (0, 512));
    fx.check(&[&space]);
    fx.vm.protect(&space, Va(GIB), GIB, Rights::NONE).unwrap();
    assert_eq!(fx.usage(&space).zero_leaves, 0);
    fx.vm.protect(&space, Va(GIB), GIB, Rights::READ_WRITE).unwrap();
    fx.poke(&space, Va(GIB + 8), 1).unwrap();
    fx.end([space]);
}

#[test]
fn d_09_a_remap_moves_the_mapping_and_the_zeros_with_it() {
    for to in [4 * GIB, 4 * GIB + 5 * KIB4] {
        let fx = shared(8192);
        let space = fx.mapped(Va(GIB), GIB + MIB2, RW);
        fx.reads_zeros(&space, GIB, MIB2);
        fx.poke(&space, Va(GIB + 6 * MIB2), 4).unwrap();
        fx.vm.remap(&space, Va(GIB), GIB + MIB2, GIB + MIB2, Placement::At(Va(to))).unwrap();
        assert_eq!(fx.vm.query(&space, Va(GIB)), Page::Unmapped);
        assert_eq!((fx.peek(&space, Va(to)), fx.peek(&space, Va(to + 6 * MIB2))), (Ok(0), Ok(4)));
        fx.end([space]);
    }
}

#[test]
fn d_10_a_forced_write_never_touches_the_zeros() {
    for form in [ZeroHuge::Table, ZeroHuge::TablePrivate] {
        let fx = fixture_of::<X86_64>(2, 8192, with_zeros(form));
        let (space, other) = (fx.vm.create().unwrap(), fx.vm.create().unwrap());
        for s in [&space, &other] {
            fx.map(s, Va(GIB), GIB, Attrs::anonymous(Rights::READ));
            assert!(matches!(fx.vm.fault(s, Va(GIB), Access::Read), Ok(Fault::ZeroTable(_))));
        }
        fx.vm.write_forced(&space, Va(GIB + 4090), b"breakpoint").unwrap();
        let mut bytes = [0; 10];
        fx.vm.copy_out(&space, Va(GIB + 4090), &mut bytes).unwrap();
        assert_eq!((&bytes, fx.peek(&other, Va(GIB + 4096))), (b"breakpoint", Ok(0)));
        assert_eq!(fx.vm.fault(&space, Va(GIB + 4090), Access::Write), Err(FaultError::Rights));
        fx.end([space, other]);
    }
}

#[test]
fn tables_of_zeros_are_for_regions_where_a_huge_page_would_be_used() {
    let fx = shared(8192);
    let space = fx.mapped(Va(GIB), GIB, Attrs { thp: Some(HugeAdvice::NoHuge), ..RW });
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::Zero));
    fx.map(&space, Va(2 * GIB), GIB, RW);
    fx.vm.advise(&space, Va(2 * GIB), 4 * MIB2, Advice::Populate { write: false }).unwrap();
    assert_eq!((fx.usage(&space).zero_tables, fx.count(Counter::FaultsZeroTable)), (1, 1));
    // Once huge pages are not wanted any more, what is written becomes base pages.
    fx.vm.advise(&space, Va(2 * GIB), GIB, Advice::NoHuge).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(fx.kernel_peek(&space, Va(2 * GIB + 5 * MIB2)), Ok(0));
    fx.end([space]);
}
