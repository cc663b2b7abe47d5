//! The huge page of zeros, whose frame and count share a word, and the contexts of spaces, which
//! have one owner after the other.

use crate::atomic::contents;
use crate::fixture::{Memory, model, race};
use crate::machine::ContextId;
use crate::machines::Metal;
use crate::space::Space;
use crate::vm::Vm;

/// A machine, and two spaces that map nothing.
struct Lab {
    vm: Vm<Metal>,
    spaces: [Space; 2],
}

impl Lab {
    fn new(memory: &mut Memory) -> Lab {
        let vm = Metal::vm(memory, 2048, true);
        let spaces = [(); 2].map(|()| vm.create().expect("memory"));
        Lab { vm, spaces }
    }

    /// The first space uses the huge page of zeros.
    fn used(memory: &mut Memory) -> Lab {
        let lab = Lab::new(memory);
        lab.read(0);
        lab
    }

    /// A space uses the huge page of zeros, and reads it.
    fn read(&self, space: usize) {
        if self.vm.layers.use_huge_zero(self.vm.layers.record_of(&self.spaces[space])).is_ok() {
            contents(self.vm.huge_zero().expect("a page that is used").0, false);
        }
    }

    /// A space ends its use of the page.
    fn leave(&self, space: usize) {
        let record = self.vm.layers.record_of(&self.spaces[space]);
        let flushed = self.vm.layers.flush_out(record);
        self.vm.layers.leave_huge_zero(record, &flushed);
    }

    /// So many spaces use the page.
    fn check(&self, spaces: u64) {
        let references = self.vm.huge_zero_references();
        let right = references == spaces + 1 || references == 0 && spaces == 0;
        assert!(right, "{references} references of {spaces} spaces");
        // SAFETY: one thread is left.
        unsafe { self.vm.frames().validate(self.vm.machine()) }.expect("frames in order");
    }
}

#[test]
fn two_spaces_that_make_the_huge_page_of_zeros_have_one() {
    model(3, Lab::new, |lab| {
        race(|| lab.read(0), || lab.read(1));
        lab.check(2);
    });
}

#[test]
fn the_huge_page_of_zeros_is_freed_after_its_last_reader_left() {
    model(3, Lab::used, |lab| {
        let last = || {
            lab.read(0);
            lab.leave(0);
        };
        race(last, || lab.vm.shrink_zeros());
        lab.check(0);
    });
}

#[test]
fn a_huge_page_of_zeros_that_a_space_uses_is_not_freed() {
    let left = |memory: &mut Memory| {
        let lab = Lab::used(memory);
        lab.leave(0);
        lab
    };
    model(3, left, |lab| {
        race(|| lab.read(1), || lab.vm.shrink_zeros());
        lab.check(1);
    });
}

#[test]
fn a_context_has_one_owner_after_the_other() {
    let all_taken = |memory: &mut Memory| {
        let lab = Lab::new(memory);
        assert_eq!((lab.vm.layers.take_context().0, lab.vm.layers.take_context().0), (3, 0));
        lab
    };
    // An owner drops what TLBs hold under its context, and only then gives the context back.
    model(3, all_taken, |lab| {
        let give = || {
            contents(3, true);
            lab.vm.layers.give_context(ContextId(3));
        };
        let take = || {
            let got = lab.vm.layers.take_context().0;
            contents(got.into(), true);
            assert!(got == 0 || got == 3, "a context has two owners");
        };
        race(give, take);
    });
}
