//! Unmap: the contents go, and all memory with them.

use vellum_testkit::prelude::*;

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
    assert_eq!(fx.vm.fault(&space, page_at(1), Access::Write), Ok(Fault::Base));
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

#[test]
fn unmapping_part_of_a_huge_page_keeps_the_rest_of_its_contents() {
    for (from, pages) in [(0, 1), (511, 1), (3, 17), (0, 511)] {
        let fx = fixture(4096, Config::default());
        let space = fx.mapped(Va(GIB), MIB2, RW);
        for page in 0..512 {
            fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
        }
        assert_eq!(fx.usage(&space).huge_leaves, 1);
        fx.vm.unmap(&space, Va(GIB + from * KIB4), pages * KIB4).unwrap();
        for page in 0..512 {
            let gone = (from..from + pages).contains(&page);
            let want = if gone { Err(FaultError::Unmapped) } else { Ok(page + 1) };
            assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), want);
        }
        assert_eq!(fx.usage(&space).rss_pages, 512 - pages);
        assert_eq!(fx.count(Counter::ThpSplit), 1);
        fx.end([space]);
    }
}

#[test]
fn what_is_unmapped_keeps_no_region() {
    for bytes in [KIB4, MIB2] {
        let fx = fixture(2048, Config::default());
        let space = fx.vm.create().unwrap();
        let at = |n: u64| Va(GIB + n * bytes);
        // 514 regions, since no neighbours are alike.
        let rights = [Rights::READ, Rights::READ_WRITE];
        (0..514)
            .for_each(|n| fx.map(&space, at(n), bytes, Attrs::anonymous(rights[n as usize % 2])));
        let slabs = || fx.vm.audit(&[&space]).expect("a valid state").slab_frames;
        let many = slabs();
        // In two tables, each of which keeps one mapping.
        fx.vm.unmap(&space, at(1), 512 * bytes).expect("mapped");
        let few = slabs();
        assert!(few + 4 < many, "{many} frames for 514 regions, {few} for two of them");
        fx.end([space]);
    }
}

#[test]
fn a_table_goes_with_a_page_where_nothing_else_is_below_it() {
    let fx = fixture(4096, no_thp());
    let at = Va(4096 * GIB);
    // Beside it: nothing, a page of the same table, one of the same table of tables, one further.
    for beside in [None, Some(KIB4), Some(2 * KIB4), Some(MIB2), Some(GIB), Some(512 * GIB)] {
        // A page, one with a hole behind it, and two pages.
        for (mapped, bytes) in [(KIB4, KIB4), (KIB4, 2 * KIB4), (2 * KIB4, 2 * KIB4)] {
            let neighbour = beside.map(|distance| Va(at.0 + distance));
            if beside.is_some_and(|distance| distance < bytes) {
                continue;
            }
            let space = fx.vm.create().unwrap();
            fx.map(&space, Va(at.0 - 1024 * GIB), KIB4, RW);
            if let Some(beside) = neighbour {
                fx.map(&space, beside, KIB4, RW);
                fx.poke(&space, beside, 5).unwrap();
            }
            let (frames, tables) = (fx.check(&[&space]), fx.usage(&space).table_nodes);
            fx.map(&space, at, mapped, RW);
            fx.poke(&space, at, 7).unwrap();
            fx.vm.unmap(&space, at, bytes).unwrap();
            assert_eq!(fx.check(&[&space]), frames, "{beside:?} {bytes}");
            assert_eq!(fx.usage(&space).table_nodes, tables, "{beside:?} {bytes}");
            assert_eq!(fx.peek(&space, at), Err(FaultError::Unmapped));
            assert_eq!(neighbour.map(|va| fx.peek(&space, va)), beside.map(|_| Ok(5)));
            fx.end([space]);
        }
    }
}
