//! Writes to a page that others share.

use vellum_testkit::prelude::*;

fn reuses<C: Arch>() {
    let fx = fixture_of::<C>(1, 4096, no_thp());
    let parent = fx.mapped(AT, KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    fx.vm.exit(child);
    let flushed = || fx.m().asked.local_flushes.get();
    let before = flushed();
    assert_eq!(fx.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    // Where the fault itself drops the translation no flush is needed; elsewhere the handler
    // flushes.
    assert_eq!(flushed() - before, u64::from(!C::RULES.fault_invalidates));
    fx.vm.exit(parent);
}

on_both!(reuses, a_page_that_is_reused_faults_once_under_every_mmu);

/// `cow.huge=split`, with memory for a copy of all of it.
#[test]
fn a_store_to_a_huge_page_of_a_fork_copies_4_kib_where_the_switch_says_so() {
    let fx = fixture(4096, Config { cow_huge: CowHuge::Split, ..Config::default() });
    let parent = fx.mapped(Va(GIB), MIB2, RW);
    fx.poke(&parent, Va(GIB), 1).unwrap();
    fx.poke(&parent, Va(GIB + MIB2 - 8), 2).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    let copied = || fx.vm.stats().get(Counter::CowCopies);
    let (before, free) = (copied(), fx.vm.frames().free_frames(0));
    assert_eq!(fx.vm.fault(&child, Va(GIB + 8), Access::Write), Ok(Fault::Copied(Level::ONE)));
    fx.poke(&child, Va(GIB), 3).unwrap();
    // A page and a table.
    assert_eq!((copied() - before, free - fx.vm.frames().free_frames(0)), (1, 2));
    assert_eq!((fx.usage(&child).huge_leaves, fx.usage(&parent).huge_leaves), (0, 1));
    assert_eq!((fx.peek(&parent, Va(GIB)), fx.peek(&child, Va(GIB + MIB2 - 8))), (Ok(1), Ok(2)));
    fx.check(&[&parent, &child]);
    // Who is left alone with the page keeps all of it.
    fx.vm.exit(child);
    assert_eq!(fx.vm.fault(&parent, Va(GIB), Access::Write), Ok(Fault::Reused(Level::TWO)));
    fx.end([parent]);

    // A size that was asked for stays.
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    let parent = fx.mapped(Va(GIB), MIB2, exactly);
    fx.poke(&parent, Va(GIB), 1).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    assert_eq!(fx.vm.fault(&child, Va(GIB), Access::Write), Ok(Fault::Copied(Level::TWO)));
    fx.check(&[&parent, &child]);
    fx.vm.exit(child);
    fx.end([parent]);
}

#[test]
fn a_huge_page_shared_by_fork_is_copied_or_split_when_memory_is_fragmented() {
    let fx = fixture(2048, Config::default());
    let parent = fx.mapped(Va(GIB), MIB2, RW);
    fx.poke(&parent, Va(GIB), 1).unwrap();
    fx.poke(&parent, Va(GIB + MIB2 - 8), 2).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    assert_eq!(fx.vm.fault(&child, Va(GIB + 8), Access::Write), Ok(Fault::Copied(Level::TWO)));
    fx.poke(&child, Va(GIB), 3).unwrap();
    assert_eq!((fx.peek(&parent, Va(GIB)), fx.peek(&child, Va(GIB + MIB2 - 8))), (Ok(1), Ok(2)));
    fx.check(&[&parent, &child]);
    fx.vm.exit(child);
    // Now one frame of every free 2 MiB is taken.
    let child = fx.vm.fork(&parent).unwrap();
    fx.map(&parent, Va(2 * GIB), 4 * MIB2, Attrs { thp: Some(HugeAdvice::NoHuge), ..RW });
    let mut page = 0;
    while fx.vm.frames().free_frames(0) > 80 {
        fx.poke(&parent, Va(2 * GIB + page * KIB4), 1).unwrap();
        page += 1;
    }
    assert_eq!(fx.vm.fault(&child, Va(GIB + 8), Access::Write), Ok(Fault::Copied(Level::ONE)));
    fx.poke(&child, Va(GIB), 4).unwrap();
    assert_eq!(fx.peek(&parent, Va(GIB)), Ok(1));
    assert_eq!(fx.usage(&child).huge_leaves, 0);
    assert_eq!(fx.usage(&parent).huge_leaves, 1);
    fx.check(&[&parent, &child]);
    // The parent's leaf is still huge, and all but one of its frames are shared: the parent may not
    // write to it.
    assert!(!matches!(fx.vm.fault(&parent, Va(GIB), Access::Write), Ok(Fault::Reused(Level::TWO))));
    fx.check(&[&parent, &child]);
    fx.vm.exit(child);
    assert_eq!(fx.peek(&parent, Va(GIB + MIB2 - 8)), Ok(2));
    fx.end([parent]);
}
