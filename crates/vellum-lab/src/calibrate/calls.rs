//! System calls on a file, as a replay does them.

use vellum::addr::Va;
use vellum::space::Space;
use vellum::vm::{Object, Vm};
use vellum_sim::format::Format;
use vellum_sim::{Cpu, SimMachine};

use crate::error::LabError;

const PAGE: u64 = 4096;
/// Bytes of a short call, and of a long one.
pub const FEW: u64 = 16;
pub const MANY: u64 = 64 << 10;
/// Calls of a loop.
pub const CALLS: u64 = 64;

/// System calls that move bytes between a program's memory and a file, as a replay does them.
pub struct Calls<'f, 'v, F: Format> {
    pub vm: &'f Vm<SimMachine<F>>,
    pub cpu: &'f Cpu<'v, F>,
    pub space: &'f Space,
    /// Where the program's memory begins, [`MANY`] bytes that are there.
    pub buffer: u64,
}

/// What each call of a loop does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It reads the first bytes.
    Read,
    /// It writes the first bytes, which are there.
    Overwrite,
    /// It writes bytes behind the last.
    Append,
}

impl<F: Format> Calls<'_, '_, F> {
    /// Cycles of each of [`CALLS`] calls on one file, and of making it empty.
    pub fn each(&self, bytes: u64, act: Act) -> Result<(f64, f64), LabError> {
        let Calls { vm, cpu, .. } = self;
        let object = vm.objects().create_paged(0, 0).map_err(LabError::failed)?;
        vm.machine().cut_file(0, 0);
        if act != Act::Append {
            self.write(&object, 0, MANY)?;
            self.read(&object, bytes)?;
        }
        let start = cpu.now();
        for n in 0..CALLS {
            match act {
                Act::Read => self.read(&object, bytes)?,
                Act::Overwrite => self.write(&object, 0, bytes)?,
                Act::Append => self.write(&object, n * bytes, bytes)?,
            }
        }
        let (end, machine) = (cpu.now(), vm.machine());
        machine.in_file_call(|| vm.objects().resize(&object, 0)).map_err(LabError::failed)?;
        let took = ((end - start) as f64 / CALLS as f64, (cpu.now() - end) as f64);
        vm.objects().discard(object);
        Ok(took)
    }

    fn write(&self, object: &Object, at: u64, bytes: u64) -> Result<(), LabError> {
        let (vm, mut buffer) = (self.vm, [0; MANY as usize]);
        self.cpu.syscall();
        let grows = vm.objects().usage(object).bytes < at + bytes;
        let written = vm.machine().in_file_write(grows, || {
            if grows {
                vm.objects().resize(object, at + bytes)?;
            }
            vm.objects().write(object, at, &buffer[..bytes as usize]).1
        });
        written.map_err(LabError::failed)?;
        self.program(&mut buffer[..bytes as usize], false)
    }

    fn read(&self, object: &Object, bytes: u64) -> Result<(), LabError> {
        let (vm, mut buffer) = (self.vm, [0; MANY as usize]);
        self.cpu.syscall();
        let bytes = &mut buffer[..bytes as usize];
        let read = vm.machine().in_file_call(|| vm.objects().read(object, 0, bytes).1);
        read.map_err(LabError::failed)?;
        self.program(bytes, true)
    }

    /// The program's side of it, page by page.
    fn program(&self, bytes: &mut [u8], is_read: bool) -> Result<(), LabError> {
        for (n, page) in bytes.chunks_mut(PAGE as usize).enumerate() {
            let at = Va(self.buffer + n as u64 * PAGE);
            let copy = || match is_read {
                true => self.vm.copy_in(self.space, at, page),
                false => self.vm.copy_out(self.space, at, page),
            };
            self.vm.machine().in_file_call(copy).map_err(LabError::failed)?;
        }
        Ok(())
    }
}
