//! No frame reaches a program with old bytes in it, and none beside a block is touched: under any
//! batch, order, model, stop or failure.

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

/// Frames that were never allocated hold their old bytes.
fn guards_hold(fx: &ProbeFixture) {
    for pfn in fx.m().frames().filter(|&pfn| !fx.m().was_given(pfn)) {
        assert_eq!(fx.m().uniform(pfn), Some(OLD), "{pfn:?} was nobody's and is written");
    }
}

#[test]
fn a_01_a_06_a_huge_fault_reads_zero_for_every_batch_and_edge_and_its_guards_keep_their_bytes() {
    let mut faults: Vec<u64> = (0..512).step_by(37).collect();
    faults.extend([1, 2, 3, 508, 509, 510, 511]);
    for batch in [1u64, 2, 3, 5, 7, 8, 511, 512, 2048, 8192] {
        for (i, &fault) in faults.iter().enumerate() {
            let bytes = (batch * KIB4).to_string();
            let order = if i % 5 == 4 { "ascending" } else { "near-last" };
            let unit = if i % 7 == 6 { "page" } else { "extent" };
            let switches = [("clear.batch", &*bytes), ("clear.order", order), ("clear.unit", unit)];
            let fx = old_fixture(2560, &switches);
            let space = fx.vm.create().unwrap();
            let block = fx.huge_fault(&space, AT, fault);
            assert!(fx.is_zero(block, 512), "batch {batch}, page {fault}, {order} {unit}");
            // Written, freed, and faulted again.
            fx.soil(block, 512, 0x77);
            fx.vm.advise(&space, AT, MIB2, Advice::DontNeed).unwrap();
            assert_eq!(fx.vm.fault(&space, page_at(fault), Access::Write), Ok(Fault::Huge));
            assert!(fx.is_zero(fx.frame(&space, AT), 512), "recycled, batch {batch}, page {fault}");
            guards_hold(&fx);
            fx.end([space]);
        }
    }
}

#[test]
fn a_01_a_06_every_page_of_a_huge_page_may_be_the_one_that_faults_under_every_batch() {
    for batch in [1u64, 2, 3, 5, 7, 8, 511, 512, 2048, 8192] {
        let bytes = (batch * KIB4).to_string();
        let fx = old_fixture(512 * 4, &[("clear.batch", &bytes)]);
        let space = fx.vm.create().unwrap();
        let block = fx.huge_fault(&space, AT, 0);
        let guards = [Pfn(block.0 - 1), block.add(512)];
        for fault in 0..512 {
            fx.soil(block, 512, 0x77);
            fx.vm.advise(&space, AT, MIB2, Advice::DontNeed).unwrap();
            assert_eq!(fx.vm.fault(&space, page_at(fault), Access::Write), Ok(Fault::Huge));
            assert_eq!(fx.frame(&space, AT), block, "the same block again");
            assert!(fx.is_zero(block, 512), "batch {batch}, page {fault}");
            for guard in guards.into_iter().filter(|&guard| !fx.m().was_given(guard)) {
                let what = format!("batch {batch}, page {fault}: guard {guard:?}");
                assert_eq!(fx.m().uniform(guard), Some(OLD), "{what}");
            }
            fx.m().acts();
        }
        guards_hold(&fx);
        assert!(guards.iter().any(|&guard| !fx.m().was_given(guard)), "a guard that is nobody's");
        fx.end([space]);
    }
}

#[test]
fn a_s2_tails_that_a_batch_does_not_divide_are_cleared_where_they_are_and_nowhere_else() {
    for frames in [2u64, 4, 5, 8, 16, 512] {
        for batch in [3u64, 5, 7, 511] {
            for fault in edges(frames) {
                let bytes = (batch * KIB4).to_string();
                let fx = old_fixture(frames + 64, &[("clear.batch", &bytes)]);
                let first = Pfn(512 + 32);
                fx.vm.cleared(&Extent { first, frames, at: AT, fault: Some(fault) }).unwrap();
                assert!(fx.is_zero(first, frames), "{frames} pages, batch {batch}, page {fault}");
                for i in 0..32 {
                    let guards = [Pfn(first.0 - 1 - i), first.add(frames + i)];
                    assert_eq!(guards.map(|g| fx.m().uniform(g)), [Some(OLD); 2], "guard {i}");
                }
            }
        }
    }
}

#[test]
fn a_12_on_caches_that_alias_a_program_reads_zeros_by_its_own_address() {
    for zeroing in ["off", "on"] {
        for leaf in [Order::BASE, Order::HUGE] {
            let machine = Probe::new(4096);
            machine.alias();
            let fx = probe_fixture_on(machine, &[("alloc.zero", zeroing), ("thp", "never")]);
            // The last owner of every frame had it at addresses of both colours.
            for pfn in 512..512 + 4096 {
                (0..COLOURS).for_each(|c| fx.m().user_store(Pfn(pfn), Va(c * KIB4), OLD));
            }
            let space = fx.leaves(AT, MIB2, leaf);
            let reads_zero = |va: Va| {
                let read = fx.m().user_load(fx.frame(&space, va), va);
                assert_eq!(read, 0, "{va:?}, {leaf:?}, alloc.zero={zeroing}");
            };
            for va in [5, 4, 0, 511].map(page_at) {
                fx.vm.fault(&space, va, Access::Write).unwrap();
                reads_zero(va);
            }
            // Pages made many at a time, of either colour.
            let more = Va(AT.0 + 2 * MIB2 + KIB4);
            fx.map_leaves(&space, more, 101 * KIB4, Order::BASE);
            fx.populate(&space, more, 101 * KIB4).unwrap();
            (0..101).for_each(|page| reads_zero(Va(more.0 + page * KIB4)));
            fx.vm.exit(space);
        }
    }
}

#[test]
fn a_12_the_aliasing_machine_shows_old_bytes_to_whoever_clears_by_the_wrong_address() {
    let machine = Probe::new(1024);
    machine.alias();
    let (pfn, va) = (Pfn(600), page_at(1));
    machine.user_store(pfn, va, OLD);
    machine.zero_out(pfn, 1);
    assert_eq!(machine.user_load(pfn, va), OLD, "the machine can tell");
}

#[test]
fn a_pending_stop_is_honoured_between_portions_the_frame_goes_back_and_nothing_is_mapped() {
    for (model, stops) in [(Preemption::Voluntary, true), (Preemption::Full, false)] {
        for points in [1u64, 2, 30, 64] {
            for pool in [0, 1] {
                let fx = old_fixture(4096, &[("clear.batch", "32K")]);
                fx.vm.pool(Order::HUGE, pool).unwrap();
                fx.m().set_model(Some(model));
                let space = fx.leaves(AT, MIB2, Order::HUGE);
                let free = fx.check(&[&space]);
                fx.m().stop_after(points);
                let fault = fx.vm.fault(&space, page_at(5), Access::Write);
                if !stops {
                    assert_eq!(fault, Ok(Fault::Huge), "no point, no stop");
                    continue;
                }
                assert_eq!(fault, Err(FaultError::Stopped), "{points} points");
                assert!(matches!(fx.vm.query(&space, AT), Page::Reserved { .. }));
                assert_eq!(fx.check(&[&space]), free, "the block went back");
                assert_eq!(fx.populate(&space, AT, MIB2), Err(SpaceError::Stopped));
                // Without the stop the task gets a zeroed page.
                fx.m().stop_after(u64::MAX);
                assert_eq!(fx.vm.fault(&space, AT, Access::Write), Ok(Fault::Huge));
                assert!(fx.is_zero(fx.frame(&space, AT), 512));
                fx.vm.pool(Order::HUGE, 0).unwrap();
                fx.end([space]);
            }
        }
    }
}

#[test]
fn a_stop_before_the_first_portion_is_honoured_on_preemptible_kernels_too() {
    let fx = old_fixture(4096, &[("preempt", "full"), ("alloc.zero", "on")]);
    let space = fx.leaves(AT, MIB2, Order::HUGE);
    let free = fx.check(&[&space]);
    fx.m().stop_after(0);
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::Stopped));
    assert_eq!(fx.check(&[&space]), free);
    fx.vm.exit(space);
}

#[test]
fn with_memory_short_every_failing_allocation_leaves_all_as_it_was() {
    // With any number of free blocks, each fault either maps a zeroed page or changes nothing.
    for hold in 0..8u64 {
        let fx = old_fixture(512 * 8, &[("clear.batch", "20K")]);
        let space = fx.leaves(AT, 8 * MIB2, Order::HUGE);
        let _ = fx.vm.pool(Order::HUGE, hold);
        let spare = fx.vm.audit(&[&space]).unwrap().pool_frames;
        let mut got = 0;
        for n in 0..8 {
            let va = Va(AT.0 + n * MIB2 + n * 70 * KIB4);
            let free = fx.check(&[&space]);
            match fx.vm.fault(&space, va, Access::Write) {
                Ok(fault) => {
                    assert_eq!(fault, Fault::Huge);
                    let block = fx.frame(&space, va.align_down(MIB2));
                    assert!(fx.is_zero(block, 512));
                    got += 1;
                }
                Err(error) => {
                    assert_eq!(error, FaultError::NoMemory);
                    assert_eq!(fx.check(&[&space]), free);
                    assert!(matches!(fx.vm.query(&space, va), Page::Reserved { .. }));
                }
            }
        }
        assert!(got * 512 >= spare && got < 8, "{got} of 8, pool {spare}");
        fx.vm.pool(Order::HUGE, 0).unwrap();
        fx.end([space]);
    }
}

#[test]
fn with_zeroing_in_the_allocator_copies_and_collapses_are_right_too() {
    let fx = old_fixture(8192, &[("alloc.zero", "on"), ("thp", "always")]);
    let parent = fx.vm.create().unwrap();
    let block = fx.huge_fault(&parent, AT, 1);
    fx.m().poke(block.add(7), 100, &[42]);
    fx.map_leaves(&parent, Va(AT.0 + 4 * MIB2), MIB2, Order::BASE);
    fx.vm.fault(&parent, Va(AT.0 + 4 * MIB2), Access::Write).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    fx.vm.copy_in(&child, AT, &[1]).unwrap();
    fx.vm.copy_in(&child, Va(AT.0 + 4 * MIB2), &[2]).unwrap();
    let mut byte = [0];
    fx.vm.copy_out(&child, Va(AT.0 + 7 * PAGE_SIZE as u64 + 100), &mut byte).unwrap();
    assert_eq!(byte, [42]);
    fx.vm.copy_out(&parent, AT, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    fx.end([parent, child]);
}
