//! One CPU, and a kernel that preempts a task wherever the library lets it. A task with a busy
//! entry, or a lock, is not preempted: the task that comes then would wait for it for ever.

use std::cell::Cell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

/// What is mapped where the fault is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Reserved,
    Zeros,
    Shared,
}

/// A fault of one task, preempted by an unmap and a map of another task at each step where the
/// first may be preempted. Says at how many steps that was.
fn not_waited_for<C: Arch>(config: Config, page: Page, blocks: bool) -> usize {
    let mut came = 0;
    for at in 0.. {
        let fx = Rc::new(fixture_of::<C>(1, 2048, config));
        let space = Rc::new(fx.mapped(Va(GIB), MIB2, RW));
        let mut _child = None;
        match page {
            Page::Reserved => {}
            Page::Zeros => _ = fx.vm.fault(&space, Va(GIB), Access::Read).expect("zeros"),
            Page::Shared => {
                fx.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
                _child = Some(fx.vm.fork(&space).expect("memory"));
            }
        }
        if !blocks {
            fx.take_all(Order::HUGE);
            fx.take_all_but(8, Order::BASE);
        }
        let (depth, ran) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (theirs, seen) = (fx.clone(), depth.clone());
        at_each_step(move |_| seen.set(theirs.vm.machine().preempt_depth()));
        let (theirs, of_both, here) = (fx.clone(), space.clone(), ran.clone());
        let act = move || {
            if depth.get() != 0 {
                return;
            }
            here.set(true);
            let both = || {
                theirs.vm.unmap(&of_both, Va(GIB), MIB2).expect("it is whole");
                theirs.vm.map(&of_both, Placement::At(Va(GIB)), MIB2, RW)
            };
            let waits = unless_it_waits(both).is_none();
            assert!(!waits, "{page:?}, {config:?}: waits for the task that it preempted at {at}");
        };
        let fault = || _ = fx.vm.fault(&space, Va(GIB + 5 * KIB4), Access::Write);
        let left = interleave(vec![(at, Box::new(act))], fault);
        at_each_step(|_| ());
        came += usize::from(ran.get());
        if left == 0 {
            break;
        }
    }
    came
}

#[test]
fn a_task_that_may_be_preempted_has_no_busy_entry() {
    let mut came = 0;
    let settings = |form| [Thp::Never, Thp::Always].map(|thp| (form, thp));
    for (zero_huge, thp) in ZERO_FORMS.into_iter().flat_map(settings) {
        let config = Config { zero_huge, thp, ..Config::default() };
        for page in [Page::Reserved, Page::Zeros, Page::Shared] {
            for blocks in [true, false] {
                came += not_waited_for::<X86_64>(config, page, blocks);
                came += not_waited_for::<Aarch64>(config, page, blocks);
            }
        }
    }
    assert!(came > 100, "the other task came {came} times");
}
