//! Map: what a mapping is made of.

use vellum_testkit::prelude::*;

#[test]
fn exactly_two_mib_or_one_gib_take_one_reserved_entry_and_one_leaf() {
    let fx = fixture(600_000, Config::default());
    let space = fx.mapped(Va(GIB), GIB, RW);
    // The root and a level-3 node: one entry reserves 1 GiB.
    assert_eq!(fx.usage(&space).table_nodes, 2);
    fx.map(&space, Va(4 * GIB), MIB2, RW);
    assert_eq!(fx.usage(&space).table_nodes, 3);
    assert_eq!(fx.vm.fault(&space, Va(4 * GIB + MIB2 - 1), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.usage(&space).table_nodes, 3);
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB - 1), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.vm.fault(&space, Va(2 * GIB), Access::Write), Err(FaultError::Unmapped));
    for (at, bytes) in [(GIB / 2, GIB), (8 * GIB, MIB2)] {
        let giant = fx.vm.map(&space, Placement::At(Va(at)), bytes, EXACTLY_GIANT);
        assert_eq!(giant, Err(SpaceError::LeafSize), "{at:#x}");
    }
    fx.map(&space, Va(8 * GIB), GIB, EXACTLY_GIANT);
    assert_eq!(fx.vm.fault(&space, Va(8 * GIB + 5), Access::Read), Ok(Fault::Giant));
    assert_eq!(fx.leaf(&space, Va(9 * GIB - 1)).level, Level::THREE);
    assert_eq!(fx.usage(&space).rss_pages, 512 * 512 + 2 * 512);
    fx.check(&[&space]);
    // Out of its middle: one table of 2 MiB leaves, one of base pages.
    fx.vm.unmap(&space, Va(8 * GIB + 3 * MIB2 + KIB4), KIB4).unwrap();
    let usage = fx.usage(&space);
    assert_eq!((usage.giant_leaves, usage.huge_leaves), (0, 511 + 2));
    assert_eq!(usage.rss_pages, 512 * 512 - 1 + 2 * 512);
    fx.end([space]);
}

#[test]
fn a_leaf_size_the_machine_has_not_is_refused() {
    let rules = MmuRules { max_leaf: Order::HUGE, ..MmuRules::X86_64 };
    let fx: Fixture = Fixture::new(flat_with(1, 4096, rules), Config::default());
    let space = fx.vm.create().unwrap();
    for (order, bytes) in [(18, GIB), (3, 8 * KIB4), (10, 2 * MIB2)] {
        let exactly = Attrs { leaf: LeafSize::Exactly(Order::new(order).unwrap()), ..RW };
        let mapped = fx.vm.map(&space, Placement::At(Va(GIB)), bytes, exactly);
        assert_eq!(mapped, Err(SpaceError::LeafSize));
    }
    fx.vm.exit(space);
}

#[test]
fn huge_pages_take_nodes_in_turn_as_base_pages_do() {
    let spans = [(512, 8 * 512), (9 * 512, 8 * 512)];
    let config = Config { numa: NumaPolicy::Interleave, ..Config::default() };
    let fx: Fixture = Fixture::new(Flat::new(nodes(1, &spans), MmuRules::X86_64), config);
    let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
    let node = |block: u64| {
        let va = Va(GIB + block * MIB2);
        fx.poke(&space, va, 1).unwrap();
        let Page::Mapped { pfn, .. } = fx.vm.query(&space, va) else { panic!("no page") };
        fx.m().topology().node_of(pfn).unwrap()
    };
    assert_eq!([0, 1, 2, 3].map(node), [0, 1, 0, 1]);
    assert_eq!(fx.usage(&space).huge_leaves, 4);
    fx.vm.unmap(&space, Va(GIB), 4 * MIB2).unwrap();
    // Moved by half a block and a page, and touched first at any page.
    let from = Va(2 * GIB + 257 * KIB4);
    fx.map(&space, from, 4 * MIB2, RW);
    let to = Placement::At(Va(GIB));
    assert_eq!(fx.vm.remap(&space, from, 4 * MIB2, 4 * MIB2, to), Ok(Va(GIB)));
    let nodes = [(0, 511), (1, 0), (2, 300), (3, 100)].map(|(block, page)| {
        fx.poke(&space, Va(GIB + block * MIB2 + page * KIB4), 1).unwrap();
        node(block)
    });
    assert!(nodes.windows(2).all(|two| two[0] != two[1]), "{nodes:?}");
    assert_eq!(fx.usage(&space).huge_leaves, 4);
    fx.end([space]);
}

#[test]
fn pages_come_from_the_node_the_mapping_names() {
    let mut topology = nodes(2, &[(512, 4096), (512 + 4096, 4096)]);
    topology.cpu_node[1] = 1;
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
