//! The library, booted on a simulated machine for an experiment.
//!
//! The machine's type depends on its entry format, so an experiment is a value with one generic
//! function, and its author does not choose between formats. Metadata, switches, the first space
//! and its end are handled here.

use vellum::config::Config;
use vellum::space::Space;
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Cpu, Meta, Options, Parts, SimMachine};

use crate::error::LabError;

/// A machine that runs, with one space that is loaded on its first CPU.
pub struct Fixture<'g, 'a, F: Format> {
    /// The library over the machine.
    pub vm: &'g Vm<SimMachine<F>>,
    /// The CPU.
    pub cpu: &'g Cpu<'a, F>,
    /// The space.
    pub space: &'g Space,
}

/// What is done there.
pub trait Workload {
    /// What comes of it.
    type Out;
    /// Does it.
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<Self::Out, LabError>;
}

/// Boots the library on a machine with some switches set, and does the work.
pub fn boot<W: Workload>(
    parts: &Parts,
    options: Options,
    switches: &[(&str, &str)],
    work: W,
) -> Result<W::Out, LabError> {
    if parts.format == Arm::NAME {
        boot_as::<Arm, W>(parts, options, switches, work)
    } else {
        boot_as::<X86, W>(parts, options, switches, work)
    }
}

fn boot_as<F: Format, W: Workload>(
    parts: &Parts,
    options: Options,
    switches: &[(&str, &str)],
    work: W,
) -> Result<W::Out, LabError> {
    let sim = SimMachine::<F>::build(parts, options).map_err(LabError::usage)?;
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology()))
        .ok_or_else(|| LabError::failed("the host has no memory for the library's metadata"))?;
    let mut config = Config::default();
    for (name, value) in switches {
        config
            .set(name, value)
            .map_err(|_| LabError::failed(format_args!("{name}={value} is no switch")))?;
    }
    // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.map_err(LabError::failed)?;
    let done = vm.machine().solo(0, |cpu| {
        let space = vm.create().map_err(LabError::failed)?;
        vm.activate(&space);
        let done = work.run(&Fixture { vm: &vm, cpu, space: &space });
        vm.exit(space);
        done
    });
    // The machine's name first: such errors come from machines that are too small.
    match done.map_err(LabError::failed)? {
        Err(LabError::Failed(why)) => Err(LabError::failed(format_args!("{}: {why}", parts.name))),
        done => done,
    }
}
