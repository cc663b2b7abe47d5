//! Ranges, portions and their order, through faults and through the engine's own calls.

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

#[test]
fn a_02_a_huge_fault_clears_right_then_left_then_near_with_the_faulting_page_as_the_very_last() {
    for (fault, expected) in NEAR_LAST {
        let fx = probe_fixture(4096, &[]);
        let space = fx.vm.create().unwrap();
        let block = fx.huge_fault(&space, AT, fault);
        let acts = fx.m().acts();
        assert_eq!(acts.ranges(block), expected, "page {fault}");
        assert_eq!(acts.pages(block).last(), Some(&fault));
        fx.end([space]);
    }
}

#[test]
fn a_03_for_every_size_and_edge_each_page_is_cleared_once_and_up_to_three_pages_are_only_near() {
    for frames in [2u64, 3, 4, 5, 8, 16, 512] {
        for fault in edges(frames) {
            for unit in ["page", "extent"] {
                for order in ["near-last", "ascending"] {
                    let fx = probe_fixture(1024, &[("clear.unit", unit), ("clear.order", order)]);
                    let first = Pfn(512);
                    fx.vm.cleared(&Extent { first, frames, at: AT, fault: Some(fault) }).unwrap();
                    let acts = fx.m().acts();
                    let mut all = acts.pages(first);
                    if order == "near-last" {
                        assert_eq!(all.last(), Some(&fault), "{frames} {fault} {unit}");
                        assert!(frames > 3 || unit == "page" || acts.ranges(first).len() == 1);
                    }
                    all.sort_unstable();
                    let what = format!("{frames} pages, page {fault}, {unit} {order}");
                    assert!(all.into_iter().eq(0..frames), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_03_a_block_of_262144_pages_is_cleared_once_each_for_every_edge() {
    // The order alone: the machine has no memory behind its frames.
    let fx = probe_fixture_on(Probe::hollow(1 << 18), &[("preempt", "full")]);
    let (first, frames) = (Pfn(512), 1u64 << 18);
    for fault in [0, 1, 2, 3, 100_000, frames - 4, frames - 3, frames - 2, frames - 1] {
        fx.vm.cleared(&Extent { first, frames, at: Va(0), fault: Some(fault) }).unwrap();
        let acts = fx.m().acts();
        let sum: u64 = acts.ranges(first).iter().map(|(a, b)| b - a + 1).sum();
        assert_eq!(sum, frames, "page {fault}");
        let mut runs: Vec<_> = acts.runs_at(first).into_iter().map(|run| run.0).collect();
        assert_eq!(runs.last(), Some(&(fault, 1)));
        runs.sort_unstable();
        let end = runs
            .iter()
            .fold(0, |end, &(at, n)| if at == end { end + n } else { panic!("{runs:?}") });
        assert_eq!(end, frames);
        assert!(runs.len() <= 5 && acts.points() == 0, "no explicit splits: {runs:?}");
    }
}

#[test]
fn a_04_cooperative_kernels_get_a_scheduling_point_before_each_portion_and_preemptible_ones_none() {
    for batch in [1u64, 2, 3, 5, 7, 8, 100, 511, 512, 2048] {
        for fault in [0, 100, 511] {
            let bytes = (batch * KIB4).to_string();
            let fx = probe_fixture(4096, &[("clear.batch", &bytes)]);
            let space = fx.vm.create().unwrap();
            for model in
                [Preemption::None, Preemption::Voluntary, Preemption::Full, Preemption::Lazy]
            {
                fx.m().set_model(Some(model));
                let block = fx.huge_fault(&space, AT, fault);
                let acts = fx.m().acts();
                let asks = matches!(model, Preemption::None | Preemption::Voluntary);
                let far = acts.ranges(block).into_iter().rev().skip(1);
                let portions: u64 = far.map(|(a, b)| (b - a + 1).div_ceil(batch)).sum::<u64>() + 1;
                let expected = if asks { portions } else { 0 };
                assert_eq!(acts.points() as u64, expected, "{model:?} batch {batch}");
                // Each portion has its own scheduling point before it; the runs around the fault
                // share one.
                let near = acts.iter().rposition(|a| matches!(a, Act::Range(..))).expect("a range");
                let mut point = false;
                for (i, act) in acts.iter().enumerate().filter(|_| asks) {
                    let (before, after) = match act {
                        Act::Point => (false, true),
                        Act::Run(..) => (true, i > near),
                        _ => continue,
                    };
                    let was = std::mem::replace(&mut point, after);
                    assert_eq!(was, before, "one point before each portion: {act:?}");
                }
                let longest = acts.runs().iter().map(|run| run.0).max();
                assert!(!asks || longest <= Some(batch.max(4)), "{longest:?}");
                assert!(fx.is_zero(block, 512));
                fx.vm.unmap(&space, AT, MIB2).unwrap();
            }
            fx.end([space]);
        }
    }
}

#[test]
fn a_l3_the_preemption_model_may_change_between_two_faults_and_in_the_middle_of_a_clear() {
    let fx = probe_fixture(4096, &[("clear.batch", "64K"), ("preempt", "full")]);
    let space = fx.vm.create().unwrap();
    let first = fx.huge_fault(&space, AT, 0);
    assert_eq!(fx.m().acts().points(), 0, "the switch says full");
    fx.m().set_model(Some(Preemption::None));
    let second = fx.huge_fault(&space, Va(AT.0 + MIB2), 0);
    assert_eq!(fx.m().acts().points(), 509usize.div_ceil(16) + 1);
    // After five portions of 16 pages the rest of the range is one portion.
    fx.m().change_model(5, Preemption::Lazy);
    let third = fx.huge_fault(&space, Va(AT.0 + 2 * MIB2), 0);
    let acts = fx.m().acts();
    assert_eq!(acts.points(), 5);
    let rest = ((3 + 5 * 16, 509 - 5 * 16), Stores::Cached);
    assert!(acts.runs_at(third).contains(&rest), "{acts:?}");
    // And back: a range that began as one portion stays one; the next one is split.
    fx.m().change_model(1, Preemption::Voluntary);
    let fourth = fx.huge_fault(&space, Va(AT.0 + 3 * MIB2), 256);
    assert_eq!(fx.m().acts().points(), 254usize.div_ceil(16) + 1);
    for block in [first, second, third, fourth] {
        assert!(fx.is_zero(block, 512));
    }
    fx.end([space]);
}

#[test]
fn with_pages_as_units_each_page_has_its_scheduling_point_and_converges_on_the_fault() {
    let fx = probe_fixture(4096, &[("clear.unit", "page")]);
    let space = fx.vm.create().unwrap();
    let block = fx.huge_fault(&space, AT, 100);
    let acts = fx.m().acts();
    let order = acts.pages(block);
    assert_eq!(order[..3], [511, 510, 509], "the far end first");
    assert_eq!(order[509..], [99, 101, 100], "then from both sides");
    assert_eq!(acts.points(), 512);
    assert!(acts.runs().iter().all(|run| run.0 == 1));
    fx.vm.exit(space);
}

#[test]
fn long_runs_go_around_the_caches_by_geometry_and_the_neighbourhood_never_does() {
    let around = |machine: Probe, stores: &str| {
        let fx = probe_fixture_on(machine, &[("clear.stores", stores), ("preempt", "full")]);
        let space = fx.vm.create().unwrap();
        let block = fx.huge_fault(&space, AT, 200);
        let acts = fx.m().acts();
        let bypass = |(run, stores)| (stores == Stores::NonTemporal).then_some(run);
        let bypassed: Vec<_> = acts.runs_at(block).into_iter().filter_map(bypass).collect();
        assert_eq!(acts.count(Act::StoreFence), bypassed.len(), "one fence a portion");
        fx.vm.exit(space);
        bypassed
    };
    let cases: [(Option<(u64, u64)>, _, &[_], _); 6] = [
        (Some((2 << 20, 0)), "auto", &[(203, 309)], "1.2 MiB: more than half of it; 0.8: less"),
        (Some((2 << 20, 64 << 10)), "auto", &[(203, 309), (0, 198)], "measured, not geometry"),
        (Some((0, 0)), "auto", &[], "stores, but nothing is known of the caches"),
        (Some((1 << 20, 0)), "cached", &[], ""),
        (Some((8 << 20, 0)), "bypass", &[(203, 309), (0, 198)], ""),
        (None, "auto", &[], "a machine that says nothing of its caches"),
    ];
    for (caches, stores, expected, why) in cases {
        let machine = Probe::new(4096);
        caches.into_iter().for_each(|(l2, bypass)| machine.set_caches(l2, bypass));
        assert_eq!(around(machine, stores), expected, "{caches:?} {stores}: {why}");
    }
}

#[test]
fn pages_that_nobody_waits_for_are_one_range_around_the_caches_however_short() {
    for (threshold, stores) in [(u64::MAX, Stores::Cached), (1 << 40, Stores::NonTemporal)] {
        for frames in [1u64, 4, 16, 64] {
            let machine = Probe::new(4096);
            machine.set_caches(1 << 20, threshold);
            let fx = probe_fixture_on(machine, &[("preempt", "full")]);
            let first = Pfn(1000);
            fx.soil(Pfn(first.0 - 1), frames + 2, 9);
            fx.vm.cleared(&Extent { first, frames, at: AT, fault: None }).unwrap();
            let acts = fx.m().acts();
            assert_eq!(acts.runs_at(first), [((0, frames), stores)]);
            let fences = (stores == Stores::NonTemporal) as usize;
            assert_eq!(acts.count(Act::StoreFence), fences, "{frames} pages");
            assert!(fx.is_zero(first, frames));
            let guards = [Pfn(first.0 - 1), first.add(frames)].map(|g| fx.m().uniform(g));
            assert_eq!(guards, [Some(9); 2], "guards");
        }
    }
    let fx = probe_fixture(4096, &[("clear.unit", "page")]);
    fx.vm.cleared(&Extent { first: Pfn(1000), frames: 5, at: AT, fault: None }).unwrap();
    assert_eq!(fx.m().acts().pages(Pfn(1000)), [0, 1, 2, 3, 4]);
}

#[test]
fn scattered_frames_are_cleared_with_one_fence_a_batch() {
    let fx = probe_fixture(4096, &[("clear.stores", "bypass"), ("clear.batch", "32K")]);
    let frames: Vec<_> = (0..20).map(|i| (Pfn(1000 + i * 7), page_at(i))).collect();
    frames.iter().for_each(|f| fx.soil(f.0, 1, 9));
    fx.vm.cleared_singles(&frames).unwrap();
    let acts = fx.m().acts();
    assert_eq!((acts.count(Act::StoreFence), acts.points()), (3, 3), "8, 8 and 4 frames");
    assert!(frames.iter().all(|f| fx.is_zero(f.0, 1)));
    assert_eq!(fx.m().uniform(Pfn(1001)), Some(0), "never touched");
    fx.m().stop_after(2);
    frames.iter().for_each(|f| fx.soil(f.0, 1, 9));
    assert!(fx.vm.cleared_singles(&frames).is_err());
    assert!(fx.is_zero(frames[7].0, 1) && !fx.is_zero(frames[8].0, 1));
    fx.vm.cleared_singles(&[]).expect("nothing to do");
    for (bypass, settled) in [(u64::MAX, 0), (1 << 40, 1)] {
        let machine = Probe::new(4096);
        machine.set_caches(1 << 20, bypass);
        let fx = probe_fixture_on(machine, &[]);
        fx.vm.cleared_singles(&frames[..1]).unwrap();
        let acts = fx.m().acts();
        assert_eq!(acts.count(Act::StoreFence), settled, "not used at once: around, however few");
    }
}

#[test]
fn the_same_engine_copies_in_the_same_order_and_portions() {
    let fx = probe_fixture(4096, &[("clear.batch", "28K")]);
    let (from, to) = (Pfn(1024), Pfn(2048));
    for i in 0..64 {
        fx.soil(from.add(i), 1, i as u8 + 1);
    }
    fx.soil(to, 66, 0xee);
    fx.vm.copied(from, &Extent { first: to.add(1), frames: 64, at: AT, fault: Some(30) }).unwrap();
    let acts = fx.m().acts();
    assert_eq!(acts.ranges(to.add(1)), [(33, 63), (0, 27), (28, 32)]);
    assert_eq!(acts.pages(to.add(1)).last(), Some(&30));
    assert_eq!(acts.points(), 5 + 4 + 1);
    assert!((0..64).all(|i| fx.m().uniform(to.add(1 + i)) == Some(i as u8 + 1)));
    assert_eq!([to, to.add(65)].map(|pfn| fx.m().uniform(pfn)), [Some(0xee); 2], "guards");
}
