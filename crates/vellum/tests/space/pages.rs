//! What becomes of pages: shared by fork, broken by a write, huge, cut, collapsed, forgotten.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use crate::flat::{Flat, VmHands, during_flushes};
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, Thp};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::error::FaultError;
use vellum::machine::{MmuRules, Scope, Topology};
use vellum::space::{Access, Advice, Attrs, Fault, HugeAdvice, LeafSize, Page, Placement, Rights};
use vellum::stats::Counter;

#[test]
fn fork_shares_until_written_and_the_last_one_reuses() {
    let lab = lab(4096, never());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, AT, 4 * KIB4, RW);
    lab.poke(&parent, AT, 1).unwrap();
    lab.peek(&parent, Va(AT.0 + KIB4)).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    assert_eq!(lab.vm.audit(&[&parent, &child]).unwrap().data_frames, 1);
    let frame = |space| match lab.vm.query(space, AT) {
        Page::Mapped { pfn, flags, .. } => (pfn, flags.write),
        page => panic!("{page:?}"),
    };
    assert_eq!((frame(&parent), frame(&parent).1), (frame(&child), false));
    assert_eq!(lab.vm.fault(&child, AT, Access::Write), Ok(Fault::Copied(Level::ONE)));
    lab.poke(&child, AT, 2).unwrap();
    assert_eq!((lab.peek(&parent, AT), lab.peek(&child, AT)), (Ok(1), Ok(2)));
    let kept = frame(&parent).0;
    assert_eq!(lab.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    assert_eq!(frame(&parent), (kept, true));
    lab.check(&[&parent, &child]);
    // Zeros are shared without being counted, by both.
    assert_eq!(lab.vm.usage(&child).zero_leaves, 1);
    assert_eq!(lab.vm.fault(&child, Va(AT.0 + KIB4), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(lab.peek(&parent, Va(AT.0 + KIB4)), Ok(0));
    lab.vm.exit(parent);
    assert_eq!(lab.peek(&child, AT), Ok(2));
    lab.check(&[&child]);
    lab.vm.exit(child);
    lab.check(&[]);
}

#[test]
fn a_fork_flushes_up_to_the_last_page_that_it_shares() {
    let lab = lab(4096, never());
    let parent = lab.vm.create().unwrap();
    lab.vm.activate(&parent);
    // The second page differs in its frame alone, and nothing is shared behind it.
    lab.map(&parent, AT, 2 * KIB4, RW);
    for page in [AT, Va(AT.0 + KIB4)] {
        lab.poke(&parent, page, 1).unwrap();
    }
    let flushed = Rc::new(RefCell::new(Vec::new()));
    let asked = Rc::clone(&flushed);
    let child = during_flushes(
        move |scope| asked.borrow_mut().push(scope),
        || lab.vm.fork(&parent).unwrap(),
    );
    let takes_in = |va: u64| {
        flushed.borrow().iter().any(|scope| match *scope {
            Scope::Page(_, at) => at.0 == va,
            Scope::Range(_, range, _) => (range.start().0..range.end().0).contains(&va),
            Scope::Space(_) | Scope::All => true,
        })
    };
    assert!(takes_in(AT.0) && takes_in(AT.0 + KIB4), "{:?}", flushed.borrow());
    lab.vm.exit(child);
    lab.vm.exit(parent);
}

#[test]
fn a_page_that_the_kernel_writes_is_dirty() {
    let lab = lab(4096, Config { zero_page: false, ..never() });
    let space = lab.vm.create().unwrap();
    lab.map(&space, AT, KIB4, RW);
    assert_eq!(lab.vm.fault(&space, AT, Access::Read), Ok(Fault::Base));
    let marks = || match lab.vm.query(&space, AT) {
        Page::Mapped { flags, .. } => (flags.write, flags.dirty),
        page => panic!("{page:?}"),
    };
    assert_eq!(marks(), (true, false));
    lab.vm.copy_in(&space, AT, &[1]).unwrap();
    assert_eq!(marks(), (true, true));
    lab.vm.exit(space);
}

#[test]
fn a_space_ends_when_the_last_cpu_has_left_it() {
    let lab =
        lab_on(Flat::<X86_64>::new(Topology::flat(2, Pfn(512), 4096), MmuRules::X86_64), never());
    let space = Arc::new(lab.vm.create().unwrap());
    lab.map(&space, AT, KIB4, RW);
    let (left, ended, running) = (AtomicBool::new(false), AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|threads| {
        let other = Arc::clone(&space);
        let (lab, left, ended, running) = (&lab, &left, &ended, &running);
        threads.spawn(move || {
            lab.vm.machine().run_on(1);
            lab.vm.activate(&other);
            drop(other);
            running.wait();
            // Until the end of the space waits, or does not.
            let waits = || lab.vm.machine().asked.relaxed.load(Ordering::SeqCst) != 0;
            while !waits() && !ended.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            left.store(true, Ordering::SeqCst);
            lab.vm.idle();
        });
        running.wait();
        lab.vm.exit(Arc::into_inner(space).expect("the other thread has given its own up"));
        let had_left = left.load(Ordering::SeqCst);
        ended.store(true, Ordering::SeqCst);
        assert!(had_left, "a space ended that a CPU was running");
    });
    lab.check(&[]);
}

fn reuses<C: Codec>(rules: MmuRules) {
    let lab = lab_on(Flat::<C>::new(Topology::flat(1, Pfn(512), 4096), rules), never());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, AT, KIB4, RW);
    lab.poke(&parent, AT, 1).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    lab.vm.exit(child);
    let flushed = || lab.vm.machine().asked.local_flushes.load(Ordering::Relaxed);
    let before = flushed();
    assert_eq!(lab.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    // Where the fault itself drops the translation nobody else need, and where it does not the
    // handler does.
    assert_eq!(flushed() - before, u64::from(!rules.fault_invalidates));
    lab.vm.exit(parent);
}

#[test]
fn a_page_that_is_reused_faults_once_under_every_mmu() {
    reuses::<X86_64>(MmuRules::X86_64);
    reuses::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn a_child_that_exits_leaves_the_parent_its_pages() {
    let lab = lab(4096, never());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, AT, 64 * KIB4, RW);
    for page in 0..64 {
        lab.poke(&parent, Va(AT.0 + page * KIB4), page).unwrap();
    }
    for _ in 0..3 {
        let child = lab.vm.fork(&parent).unwrap();
        let grandchild = lab.vm.fork(&child).unwrap();
        lab.check(&[&parent, &child, &grandchild]);
        lab.vm.exit(child);
        lab.check(&[&parent, &grandchild]);
        lab.vm.exit(grandchild);
    }
    let copies = lab.vm.stats().get(Counter::CowCopies);
    for page in 0..64 {
        lab.poke(&parent, Va(AT.0 + page * KIB4), page + 1).unwrap();
    }
    assert_eq!(
        lab.vm.stats().get(Counter::CowCopies),
        copies,
        "a page was copied that nobody else had"
    );
    lab.vm.exit(parent);
    lab.check(&[]);
}

#[test]
fn a_huge_page_shared_by_fork_is_copied_whole_or_split_when_memory_is_in_pieces() {
    let lab = lab(2048, Config::default());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, Va(GIB), MIB2, RW);
    lab.poke(&parent, Va(GIB), 1).unwrap();
    lab.poke(&parent, Va(GIB + MIB2 - 8), 2).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    assert_eq!(lab.vm.fault(&child, Va(GIB + 8), Access::Write), Ok(Fault::Copied(Level::TWO)));
    lab.poke(&child, Va(GIB), 3).unwrap();
    assert_eq!((lab.peek(&parent, Va(GIB)), lab.peek(&child, Va(GIB + MIB2 - 8))), (Ok(1), Ok(2)));
    lab.check(&[&parent, &child]);
    lab.vm.exit(child);
    // Now one frame of every free 2 MiB is taken.
    let child = lab.vm.fork(&parent).unwrap();
    lab.map(&parent, Va(2 * GIB), 4 * MIB2, Attrs { thp: Some(HugeAdvice::NoHuge), ..RW });
    let mut page = 0;
    while lab.vm.frames().free_frames(0) > 80 {
        lab.poke(&parent, Va(2 * GIB + page * KIB4), 1).unwrap();
        page += 1;
    }
    assert_eq!(lab.vm.fault(&child, Va(GIB + 8), Access::Write), Ok(Fault::Copied(Level::ONE)));
    lab.poke(&child, Va(GIB), 4).unwrap();
    assert_eq!(lab.peek(&parent, Va(GIB)), Ok(1));
    assert_eq!(lab.vm.usage(&child).huge_leaves, 0);
    assert_eq!(lab.vm.usage(&parent).huge_leaves, 1);
    lab.check(&[&parent, &child]);
    // The parent's whole leaf over frames that count for themselves: still shared but for one, so
    // not its own to write.
    assert!(!matches!(
        lab.vm.fault(&parent, Va(GIB), Access::Write),
        Ok(Fault::Reused(Level::TWO))
    ));
    lab.check(&[&parent, &child]);
    lab.vm.exit(child);
    assert_eq!(lab.peek(&parent, Va(GIB + MIB2 - 8)), Ok(2));
    lab.check(&[&parent]);
    lab.vm.exit(parent);
    lab.check(&[]);
}

#[test]
fn cutting_into_a_huge_page_keeps_the_rest_of_its_contents() {
    for (from, pages) in [(0, 1), (511, 1), (3, 17), (0, 511)] {
        let lab = lab(4096, Config::default());
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), MIB2, RW);
        for page in 0..512 {
            lab.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
        }
        assert_eq!(lab.vm.usage(&space).huge_leaves, 1);
        lab.vm.unmap(&space, Va(GIB + from * KIB4), pages * KIB4).unwrap();
        for page in 0..512 {
            let want = if (from..from + pages).contains(&page) {
                Err(FaultError::Unmapped)
            } else {
                Ok(page + 1)
            };
            assert_eq!(lab.peek(&space, Va(GIB + page * KIB4)), want);
        }
        assert_eq!(lab.vm.usage(&space).rss_pages, 512 - pages);
        assert_eq!(lab.vm.stats().get(Counter::ThpSplit), 1);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn collapse_makes_one_leaf_of_what_is_there_and_zeros_elsewhere() {
    let lab = lab(4096, never());
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 2 * MIB2, RW);
    for page in (0..512).step_by(7) {
        lab.poke(&space, Va(GIB + page * KIB4), page + 1).unwrap();
    }
    lab.peek(&space, Va(GIB + KIB4)).unwrap();
    let child = lab.vm.fork(&space).unwrap();
    lab.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::Collapse).unwrap();
    let usage = lab.vm.usage(&space);
    // The second 2 MiB has no page, and stays a promise.
    assert_eq!((usage.huge_leaves, usage.rss_pages, usage.zero_leaves), (1, 512, 0));
    for page in 0..512 {
        let want = if page % 7 == 0 { page + 1 } else { 0 };
        assert_eq!(lab.peek(&space, Va(GIB + page * KIB4)), Ok(want));
        assert_eq!(lab.peek(&child, Va(GIB + page * KIB4)), Ok(want));
    }
    assert!(matches!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Spurious)));
    lab.check(&[&space, &child]);
    lab.vm.exit(space);
    lab.vm.exit(child);
    lab.check(&[]);
}

#[test]
fn collapse_refuses_what_is_of_two_minds() {
    let lab = lab(4096, never());
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, RW);
    lab.poke(&space, Va(GIB), 1).unwrap();
    lab.vm.protect(&space, Va(GIB + 5 * KIB4), KIB4, Rights::READ).unwrap();
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(lab.vm.usage(&space).huge_leaves, 0);
    lab.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::NoHuge).unwrap();
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(lab.vm.usage(&space).huge_leaves, 0);
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::Huge).unwrap();
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(lab.vm.usage(&space).huge_leaves, 1);
    lab.check(&[&space]);
    lab.vm.exit(space);
}

#[test]
fn dont_need_forgets_the_contents_and_gives_the_frames_back() {
    let lab = lab(4096, Config::default());
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 2 * MIB2, RW);
    let before = lab.free(&[&space]);
    lab.poke(&space, Va(GIB), 1).unwrap();
    lab.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::DontNeed).unwrap();
    assert_eq!(lab.free(&[&space]), before);
    assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
    lab.poke(&space, Va(GIB), 1).unwrap();
    lab.vm.advise(&space, Va(GIB + KIB4), KIB4, Advice::DontNeed).unwrap();
    assert_eq!(lab.vm.usage(&space).rss_pages, 511);
    // The rest goes, the table with it, and the next fault may be huge again.
    lab.vm.advise(&space, Va(GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn a_page_that_moved_is_still_shared_with_the_child_and_broken_right() {
    let lab = lab(4096, never());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, AT, 4 * KIB4, RW);
    lab.poke(&parent, AT, 1).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    let to = Va(AT.0 + 64 * MIB2);
    lab.vm.remap(&child, AT, 4 * KIB4, 4 * KIB4, Placement::At(to)).unwrap();
    lab.check(&[&parent, &child]);
    let again = lab.vm.fork(&child).unwrap();
    lab.poke(&again, to, 2).unwrap();
    lab.poke(&again, Va(to.0 + KIB4), 5).unwrap();
    assert_eq!(
        (lab.peek(&parent, AT), lab.peek(&child, to), lab.peek(&again, to)),
        (Ok(1), Ok(1), Ok(2))
    );
    lab.check(&[&parent, &child, &again]);
    for space in [parent, child, again] {
        lab.vm.exit(space);
    }
    lab.check(&[]);
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
        let lab = lab(4096, Config { thp, ..Config::default() });
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), 2 * MIB2, Attrs { thp: advice, ..RW });
        let want = if huge { Fault::Huge } else { Fault::Base };
        assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(want), "{thp:?} {advice:?}");
        // Where the mapping does not cover 2 MiB, never.
        lab.map(&space, Va(3 * GIB + KIB4), MIB2, Attrs { thp: advice, ..RW });
        assert_eq!(lab.vm.fault(&space, Va(3 * GIB + KIB4), Access::Write), Ok(Fault::Base));
        lab.vm.exit(space);
    }
}

#[test]
fn without_a_huge_block_a_fault_falls_back_and_says_so() {
    let lab = lab(1024, Config::default());
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 4 * MIB2, RW);
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    assert_eq!(lab.vm.fault(&space, Va(GIB + MIB2), Access::Write), Ok(Fault::Base));
    assert_eq!(lab.vm.stats().get(Counter::ThpFaultFallback), 1);
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    lab.map(&space, Va(4 * GIB), MIB2, exactly);
    assert_eq!(lab.vm.fault(&space, Va(4 * GIB), Access::Write), Err(FaultError::NoMemory));
    lab.check(&[&space]);
    lab.vm.exit(space);
}
