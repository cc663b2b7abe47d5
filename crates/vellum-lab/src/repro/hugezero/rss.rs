//! Memory that is read before it is written, if ever: how much of it stays with the program.
//!
//! The posting's reason is a transform of the NAS benchmarks (ft, class A) that took up to 2.5
//! times the memory with huge pages. Its demonstration reads 200 MB and writes nothing. The
//! transform was not published, so this one is built from the reason: three arrays of 256 x 256 x
//! 128 complex numbers (128 MiB each) that the program does not clear, because fresh memory is
//! zero.
//!
//! 1. Some planes of the first array are initialised.
//! 2. Each plane is read and transformed in a buffer. Only planes that were initialised are written
//!    to the second array: the transform of zeros is zeros.
//! 3. Every column of the second array is read, through all planes, and written to the third.
//!
//! With 4 KiB pages, reads map the shared page of zeros. With huge pages and no huge zeros, such a
//! read takes 2 MiB for good. The number of initialised planes was not published and decides the
//! figure, so several are run. A plane is 1 MiB. Planes that are far from each other show what huge
//! zeros cannot help, since a write takes 2 MiB in any case. A row of x is a page, and one access
//! stands for a row.

use vellum::addr::{PAGE_SIZE, Va};
use vellum::space::{Access, Attrs, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Cpu, Kind, Options, Parts, Program, SimMachine};

use crate::error::LabError;
use crate::repro::fixture::{Fixture, Workload, boot};

/// Bytes read by the demonstration: the posting's buffer of 200 MB, in whole huge pages.
pub const DEMONSTRATED: u64 = 200 << 20;
/// A row of x: 256 complex numbers of two doubles, which is a page.
const ROW: u64 = 256 * 16;
/// A plane of 256 rows.
const PLANE: u64 = 256 * ROW;
/// Planes of an array.
const PLANES: u64 = 128;
const AT: u64 = 16 << 30;

/// Which switches say what is wanted of memory.
pub type Switches = [(&'static str, &'static str); 2];
/// Pages of 4 KiB only.
pub const NEVER: Switches = [("thp", "never"), ("zero.huge", "off")];
/// Huge pages everywhere, as before the posting.
pub const ALWAYS: Switches = [("thp", "always"), ("zero.huge", "off")];

/// Huge pages everywhere, with a form of huge zeros.
pub fn zeros(form: &'static str) -> Switches {
    [("thp", "always"), ("zero.huge", form)]
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RssLoad {
    /// One byte of each 4 KiB of 200 MiB is read.
    Read,
    /// The transform with the first so many planes initialised.
    Slab(u64),
    /// The transform with every so manieth plane initialised.
    Every(u64),
}

/// Pages that belong to the program after it has run, tables not counted.
pub fn pages(machine: &Machine, switches: &Switches, load: RssLoad) -> Result<u64, LabError> {
    boot(&Parts::of(machine, 1), Options::default(), switches, load)
}

impl Workload for RssLoad {
    type Out = u64;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<u64, LabError> {
        let Fixture { vm, cpu, space } = *fixture;
        match self {
            RssLoad::Read => {
                let at = map(vm, space, 0, DEMONSTRATED)?;
                touch(
                    vm,
                    cpu,
                    space,
                    (at..at + DEMONSTRATED).step_by(PAGE_SIZE).map(|va| (va, Kind::Load)),
                )?;
            }
            RssLoad::Slab(planes) => transform(vm, cpu, space, |plane| plane < planes)?,
            RssLoad::Every(planes) => transform(vm, cpu, space, |plane| plane % planes == 0)?,
        }
        Ok(vm.usage(space).rss_pages)
    }
}

fn map<F: Format>(
    vm: &Vm<SimMachine<F>>,
    space: &Space,
    nth: u64,
    bytes: u64,
) -> Result<u64, LabError> {
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let at = vm
        .map(space, Placement::At(Va(AT + (nth << 30))), bytes, attrs)
        .map_err(LabError::failed)?;
    Ok(at.0)
}

fn touch<F: Format>(
    vm: &Vm<SimMachine<F>>,
    cpu: &Cpu<'_, F>,
    space: &Space,
    accesses: impl Iterator<Item = (u64, Kind)>,
) -> Result<(), LabError> {
    let mut program = Program::new(cpu, |va, kind| {
        let access = if kind == Kind::Store { Access::Write } else { Access::Read };
        vm.fault(space, Va(va), access).map(|_| ())
    });
    for (va, kind) in accesses {
        program.access(va, 8, kind, false).map_err(LabError::failed)?;
    }
    Ok(())
}

fn transform<F: Format>(
    vm: &Vm<SimMachine<F>>,
    cpu: &Cpu<'_, F>,
    space: &Space,
    initialised: impl Fn(u64) -> bool,
) -> Result<(), LabError> {
    let mut arrays = [0; 3];
    for (nth, at) in (0..).zip(&mut arrays) {
        *at = map(vm, space, nth, PLANES * PLANE)?;
    }
    let [first, second, third] = arrays;
    let rows = |at: u64, kind| (at..at + PLANE).step_by(ROW as usize).map(move |va| (va, kind));
    let planes = || 0..PLANES;
    for plane in planes().filter(|&p| initialised(p)) {
        touch(vm, cpu, space, rows(first + plane * PLANE, Kind::Store))?;
    }
    for plane in planes() {
        touch(vm, cpu, space, rows(first + plane * PLANE, Kind::Load))?;
        if initialised(plane) {
            touch(vm, cpu, space, rows(second + plane * PLANE, Kind::Store))?;
        }
    }
    // The columns of one row at a time, through all planes: what fits a buffer.
    for row in (0..PLANE).step_by(ROW as usize) {
        for (array, kind) in [(second, Kind::Load), (third, Kind::Store)] {
            touch(vm, cpu, space, planes().map(move |plane| (array + plane * PLANE + row, kind)))?;
        }
    }
    Ok(())
}
