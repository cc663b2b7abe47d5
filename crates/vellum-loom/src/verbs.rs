//! Whole verbs beside each other. They have many executions, so these models have one preemption.

use crate::fixture::{Memory, model, race};
use crate::machines::{BYTES, Metal, PAGE};
use crate::space::{Access, Attrs, Page, Placement, Rights, Space};
use crate::vm::Vm;

/// A machine, and a space with a reserved page.
struct Fixture {
    vm: Vm<Metal>,
    space: Space,
}

impl Fixture {
    fn new(memory: &mut Memory) -> Fixture {
        let vm = Metal::vm(memory, 1024, false);
        let space = vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(PAGE), BYTES, attrs).expect("a hole");
        Fixture { vm, space }
    }

    /// Nothing is lost, and so many frames of data are mapped.
    fn check(&self, data: u64) {
        // SAFETY: one thread is left.
        let audit = unsafe { self.vm.validate(&[&self.space]) }.expect("a valid state");
        assert_eq!((audit.data_frames, audit.other_frames), (data, 0), "{audit:?}");
    }
}

#[test]
fn two_faults_install_one_page() {
    model(1, Fixture::new, |fixture| {
        let fault = || {
            fixture.vm.fault(&fixture.space, PAGE, Access::Write).expect("memory");
        };
        race(fault, fault);
        fixture.check(1);
    });
}

#[test]
fn a_fault_installs_into_a_live_table_or_not_at_all() {
    model(1, Fixture::new, |fixture| {
        let fault = || {
            let _ = fixture.vm.fault(&fixture.space, PAGE, Access::Write);
        };
        race(|| fixture.vm.unmap(&fixture.space, PAGE, BYTES).expect("memory"), fault);
        assert_eq!(fixture.vm.query(&fixture.space, PAGE), Page::Unmapped);
        fixture.check(0);
    });
}
