//! A pool beside pages that come and go.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::flat::{Flat, unless_it_waits, weave};
use crate::lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::error::FaultError;
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Attrs, LeafSize};

const EXACT: Attrs = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };

/// CPU 0 unmaps a page that a pool of one block waits for. At each step CPU 1 has the pool hold
/// none.
#[test]
fn a_pool_of_none_keeps_no_block() {
    for at in 0.. {
        let machine = Flat::<X86_64>::new(Topology::flat(2, Pfn(512), 2048), MmuRules::X86_64);
        let lab = Rc::new(lab_on(machine, Config::default()));
        let space = lab.vm.create().expect("memory");
        lab.map(&space, Va(GIB), MIB2, EXACT);
        lab.vm.fault(&space, Va(GIB), Access::Write).expect("memory");
        let blocks = lab.hog(Order::HUGE);
        assert!(lab.vm.pool(Order::HUGE, 1).is_err(), "all blocks are in use");
        let (theirs, ran) = (lab.clone(), Rc::new(Cell::new(false)));
        let here = ran.clone();
        let none = move || {
            theirs.vm.machine().run_on(1);
            // Where it waits for CPU 0, which stands still, there is no such schedule.
            let done = unless_it_waits(|| theirs.vm.pool(Order::HUGE, 0));
            here.set(done.is_some_and(|done| done.is_ok()));
            theirs.vm.machine().run_on(0);
        };
        let unmap = || lab.vm.unmap(&space, Va(GIB), MIB2).expect("it is whole");
        let left = weave(vec![(at, Box::new(none))], unmap);
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

#[test]
fn a_fault_that_is_refused_a_table_looks_twice_whether_its_block_is_of_a_pool_or_not() {
    for pooled in [0, 1] {
        let lab = lab(4096, never());
        let space = lab.vm.create().expect("memory");
        // A promise one level above, so that the page takes a table.
        lab.map(&space, Va(GIB), GIB, EXACT);
        lab.vm.pool(Order::HUGE, pooled).expect("memory");
        let mut blocks = lab.hog(Order::HUGE);
        let frames = lab.hog(Order::BASE);
        if pooled == 0 {
            lab.give_back(blocks.split_off(blocks.len() - 1), Order::HUGE);
        }
        let cleared = || lab.vm.machine().asked.cleared_frames.load(Ordering::Relaxed);
        let before = cleared();
        assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Err(FaultError::NoMemory));
        assert_eq!((cleared() - before) / 512, 2, "{pooled} in the pool");
        lab.give_back(frames, Order::BASE);
        lab.give_back(blocks, Order::HUGE);
        lab.vm.pool(Order::HUGE, 0).expect("it is given back");
        lab.vm.exit(space);
        lab.check(&[]);
    }
}
