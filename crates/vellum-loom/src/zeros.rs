//! The huge page of zeros, whose frame and count share a word, and the ASIDs of spaces, which pass
//! from one owner to the next.

use crate::atomic::contents;
use crate::fixture::{Memory, model, race};
use crate::machine::Asid;
use crate::machines::Metal;
use crate::space::Space;
use crate::vm::Vm;

/// A machine, and two spaces that map nothing.
struct Fixture {
    vm: Vm<Metal>,
    spaces: [Space; 2],
}

impl Fixture {
    fn new(memory: &mut Memory) -> Fixture {
        let vm = Metal::vm(memory, 2048, true);
        let spaces = [(); 2].map(|()| vm.create().expect("memory"));
        Fixture { vm, spaces }
    }

    /// The first space uses the huge page of zeros.
    fn used(memory: &mut Memory) -> Fixture {
        let fixture = Fixture::new(memory);
        fixture.read(0);
        fixture
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
    model(3, Fixture::new, |fixture| {
        race(|| fixture.read(0), || fixture.read(1));
        fixture.check(2);
    });
}

#[test]
fn the_huge_page_of_zeros_is_freed_after_its_last_reader_left() {
    model(3, Fixture::used, |fixture| {
        let last = || {
            fixture.read(0);
            fixture.leave(0);
        };
        race(last, || fixture.vm.shrink_zeros());
        fixture.check(0);
    });
}

#[test]
fn a_huge_page_of_zeros_that_a_space_uses_is_not_freed() {
    let left = |memory: &mut Memory| {
        let fixture = Fixture::used(memory);
        fixture.leave(0);
        fixture
    };
    model(3, left, |fixture| {
        race(|| fixture.read(1), || fixture.vm.shrink_zeros());
        fixture.check(1);
    });
}

#[test]
fn a_context_has_one_owner_after_the_other() {
    let all_taken = |memory: &mut Memory| {
        let fixture = Fixture::new(memory);
        assert_eq!((fixture.vm.layers.take_asid().0, fixture.vm.layers.take_asid().0), (3, 0));
        fixture
    };
    // An owner drops what TLBs hold under its asid, and only then gives the asid back.
    model(3, all_taken, |fixture| {
        let give = || {
            contents(3, true);
            fixture.vm.layers.give_asid(Asid(3));
        };
        let take = || {
            let got = fixture.vm.layers.take_asid().0;
            contents(got.into(), true);
            assert!(got == 0 || got == 3, "a asid has two owners");
        };
        race(give, take);
    });
}
