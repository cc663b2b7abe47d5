//! Which CPUs a thread is.
//!
//! A thread may be a CPU of several machines, and lets them go in any order. All of them are in a
//! list. The one that it was asked for last has a word of its own beside it, so that asking again
//! is one read. While a CPU is parked its thread is none: nothing runs on it then.

use std::cell::{Cell, RefCell};

use vellum::machine::CpuId;

/// That a thread is a CPU of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    /// The machine's number; 0 is none.
    pub machine: u64,
    pub cpu: CpuId,
    /// The thread answers for a device: it runs without a permit, as an interrupt does.
    pub is_device: bool,
    pub is_parked: bool,
}

const NONE: Binding = Binding { machine: 0, cpu: 0, is_device: false, is_parked: false };

thread_local! {
    static LAST: Cell<Binding> = const { Cell::new(NONE) };
    static ALL: RefCell<Vec<Binding>> = const { RefCell::new(Vec::new()) };
}

/// The thread's binding to a machine, which it may use.
#[inline]
pub(super) fn bound(machine: u64) -> Binding {
    let last = LAST.get();
    if last.machine == machine { last } else { sought(machine) }
}

#[cold]
#[inline(never)]
fn sought(machine: u64) -> Binding {
    let Some(found) = find(machine) else {
        panic!("this thread is bound to no CPU of this machine: call Host::bind")
    };
    assert!(!found.is_parked, "CPU {} of this thread is parked: it does nothing", found.cpu);
    LAST.set(found);
    found
}

/// The same if there is one, parked or not.
pub(super) fn find(machine: u64) -> Option<Binding> {
    ALL.with_borrow(|all| all.iter().find(|b| b.machine == machine).copied())
}

/// The thread is bound; or, if it is already, becomes so in another way.
pub(super) fn put(binding: Binding) {
    remove(binding.machine);
    ALL.with_borrow_mut(|all| all.push(binding));
    if !binding.is_parked {
        LAST.set(binding);
    }
}

/// The thread is no CPU of a machine any more.
pub(super) fn remove(machine: u64) {
    if LAST.get().machine == machine {
        LAST.set(NONE);
    }
    // A guard may outlive the list where a thread ends.
    let _ = ALL.try_with(|all| all.borrow_mut().retain(|b| b.machine != machine));
}
