//! The library on a host machine.

use std::io;

use vellum::config::Config;
use vellum::entry::Codec;
use vellum::machine::Machine;
use vellum::vm::Vm;

use crate::machine::{Host, Plan};
use crate::memory::Memory;

/// A `Vm` on a host machine, with the memory it lives in. Nobody gets the `Vm` out of it:
/// ```
/// # use vellum_host::host_vm::HostVm;
/// # fn f(host: &mut HostVm<vellum::X86_64, true>) {
/// let vm = host.vm();
/// # }
/// ```
/// ```compile_fail,E0616
/// # use vellum_host::host_vm::HostVm;
/// # fn f(host: &mut HostVm<vellum::X86_64, true>) {
/// let vm = &mut host.vm;
/// # }
/// ```
pub struct HostVm<C: Codec, const WATCH: bool> {
    pub(crate) vm: Vm<Host<C, WATCH>>,
    /// What `vm` lives in; it goes last.
    metadata: Memory,
}

impl<C: Codec, const WATCH: bool> HostVm<C, WATCH> {
    /// Builds the machine and the subsystem on it.
    ///
    /// # Errors
    /// A plan that makes no machine, switches the machine cannot follow, or memory the system
    /// refuses.
    pub fn new(plan: Plan, config: Config) -> io::Result<Self> {
        Self::with_devices(plan, config, 0)
    }
    /// The same with so many CPUs more, after those of the plan, which answer for devices.
    pub(crate) fn with_devices(plan: Plan, config: Config, devices: usize) -> io::Result<Self> {
        let machine = Host::with_devices(plan, devices)?;
        // On huge pages, whatever the plan says of the frames: it is read all the time.
        let metadata = Memory::new(Vm::<Host<C, WATCH>>::layout(machine.topology()).size(), true)?;
        // SAFETY: zeroed, long enough, aligned to 2 MiB, and it outlives the value beside it.
        let vm = unsafe { Vm::new(machine, config, metadata.base()) };
        let vm = vm.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
        Ok(HostVm { vm, metadata })
    }
    /// The subsystem.
    #[inline]
    pub fn vm(&self) -> &Vm<Host<C, WATCH>> {
        &self.vm
    }
    /// Touches all memory and all metadata, so that nothing measured afterwards contains a fault of
    /// the host.
    pub fn warm(&self) {
        self.metadata.warm();
        self.vm.machine().memory().warm();
    }
    /// What `vm` lives in.
    pub fn metadata(&self) -> &Memory {
        &self.metadata
    }
}
