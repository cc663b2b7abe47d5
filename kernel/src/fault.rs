//! From the trap to the library: finds the running space and serves its fault.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use vellum::addr::Va;
use vellum::error::FaultError;
use vellum::space::{Access, Space};
use vellum::vm::Vm;

use crate::machine::Metal;

/// What runs: the pair lives in [`run`]'s frame while it is named here.
struct Current<'a> {
    vm: &'a Vm<Metal>,
    space: &'a Space,
}

static CURRENT: AtomicPtr<Current<'static>> = AtomicPtr::new(core::ptr::null_mut());
/// User faults the processor reported so far.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Reasons as an access of [`crate::arch::user`] returns them.
pub const UNMAPPED: u64 = 1;
pub const RIGHTS: u64 = 2;
pub const NO_MEMORY: u64 = 3;
pub const STOPPED: u64 = 4;
pub const BEYOND: u64 = 5;

/// Runs `body` in `space`: its root is loaded, faults of the user half are its. May be nested; the
/// outer space runs on afterwards.
pub fn run<T>(vm: &Vm<Metal>, space: &Space, body: impl FnOnce() -> T) -> T {
    let mut current = Current { vm, space };
    let outer = CURRENT.swap((&raw mut current).cast(), Ordering::Relaxed);
    vm.activate(space);
    let value = body();
    CURRENT.store(outer, Ordering::Relaxed);
    // SAFETY: not null, it lives in the frame of the `run` around this one.
    match unsafe { outer.as_ref() } {
        Some(outer) => vm.activate(outer.space),
        None => vm.deactivate(),
    }
    value
}

/// User faults taken so far.
pub fn taken() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Serves a fault. The error says why the access must not be tried again.
pub fn user_fault(address: u64, error: u64) -> Result<(), u64> {
    FAULTS.store(taken() + 1, Ordering::Relaxed);
    let access = match (error & 1 << 1 != 0, error & 1 << 4 != 0) {
        (true, _) => Access::Write,
        (_, true) => Access::Exec,
        _ => Access::Read,
    };
    // SAFETY: set by `run` for as long as the value lives; the only CPU cannot be in two places.
    let Some(current) = (unsafe { CURRENT.load(Ordering::Relaxed).as_ref() }) else {
        return Err(UNMAPPED);
    };
    match current.vm.fault(current.space, Va(address), access) {
        Ok(_) => Ok(()),
        Err(FaultError::Unmapped) => Err(UNMAPPED),
        Err(FaultError::Rights) => Err(RIGHTS),
        Err(FaultError::NoMemory) => Err(NO_MEMORY),
        Err(FaultError::Beyond) => Err(BEYOND),
        // The file's pager never fails, nothing asks a task to end, and a program reaches a device.
        Err(FaultError::Stopped | FaultError::Io | FaultError::Device) => Err(STOPPED),
    }
}
