//! Whole verbs beside each other. Their executions are many, so these models have one preemption.

use crate::fixture::{Memory, model, race};
use crate::machines::{BYTES, Metal, PAGE};
use crate::space::{Access, Attrs, Page, Placement, Rights, Space};
use crate::vm::Vm;

/// A machine, and a space with a reserved page.
struct Lab {
    vm: Vm<Metal>,
    space: Space,
}

impl Lab {
    fn new(memory: &mut Memory) -> Lab {
        let vm = Metal::vm(memory, 1024, false);
        let space = vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(PAGE), BYTES, attrs).expect("a hole");
        Lab { vm, space }
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
    model(1, Lab::new, |lab| {
        let fault = || {
            lab.vm.fault(&lab.space, PAGE, Access::Write).expect("memory");
        };
        race(fault, fault);
        lab.check(1);
    });
}

#[test]
fn a_fault_installs_into_a_live_table_or_not_at_all() {
    model(1, Lab::new, |lab| {
        let fault = || {
            let _ = lab.vm.fault(&lab.space, PAGE, Access::Write);
        };
        race(|| lab.vm.unmap(&lab.space, PAGE, BYTES).expect("memory"), fault);
        assert_eq!(lab.vm.query(&lab.space, PAGE), Page::Unmapped);
        lab.check(0);
    });
}
