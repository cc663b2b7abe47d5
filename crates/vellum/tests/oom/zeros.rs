//! Shared zeros without memory: statements D-3, D-8 and D-9 for each form of huge zeros.

use vellum_testkit::prelude::*;

fn falls_back<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, with_zeros(ZeroHuge::Page));
    let space = fx.zeros_read(MIB2);
    // Another CPU runs in the space as well: one flush, for both.
    fx.on_cpu(1, || fx.vm.activate(&space));
    fx.vm.activate(&space);
    let taken = fx.take_all(Order::HUGE);
    let flushes = || fx.count(Counter::FlushRemote);
    let before = flushes();
    let at = Va(GIB + 77 * KIB4 + 16);
    assert_eq!(fx.vm.fault(&space, at, Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(flushes() - before, 1);
    fx.poke(&space, at, 9).unwrap();
    let now = fx.usage(&space);
    assert_eq!((now.rss_pages, now.zero_leaves, now.zero_huge_leaves), (1, 511, 0));
    assert_eq!((fx.count(Counter::AnonPages), fx.count(Counter::AnonHuge)), (1, 0));
    assert_eq!((fx.count(Counter::ThpFaultFallback), fx.count(Counter::ThpZeroSplit)), (1, 1));
    for page in 0..512 {
        assert_eq!(fx.peek(&space, Va(GIB + page * KIB4 + 16)), Ok(if page == 77 { 9 } else { 0 }));
    }
    fx.vm.deactivate();
    fx.on_cpu(1, || fx.vm.deactivate());
    fx.give_back(taken, Order::HUGE);
    fx.end([space]);
}

on_both!(
    falls_back,
    d_03_without_a_huge_page_the_write_makes_one_page_and_511_zeros_with_one_flush
);

fn refuses<C: Arch>() {
    // Without a huge page a write needs a page, then a table. With 0 and 1 free frames it fails at
    // one and the other.
    for left in 0..3 {
        let fx = fixture_of::<C>(2, 4096, with_zeros(ZeroHuge::Page));
        let space = fx.zeros_read(MIB2);
        let taken = fx.take_all_but(left, Order::BASE);
        let before = fx.state(&[&space]);
        let got = fx.vm.fault(&space, Va(GIB + 5000), Access::Write);
        if left == 2 {
            assert_eq!(got, Ok(Fault::Copied(Level::ONE)));
        } else {
            assert_eq!(got, Err(FaultError::NoMemory), "{left} frames left");
            assert_same(&before, &fx.state(&[&space]), format_args!("{left} frames left"));
            let Leaf { level, flags, zero } = fx.leaf(&space, Va(GIB + 5000));
            assert!(level == Level::TWO && zero && !flags.write);
        }
        fx.give_back(taken, Order::BASE);
        fx.end([space]);
    }
}

on_both!(refuses, d_03_without_any_page_the_write_is_refused_at_each_step_and_nothing_changes);

fn no_zeros<C: Arch>() {
    let fx = fixture_of::<C>(2, 2048, with_zeros(ZeroHuge::Page));
    let space = fx.mapped(Va(GIB), MIB2, RW);
    let taken = fx.take_all(Order::HUGE);
    assert_eq!(fx.vm.fault(&space, Va(GIB + 4096), Access::Read), Ok(Fault::Zero));
    assert_eq!((fx.count(Counter::ThpZeroAllocFailed), fx.count(Counter::ThpZeroAlloc)), (1, 0));
    assert_eq!((fx.usage(&space).rss_pages, fx.usage(&space).zero_leaves), (0, 1));
    fx.give_back(taken, Order::HUGE);
    fx.end([space]);
}

on_both!(no_zeros, d_03_without_memory_for_the_zeros_themselves_a_read_maps_base_zeros);

fn forks_in_vain<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, with_zeros(ZeroHuge::Page));
    let parent = fx.zeros_read(MIB2);
    for left in 0..8 {
        let taken = fx.take_all_but(left, Order::BASE);
        let forked = fx.vm.fork(&parent);
        fx.give_back(taken, Order::BASE);
        let references = if forked.is_ok() { 3 } else { 2 };
        assert_eq!(fx.vm.huge_zero_references(), references, "{left} frames left");
        let all: Vec<&Space> = std::iter::once(&parent).chain(&forked).collect();
        fx.check(&all);
        if let Ok(child) = forked {
            assert!(left > 0);
            fx.vm.exit(child);
        }
    }
    fx.end([parent]);
}

on_both!(forks_in_vain, d_08_a_fork_that_finds_no_memory_takes_no_reference);

fn splits_in_vain<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, with_zeros(ZeroHuge::Page));
    let space = fx.zeros_read(MIB2);
    let taken = fx.take_all(Order::BASE);
    let before = fx.state(&[&space]);
    let va = Va(GIB + KIB4);
    assert_eq!(fx.vm.unmap(&space, va, KIB4), Err(SpaceError::NoMemory));
    assert_eq!(fx.vm.protect(&space, va, KIB4, Rights::READ), Err(SpaceError::NoMemory));
    assert_same(&before, &fx.state(&[&space]), "without memory");
    fx.give_back(taken, Order::BASE);
    fx.end([space]);
}

on_both!(splits_in_vain, d_09_a_split_that_finds_no_memory_changes_nothing);

#[test]
fn d_03_without_a_huge_page_a_private_table_keeps_511_zeros_with_one_flush() {
    for form in [ZeroHuge::TablePrivate, ZeroHuge::Table] {
        let fx = fixture_of::<X86_64>(2, 4096, with_zeros(form));
        let space = fx.zeros_read(MIB2);
        fx.vm.activate(&space);
        let taken = fx.take_all(Order::HUGE);
        let flushes = || [Counter::FlushLocalOne, Counter::FlushLocalAll].map(|n| fx.count(n));
        let (va, [one, all]) = (Va(GIB + 77 * KIB4), flushes());
        assert_eq!(fx.vm.fault(&space, va, Access::Write), Ok(Fault::Copied(Level::ONE)));
        assert_eq!(flushes(), [one + 1, all], "one page");
        fx.poke(&space, va, 9).unwrap();
        let usage = fx.usage(&space);
        assert_eq!((usage.rss_pages, usage.zero_leaves), (1, 511));
        assert_eq!(fx.count(Counter::ThpFaultFallback), 1);
        for page in 0..512 {
            assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), Ok(if page == 77 { 9 } else { 0 }));
        }
        fx.vm.deactivate();
        fx.give_back(taken, Order::HUGE);
        // A table with a page in it stays a table: the next write makes a base page.
        assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
        fx.end([space]);
    }
}

fn starves<C: Arch>() {
    for (form, reached, needs) in
        [(ZeroHuge::Table, GIB, 3), (ZeroHuge::Table, MIB2, 2), (ZeroHuge::TablePrivate, MIB2, 1)]
    {
        for left in 0..=needs {
            let fx = fixture_of::<C>(2, 4096, with_zeros(form));
            let space = fx.zeros_read(reached);
            let taken = fx.take_all_but(left, Order::BASE);
            let before = fx.state(&[&space]);
            let got = fx.vm.fault(&space, Va(GIB + 5000), Access::Write);
            let what = format!("{form:?} {reached:#x} {left}");
            if left == needs {
                assert_eq!(got, Ok(Fault::Copied(Level::ONE)), "{what}");
            } else {
                assert_eq!(got, Err(FaultError::NoMemory), "{what}");
                assert_same(&before, &fx.state(&[&space]), what);
            }
            fx.give_back(taken, Order::BASE);
            fx.end([space]);
        }
    }
}

on_both!(starves, d_03_each_allocation_of_a_write_fails_in_turn_and_nothing_changes);

#[test]
fn d_03_a_huge_page_without_room_for_its_table_becomes_base_pages() {
    let fx = fixture(2048, with_zeros(ZeroHuge::Table));
    let space = fx.zeros_read(GIB);
    // One huge block is left, and no other frame.
    let huge = fx.take_all(Order::HUGE);
    let small = fx.take_all(Order::BASE);
    let (kept, given) = huge.split_at(huge.len() - 1);
    fx.give_back(given.to_vec(), Order::HUGE);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(fx.usage(&space).rss_pages, 1);
    fx.give_back(kept.to_vec(), Order::HUGE);
    fx.give_back(small, Order::BASE);
    fx.end([space]);
}

#[test]
fn d_03_without_memory_for_the_shared_tables_a_read_maps_base_zeros() {
    let fx = fixture(2048, with_zeros(ZeroHuge::Table));
    let space = fx.mapped(Va(GIB), MIB2, RW);
    // One frame: the shared table takes it.
    let taken = fx.take_all_but(1, Order::BASE);
    let read = |space: &Space| fx.vm.fault(space, Va(GIB), Access::Read);
    assert_eq!(read(&space), Ok(Fault::ZeroTable(Level::TWO)));
    assert!(fx.vm.create().is_err());
    fx.give_back(taken, Order::BASE);
    fx.end([space]);

    let fx = fixture(2048, with_zeros(ZeroHuge::Table));
    let space = fx.mapped(Va(GIB), GIB, RW);
    let mut taken = fx.take_all(Order::BASE);
    let read = |space: &Space| fx.vm.fault(space, Va(GIB), Access::Read);
    assert_eq!(read(&space), Err(FaultError::NoMemory), "not even a node");
    fx.give_back(taken.split_off(taken.len() - 1), Order::BASE);
    // The leaf table takes it; nothing is left for the middle one.
    assert_eq!(read(&space), Err(FaultError::NoMemory));
    assert!(fx.count(Counter::ThpZeroAllocFailed) >= 1);
    fx.give_back(taken, Order::BASE);
    assert_eq!(read(&space), Ok(Fault::ZeroTable(Level::THREE)));
    fx.end([space]);
}
