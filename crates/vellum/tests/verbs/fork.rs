//! Fork: pages are shared until they are written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use vellum_testkit::prelude::*;

#[test]
fn fork_shares_until_written_and_the_last_one_reuses() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 4 * KIB4, RW);
    fx.poke(&parent, AT, 1).unwrap();
    fx.peek(&parent, page_at(1)).unwrap();
    let child = fx.vm.fork(&parent).unwrap();
    assert_eq!(fx.vm.audit(&[&parent, &child]).unwrap().data_frames, 1);
    let frame = |space| (fx.frame(space, AT), fx.leaf(space, AT).flags.write);
    assert_eq!((frame(&parent), frame(&parent).1), (frame(&child), false));
    assert_eq!(fx.vm.fault(&child, AT, Access::Write), Ok(Fault::Copied(Level::ONE)));
    fx.poke(&child, AT, 2).unwrap();
    assert_eq!((fx.peek(&parent, AT), fx.peek(&child, AT)), (Ok(1), Ok(2)));
    let kept = frame(&parent).0;
    assert_eq!(fx.vm.fault(&parent, AT, Access::Write), Ok(Fault::Reused(Level::ONE)));
    assert_eq!(frame(&parent), (kept, true));
    fx.check(&[&parent, &child]);
    // Zeros have no map count, in either space.
    assert_eq!(fx.usage(&child).zero_leaves, 1);
    assert_eq!(fx.vm.fault(&child, page_at(1), Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(fx.peek(&parent, page_at(1)), Ok(0));
    fx.vm.exit(parent);
    assert_eq!(fx.peek(&child, AT), Ok(2));
    fx.end([child]);
}

#[test]
fn a_fork_flushes_up_to_the_last_page_that_it_shares() {
    let fx = fixture(4096, no_thp());
    // The second page differs in its frame alone, and nothing is shared behind it.
    let parent = fx.mapped(AT, 2 * KIB4, RW);
    fx.vm.activate(&parent);
    (0..2).for_each(|n| fx.poke(&parent, page_at(n), 1).unwrap());
    let flushed = Rc::new(RefCell::new(Vec::new()));
    let asked = Rc::clone(&flushed);
    let ask = move |scope| asked.borrow_mut().push(scope);
    let child = during_flushes(ask, || fx.vm.fork(&parent).unwrap());
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
fn the_members_of_a_family_end_in_any_order() {
    let fx = fixture(4096, no_thp());
    // In place of each digit the space that is then at that place.
    for order in [[0, 0, 0, 0], [3, 2, 1, 0], [1, 1, 1, 0], [2, 0, 1, 0], [1, 2, 0, 0]] {
        let parent = fx.mapped(AT, KIB4, RW);
        fx.poke(&parent, AT, 1).unwrap();
        let mut spaces = vec![parent];
        (0..3).for_each(|_| spaces.push(fx.vm.fork(&spaces[0]).unwrap()));
        for place in order {
            fx.vm.exit(spaces.remove(place));
            fx.check(&spaces.iter().collect::<Vec<_>>());
            // A walk from the frame to its mappings meets the rest of them.
            if let [first, rest @ ..] = &spaces[..] {
                let shared = rest.iter().all(|space| fx.frame(space, AT) == fx.frame(first, AT));
                assert!(shared && fx.peek(first, AT) == Ok(1), "{order:?}");
            }
        }
    }
}

#[test]
fn a_child_that_exits_leaves_the_parent_its_pages() {
    let fx = fixture(4096, no_thp());
    let parent = fx.mapped(AT, 64 * KIB4, RW);
    (0..64).for_each(|page| fx.poke(&parent, page_at(page), page).unwrap());
    for _ in 0..3 {
        let child = fx.vm.fork(&parent).unwrap();
        let grandchild = fx.vm.fork(&child).unwrap();
        fx.check(&[&parent, &child, &grandchild]);
        fx.vm.exit(child);
        fx.check(&[&parent, &grandchild]);
        fx.vm.exit(grandchild);
    }
    let copies = fx.count(Counter::CowCopies);
    (0..64).for_each(|page| fx.poke(&parent, page_at(page), page + 1).unwrap());
    assert_eq!(fx.count(Counter::CowCopies), copies, "a page was copied that nobody else had");
    fx.end([parent]);
}

/// A space with pages that are written, of one size, and zeros beside them; CPU 1 runs in it.
fn fork_is_flushed<C: Codec>(rules: MmuRules, zero_huge: ZeroHuge, huge: bool) {
    let thp = if huge { Thp::Always } else { Thp::Never };
    let config = Config { thp, zero_huge, ..Config::default() };
    let fx = Rc::new(Fixture::<C>::new(flat_with(3, 512 * 12, rules), config));
    let space = Rc::new(fx.mapped(Va(GIB), 4 * MIB2, RW));
    let written = [0, 3 * MIB2].map(|at| Va(GIB + at));
    written.iter().for_each(|&va| fx.poke(&space, va, 5).unwrap());
    (0..4).for_each(|n| assert!(fx.kernel_peek(&space, Va(GIB + n * MIB2 + 8)).is_ok()));
    fx.on_cpu(1, || fx.vm.activate(&space));
    let flushes = Rc::new(Cell::new(0));
    let during = {
        let (fx, flushes) = (Rc::clone(&fx), Rc::clone(&flushes));
        move |_| {
            // Before CPU 1 is told, no entry gives writes any more: what it loads from now on
            // cannot be stale.
            for va in written {
                let entry = fx.entry_at(va);
                assert!(matches!(entry, Entry::Leaf(_, flags) if !flags.write), "{entry:?}");
            }
            flushes.set(flushes.get() + 1);
        }
    };
    let child = during_flushes(during, || fx.vm.fork(&space).unwrap());
    assert!(flushes.get() >= 1, "{zero_huge:?}: CPU 1 could still write to what is shared now");
    let (fx, space) = (Rc::into_inner(fx).unwrap(), Rc::into_inner(space).unwrap());
    fx.poke(&space, written[0], 6).unwrap();
    assert_eq!((fx.peek(&child, written[0]), fx.peek(&child, written[1])), (Ok(5), Ok(5)));
    fx.check(&[&space, &child]);
    fx.run_on(1);
    fx.vm.deactivate();
    fx.end_zeros([space, child]);
}

#[test]
fn f_12_a_fork_makes_every_page_read_only_flushes_that_and_returns_only_then() {
    for form in ZERO_FORMS {
        for huge in [false, true] {
            fork_is_flushed::<X86_64>(MmuRules::X86_64, form, huge);
            fork_is_flushed::<X86_64>(MmuRules { asids: 64, ..MmuRules::X86_64 }, form, huge);
            fork_is_flushed::<Aarch64>(MmuRules::AARCH64, form, huge);
        }
    }
}
