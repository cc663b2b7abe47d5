//! The huge page of zeros: statements D-1, D-2, D-6, D-8 to D-10 and D-13. Without memory it is in
//! `oom/`, with other CPUs in between in `interleave/`, with TLBs in the simulator's
//! `huge_zero_hunt.rs`.

use vellum_testkit::prelude::*;

fn page() -> Config {
    with_zeros(ZeroHuge::Page)
}

const HUGE: u64 = 512;

/// 1 GiB and 8 MiB of frames.
fn big() -> Fixture {
    fixture((1 << 18) + 2048, page())
}

/// The sum of all bytes of the huge page of zeros: 0 unless something wrote to it.
fn checksum<C: Codec>(fx: &Fixture<C>) -> u64 {
    let first = fx.vm.huge_zero().expect("there is one");
    let mut bytes = [0; 4096];
    (0..HUGE).fold(0, |sum, i| {
        fx.m().peek(first.add(i), 0, &mut bytes);
        sum + bytes.iter().map(|&b| u64::from(b)).sum::<u64>()
    })
}

#[test]
fn d_01_reading_200_mib_costs_no_page_one_huge_page_for_all_and_100_huge_mappings() {
    let fx = big();
    let space = fx.mapped(Va(GIB), 200 * MIB, RW);
    let before = fx.usage(&space);
    fx.reads_zeros(&space, GIB, 200 * MIB);
    let after = fx.usage(&space);
    assert_eq!(after.rss_pages - before.rss_pages, 0);
    assert_eq!((after.zero_huge_leaves, after.zero_leaves), (100, 0));
    assert_eq!(after.table_nodes, before.table_nodes, "no tables wait for splits");
    assert_eq!((fx.count(Counter::ThpZeroAlloc), fx.count(Counter::ThpFaultAlloc)), (1, 0));
    assert_eq!(fx.m().asked.became[Use::Zero as usize].get(), 1 + HUGE);
    assert_eq!(fx.count(Counter::FaultsZeroHuge), 100);
    fx.end([space]);
    assert_eq!(fx.vm.shrink_zeros(), HUGE);
    fx.check(&[]);
}

#[test]
fn d_01_with_the_switch_off_the_same_reads_take_200_mib() {
    let fx = fixture((1 << 18) + 2048, with_zeros(ZeroHuge::Off));
    let space = fx.mapped(Va(GIB), 200 * MIB, RW);
    fx.reads_zeros(&space, GIB, 200 * MIB);
    assert_eq!(fx.usage(&space).rss_pages, 51_200);
    assert_eq!((fx.count(Counter::ThpZeroAlloc), fx.vm.huge_zero()), (0, None));
    fx.vm.exit(space);
}

fn d_02<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, page());
    let (space, other) = (fx.vm.create().unwrap(), fx.vm.create().unwrap());
    for s in [&space, &other] {
        fx.map(s, Va(GIB), MIB2, RW);
        assert_eq!(fx.vm.fault(s, Va(GIB + 5), Access::Read), Ok(Fault::ZeroHuge));
    }
    assert_eq!(fx.vm.huge_zero_references(), 3);
    assert_eq!(fx.vm.fault(&space, Va(GIB + 12345), Access::Write), Ok(Fault::Huge));
    fx.poke(&space, Va(GIB + 0x3038), 7).unwrap();
    assert_eq!(fx.usage(&space).rss_pages, 512);
    assert_eq!(fx.count(Counter::AnonHuge), 1);
    for at in (0..MIB2).step_by(8) {
        assert_eq!(fx.peek(&space, Va(GIB + at)), Ok(if at == 0x3038 { 7 } else { 0 }));
    }
    assert_eq!((fx.peek(&other, Va(GIB + 0x3038)), fx.usage(&other).rss_pages), (Ok(0), 0));
    assert_eq!(fx.vm.huge_zero_references(), 3, "references are per space");
    assert_eq!(checksum(&fx), 0);
    fx.end([space, other]);
    assert_eq!(fx.vm.huge_zero_references(), 1);
    fx.check(&[]);
}

on_both!(d_02, d_02_one_write_makes_512_pages_and_others_go_on_seeing_zeros);

fn shrinks<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, page());
    assert_eq!((fx.vm.shrink_zeros(), fx.vm.shrinkable_zeros()), (0, 0));
    for round in 1..4 {
        let (a, b) = (fx.vm.create().unwrap(), fx.vm.create().unwrap());
        for space in [&a, &b] {
            fx.map(space, Va(GIB), MIB2, RW);
            assert_eq!(fx.peek(space, Va(GIB)), Ok(0));
            assert_eq!((fx.vm.shrink_zeros(), fx.vm.shrinkable_zeros()), (0, 0));
        }
        assert_eq!(fx.vm.unmap(&a, Va(GIB), MIB2), Ok(()));
        assert_eq!(fx.vm.huge_zero_references(), 3, "a space that used it holds it to its end");
        fx.vm.exit(a);
        assert_eq!((fx.vm.huge_zero_references(), fx.vm.shrink_zeros()), (2, 0));
        fx.end([b]);
        assert_eq!((fx.vm.shrinkable_zeros(), fx.vm.shrink_zeros()), (HUGE, HUGE));
        assert_eq!((fx.vm.huge_zero(), fx.vm.shrink_zeros()), (None, 0));
        assert_eq!(fx.count(Counter::ThpZeroAlloc), round);
        assert_eq!(fx.count(Counter::ThpZeroRelease), round);
        fx.check(&[]);
    }
}

on_both!(shrinks, d_06_the_shrinker_frees_only_at_count_one_and_the_next_read_makes_a_new_page);

#[test]
fn d_06_100000_iterations_of_churn_leak_nothing() {
    let fx = fixture(4096, page());
    let mut random = Random::new(1);
    let mut kept: Vec<Space> = Vec::new();
    for i in 0..100_000 {
        if kept.len() == 3 || random.one_in(3) && !kept.is_empty() {
            fx.vm.exit(kept.swap_remove(random.below(kept.len() as u64) as usize));
        } else {
            let space = fx.mapped(Va(GIB), MIB2, RW);
            assert_eq!(fx.peek(&space, Va(GIB + random.below(MIB2 / 8) * 8)), Ok(0));
            kept.push(space);
        }
        // The shrinker runs now and then: with no user left the page is freed, and allocated again
        // later.
        if random.one_in(2) {
            let gone = fx.vm.shrink_zeros();
            assert!(gone == 0 || kept.is_empty(), "iteration {i}: freed under a user");
            assert!(kept.is_empty() || fx.vm.huge_zero().is_some());
        }
        if i % 10_000 == 0 {
            fx.check(&kept.iter().collect::<Vec<_>>());
        }
    }
    assert!(fx.count(Counter::ThpZeroRelease) > 1000, "it did go and come");
    kept.into_iter().for_each(|space| fx.vm.exit(space));
    fx.vm.shrink_zeros();
    assert_eq!(fx.count(Counter::ThpZeroAlloc), fx.count(Counter::ThpZeroRelease));
    assert_eq!(fx.vm.audit(&[]).unwrap().zero_frames, 1);
    fx.check(&[]);
}

fn forks<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, page());
    let parent = fx.mapped(Va(GIB), 2 * MIB2, RW);
    fx.peek(&parent, Va(GIB)).unwrap();
    fx.peek(&parent, Va(GIB + MIB2)).unwrap();
    let allocated = fx.count(Counter::ThpZeroAlloc);
    let child = fx.vm.fork(&parent).unwrap();
    assert_eq!((fx.vm.huge_zero_references(), fx.count(Counter::ThpZeroAlloc)), (3, allocated));
    assert_eq!((fx.usage(&child).zero_huge_leaves, fx.usage(&child).rss_pages), (2, 0));
    assert_eq!(fx.peek(&child, Va(GIB + 8)), Ok(0));
    fx.poke(&child, Va(GIB + 8), 5).unwrap();
    assert_eq!((fx.peek(&parent, Va(GIB + 8)), fx.usage(&parent).zero_huge_leaves), (Ok(0), 2));
    assert_eq!((fx.usage(&child).zero_huge_leaves, fx.usage(&child).rss_pages), (1, 512));
    fx.check(&[&parent, &child]);
    fx.vm.exit(parent);
    assert_eq!((fx.peek(&child, Va(GIB + MIB2)), fx.vm.huge_zero_references()), (Ok(0), 2));
    fx.vm.exit(child);
    assert_eq!(fx.vm.huge_zero_references(), 1);
    assert_eq!((fx.count(Counter::AnonPages), fx.count(Counter::AnonHuge)), (0, 0));
    fx.check(&[]);
}

on_both!(forks, d_08_a_child_sees_zeros_and_writes_its_own_and_counts_return_to_where_they_were);

fn protects<C: Arch>() {
    let fx = fixture_of::<C>(2, 8192, page());
    let space = fx.mapped(Va(GIB), MIB2, Attrs::anonymous(Rights::READ));
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Err(FaultError::Rights));
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    let Leaf { level, flags, zero } = fx.leaf(&space, Va(GIB));
    assert!(zero && level == Level::TWO && !flags.write && !flags.dirty);
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::ALL).unwrap();
    let flags = fx.leaf(&space, Va(GIB)).flags;
    assert!(flags.exec && !flags.write);
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::NONE).unwrap();
    assert_eq!(fx.vm.query(&space, Va(GIB)), Page::Reserved { rights: Rights::NONE });
    assert_eq!(fx.usage(&space).rss_pages, 0);
    fx.check(&[&space]);
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.end([space]);
}

on_both!(protects, d_09_protect_leaves_the_write_bit_clear_and_no_rights_leave_it_reserved);

fn unmaps<C: Arch>() {
    for hole in [0, 1, 255, 511] {
        let fx = fixture_of::<C>(2, 8192, page());
        let space = fx.vm.create().unwrap();
        let before = fx.usage(&space);
        fx.map(&space, Va(GIB), MIB2, RW);
        fx.peek(&space, Va(GIB)).unwrap();
        fx.vm.unmap(&space, Va(GIB + hole * KIB4), KIB4).unwrap();
        let now = fx.usage(&space);
        assert_eq!((now.zero_leaves, now.mapped_pages), (511, 511));
        assert_eq!((now.zero_huge_leaves, now.rss_pages), (0, 0));
        assert_eq!(fx.vm.query(&space, Va(GIB + hole * KIB4)), Page::Unmapped);
        fx.check(&[&space]);
        fx.vm.unmap(&space, Va(GIB), MIB2).unwrap();
        assert_eq!(fx.usage(&space), before);
        fx.end([space]);
    }
}

on_both!(unmaps, d_09_unmapping_4_kib_leaves_511_base_zeros_and_unmapping_the_rest_leaves_nothing);

fn remaps<C: Arch>() {
    for to in [3 * GIB, 3 * GIB + 5 * KIB4] {
        let fx = fixture_of::<C>(2, 8192, page());
        let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
        fx.peek(&space, Va(GIB)).unwrap();
        fx.poke(&space, Va(GIB + MIB2), 4).unwrap();
        fx.vm.remap(&space, Va(GIB), 2 * MIB2, 2 * MIB2, Placement::At(Va(to))).unwrap();
        assert_eq!(fx.vm.query(&space, Va(GIB)), Page::Unmapped);
        assert_eq!((fx.peek(&space, Va(to)), fx.peek(&space, Va(to + MIB2))), (Ok(0), Ok(4)));
        assert_eq!(fx.usage(&space).rss_pages, 512);
        fx.poke(&space, Va(to + 8), 6).unwrap();
        fx.end([space]);
    }
}

on_both!(remaps, d_09_a_remap_moves_the_mapping_and_the_zeros_with_it);

fn forces<C: Arch>() {
    for rights in [Rights::READ, Rights::READ_WRITE, Rights::READ_EXEC] {
        let fx = fixture_of::<C>(2, 8192, page());
        let (space, other) = (fx.vm.create().unwrap(), fx.vm.create().unwrap());
        for s in [&space, &other] {
            fx.map(s, Va(GIB), MIB2, Attrs::anonymous(rights));
            assert_eq!(fx.vm.fault(s, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
        }
        for _ in 0..2 {
            fx.vm.write_forced(&space, Va(GIB + 4090), b"breakpoint").unwrap();
        }
        assert_eq!(checksum(&fx), 0);
        let mut bytes = [0; 10];
        fx.vm.copy_out(&space, Va(GIB + 4090), &mut bytes).unwrap();
        assert_eq!((&bytes, fx.peek(&other, Va(GIB + 4096))), (b"breakpoint", Ok(0)));
        let Leaf { flags, zero, .. } = fx.leaf(&space, Va(GIB));
        assert_eq!((flags.write, flags.dirty, zero), (rights.write, rights.write, false));
        fx.end([space, other]);
    }
}

on_both!(forces, d_10_a_forced_write_makes_a_page_of_its_own_and_never_touches_the_zeros);

#[test]
fn d_13_kept_zeros_are_never_counted_and_never_shrunk() {
    let fx = fixture(8192, page());
    fx.vm.keep_zeros().unwrap();
    fx.vm.keep_zeros().unwrap();
    let references = fx.vm.huge_zero_references();
    let spaces: Vec<Space> = (0..72)
        .map(|_| {
            let space = fx.mapped(Va(GIB), MIB2, RW);
            assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
            assert_eq!((fx.vm.huge_zero_references(), fx.vm.shrink_zeros()), (references, 0));
            space
        })
        .collect();
    assert_eq!(fx.count(Counter::ThpZeroAlloc), 1);
    fx.end(spaces);
    assert_eq!(fx.vm.huge_zero_references(), references);
    assert_eq!((fx.vm.shrink_zeros(), fx.vm.shrinkable_zeros()), (0, 0));
    fx.check(&[]);
}

#[test]
fn zeros_are_for_regions_where_a_huge_page_would_be_used_and_no_others() {
    let fx = fixture(1 << 12, page());
    let space = fx.mapped(Va(GIB), MIB2, EXACTLY_HUGE);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::Huge));
    fx.map(&space, Va(2 * GIB), MIB2 - KIB4, RW);
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB), Access::Read), Ok(Fault::Zero));
    fx.map(&space, Va(3 * GIB), MIB2, RW);
    fx.vm.advise(&space, Va(3 * GIB), MIB2, Advice::NoHuge).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(3 * GIB), Access::Read), Ok(Fault::Zero));
    assert_eq!(fx.vm.huge_zero(), None);
    // Populating for reading maps them, populating for writing replaces them.
    fx.map(&space, Va(4 * GIB), MIB2, RW);
    for (advice, zeros, huge) in [
        (Advice::Populate { write: false }, 1, 1),
        // Nothing to collapse.
        (Advice::Collapse, 1, 1),
        (Advice::Populate { write: true }, 0, 2),
        (Advice::DontNeed, 0, 1),
    ] {
        fx.vm.advise(&space, Va(4 * GIB), MIB2, advice).unwrap();
        let usage = fx.usage(&space);
        assert_eq!((usage.zero_huge_leaves, usage.huge_leaves), (zeros, huge), "{advice:?}");
    }
    assert_eq!(fx.peek(&space, Va(4 * GIB)), Ok(0));
    fx.vm.advise(&space, Va(4 * GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(fx.vm.query(&space, Va(4 * GIB)), Page::Reserved { rights: Rights::READ_WRITE });
    // The kernel's own reads and writes do as the program's.
    assert_eq!(fx.kernel_peek(&space, Va(4 * GIB)), Ok(0));
    fx.vm.copy_in(&space, Va(4 * GIB + 8), &[1]).unwrap();
    assert_eq!(checksum(&fx), 0);
    fx.end([space]);
}

#[test]
fn a_read_of_a_task_that_is_to_end_maps_nothing_and_is_no_failed_allocation() {
    let fx = fixture(4096, with_zeros(ZeroHuge::Page));
    let space = fx.mapped(AT, 4 * MIB2, RW);
    fx.m().stop(Some(0));
    let served = fx.vm.fault(&space, AT, Access::Read);
    fx.m().stop(None);
    assert_eq!(served, Err(FaultError::Stopped));
    assert_eq!((fx.usage(&space).zero_leaves, fx.usage(&space).zero_huge_leaves), (0, 0));
    let failed = [Counter::ThpZeroAllocFailed, Counter::ThpFaultFallback];
    assert_eq!(failed.map(|counter| fx.count(counter)), [0, 0]);
    assert_eq!(fx.vm.fault(&space, AT, Access::Read), Ok(Fault::ZeroHuge));
    fx.end([space]);
}

#[test]
fn the_huge_zero_page_leaves_the_minimum_to_tables() {
    let fx = fixture_of::<X86_64>(1, 1 << 18, Config::default());
    let min = fx.vm.frames().watermarks(0).min;
    assert!(min >= 512, "a block of 2 MiB fits");
    let space = fx.mapped(AT, 4 * MIB2, RW);
    let other = fx.mapped(AT, 4 * MIB2, RW);
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Ok(Fault::Huge));
    let data = AllocRequest::kernel(Use::Data);
    for order in [Order::HUGE, Order::BASE] {
        while fx.vm.frames().alloc(fx.m(), order, &data).is_ok() {}
    }
    assert_eq!(fx.vm.fault(&other, AT, Access::Read), Ok(Fault::Zero));
    assert!(fx.vm.frames().free_frames(0) + 16 >= min, "the minimum but for a few tables");
    assert_eq!(fx.vm.unmap(&space, Va(AT.0 + 5 * KIB4), KIB4), Ok(()), "which takes a table");
}
