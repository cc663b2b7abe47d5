//! One CPU, and a kernel that preempts a task wherever the library lets it. Whoever has an entry
//! aside, or a lock, is not preempted: who comes then would wait for it for ever.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::flat::{ARM_RULES, Flat, Waits, X86_RULES, at_each_step, weave};
use crate::lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Config, Thp, ZeroHuge};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Placement};

/// What is where the fault is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Promise,
    Zeros,
    Shared,
}

/// What a fault of one task does and an unmap or a map of another, which comes at any step where the
/// first may be preempted. Says at how many steps it came.
fn not_waited_for<C: Codec + 'static>(rules: MmuRules, config: Config, page: Page, blocks: bool) -> usize {
    let mut came = 0;
    let step = Rc::new(Cell::new(0));
    loop {
        let lab = Rc::new(lab_on::<C>(Flat::new(Topology::flat(1, Pfn(512), 2048), rules), config));
        let space = Rc::new(lab.vm.create().expect("memory"));
        lab.map(&space, Va(GIB), MIB2, RW);
        let mut _child = None;
        match page {
            Page::Promise => {}
            Page::Zeros => _ = lab.vm.fault(&space, Va(GIB), Access::Read).expect("zeros"),
            Page::Shared => {
                lab.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
                _child = Some(lab.vm.fork(&space).expect("memory"));
            }
        }
        if !blocks {
            lab.hog(Order::HUGE);
            let mut frames = lab.hog(Order::BASE);
            let some = frames.split_off(frames.len() - 8);
            lab.give_back(some, Order::BASE);
        }
        let (depth, ran) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (theirs, seen) = (lab.clone(), depth.clone());
        at_each_step(move |_| seen.set(theirs.vm.machine().preempt_depth()));
        let (theirs, of_both, here, at) = (lab.clone(), space.clone(), ran.clone(), step.get());
        let act = move || {
            if depth.get() != 0 {
                return;
            }
            here.set(true);
            let both = || {
                theirs.vm.unmap(&of_both, Va(GIB), MIB2).expect("it is whole");
                theirs.vm.map(&of_both, Placement::At(Va(GIB)), MIB2, RW)
            };
            match catch_unwind(AssertUnwindSafe(both)) {
                Ok(_) => {}
                Err(e) if e.is::<Waits>() => {
                    panic!("{page:?}, {config:?}: waits for the task that it preempted at {at}")
                }
                Err(e) => resume_unwind(e),
            }
        };
        let left = weave(vec![(at, Box::new(act))], || _ = lab.vm.fault(&space, Va(GIB + 5 * KIB4), Access::Write));
        at_each_step(|_| ());
        came += usize::from(ran.get());
        if left == 0 {
            return came;
        }
        step.set(at + 1);
    }
}

#[test]
fn who_may_be_preempted_has_no_entry_aside() {
    let forms = [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];
    let mut came = 0;
    for (zero_huge, thp) in forms.into_iter().flat_map(|form| [Thp::Never, Thp::Always].map(|thp| (form, thp))) {
        let config = Config { zero_huge, thp, ..Config::default() };
        for page in [Page::Promise, Page::Zeros, Page::Shared] {
            for blocks in [true, false] {
                came += not_waited_for::<X86_64>(X86_RULES, config, page, blocks);
                came += not_waited_for::<Aarch64>(ARM_RULES, config, page, blocks);
            }
        }
    }
    assert!(came > 100, "the other task came {came} times");
}
