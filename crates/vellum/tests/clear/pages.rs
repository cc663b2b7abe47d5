//! Verbs that make many zero pages at once, and the copy of a large page: batches, portions, stops
//! and memory that runs out.

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

/// A fixture whose every frame held old bytes before the library came, and whose machine has stores
/// around its caches.
fn old_fixture(frames: u64, switches: &[(&str, &str)]) -> ProbeFixture {
    let machine = old_machine(frames);
    machine.set_caches(1 << 20, 0);
    probe_fixture_on(machine, switches)
}

/// The frames behind pages of a mapping at `AT`, where there are some.
fn frames(fx: &ProbeFixture, space: &Space, pages: u64) -> Vec<Option<Pfn>> {
    let frame = |page| match fx.vm.query(space, page_at(page)) {
        Page::Mapped { pfn, zero: false, .. } => Some(pfn),
        _ => None,
    };
    (0..pages).map(frame).collect()
}

#[test]
fn a_01_populated_pages_are_cleared_in_batches_with_one_fence_and_scheduling_point_each() {
    // 600 pages are 2.3 MiB, more than half of the second level; 100 are less.
    for (pages, stores, fences) in
        [(600u64, Stores::NonTemporal, true), (100, Stores::Cached, false)]
    {
        for zero_page in ["on", "off"] {
            let fx = old_fixture(4096, &[("thp", "never"), ("zero.page", zero_page)]);
            let space = fx.leaves(AT, 600 * KIB4, Order::BASE);
            let before = fx.vm.stats();
            fx.m().acts();
            let write = zero_page == "on";
            fx.vm.advise(&space, AT, pages * KIB4, Advice::Populate { write }).unwrap();
            let acts = fx.m().acts();
            let frames = frames(&fx, &space, 600);
            let (there, others) = frames.split_at(pages as usize);
            assert!(there.iter().all(|f| f.is_some_and(|f| fx.is_zero(f, 1))), "{pages} pages");
            assert!(others.iter().all(Option::is_none), "{pages} pages and no more");
            assert_eq!(acts.runs().len() as u64, pages, "each cleared once");
            let (batches, others) =
                (pages / 64, acts.runs().iter().filter(|run| run.1 != stores).count());
            assert!(acts.points() as u64 >= batches && acts.points() as u64 <= batches + 4);
            assert_eq!(acts.count(Act::StoreFence), if fences { acts.points() } else { 0 });
            assert!(others <= 2, "the first page of a table may be a fault of its own: {others}");
            let after = fx.vm.stats();
            let grown = |counter| after.get(counter) - before.get(counter);
            assert_eq!((grown(Counter::AnonPages), grown(Counter::Faults)), (pages as i64, 0));
            fx.end([space]);
        }
    }
}

#[test]
fn a_01_populating_fills_the_holes_of_a_range_and_leaves_what_is_there() {
    let fx = old_fixture(4096, &[("thp", "never")]);
    let space = fx.leaves(AT, 300 * KIB4, Order::BASE);
    for page in [0u64, 1, 7, 70, 71, 299] {
        fx.vm.copy_in(&space, Va(AT.0 + page * KIB4 + 9), &[page as u8 + 1]).unwrap();
    }
    let was = frames(&fx, &space, 300);
    // A region in the middle gives no right to write: the pages before it are populated.
    fx.vm.protect(&space, page_at(200), 10 * KIB4, Rights::READ).unwrap();
    let all = || fx.populate(&space, AT, 300 * KIB4);
    assert_eq!(all(), Err(SpaceError::Rights));
    let now = frames(&fx, &space, 300);
    assert!(now[..200].iter().all(Option::is_some) && now[200..210].iter().all(Option::is_none));
    fx.vm.protect(&space, page_at(200), 10 * KIB4, Rights::READ_WRITE).unwrap();
    assert_eq!(all(), Ok(()));
    let now = frames(&fx, &space, 300);
    for (page, (was, now)) in was.iter().zip(&now).enumerate() {
        let mut bytes = [0; 10];
        fx.vm.copy_out(&space, Va(AT.0 + page as u64 * KIB4), &mut bytes).unwrap();
        assert!(now.is_some() && (was.is_none() || was == now), "page {page}");
        assert_eq!(bytes[9], if was.is_some() { page as u8 + 1 } else { 0 }, "page {page}");
    }
    fx.end([space]);
}

#[test]
fn a_01_when_memory_runs_out_in_a_batch_the_frames_there_were_are_used_and_none_is_lost() {
    let mut short = 0;
    for left in (0..90u64).chain([128, 200]) {
        let fx = old_fixture(2048, &[("thp", "never"), ("clear.batch", "20K")]);
        let space = fx.leaves(AT, 300 * KIB4, Order::BASE);
        let far = Va(0x10_0000_0000);
        let filler = fx.leaves(far, 4096 * KIB4, Order::BASE);
        assert_eq!(fx.populate(&filler, far, 4096 * KIB4), Err(SpaceError::NoMemory));
        fx.vm.unmap(&filler, far, left * KIB4 + KIB4).unwrap();
        let populated = fx.populate(&space, AT, 300 * KIB4);
        let frames = frames(&fx, &space, 300);
        let got = frames.iter().take_while(|f| f.is_some()).count();
        assert!(frames[got..].iter().all(Option::is_none), "{left} frames left: in order");
        assert!(frames[..got].iter().flatten().all(|f| fx.is_zero(*f, 1)), "{left} frames left");
        assert_eq!(populated.is_ok(), got == 300);
        if populated.is_err() {
            assert_eq!(populated, Err(SpaceError::NoMemory));
            short += 1;
        }
        fx.check(&[&space, &filler]);
        // A copy by the kernel gets as far.
        let all = if got == 300 { Ok(()) } else { Err(FaultError::NoMemory) };
        assert_eq!(fx.vm.copy_in(&space, AT, &vec![7; 300 * PAGE_SIZE]), all);
        fx.end([space, filler]);
    }
    assert!(short > 80, "{short}");
}

#[test]
fn a_stop_between_two_portions_of_a_batch_gives_its_frames_back() {
    for points in 1..20u64 {
        let fx = old_fixture(2048, &[("thp", "never"), ("clear.batch", "20K")]);
        let space = fx.leaves(AT, 200 * KIB4, Order::BASE);
        // The table exists already, so that only pages are allocated.
        fx.vm.fault(&space, AT, Access::Write).unwrap();
        let free = fx.check(&[&space]);
        fx.m().stop_after(points);
        let populated = fx.populate(&space, AT, 200 * KIB4);
        assert_eq!(populated, Err(SpaceError::Stopped), "{points} points");
        let there = frames(&fx, &space, 200).iter().flatten().count() as u64;
        assert_eq!(fx.check(&[&space]), free - (there - 1), "{points} points");
        fx.m().stop_after(u64::MAX);
        fx.populate(&space, AT, 200 * KIB4).unwrap();
        assert!(frames(&fx, &space, 200).iter().all(|f| f.is_some_and(|f| fx.is_zero(f, 1))));
        fx.end([space]);
    }
}

#[test]
fn a_01_what_the_kernel_writes_into_fresh_memory_is_there_with_zeros_around_it() {
    let fx = old_fixture(4096, &[("thp", "never")]);
    let space = fx.leaves(AT, 700 * KIB4, Order::BASE);
    let bytes: Vec<u8> = (0..600 * PAGE_SIZE as u32 + 100).map(|i| (i % 251) as u8 + 1).collect();
    fx.m().acts();
    fx.vm.copy_in(&space, Va(AT.0 + 100), &bytes).unwrap();
    let acts = fx.m().acts();
    // They are written at once.
    assert_eq!(acts.runs(), vec![(1, Stores::Cached); 601]);
    assert!(acts.points() <= 16, "{} portions", acts.points());
    let mut all = vec![0xff; 601 * PAGE_SIZE];
    fx.vm.copy_out(&space, AT, &mut all).unwrap();
    assert!(all.splice(100..100 + bytes.len(), []).eq(bytes.iter().copied()));
    assert!(all.iter().all(|&b| b == 0), "no old byte beside");
    assert_eq!(frames(&fx, &space, 700).iter().flatten().count(), 601);
    // To the last byte of the address space's user half, and beyond it.
    let end = Va(0x7fff_ffff_f000);
    assert_eq!(fx.vm.copy_in(&space, Va(end.0 - 10), &bytes), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.copy_in(&space, Va(u64::MAX - 10), &bytes), Err(FaultError::Unmapped));
    fx.end([space]);
}

#[test]
fn a_02_a_04_a_shared_huge_page_is_copied_in_portions_with_the_written_page_last() {
    let fx = old_fixture(4096, &[("clear.batch", "512K")]);
    let parent = fx.vm.create().unwrap();
    let block = fx.huge_fault(&parent, AT, 3);
    (0..512).for_each(|i| fx.soil(block.add(i), 1, i as u8));
    let child = fx.vm.fork(&parent).unwrap();
    fx.m().acts();
    let written = page_at(100);
    assert!(matches!(fx.vm.fault(&child, written, Access::Write), Ok(Fault::Copied(_))));
    let acts = fx.m().acts();
    let copy = fx.frame(&child, AT);
    assert!(copy != block && fx.frame(&parent, AT) == block);
    let copied =
        |a: &Act| if let Act::Copy(to, n, s) = *a { Some((to.0 - copy.0, n, s)) } else { None };
    let runs: Vec<_> = acts.iter().filter_map(copied).collect();
    let (around, near) = (Stores::NonTemporal, Stores::Cached);
    let right = [(103, 128, around), (231, 128, around), (359, 128, around), (487, 25, around)];
    // 98 pages are less than half of the second level.
    let left = [(0, 98, near)];
    assert_eq!(runs[..4], right);
    assert_eq!(runs[4..5], left);
    assert_eq!(runs[5..], [(98, 2, near), (101, 2, near), (100, 1, near)]);
    assert_eq!(acts.points(), 4 + 1 + 1);
    assert!((0..512).all(|i| fx.m().uniform(copy.add(i)) == Some(i as u8)));
    fx.check(&[&parent, &child]);
    // The parent's page is exclusively mapped again.
    assert!(matches!(fx.vm.fault(&parent, written, Access::Write), Ok(Fault::Reused(_))));
    fx.end([child, parent]);
}

#[test]
fn a_stop_in_a_copy_leaves_the_page_shared_and_every_frame_counted() {
    for (points, zeroing) in [(1u64, "off"), (3, "off"), (5, "off"), (2, "on"), (9, "on")] {
        let fx = old_fixture(4096, &[("clear.batch", "512K"), ("alloc.zero", zeroing)]);
        let parent = fx.vm.create().unwrap();
        let block = fx.huge_fault(&parent, AT, 3);
        fx.soil(block, 512, 0x42);
        let child = fx.vm.fork(&parent).unwrap();
        let free = fx.check(&[&parent, &child]);
        fx.m().stop_after(points);
        let copied = fx.vm.fault(&child, AT, Access::Write);
        assert_eq!(copied, Err(FaultError::Stopped), "{points} points");
        assert_eq!(fx.check(&[&parent, &child]), free);
        assert_eq!(fx.frame(&child, AT), block);
        fx.m().stop_after(u64::MAX);
        assert!(matches!(fx.vm.fault(&child, AT, Access::Write), Ok(Fault::Copied(_))));
        assert!((0..512).all(|i| fx.m().uniform(fx.frame(&child, AT).add(i)) == Some(0x42)));
        fx.end([parent, child]);
    }
}
