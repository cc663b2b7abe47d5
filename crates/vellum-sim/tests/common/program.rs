//! A program under the library on a CPU of a hunt: what it touches faults, and what it reads it
//! knows.

use vellum::addr::Va;
use vellum::error::FaultError;
use vellum::space::{Access, Space};
use vellum::vm::Vm;
use vellum_sim::format::Format;
use vellum_sim::{Cpu, Kind, Program, SimMachine};

/// Loads or stores eight bytes, faults served; answers the line's version.
pub fn access<F: Format>(
    vm: &Vm<SimMachine<F>>,
    cpu: &Cpu<'_, F>,
    space: &Space,
    va: u64,
    kind: Kind,
) -> Result<u64, FaultError> {
    let mut p = Program::new(cpu, |va, kind| {
        let access = if kind == Kind::Store { Access::Write } else { Access::Read };
        vm.fault(space, Va(va), access).map(|_| ())
    });
    p.access(va, 8, kind, false).map(|seen| seen.0)
}

/// Stops the run unless a line of which one CPU is the only writer holds what that CPU left. Says
/// whether memory sufficed to look.
pub fn sees<F: Format>(
    vm: &Vm<SimMachine<F>>,
    cpu: &Cpu<'_, F>,
    (space, which): (&Space, &str),
    va: u64,
    expect: u64,
) -> bool {
    match access(vm, cpu, space, va, Kind::Load) {
        Ok(seen) => {
            if seen != expect {
                cpu.stop(format!(
                    "{which}: a load at {va:#x} sees version {seen}, its only writer left {expect}"
                ));
            }
            true
        }
        Err(FaultError::NoMemory) => false,
        Err(e) => {
            cpu.stop(format!("{which}: a load of an owned page at {va:#x} is refused: {e}"));
            false
        }
    }
}
