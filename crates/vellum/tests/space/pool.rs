//! A pool beside pages that come and go.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::flat::{Flat, Waits, X86_RULES, weave};
use crate::lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::machine::Topology;
use vellum::space::{Access, Attrs, LeafSize};

const EXACT: Attrs = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };

/// CPU 0 unmaps a page that a pool of one block waits for. At each step CPU 1 has the pool hold none.
#[test]
fn a_pool_of_none_keeps_no_block() {
    for at in 0.. {
        let lab = Rc::new(lab_on(Flat::<X86_64>::new(Topology::flat(2, Pfn(512), 2048), X86_RULES), Config::default()));
        let space = lab.vm.create().expect("memory");
        lab.map(&space, Va(GIB), MIB2, EXACT);
        lab.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
        let blocks = lab.hog(Order::HUGE);
        assert!(lab.vm.pool(Order::HUGE, 1).is_err(), "all blocks are in use");
        let (theirs, ran) = (lab.clone(), Rc::new(Cell::new(false)));
        let here = ran.clone();
        let none = move || {
            theirs.vm.machine().run_on(1);
            match catch_unwind(AssertUnwindSafe(|| theirs.vm.pool(Order::HUGE, 0))) {
                Ok(done) => here.set(done.is_ok()),
                // It waits for CPU 0, which stands still: there is no such schedule.
                Err(e) if e.is::<Waits>() => {}
                Err(e) => resume_unwind(e),
            }
            theirs.vm.machine().run_on(0);
        };
        let left = weave(vec![(at, Box::new(none))], || lab.vm.unmap(&space, Va(GIB), MIB2).expect("it is whole"));
        if left == 0 {
            assert!(at > 10, "{at} steps");
            return;
        }
        if ran.get() {
            let block = lab.hog(Order::HUGE);
            assert_eq!(
                block.len(),
                1,
                "step {at}: the page is unmapped, the pool holds none, and its block is refused"
            );
            lab.give_back(block, Order::HUGE);
            lab.give_back(blocks, Order::HUGE);
            lab.vm.exit(space);
            lab.check(&[]);
        }
    }
}
