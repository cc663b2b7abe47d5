//! Blocks of pools: rule F-10, and what clears them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

#[test]
fn a_10_blocks_of_a_pool_are_cleared_whatever_the_allocator_does_and_fresh_ones_exactly_once() {
    for zeroing in ["off", "on"] {
        let fx = old_fixture(8192, &[("alloc.zero", zeroing)]);
        let cleared = || fx.m().flat.asked.cleared_frames.get();
        let space = fx.vm.create().unwrap();
        let before = cleared();
        let fresh = fx.huge_fault(&space, AT, 9);
        assert!(fx.is_zero(fresh, 512));
        assert_eq!(cleared() - before, 512, "fresh, alloc.zero={zeroing}");
        // The pool takes the next block freed, old bytes and all.
        assert_eq!(fx.vm.pool(Order::HUGE, 1), Ok(()));
        assert_eq!(fx.vm.pool(Order::HUGE, 2), Ok(()));
        let pooled = fx.huge_fault(&space, Va(AT.0 + MIB2), 3);
        assert!(fx.is_zero(pooled, 512));
        fx.soil(pooled, 512, 0x5c);
        fx.vm.unmap(&space, Va(AT.0 + MIB2), MIB2).unwrap();
        assert_eq!(fx.vm.audit(&[&space]).unwrap().pool_frames, 1024);
        let before = cleared();
        let again = fx.huge_fault(&space, Va(AT.0 + MIB2), 500);
        assert_eq!(again, pooled, "the pool gives back what it got last");
        assert!(fx.is_zero(again, 512), "recycled, alloc.zero={zeroing}");
        assert_eq!(cleared() - before, 512);
        assert_eq!(fx.vm.pool(Order::HUGE, 0), Ok(()));
        fx.end([space]);
    }
}

#[test]
fn a_pool_that_cannot_be_filled_says_so_keeps_what_it_got_and_serves_exact_mappings_only() {
    let fx = old_fixture(512 * 4, &[]);
    assert!(fx.vm.pool(Order::HUGE, 100).is_err());
    assert!(fx.vm.pool(Order::BASE, 1).is_err() && fx.vm.pool(Order::GIANT, 1).is_err());
    let held = fx.vm.audit(&[]).unwrap().pool_frames;
    assert!(held >= 512 && held.is_multiple_of(512), "{held}");
    fx.vm.pool(Order::HUGE, 1).unwrap();
    assert_eq!(fx.vm.audit(&[]).unwrap().pool_frames, 512);
    let space = fx.vm.create().unwrap();
    let count = |fx: &ProbeFixture| fx.vm.audit(&[&space]).unwrap().pool_frames;
    fx.map(&space, Va(0x1_0000_0000), MIB2, RW);
    assert_eq!(fx.vm.fault(&space, Va(0x1_0000_0000), Access::Write), Ok(Fault::Huge));
    assert_eq!(count(&fx), 512, "left alone");
    fx.huge_fault(&space, AT, 0);
    assert_eq!(count(&fx), 0);
    fx.vm.pool(Order::HUGE, 0).unwrap();
    fx.end([space]);
}

#[test]
fn a_mapping_gets_blocks_of_a_pool_from_the_nodes_that_its_policy_allows() {
    let spans = [(512, 8 * 512), (9 * 512, 8 * 512)];
    let fx: Fixture = Fixture::new(Flat::new(nodes(1, &spans), MmuRules::X86_64), no_thp());
    let space = fx.vm.create().unwrap();
    let pooled = || fx.vm.audit(&[&space]).unwrap().pool_frames / 512;
    let at = |block: u64| Va(AT.0 + block * MIB2);
    let touch = |block, numa| {
        fx.map(&space, at(block), MIB2, Attrs { numa, ..EXACTLY_HUGE });
        fx.vm.fault(&space, at(block), Access::Write)?;
        Ok(fx.m().topology().node_of(fx.frame(&space, at(block))).unwrap())
    };
    let gone = |block| fx.vm.unmap(&space, at(block), MIB2).unwrap();
    // The CPU is of node 0, and so is what the pool takes.
    fx.vm.pool(Order::HUGE, 2).unwrap();
    assert_eq!((touch(0, Some(NumaPolicy::Bind(1))), pooled()), (Ok(1), 2));
    assert_eq!(touch(1, Some(NumaPolicy::Bind(2))), Err(FaultError::NoMemory));
    assert_eq!((touch(2, None), touch(3, None), pooled()), (Ok(0), Ok(0), 0));
    // One of each.
    for (block, numa, node) in [
        (4, Some(NumaPolicy::Prefer(1)), 1),
        (5, Some(NumaPolicy::Interleave), 1),
        (6, Some(NumaPolicy::Interleave), 0),
        (7, Some(NumaPolicy::Bind(0)), 0),
        (8, Some(NumaPolicy::Bind(1)), 1),
        (9, None, 0),
    ] {
        gone(if node == 0 { 0 } else { 2 });
        gone(if node == 0 { 2 } else { 0 });
        assert_eq!(pooled(), 2);
        assert_eq!((touch(block, numa), pooled()), (Ok(node), 1), "{numa:?}");
        // The other one will do where the policy has no better, and the nodes have none.
        gone(block);
        assert_eq!((touch(0, Some(NumaPolicy::Bind(1))), touch(2, None)), (Ok(1), Ok(0)));
    }
    assert_eq!(pooled(), 0);
    gone(0);
    assert_eq!((touch(10, None), pooled()), (Ok(1), 0), "the pool before the allocator");
    fx.vm.pool(Order::HUGE, 0).unwrap();
    fx.end([space]);
}

#[test]
fn a_task_that_is_to_end_gives_its_block_back_to_the_pool() {
    for zeroing in ["off", "on"] {
        let fx = old_fixture(8192, &[("alloc.zero", zeroing), ("preempt", "voluntary")]);
        let space = fx.vm.create().unwrap();
        fx.vm.pool(Order::HUGE, 1).unwrap();
        fx.map(&space, AT, MIB2, EXACTLY_HUGE);
        fx.m().stop_after(0);
        assert_eq!(fx.vm.fault(&space, AT, Access::Write), Err(FaultError::Stopped));
        fx.m().stop_after(u64::MAX);
        assert_eq!(fx.vm.audit(&[&space]).unwrap().pool_frames, 512, "alloc.zero={zeroing}");
        fx.vm.pool(Order::HUGE, 0).unwrap();
        fx.end([space]);
    }
}

#[test]
fn f_10_a_block_enters_the_pool_after_its_last_flush_and_leaves_it_to_be_cleared() {
    let fx = Rc::new(followed(&[]));
    assert_eq!(fx.vm.pool(Order::HUGE, 1), Ok(()));
    let space = fx.vm.create().unwrap();
    fx.on_cpu(1, || fx.vm.activate(&space));
    let others: Rc<RefCell<Option<Space>>> = Rc::default();
    let mut last = None;
    for round in 0..3 {
        let block = fx.huge_fault(&space, AT, 9);
        assert!(fx.is_zero(block, 512) && last.is_none_or(|last| last == block), "round {round}");
        assert_eq!(fx.vm.audit(&[&space]).unwrap().pool_frames, 0);
        // It holds a program's bytes while it is in the pool: nobody has cleared it.
        fx.soil(block, 512, 0x77);
        let flushes = Rc::new(Cell::new(0));
        let during = {
            let (fx, flushes, others) = (Rc::clone(&fx), Rc::clone(&flushes), Rc::clone(&others));
            move |_| {
                flushes.set(flushes.get() + 1);
                let use_ = fx.vm.frames().record(block).use_();
                assert_eq!(use_, Use::Data, "CPU 1 may still write to it");
                // A fault that needs such a block now gets another one.
                let other = fx.vm.create().unwrap();
                assert_ne!(fx.huge_fault(&other, AT, 9), block);
                let all = fx.take_all(Order::HUGE);
                assert!(!all.contains(&block));
                fx.give_back(all, Order::HUGE);
                others.replace(Some(other));
            }
        };
        during_flushes(during, || fx.vm.unmap(&space, AT, MIB2).unwrap());
        assert!(flushes.get() >= 1);
        // The pool holds one block; further blocks become free memory.
        others.take().into_iter().for_each(|other| fx.vm.exit(other));
        let audit = fx.vm.audit(&[&space]).unwrap();
        assert_eq!(audit.pool_frames, 512);
        assert_eq!(fx.m().flat.asked.became[Use::Pending as usize].get(), 0, "and nothing pends");
        assert_eq!(fx.m().uniform(block), Some(0x77), "clearing is for whoever takes it out");
        last = Some(block);
    }
    fx.on_cpu(1, || fx.vm.deactivate());
    fx.vm.pool(Order::HUGE, 0).unwrap();
    fx.end([space]);
}

/// A store to a mapping of any size where one block of 2 MiB is all that is free, and the tables of
/// a huge page are missing; what was served, and what is free then.
fn served_by_the_last_block(wanted: u64) -> (Result<Fault, FaultError>, u64) {
    let fx = fixture(2048, Config::default());
    let space = fx.mapped(Va(GIB), GIB, RW);
    let taken = fx.take_all(Order::BASE);
    assert_eq!(fx.vm.pool(Order::HUGE, wanted).is_err(), wanted != 0);
    let block: Vec<Pfn> = taken.into_iter().filter(|pfn| (1024..1536).contains(&pfn.0)).collect();
    assert_eq!(block.len(), 512);
    fx.give_back(block, Order::BASE);
    fx.vm.frames().drain(fx.m());
    let served = fx.vm.fault(&space, Va(GIB), Access::Write);
    (served, fx.vm.frames().free_frames(0))
}

#[test]
fn a_block_that_was_taken_for_nothing_is_there_for_a_base_page_whatever_a_pool_wants() {
    let alone = served_by_the_last_block(0);
    assert_eq!(alone.0, Ok(Fault::Base));
    assert_eq!(served_by_the_last_block(1), alone);
}

#[test]
fn a_fault_that_was_stopped_leaves_a_pool_as_it_was() {
    let fx = fixture(4096, Config::default());
    let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
    let taken = fx.take_all(Order::BASE);
    assert_eq!(fx.vm.pool(Order::HUGE, 1), Err(NoMemory));
    fx.give_back(taken, Order::BASE);
    let before = fx.state(&[&space]);
    fx.m().stop(Some(0));
    let served = fx.vm.fault(&space, Va(GIB), Access::Write);
    fx.m().stop(None);
    assert_eq!(served, Err(FaultError::Stopped));
    assert_same(&before, &fx.state(&[&space]), "stopped");
}
