//! The verbs of a space, one behaviour a test.

use vellum_testkit::prelude::*;

#[test]
fn a_space_that_did_nothing_gives_everything_back() {
    let fx = fixture(4096, Config::default());
    let first = fx.vm.create().unwrap();
    fx.vm.exit(first);
    let before = fx.check(&[]);
    let space = fx.vm.create().unwrap();
    fx.check(&[&space]);
    fx.vm.exit(space);
    assert_eq!(fx.check(&[]), before);
}

#[test]
fn a_page_is_zero_then_what_was_written_and_gone_after_unmap() {
    let fx = fixture(4096, no_thp());
    let space = fx.vm.create().unwrap();
    // The space remembers the region it made last.
    fx.map(&space, AT, KIB4, RW);
    fx.vm.unmap(&space, AT, KIB4).unwrap();
    let before = fx.check(&[&space]);
    fx.map(&space, AT, 3 * KIB4, RW);
    assert_eq!(fx.vm.query(&space, AT), Page::Reserved { rights: Rights::READ_WRITE });
    assert_eq!(fx.vm.fault(&space, AT, Access::Read), Ok(Fault::Zero));
    assert_eq!(fx.peek(&space, AT), Ok(0));
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Ok(Fault::Copied(Level::ONE)));
    fx.poke(&space, AT, 7).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(AT.0 + KIB4), Access::Write), Ok(Fault::Base));
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Ok(Fault::Spurious));
    assert_eq!(fx.peek(&space, AT), Ok(7));
    assert_eq!(fx.usage(&space).rss_pages, 2);
    fx.check(&[&space]);
    fx.vm.unmap(&space, AT, 3 * KIB4).unwrap();
    assert_eq!(fx.peek(&space, AT), Err(FaultError::Unmapped));
    assert_eq!(fx.check(&[&space]), before);
    assert_eq!(fx.usage(&space).table_nodes, 1);
    fx.end([space]);
}

/// The address past what programs may map in a four-level x86_64 table.
const END: u64 = (1 << 47) - KIB4;
/// Nothing is mapped below.
const LOWEST: u64 = 64 << 10;

#[test]
fn ranges_that_are_none_are_refused_by_every_verb_and_change_nothing() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 4 * KIB4, RW);
    let bad = [
        (Va(AT.0 + 1), KIB4, RangeError::Unaligned),
        (AT, KIB4 + 1, RangeError::Unaligned),
        (AT, 0, RangeError::Empty),
        (Va(END), KIB4, RangeError::OutOfSpace),
        (Va(END - KIB4), 2 * KIB4, RangeError::OutOfSpace),
        (Va(!0xfff), KIB4, RangeError::OutOfSpace),
        (Va(!0xfff), 2 * KIB4, RangeError::OutOfSpace),
        (AT, !0xfff, RangeError::OutOfSpace),
        (Va(0), !0xfff, RangeError::OutOfSpace),
    ];
    for (va, bytes, error) in bad {
        let refused = Err(SpaceError::Range(error));
        assert_eq!(
            fx.vm.map(&space, Placement::At(va), bytes, RW).map(|_| ()),
            refused,
            "map {va:?} {bytes:#x}"
        );
        assert_eq!(fx.vm.map(&space, Placement::Replace(va), bytes, RW).map(|_| ()), refused);
        assert_eq!(fx.vm.unmap(&space, va, bytes), refused);
        assert_eq!(fx.vm.protect(&space, va, bytes, Rights::READ), refused);
        assert_eq!(fx.vm.advise(&space, va, bytes, Advice::DontNeed), refused);
        assert_eq!(fx.vm.advise(&space, va, bytes, Advice::Populate { write: true }), refused);
        assert_eq!(fx.vm.remap(&space, va, bytes, KIB4, Placement::Anywhere).map(|_| ()), refused);
        if bytes != KIB4 {
            assert!(fx.vm.remap(&space, AT, KIB4, bytes, Placement::At(va)).is_err());
        }
    }
    assert_eq!(
        fx.vm.map(&space, Placement::Anywhere, 0, RW),
        Err(SpaceError::Range(RangeError::Empty))
    );
    assert_eq!(
        fx.vm.map(&space, Placement::Anywhere, 5, RW),
        Err(SpaceError::Range(RangeError::Unaligned))
    );
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, 1 << 60, RW), Err(SpaceError::NoHole));
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, END, RW), Err(SpaceError::NoHole));
    assert_eq!(fx.vm.fault(&space, Va(END), Access::Read), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.fault(&space, Va(u64::MAX), Access::Write), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.query(&space, Va(u64::MAX)), Page::Unmapped);
    assert_eq!(fx.vm.copy_in(&space, Va(u64::MAX - 2), &[0; 8]), Err(FaultError::Unmapped));
    assert_eq!(fx.usage(&space).mapped_pages, 4);
    fx.check(&[&space]);
    fx.vm.exit(space);
}

fn first_and_last_page<C: Codec>(rules: MmuRules) {
    let fx: Fixture<C> = Fixture::new(flat_with(1, 4096, rules), Config::default());
    let space = fx.vm.create().unwrap();
    let end = fx.vm.user_end();
    for va in [Va(LOWEST), Va(end.0 - KIB4)] {
        fx.map(&space, va, KIB4, RW);
        fx.poke(&space, Va(va.0 + 4088), 3).unwrap();
        assert_eq!(fx.peek(&space, Va(va.0 + 4088)), Ok(3));
        fx.check(&[&space]);
    }
    fx.vm.protect(&space, Va(end.0 - KIB4), KIB4, Rights::READ).unwrap();
    let bytes = [9; 2];
    assert_eq!(fx.vm.copy_in(&space, Va(LOWEST + KIB4 - 2), &bytes), Ok(()));
    assert_eq!(fx.vm.copy_in(&space, Va(LOWEST + KIB4 - 1), &bytes), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.copy_in(&space, Va(end.0 - 2), &bytes), Err(FaultError::Rights));
    // All of the user half at once.
    fx.vm.unmap(&space, Va(0), end.0).unwrap();
    assert_eq!(fx.usage(&space).table_nodes, 1);
    fx.map(&space, Va(LOWEST), end.0 - LOWEST, RW);
    // A way down to the first page, and where the last slot is not whole one to the last.
    let ways = 1 + u64::from(!end.is_aligned(GIB << 9));
    assert_eq!(fx.usage(&space).table_nodes, 1 + ways * (u64::from(rules.levels) - 1));
    fx.poke(&space, Va(end.0 / 2), 5).unwrap();
    fx.check(&[&space]);
    fx.vm.advise(&space, Va(LOWEST), end.0 - LOWEST, Advice::DontNeed).unwrap();
    assert_eq!(fx.peek(&space, Va(end.0 / 2)), Ok(0));
    fx.vm.unmap(&space, Va(0), end.0).unwrap();
    fx.check(&[&space]);
    assert_eq!(fx.usage(&space), vellum::space::Usage { table_nodes: 1, ..Default::default() });
    fx.end([space]);
}

#[test]
fn the_first_and_the_last_page_that_may_be_mapped_are_pages_like_others() {
    first_and_last_page::<X86_64>(MmuRules::X86_64);
    first_and_last_page::<X86_64>(MmuRules { levels: 5, ..MmuRules::X86_64 });
    first_and_last_page::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn exactly_two_mib_or_one_gib_take_one_promise_and_one_leaf() {
    let fx = fixture(600_000, Config::default());
    let space = fx.mapped(Va(GIB), GIB, RW);
    // The root and a level-3 node: one entry promises 1 GiB.
    assert_eq!(fx.usage(&space).table_nodes, 2);
    fx.map(&space, Va(4 * GIB), MIB2, RW);
    assert_eq!(fx.usage(&space).table_nodes, 3);
    assert_eq!(fx.vm.fault(&space, Va(4 * GIB + MIB2 - 1), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.usage(&space).table_nodes, 3);
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB - 1), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB), Access::Write), Err(FaultError::Unmapped));
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::GIANT), ..RW };
    assert_eq!(
        fx.vm.map(&space, Placement::At(Va(GIB / 2)), GIB, exactly),
        Err(SpaceError::LeafSize)
    );
    assert_eq!(
        fx.vm.map(&space, Placement::At(Va(8 * GIB)), MIB2, exactly),
        Err(SpaceError::LeafSize)
    );
    fx.map(&space, Va(8 * GIB), GIB, exactly);
    assert_eq!(fx.vm.fault(&space, Va(8 * GIB + 5), Access::Read), Ok(Fault::Giant));
    assert!(matches!(
        fx.vm.query(&space, Va(9 * GIB - 1)),
        Page::Mapped { level: Level::THREE, .. }
    ));
    assert_eq!(fx.usage(&space).rss_pages, 512 * 512 + 2 * 512);
    fx.check(&[&space]);
    // Out of its middle: one table of 2 MiB leaves, one of base pages.
    fx.vm.unmap(&space, Va(8 * GIB + 3 * MIB2 + KIB4), KIB4).unwrap();
    let usage = fx.usage(&space);
    assert_eq!(
        (usage.giant_leaves, usage.huge_leaves, usage.rss_pages),
        (0, 511 + 2, 512 * 512 - 1 + 2 * 512)
    );
    fx.end([space]);
}

#[test]
fn a_leaf_size_the_machine_has_not_is_refused() {
    let rules = MmuRules { max_leaf: Order::HUGE, ..MmuRules::X86_64 };
    let fx: Fixture = Fixture::new(flat_with(1, 4096, rules), Config::default());
    let space = fx.vm.create().unwrap();
    for (order, bytes) in [(18, GIB), (3, 8 * KIB4), (10, 2 * MIB2)] {
        let exactly = Attrs { leaf: LeafSize::Exactly(Order::new(order).unwrap()), ..RW };
        assert_eq!(
            fx.vm.map(&space, Placement::At(Va(GIB)), bytes, exactly),
            Err(SpaceError::LeafSize)
        );
    }
    fx.vm.exit(space);
}

#[test]
fn placement_takes_the_highest_hole_aligned_when_long_and_reuses_what_is_freed() {
    let fx = fixture(4096, no_thp());
    let space = fx.vm.create().unwrap();
    let any = |bytes| fx.vm.map(&space, Placement::Anywhere, bytes, RW).unwrap().0;
    assert_eq!(any(KIB4), END - KIB4);
    assert_eq!(any(2 * KIB4), END - 3 * KIB4);
    let long = any(MIB2 + KIB4);
    assert_eq!(long, (1 << 47) - 2 * MIB2);
    // The gap the alignment left is filled by the next small one.
    assert_eq!(any(KIB4), END - 4 * KIB4);
    fx.vm.unmap(&space, Va(END - 3 * KIB4), 2 * KIB4).unwrap();
    assert_eq!(any(KIB4), END - 2 * KIB4);
    assert_eq!(any(KIB4), END - 3 * KIB4);
    let gib = any(GIB);
    assert_eq!((gib % MIB2, gib), (0, long - GIB));
    fx.check(&[&space]);
    fx.vm.exit(space);
}

#[test]
fn the_lowest_64_kib_are_not_mapped() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(0x11000), END - 0x11000, RW);
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, KIB4, RW), Ok(Va(0x10000)));
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, KIB4, RW), Err(SpaceError::NoHole));
    let low = SpaceError::Range(RangeError::TooLow);
    assert_eq!(low.to_string(), "the range begins below 64 KiB, where nothing is mapped");
    for (start, bytes) in [(0, KIB4), (0xf000, KIB4), (0xf000, GIB), (0, 1 << 40)] {
        for to in [Placement::At(Va(start)), Placement::Replace(Va(start))] {
            assert_eq!(fx.vm.map(&space, to, bytes, RW), Err(low), "{start:#x}");
            assert_eq!(fx.vm.remap(&space, AT, KIB4, bytes, to), Err(low), "{start:#x}");
        }
    }
    // Verbs that make no mapping may be told of it.
    assert_eq!(fx.vm.unmap(&space, Va(0), KIB4), Ok(()));
    assert_eq!(fx.vm.protect(&space, Va(0), KIB4, Rights::NONE), Err(SpaceError::Unmapped));
    assert_eq!(fx.vm.remap(&space, AT, KIB4, KIB4, Placement::Replace(Va(LOWEST))), Ok(Va(LOWEST)));
    fx.vm.exit(space);
}

#[test]
fn rights_are_kept_and_told_apart_from_holes() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 8 * KIB4, Attrs::anonymous(Rights::READ));
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::Rights));
    assert_eq!(fx.vm.fault(&space, AT, Access::Exec), Err(FaultError::Rights));
    assert_eq!(fx.vm.fault(&space, Va(AT.0 - 1), Access::Read), Err(FaultError::Unmapped));
    fx.vm.protect(&space, Va(AT.0 + 2 * KIB4), 2 * KIB4, Rights::READ_WRITE).unwrap();
    fx.poke(&space, Va(AT.0 + 2 * KIB4), 1).unwrap();
    fx.vm.protect(&space, AT, 8 * KIB4, Rights::NONE).unwrap();
    assert!(matches!(fx.vm.query(&space, Va(AT.0 + 2 * KIB4)), Page::Parked { .. }));
    assert_eq!(fx.usage(&space).rss_pages, 1);
    assert_eq!(fx.usage(&space).parked_pages, 1);
    assert_eq!(fx.peek(&space, Va(AT.0 + 2 * KIB4)), Err(FaultError::Rights));
    fx.check(&[&space]);
    fx.vm.protect(&space, AT, 8 * KIB4, Rights::READ).unwrap();
    assert_eq!(fx.peek(&space, Va(AT.0 + 2 * KIB4)), Ok(1));
    assert_eq!(fx.vm.protect(&space, AT, 9 * KIB4, Rights::READ), Err(SpaceError::Unmapped));
    fx.check(&[&space]);
    fx.vm.exit(space);
}

#[test]
fn every_page_of_a_table_may_have_its_own_rights() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), MIB2, RW);
    let before = fx.check(&[&space]);
    for page in (0..512).step_by(2) {
        fx.vm.protect(&space, Va(GIB + page * KIB4), KIB4, Rights::READ).unwrap();
    }
    fx.check(&[&space]);
    for page in 0..512 {
        let rights = if page % 2 == 0 { Rights::READ } else { Rights::READ_WRITE };
        assert_eq!(fx.vm.query(&space, Va(GIB + page * KIB4)), Page::Reserved { rights });
    }
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    fx.check(&[&space]);
    fx.vm.unmap(&space, Va(GIB), MIB2).unwrap();
    fx.map(&space, Va(GIB), MIB2, RW);
    assert_eq!(fx.check(&[&space]), before, "lists or regions kept");
    fx.vm.exit(space);
}

#[test]
fn populate_brings_every_page_in_and_says_when_it_may_not() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 40 * KIB4, RW);
    fx.vm.advise(&space, AT, 40 * KIB4, Advice::Populate { write: false }).unwrap();
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_leaves), (0, 40));
    fx.vm.advise(&space, AT, 40 * KIB4, Advice::Populate { write: true }).unwrap();
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_leaves), (40, 0));
    fx.vm.protect(&space, AT, KIB4, Rights::READ).unwrap();
    let write = Advice::Populate { write: true };
    assert_eq!(fx.vm.advise(&space, AT, KIB4, write), Err(SpaceError::Rights));
    assert_eq!(
        fx.vm.advise(&space, Va(AT.0 + 39 * KIB4), 2 * KIB4, write),
        Err(SpaceError::Unmapped)
    );
    fx.vm.exit(space);
}

#[test]
fn remap_carries_the_pages_and_leaves_nothing() {
    let fx = fixture(8192, Config::default());
    let space = fx.mapped(Va(GIB), 3 * MIB2, RW);
    for page in 0..1536 {
        fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
    }
    let copied = fx.m().asked.copied_frames.get();
    // By 2 MiB: the leaves stay huge. By a page: they arrive in pieces.
    let far = Va(6 * GIB);
    assert_eq!(fx.vm.remap(&space, Va(GIB), 3 * MIB2, 3 * MIB2, Placement::At(far)), Ok(far));
    assert_eq!(fx.usage(&space).huge_leaves, 3);
    fx.check(&[&space]);
    let odd = Va(6 * GIB + 9 * MIB2 + KIB4);
    assert_eq!(fx.vm.remap(&space, far, 3 * MIB2, 3 * MIB2, Placement::At(odd)), Ok(odd));
    assert_eq!(fx.usage(&space).huge_leaves, 0);
    fx.check(&[&space]);
    for page in 0..1536 {
        assert_eq!(fx.peek(&space, Va(odd.0 + page * KIB4)), Ok(page + 1));
    }
    assert_eq!(fx.peek(&space, far), Err(FaultError::Unmapped));
    let now = fx.m().asked.copied_frames.get();
    assert_eq!(now, copied, "remap copied pages");
    fx.end([space]);
}

#[test]
fn remap_grows_in_place_when_it_can_and_moves_when_it_may() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 2 * KIB4, RW);
    fx.poke(&space, Va(AT.0 + KIB4), 8).unwrap();
    assert_eq!(fx.vm.remap(&space, AT, 2 * KIB4, 4 * KIB4, Placement::At(AT)), Ok(AT));
    fx.map(&space, Va(AT.0 + 6 * KIB4), KIB4, RW);
    assert_eq!(fx.vm.remap(&space, AT, 4 * KIB4, 6 * KIB4, Placement::Anywhere), Ok(AT));
    assert_eq!(
        fx.vm.remap(&space, AT, 6 * KIB4, 7 * KIB4, Placement::At(AT)),
        Err(SpaceError::Occupied)
    );
    let moved = fx.vm.remap(&space, AT, 6 * KIB4, 7 * KIB4, Placement::Anywhere).unwrap();
    assert_ne!(moved, AT);
    assert_eq!(fx.peek(&space, Va(moved.0 + KIB4)), Ok(8));
    assert_eq!(fx.vm.query(&space, AT), Page::Unmapped);
    assert_eq!(fx.vm.remap(&space, moved, 7 * KIB4, KIB4, Placement::Anywhere), Ok(moved));
    assert_eq!(fx.vm.query(&space, Va(moved.0 + KIB4)), Page::Unmapped);
    let before = Va(moved.0 - KIB4);
    assert_eq!(
        fx.vm.remap(&space, moved, KIB4, 2 * KIB4, Placement::Replace(before)),
        Err(SpaceError::Occupied)
    );
    fx.end([space]);
}

#[test]
fn zeros_are_not_counted_nor_written_nor_given_away() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, 100 * KIB4, RW);
    let before = fx.check(&[&space]);
    for page in 0..100 {
        assert_eq!(fx.vm.fault(&space, Va(AT.0 + page * KIB4), Access::Read), Ok(Fault::Zero));
    }
    assert_eq!(fx.check(&[&space]), before);
    let (first, count) = fx.vm.zeros(0);
    assert_eq!(count, 1);
    assert!(fx.vm.is_zero(first) && !fx.vm.is_zero(first.add(1)));
    assert_eq!(fx.usage(&space).rss_pages, 0);
    fx.vm.protect(&space, AT, 100 * KIB4, Rights::NONE).unwrap();
    assert_eq!(fx.usage(&space).parked_pages, 0);
    fx.vm.protect(&space, AT, 100 * KIB4, Rights::READ).unwrap();
    fx.peek(&space, AT).unwrap();
    fx.vm.unmap(&space, AT, 100 * KIB4).unwrap();
    fx.check(&[&space]);
    fx.vm.exit(space);
}

#[test]
fn pages_come_from_the_node_the_mapping_names() {
    let mut topology = Topology::flat(2, Pfn(512), 4096);
    topology.nodes = 2;
    topology.node[1] = vellum::machine::NodeInfo { first: Pfn(512 + 4096), frames: 4096 };
    topology.cpu_node[1] = 1;
    topology.distance[0][1] = 20;
    topology.distance[1][0] = 20;
    let fx: Fixture = Fixture::new(Flat::new(topology, MmuRules::X86_64), no_thp());
    let space = fx.vm.create().unwrap();
    for (i, (numa, nodes)) in [
        (None, [0, 0]),
        (Some(NumaPolicy::Bind(1)), [1, 1]),
        (Some(NumaPolicy::Prefer(1)), [1, 1]),
        (Some(NumaPolicy::Interleave), [0, 1]),
    ]
    .into_iter()
    .enumerate()
    {
        let at = Va(AT.0 + i as u64 * MIB2);
        fx.map(&space, at, 2 * KIB4, Attrs { numa, ..RW });
        for (page, node) in nodes.into_iter().enumerate() {
            let va = Va(at.0 + page as u64 * KIB4);
            fx.poke(&space, va, 1).unwrap();
            let Page::Mapped { pfn, .. } = fx.vm.query(&space, va) else { panic!("no page") };
            assert_eq!(fx.m().topology().node_of(pfn), Some(node), "{numa:?} page {page}");
        }
    }
    fx.end([space]);
}

#[test]
fn a_depth_the_machine_does_not_walk_is_refused() {
    for (machine, switch) in [(4, 5), (5, 4)] {
        let machine: Flat = Flat::new(
            Topology::flat(1, Pfn(512), 512),
            MmuRules { levels: machine, ..MmuRules::X86_64 },
        );
        let meta = Meta::new(vellum::vm::Vm::<Flat>::layout(machine.topology()));
        let config = Config { levels: Some(switch), ..Config::default() };
        // SAFETY: zeroed memory of that layout, kept until after the value.
        let refused = unsafe { vellum::vm::Vm::new(machine, config, meta.base()) };
        assert_eq!(refused.err(), Some(InitError::Levels));
    }
}

#[test]
fn identifiers_run_out_and_spaces_still_work() {
    let rules = MmuRules { contexts: 4, ..MmuRules::X86_64 };
    let fx: Fixture = Fixture::new(flat_with(1, 4096, rules), no_thp());
    let spaces: Vec<Space> = (0..6).map(|_| fx.vm.create().unwrap()).collect();
    for space in &spaces {
        fx.vm.activate(space);
        fx.map(space, AT, KIB4, RW);
        fx.poke(space, AT, 1).unwrap();
    }
    fx.vm.idle();
    for space in spaces {
        fx.vm.exit(space);
    }
    fx.check(&[]);
}
