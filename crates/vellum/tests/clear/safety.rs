//! No frame reaches a program with old bytes in it, and none beside a block is touched: under any
//! batch, order, model, stop or failure.

use crate::flat::{MachineHands, VmHands};
use crate::lab::*;
use vellum::addr::{Order, PAGE_SIZE, Pfn, Va};
use vellum::config::Preemption;
use vellum::error::{FaultError, SpaceError};
use vellum::machine::Machine;
use vellum::space::{Access, Advice, Fault, Page};
use vellum::unstable::Extent;

const OLD: u8 = 0xa5;

/// A lab whose every frame held old bytes before the library came.
fn old_lab(frames: u64, switches: &[(&str, &str)]) -> Lab {
    let machine = Probe::new(frames);
    machine.fill_all(OLD);
    lab_on(machine, switches)
}

/// Frames that nobody ever got still hold what they held.
fn guards_hold(lab: &Lab) {
    let node = lab.m().topology().node[0];
    for pfn in (0..node.frames).map(|i| node.first.add(i)).filter(|&p| !lab.m().was_given(p)) {
        assert_eq!(lab.m().uniform(pfn), Some(OLD), "{pfn:?} was nobody's and is written");
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
            let lab = old_lab(
                2560,
                &[("clear.batch", &bytes), ("clear.order", order), ("clear.unit", unit)],
            );
            let space = lab.vm.create().unwrap();
            let block = lab.huge_fault(&space, AT, fault);
            assert!(lab.is_zero(block, 512), "batch {batch}, page {fault}, {order} {unit}");
            // Recycled: written all over, freed, faulted again.
            lab.soil(block, 512, 0x77);
            lab.vm.advise(&space, AT, MIB2, Advice::DontNeed).unwrap();
            assert_eq!(
                lab.vm.fault(&space, Va(AT.0 + fault * KIB4), Access::Write),
                Ok(Fault::Huge)
            );
            assert!(
                lab.is_zero(lab.block(&space, AT), 512),
                "recycled, batch {batch}, page {fault}"
            );
            guards_hold(&lab);
            lab.vm.exit(space);
            lab.check(&[]);
        }
    }
}

#[test]
fn a_01_a_06_every_page_of_a_huge_page_may_be_the_one_that_faults_under_every_batch() {
    for batch in [1u64, 2, 3, 5, 7, 8, 511, 512, 2048, 8192] {
        let bytes = (batch * KIB4).to_string();
        let lab = old_lab(512 * 4, &[("clear.batch", &bytes)]);
        let space = lab.vm.create().unwrap();
        let block = lab.huge_fault(&space, AT, 0);
        let guards = [Pfn(block.0 - 1), block.add(512)];
        for fault in 0..512 {
            lab.soil(block, 512, 0x77);
            lab.vm.advise(&space, AT, MIB2, Advice::DontNeed).unwrap();
            assert_eq!(
                lab.vm.fault(&space, Va(AT.0 + fault * KIB4), Access::Write),
                Ok(Fault::Huge)
            );
            assert_eq!(lab.block(&space, AT), block, "the same block again");
            assert!(lab.is_zero(block, 512), "batch {batch}, page {fault}");
            for guard in guards.iter().filter(|&&guard| !lab.m().was_given(guard)) {
                assert_eq!(
                    lab.m().uniform(*guard),
                    Some(OLD),
                    "batch {batch}, page {fault}: guard {guard:?}"
                );
            }
            lab.m().acts();
        }
        guards_hold(&lab);
        assert!(guards.iter().any(|&guard| !lab.m().was_given(guard)), "a guard that is nobody's");
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn a_s2_tails_that_a_batch_does_not_divide_are_cleared_where_they_are_and_nowhere_else() {
    for frames in [2u64, 4, 5, 8, 16, 512] {
        for batch in [3u64, 5, 7, 511] {
            for fault in
                (0..4).chain((1..=4).filter_map(|b| frames.checked_sub(b))).filter(|&f| f < frames)
            {
                let bytes = (batch * KIB4).to_string();
                let lab = old_lab(frames + 64, &[("clear.batch", &bytes)]);
                let first = Pfn(512 + 32);
                lab.vm.cleared(&Extent { first, frames, at: AT, fault }).unwrap();
                assert!(lab.is_zero(first, frames), "{frames} pages, batch {batch}, page {fault}");
                let guards = (1..=32)
                    .map(|i| Pfn(first.0 - i))
                    .chain((0..32).map(|i| first.add(frames + i)));
                guards.for_each(|g| assert_eq!(lab.m().uniform(g), Some(OLD), "guard {g:?}"));
            }
        }
    }
}

#[test]
fn a_10_blocks_of_a_pool_are_cleared_whatever_the_allocator_does_and_fresh_ones_exactly_once() {
    for zeroing in ["off", "on"] {
        let lab = old_lab(8192, &[("alloc.zero", zeroing)]);
        let cleared =
            || lab.m().flat.asked.cleared_frames.load(std::sync::atomic::Ordering::Relaxed);
        let space = lab.vm.create().unwrap();
        let before = cleared();
        let fresh = lab.huge_fault(&space, AT, 9);
        assert!(lab.is_zero(fresh, 512));
        assert_eq!(cleared() - before, 512, "fresh, alloc.zero={zeroing}");
        // The pool takes the next block freed, old bytes and all.
        assert_eq!(lab.vm.pool(Order::HUGE, 1), Ok(()));
        assert_eq!(lab.vm.pool(Order::HUGE, 2), Ok(()));
        let pooled = lab.huge_fault(&space, Va(AT.0 + MIB2), 3);
        assert!(lab.is_zero(pooled, 512));
        lab.soil(pooled, 512, 0x5c);
        lab.vm.unmap(&space, Va(AT.0 + MIB2), MIB2).unwrap();
        assert_eq!(lab.vm.audit(&[&space]).unwrap().pool_frames, 1024);
        let before = cleared();
        let again = lab.huge_fault(&space, Va(AT.0 + MIB2), 500);
        assert_eq!(again, pooled, "the pool gives back what it got last");
        assert!(lab.is_zero(again, 512), "recycled, alloc.zero={zeroing}");
        assert_eq!(cleared() - before, 512);
        lab.vm.exit(space);
        assert_eq!(lab.vm.pool(Order::HUGE, 0), Ok(()));
        lab.check(&[]);
    }
}

#[test]
fn a_pool_that_cannot_be_filled_says_so_keeps_what_it_got_and_serves_exact_mappings_only() {
    let lab = old_lab(512 * 4, &[]);
    assert!(lab.vm.pool(Order::HUGE, 100).is_err());
    assert!(lab.vm.pool(Order::BASE, 1).is_err() && lab.vm.pool(Order::GIANT, 1).is_err());
    let held = lab.vm.audit(&[]).unwrap().pool_frames;
    assert!(held >= 512 && held.is_multiple_of(512), "{held}");
    lab.vm.pool(Order::HUGE, 1).unwrap();
    assert_eq!(lab.vm.audit(&[]).unwrap().pool_frames, 512);
    let space = lab.vm.create().unwrap();
    let count = |lab: &Lab| lab.vm.audit(&[&space]).unwrap().pool_frames;
    let policy = vellum::space::Attrs::anonymous(vellum::space::Rights::READ_WRITE);
    lab.vm.map(&space, vellum::space::Placement::At(Va(0x1_0000_0000)), MIB2, policy).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(0x1_0000_0000), Access::Write), Ok(Fault::Huge));
    assert_eq!(count(&lab), 512, "left alone");
    lab.huge_fault(&space, AT, 0);
    assert_eq!(count(&lab), 0);
    lab.vm.exit(space);
    lab.vm.pool(Order::HUGE, 0).unwrap();
    lab.check(&[]);
}

#[test]
fn a_12_on_caches_that_alias_a_program_reads_zeros_by_its_own_address() {
    for zeroing in ["off", "on"] {
        for leaf in [Order::BASE, Order::HUGE] {
            let machine = Probe::new(4096);
            machine.alias();
            let lab = lab_on(machine, &[("alloc.zero", zeroing), ("thp", "never")]);
            // The last owner of every frame had it at addresses of both colours.
            for pfn in 512..512 + 4096 {
                (0..COLOURS).for_each(|c| lab.m().user_store(Pfn(pfn), Va(c * KIB4), OLD));
            }
            let space = lab.vm.create().unwrap();
            lab.map(&space, AT, MIB2, leaf);
            for page in [5, 4, 0, 511] {
                let va = Va(AT.0 + page * KIB4);
                lab.vm.fault(&space, va, Access::Write).unwrap();
                let Page::Mapped { pfn, .. } = lab.vm.query(&space, va) else { panic!("mapped") };
                let pfn = if leaf == Order::HUGE { pfn.add(page) } else { pfn };
                assert_eq!(
                    lab.m().user_load(pfn, va),
                    0,
                    "page {page}, {leaf:?}, alloc.zero={zeroing}"
                );
            }
            // Pages made many at a time, of either colour.
            let more = Va(AT.0 + 2 * MIB2 + KIB4);
            lab.map(&space, more, 101 * KIB4, Order::BASE);
            lab.vm.advise(&space, more, 101 * KIB4, Advice::Populate { write: true }).unwrap();
            for page in 0..101 {
                let va = Va(more.0 + page * KIB4);
                assert_eq!(
                    lab.m().user_load(lab.block(&space, va), va),
                    0,
                    "populated page {page}, alloc.zero={zeroing}"
                );
            }
            lab.vm.exit(space);
        }
    }
}

#[test]
fn a_12_the_aliasing_machine_shows_old_bytes_to_whoever_clears_by_the_wrong_address() {
    let machine = Probe::new(1024);
    machine.alias();
    let (pfn, va) = (Pfn(600), Va(AT.0 + KIB4));
    machine.user_store(pfn, va, OLD);
    machine.zero_out(pfn, 1);
    assert_eq!(machine.user_load(pfn, va), OLD, "the machine can tell");
}

#[test]
fn a_pending_stop_is_honoured_between_portions_the_frame_goes_back_and_nothing_is_mapped() {
    for (model, stops) in [(Preemption::Voluntary, true), (Preemption::Full, false)] {
        for points in [1u64, 2, 30, 64] {
            for pool in [0, 1] {
                let lab = old_lab(4096, &[("clear.batch", "32K")]);
                let space = lab.vm.create().unwrap();
                lab.vm.pool(Order::HUGE, pool).unwrap();
                lab.m().set_model(Some(model));
                lab.map(&space, AT, MIB2, Order::HUGE);
                let free = lab.check(&[&space]);
                lab.m().stop_after(points);
                let fault = lab.vm.fault(&space, Va(AT.0 + 5 * KIB4), Access::Write);
                if !stops {
                    assert_eq!(fault, Ok(Fault::Huge), "no point, no stop");
                    continue;
                }
                assert_eq!(fault, Err(FaultError::Stopped), "{points} points");
                assert!(matches!(lab.vm.query(&space, AT), Page::Reserved { .. }));
                assert_eq!(lab.check(&[&space]), free, "the block went back");
                let populate = lab.vm.advise(&space, AT, MIB2, Advice::Populate { write: true });
                assert_eq!(populate, Err(SpaceError::Stopped));
                // The task that is let go after all gets a clean page.
                lab.m().stop_after(u64::MAX);
                assert_eq!(lab.vm.fault(&space, AT, Access::Write), Ok(Fault::Huge));
                assert!(lab.is_zero(lab.block(&space, AT), 512));
                lab.vm.exit(space);
                lab.vm.pool(Order::HUGE, 0).unwrap();
                lab.check(&[]);
            }
        }
    }
}

#[test]
fn a_stop_before_the_first_portion_is_honoured_on_preemptible_kernels_too() {
    let lab = old_lab(4096, &[("preempt", "full"), ("alloc.zero", "on")]);
    let space = lab.vm.create().unwrap();
    lab.map(&space, AT, MIB2, Order::HUGE);
    let free = lab.check(&[&space]);
    lab.m().stop_after(0);
    assert_eq!(lab.vm.fault(&space, AT, Access::Write), Err(FaultError::Stopped));
    assert_eq!(lab.check(&[&space]), free);
    lab.vm.exit(space);
}

#[test]
fn with_memory_short_every_failing_allocation_leaves_all_as_it_was() {
    // From no block to all there are, each fault either maps zeros or changes nothing.
    for hold in 0..8u64 {
        let lab = old_lab(512 * 8, &[("clear.batch", "20K")]);
        let space = lab.vm.create().unwrap();
        lab.map(&space, AT, 8 * MIB2, Order::HUGE);
        let _ = lab.vm.pool(Order::HUGE, hold);
        let spare = lab.vm.audit(&[&space]).unwrap().pool_frames;
        let mut got = Vec::new();
        for n in 0..8 {
            let va = Va(AT.0 + n * MIB2 + n * 70 * KIB4);
            let free = lab.check(&[&space]);
            match lab.vm.fault(&space, va, Access::Write) {
                Ok(fault) => {
                    assert_eq!(fault, Fault::Huge);
                    let block = lab.block(&space, va.align_down(MIB2));
                    assert!(lab.is_zero(block, 512));
                    got.push(block);
                }
                Err(error) => {
                    assert_eq!(error, FaultError::NoMemory);
                    assert_eq!(lab.check(&[&space]), free);
                    assert!(matches!(lab.vm.query(&space, va), Page::Reserved { .. }));
                }
            }
        }
        assert!(
            got.len() as u64 * 512 >= spare && got.len() < 8,
            "{} of 8, pool {spare}",
            got.len()
        );
        lab.vm.exit(space);
        lab.vm.pool(Order::HUGE, 0).unwrap();
        lab.check(&[]);
    }
}

#[test]
fn with_zeroing_in_the_allocator_copies_and_collapses_are_right_too() {
    let lab = old_lab(8192, &[("alloc.zero", "on"), ("thp", "always")]);
    let parent = lab.vm.create().unwrap();
    let block = lab.huge_fault(&parent, AT, 1);
    lab.m().poke(block.add(7), 100, &[42]);
    lab.map(&parent, Va(AT.0 + 4 * MIB2), MIB2, Order::BASE);
    lab.vm.fault(&parent, Va(AT.0 + 4 * MIB2), Access::Write).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    lab.vm.copy_in(&child, AT, &[1]).unwrap();
    lab.vm.copy_in(&child, Va(AT.0 + 4 * MIB2), &[2]).unwrap();
    let mut byte = [0];
    lab.vm.copy_out(&child, Va(AT.0 + 7 * PAGE_SIZE as u64 + 100), &mut byte).unwrap();
    assert_eq!(byte, [42]);
    lab.vm.copy_out(&parent, AT, &mut byte).unwrap();
    assert_eq!(byte, [0]);
    lab.check(&[&parent, &child]);
    lab.vm.exit(child);
    lab.vm.exit(parent);
    lab.check(&[]);
}
