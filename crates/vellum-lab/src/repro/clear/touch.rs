//! The workload: that of `perf bench mem mmap -f demand -s 64GB`.
//!
//! A private mapping with leaves of one size, one byte read and written in each page, in ascending
//! order; mapping and touching are timed, unmapping is not. The published runs do it five times;
//! one time is enough here, since each is like the others. The byte is the first of its page, as
//! published, or one drawn for each page, which is what the tool does when it is given a seed
//! (`-r`). Frames are not placed by the seed: blocks of 2 MiB lie on all sets of a cache alike, and
//! what is cleared is only counted.

use vellum::addr::{Order, Va};
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights};
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::schedule::Rng;
use vellum_sim::{Kind, Options, Parts, Program};

use crate::error::LabError;
use crate::repro::fixture::{Fixture, Workload, boot};

/// Where in each page it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TouchedByte {
    /// At its start.
    First,
    /// At a byte drawn for each page, from this seed.
    Drawn(u64),
}

/// What a run of the workload came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Binary gigabytes a second, as the published tool prints them.
    pub gib_per_s: f64,
    /// Cycles for each line of the footprint.
    pub cycles_per_line: f64,
    /// First-level misses of the kernel for each line.
    pub misses_per_line: f64,
}

/// Touches `bytes` bytes on a machine with those switches.
pub fn touch(
    machine: &Machine,
    leaf: Order,
    switches: &[(&str, &str)],
    bytes: u64,
    byte: TouchedByte,
) -> Result<Figures, LabError> {
    let parts = Parts::of(machine, 1);
    let options = Options { count_clears: true, ..Options::default() };
    let (cycles, misses) = boot(&parts, options, switches, Touch { leaf, bytes, byte })?;
    let lines = (bytes / 64) as f64;
    let seconds = cycles as f64 / parts.clock_hz as f64;
    Ok(Figures {
        gib_per_s: bytes as f64 / f64::from(1 << 30) / seconds,
        cycles_per_line: cycles as f64 / lines,
        misses_per_line: misses as f64 / lines,
    })
}

struct Touch {
    leaf: Order,
    bytes: u64,
    byte: TouchedByte,
}

impl Workload for Touch {
    /// Cycles, and first-level misses of the kernel.
    type Out = (u64, u64);
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<(u64, u64), LabError> {
        let Fixture { vm, cpu, space } = *fixture;
        let start = cpu.now();
        let attrs =
            Attrs { leaf: LeafSize::Exactly(self.leaf), ..Attrs::anonymous(Rights::READ_WRITE) };
        let at = vm.map(space, Placement::Anywhere, self.bytes, attrs).map_err(LabError::failed)?;
        let mut program = Program::new(cpu, |va, kind| {
            let access = if kind == Kind::Store { Access::Write } else { Access::Read };
            vm.fault(space, Va(va), access).map(|_| ())
        });
        let size = self.leaf.bytes();
        let mut draws = match self.byte {
            TouchedByte::First => None,
            TouchedByte::Drawn(seed) => Some(Rng::new(seed)),
        };
        for page in 0..self.bytes / size {
            let byte = at.0 + page * size + draws.as_mut().map_or(0, |rng| rng.below(size));
            program
                .load(byte, 1, false)
                .and_then(|_| program.store(byte, 1, true))
                .map_err(LabError::failed)?;
        }
        Ok((cpu.now() - start, vm.machine().total().get("l1d_kernel_miss").unwrap_or(0)))
    }
}
