//! What becomes of pages: shared by fork, broken by a write, huge, cut, collapsed, forgotten.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use vellum_testkit::prelude::*;

#[test]
fn fork_shares_until_written_and_the_last_one_reuses() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 4 * KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    fx.peek(&parent, Va(AT.0 + KIB4)).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    assert_eq!(fx.vm.audit(&[&parent, &child]).unwrap().data_frames, 1);
    let frame = |space| match fx.vm.query(space, AT) {
        Page::Mapped { pfn, flags, .. } => (pfn, flags.write),
        page => panic!("{page:?}"),
    };
    assert_eq!((frame(&parent), frame(&parent).1), (frame(&child), false));
    assert_eq!(fx.vm.fault(&child, AT, Access::Write), Ok(Fault::Copied(Level::ONE)));
    fx.poke(&child, AT, 2).unwrap();
    assert_eq!((fx.peek(&parent, AT), fx.peek(&child, AT)), (Ok(1), Ok(2)));
    let kept = frame(&parent).0;
    assert_eq!(fx.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    assert_eq!(frame(&parent), (kept, true));
    fx.check(&[&parent, &child]);
    // Zeros are shared without being counted, by both.
    assert_eq!(fx.usage(&child).zero_leaves, 1);
    assert_eq!(fx.vm.fault(&child, Va(AT.0 + KIB4), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(fx.peek(&parent, Va(AT.0 + KIB4)), Ok(0));
    fx.vm.exit(parent);
    assert_eq!(fx.peek(&child, AT), Ok(2));
    fx.end([child]);
}

#[test]
fn a_fork_flushes_up_to_the_last_page_that_it_shares() {
    let fx = fixture(4096, no_thp());
    let parent = fx.vm.create().unwrap();
    fx.vm.activate(&parent);
    // The second page differs in its frame alone, and nothing is shared behind it.
    fx.map(&parent, AT, 2 * KIB4, RW);
    for page in [AT, Va(AT.0 + KIB4)] {
        fx.poke(&parent, page, 1).unwrap();
    }
    let flushed = Rc::new(RefCell::new(Vec::new()));
    let asked = Rc::clone(&flushed);
    let child = during_flushes(
        move |scope| asked.borrow_mut().push(scope),
        || fx.vm.fork(&parent).unwrap(),
    );
    let takes_in = |va: u64| {
        flushed.borrow().iter().any(|scope| match *scope {
            Scope::Page(_, at) => at.0 == va,
            Scope::Range(_, range, _) => (range.start().0..range.end().0).contains(&va),
            Scope::Space(_) | Scope::All => true,
        })
    };
    assert!(takes_in(AT.0) && takes_in(AT.0 + KIB4), "{:?}", flushed.borrow());
    fx.vm.exit(child);
    fx.vm.exit(parent);
}

#[test]
fn a_page_that_the_kernel_writes_is_dirty() {
    let fx = fixture(4096, Config { zero_page: false, ..no_thp() });
    let space = fx.mapped(AT, KIB4, RW);
    assert_eq!(fx.vm.fault(&space, AT, Access::Read), Ok(Fault::Base));
    let marks = || match fx.vm.query(&space, AT) {
        Page::Mapped { flags, .. } => (flags.write, flags.dirty),
        page => panic!("{page:?}"),
    };
    assert_eq!(marks(), (true, false));
    fx.vm.copy_in(&space, AT, &[1]).unwrap();
    assert_eq!(marks(), (true, true));
    fx.vm.exit(space);
}

#[test]
fn a_space_ends_when_the_last_cpu_has_left_it() {
    let fx = Fixture::new(flat(2, 4096), no_thp());
    let space = Arc::new(fx.vm.create().unwrap());
    fx.map(&space, AT, KIB4, RW);
    let (left, ended, running) = (AtomicBool::new(false), AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|threads| {
        let other = Arc::clone(&space);
        let (fx, left, ended, running) = (&fx, &left, &ended, &running);
        threads.spawn(move || {
            fx.run_on(1);
            fx.vm.activate(&other);
            drop(other);
            running.wait();
            // Until the end of the space waits, or does not.
            let waits = || fx.m().asked.relaxed.get() != 0;
            while !waits() && !ended.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            left.store(true, Ordering::SeqCst);
            fx.vm.idle();
        });
        running.wait();
        fx.vm.exit(Arc::into_inner(space).expect("the other thread has given its own up"));
        let had_left = left.load(Ordering::SeqCst);
        ended.store(true, Ordering::SeqCst);
        assert!(had_left, "a space ended that a CPU was running");
    });
    fx.check(&[]);
}

fn reuses<C: Arch>() {
    let fx = fixture_of::<C>(1, 4096, no_thp());
    let parent = fx.mapped(AT, KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    fx.vm.exit(child);
    let flushed = || fx.m().asked.local_flushes.get();
    let before = flushed();
    assert_eq!(fx.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    // Where the fault itself drops the translation nobody else need, and where it does not the
    // handler does.
    assert_eq!(flushed() - before, u64::from(!C::RULES.fault_invalidates));
    fx.vm.exit(parent);
}

on_both!(reuses, a_page_that_is_reused_faults_once_under_every_mmu);

#[test]
fn a_child_that_exits_leaves_the_parent_its_pages() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 64 * KIB4, RW);
    for page in 0..64 {
        fx.poke(&parent, Va(AT.0 + page * KIB4), page).unwrap();
    }
    for _ in 0..3 {
        let child = fx.vm.fork(&parent).unwrap();
        let grandchild = fx.vm.fork(&child).unwrap();
        fx.check(&[&parent, &child, &grandchild]);
        fx.vm.exit(child);
        fx.check(&[&parent, &grandchild]);
        fx.vm.exit(grandchild);
    }
    let copies = fx.count(Counter::CowCopies);
    for page in 0..64 {
        fx.poke(&parent, Va(AT.0 + page * KIB4), page + 1).unwrap();
    }
    assert_eq!(fx.count(Counter::CowCopies), copies, "a page was copied that nobody else had");
    fx.end([parent]);
}

#[test]
fn a_huge_page_shared_by_fork_is_copied_whole_or_split_when_memory_is_in_pieces() {
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
    // The parent's whole leaf over frames that count for themselves: still shared but for one, so
    // not its own to write.
    assert!(!matches!(fx.vm.fault(&parent, Va(GIB), Access::Write), Ok(Fault::Reused(Level::TWO))));
    fx.check(&[&parent, &child]);
    fx.vm.exit(child);
    assert_eq!(fx.peek(&parent, Va(GIB + MIB2 - 8)), Ok(2));
    fx.end([parent]);
}

#[test]
fn cutting_into_a_huge_page_keeps_the_rest_of_its_contents() {
    for (from, pages) in [(0, 1), (511, 1), (3, 17), (0, 511)] {
        let fx = fixture(4096, Config::default());
        let space = fx.mapped(Va(GIB), MIB2, RW);
        for page in 0..512 {
            fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
        }
        assert_eq!(fx.usage(&space).huge_leaves, 1);
        fx.vm.unmap(&space, Va(GIB + from * KIB4), pages * KIB4).unwrap();
        for page in 0..512 {
            let want = if (from..from + pages).contains(&page) {
                Err(FaultError::Unmapped)
            } else {
                Ok(page + 1)
            };
            assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), want);
        }
        assert_eq!(fx.usage(&space).rss_pages, 512 - pages);
        assert_eq!(fx.count(Counter::ThpSplit), 1);
        fx.end([space]);
    }
}

#[test]
fn collapse_makes_one_leaf_of_what_is_there_and_zeros_elsewhere() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
    for page in (0..512).step_by(7) {
        fx.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
    }
    fx.peek(&space, Va(GIB + KIB4)).unwrap();
    let child = fx.vm.fork(&space).unwrap();
    fx.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::Collapse).unwrap();
    let usage = fx.usage(&space);
    // The second 2 MiB has no page, and stays a promise.
    assert_eq!((usage.huge_leaves, usage.rss_pages, usage.zero_leaves), (1, 512, 0));
    for page in 0..512 {
        let want = if page % 7 == 0 { page + 1 } else { 0 };
        assert_eq!(fx.peek(&space, Va(GIB + page * KIB4)), Ok(want));
        assert_eq!(fx.peek(&child, Va(GIB + page * KIB4)), Ok(want));
    }
    assert!(matches!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Spurious)));
    fx.end([space, child]);
}

#[test]
fn collapse_refuses_what_is_of_two_minds() {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(Va(GIB), MIB2, RW);
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.vm.protect(&space, Va(GIB + 5 * KIB4), KIB4, Rights::READ).unwrap();
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(fx.usage(&space).huge_leaves, 0);
    fx.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::NoHuge).unwrap();
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(fx.usage(&space).huge_leaves, 0);
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::Huge).unwrap();
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(fx.usage(&space).huge_leaves, 1);
    fx.check(&[&space]);
    fx.vm.exit(space);
}

#[test]
fn dont_need_forgets_the_contents_and_gives_the_frames_back() {
    let fx = fixture(4096, Config::default());
    let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
    let before = fx.check(&[&space]);
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::DontNeed).unwrap();
    assert_eq!(fx.check(&[&space]), before);
    assert_eq!(fx.peek(&space, Va(GIB)), Ok(0));
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.vm.advise(&space, Va(GIB + KIB4), KIB4, Advice::DontNeed).unwrap();
    assert_eq!(fx.usage(&space).rss_pages, 511);
    // The rest goes, the table with it, and the next fault may be huge again.
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    fx.end([space]);
}

#[test]
fn a_page_that_moved_is_still_shared_with_the_child_and_broken_right() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 4 * KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    let to = Va(AT.0 + 64 * MIB2);
    fx.vm.remap(&child, AT, 4 * KIB4, 4 * KIB4, Placement::At(to)).unwrap();
    fx.check(&[&parent, &child]);
    let again = fx.vm.fork(&child).unwrap();
    fx.poke(&again, to, 2).unwrap();
    fx.poke(&again, Va(to.0 + KIB4), 5).unwrap();
    assert_eq!(
        (fx.peek(&parent, AT), fx.peek(&child, to), fx.peek(&again, to)),
        (Ok(1), Ok(1), Ok(2))
    );
    fx.check(&[&parent, &child, &again]);
    for space in [parent, child, again] {
        fx.vm.exit(space);
    }
    fx.check(&[]);
}

#[test]
fn huge_pages_come_as_the_switch_and_the_advice_say() {
    for (thp, advice, huge) in [
        (Thp::Never, Some(HugeAdvice::Huge), false),
        (Thp::Advise, None, false),
        (Thp::Advise, Some(HugeAdvice::Huge), true),
        (Thp::Always, None, true),
        (Thp::Always, Some(HugeAdvice::NoHuge), false),
    ] {
        let fx = fixture(4096, Config { thp, ..Config::default() });
        let space = fx.mapped(Va(GIB), 2 * MIB2, Attrs { thp: advice, ..RW });
        let want = if huge { Fault::Huge } else { Fault::Base };
        assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(want), "{thp:?} {advice:?}");
        // Where the mapping does not cover 2 MiB, never.
        fx.map(&space, Va(3 * GIB + KIB4), MIB2, Attrs { thp: advice, ..RW });
        assert_eq!(fx.vm.fault(&space, Va(3 * GIB + KIB4), Access::Write), Ok(Fault::Base));
        fx.vm.exit(space);
    }
}

#[test]
fn without_a_huge_block_a_fault_falls_back_and_says_so() {
    let fx = fixture(1024, Config::default());
    let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.vm.fault(&space, Va(GIB + MIB2), Access::Write), Ok(Fault::Base));
    assert_eq!(fx.count(Counter::ThpFaultFallback), 1);
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    fx.map(&space, Va(4 * GIB), MIB2, exactly);
    assert_eq!(fx.vm.fault(&space, Va(4 * GIB), Access::Write), Err(FaultError::NoMemory));
    fx.check(&[&space]);
    fx.vm.exit(space);
}
