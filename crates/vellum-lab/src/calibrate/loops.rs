//! The measured loops on a simulated machine: the same acts in the same order, on less memory.

use vellum::addr::Va;
use vellum::space::{Access, Attrs, Placement, Rights};
use vellum::vm::ObjectPart;
use vellum_host::calibrate::{CHAINS, lines_of_pages};
use vellum_sim::file::Machine;
use vellum_sim::format::Format;
use vellum_sim::{Options, Parts, Program};

use super::calls::{Act, CALLS, Calls, FEW, MANY};
use crate::error::LabError;
use crate::repro::fixture::{Fixture, Workload, boot};
use crate::switches;

const AT: u64 = 16 << 30;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// Pages and huge pages of a loop over the kernel's work.
const PAGES: u64 = 4096;
const BLOCKS: u64 = 8;
/// Pages of a file that a load maps: what Linux has for `fault_around_bytes`, and `file.around`.
const AROUND: u64 = 16;
/// Mappings made and unmade.
const MAPS: u64 = 64;

/// A loop whose acts have a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loop {
    /// The first load of each page.
    ZeroRead,
    /// The first store to each page.
    Touch,
    /// A store to each page that is shared since a fork.
    Copy,
    /// A written page unmapped with its neighbours.
    Unmap,
    /// A mapping made and unmade.
    Map,
    /// The first store to each huge page.
    HugeTouch,
    /// A written huge page unmapped with its neighbours.
    HugeUnmap,
    /// A page of a file, one of [`AROUND`] that the first load of one of them maps.
    FileTouch,
    /// Such a page unmapped with its neighbours.
    FileUnmap,
    /// A read of 16 bytes of a file.
    ReadFew,
    /// Each further line of a read of 64 KiB.
    ReadLine,
    /// A write of 16 bytes over others.
    WriteFew,
    /// A write of a page at the end of a file.
    Grow,
    /// Each page after the first of a write of 64 KiB there.
    AddPage,
    /// A page that a shorter file loses with its neighbours.
    DropPage,
    /// A chase over one line of each page, and whether these lie in huge pages.
    Chase(usize, bool),
    /// The same by [`CHAINS`] chases at once, in small pages.
    Chases(usize),
    /// A load of zeros whose walk reads the next line of a table, which the second level has.
    Tables,
    /// Lines read in a row, so many instructions apart.
    Stream(u64),
}

/// Nanoseconds of an act on a machine, with Linux's choices.
pub fn nanoseconds(machine: &Machine, act: Loop) -> Result<f64, LabError> {
    let huge = matches!(act, Loop::HugeTouch | Loop::HugeUnmap | Loop::Chase(_, true));
    let pages = [("thp", if huge { "always" } else { "never" }), ("zero.huge", "page")];
    let switches: Vec<_> = match act {
        // What is read in a row comes from memory: clearing leaves nothing in the caches.
        Loop::Stream(_) => vec![("thp", "always"), ("clear.stores", "bypass")],
        _ => switches::LINUX.iter().copied().chain(pages).collect(),
    };
    let options = Options { seed: 1, ..Options::default() };
    let cycles = boot(&Parts::of(machine, 1), options, &switches, Timed(act))?;
    Ok(cycles * 1e9 / *machine.clock_hz as f64)
}

struct Timed(Loop);

impl Workload for Timed {
    type Out = f64;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<f64, LabError> {
        let Fixture { vm, cpu, space } = *fixture;
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let map = |bytes: u64| {
            vm.map(space, Placement::At(Va(AT)), bytes, attrs).map_err(LabError::failed)
        };
        let unmap = |bytes| vm.unmap(space, Va(AT), bytes).map_err(LabError::failed);
        let mut program = Program::new(cpu, |va, kind| {
            let access = match kind {
                vellum_sim::Kind::Store => Access::Write,
                _ => Access::Read,
            };
            vm.fault(space, Va(va), access).map(|_| ())
        });
        let between = if let Loop::Stream(instructions) = self.0 { instructions } else { 3 };
        let mut each = |from: u64, write: bool, step: u64, times: u64| {
            for at in (0..times).map(|n| from + n * step) {
                cpu.retire(between);
                let done =
                    if write { program.store(at, 1, false) } else { program.load(at, 1, false) };
                done.map_err(LabError::failed)?;
            }
            Ok::<u64, LabError>(times)
        };
        let (start, times) = match self.0 {
            Loop::ZeroRead | Loop::Touch => {
                map(PAGES * PAGE)?;
                (cpu.now(), each(AT, self.0 == Loop::Touch, PAGE, PAGES)?)
            }
            Loop::HugeTouch => {
                map((BLOCKS + 1) * HUGE)?;
                // The first makes the table that all others find.
                each(AT + BLOCKS * HUGE, true, HUGE, 1)?;
                (cpu.now(), each(AT, true, HUGE, BLOCKS)?)
            }
            Loop::Copy => {
                map(PAGES * PAGE)?;
                each(AT, true, PAGE, PAGES)?;
                let child = vm.fork(space).map_err(LabError::failed)?;
                let (start, times) = (cpu.now(), each(AT, true, PAGE, PAGES)?);
                let took = cpu.now() - start;
                vm.exit(child);
                return Ok(took as f64 / times as f64);
            }
            Loop::Unmap | Loop::HugeUnmap => {
                let is_huge = self.0 == Loop::HugeUnmap;
                let (page, pages) = if is_huge { (HUGE, BLOCKS) } else { (PAGE, PAGES) };
                map(pages * page)?;
                each(AT, true, page, pages)?;
                let start = cpu.now();
                unmap(pages * page)?;
                (start, pages)
            }
            Loop::FileTouch | Loop::FileUnmap => {
                let object = vm.objects().create(PAGES * PAGE).map_err(LabError::failed)?;
                let show = || {
                    let part = ObjectPart { object: &object, offset: 0 };
                    let at = Placement::At(Va(AT));
                    vm.map_object(space, at, PAGES * PAGE, attrs, part).map_err(LabError::failed)
                };
                show()?;
                each(AT, true, PAGE, PAGES)?;
                unmap(PAGES * PAGE)?;
                show()?;
                let mut start = cpu.now();
                each(AT, false, AROUND * PAGE, PAGES / AROUND)?;
                if self.0 == Loop::FileUnmap {
                    start = cpu.now();
                    unmap(PAGES * PAGE)?;
                }
                let took = cpu.now() - start;
                vm.objects().discard(object);
                return Ok(took as f64 / PAGES as f64);
            }
            Loop::ReadFew
            | Loop::ReadLine
            | Loop::WriteFew
            | Loop::Grow
            | Loop::AddPage
            | Loop::DropPage => {
                map(MANY)?;
                each(AT, true, PAGE, MANY / PAGE)?;
                let calls = Calls { vm, cpu, space, buffer: AT };
                let call = |bytes, act| calls.each(bytes, act).map(|took| took.0);
                let (lines, pages) = (MANY / 64, MANY / PAGE);
                return Ok(match self.0 {
                    Loop::ReadFew => call(FEW, Act::Read)?,
                    Loop::ReadLine => {
                        (call(MANY, Act::Read)? - call(FEW, Act::Read)?) / lines as f64
                    }
                    Loop::WriteFew => call(FEW, Act::Overwrite)?,
                    Loop::Grow => call(PAGE, Act::Append)?,
                    Loop::AddPage => {
                        (call(MANY, Act::Append)? - call(PAGE, Act::Append)?) / (pages - 1) as f64
                    }
                    _ => calls.each(MANY, Act::Append)?.1 / (CALLS * pages) as f64,
                });
            }
            Loop::Map => {
                let start = cpu.now();
                for _ in 0..MAPS {
                    map(PAGE)?;
                    unmap(PAGE)?;
                }
                (start, MAPS)
            }
            Loop::Chase(pages, _) | Loop::Chases(pages) => {
                let places = lines_of_pages(pages);
                map((pages as u64 * PAGE).next_multiple_of(HUGE))?;
                each(AT, true, PAGE, pages as u64)?;
                // Of many chases each load waits for one long before it: for none, here.
                let (is_one, n) = (matches!(self.0, Loop::Chase(..)), places.len());
                let at = |step: usize| match is_one {
                    true => places[step % n],
                    false => places[(step / CHAINS + step % CHAINS * n / CHAINS) % n],
                };
                let mut chase = |steps: usize| {
                    for step in 0..steps {
                        cpu.retire(1);
                        let at = AT + at(step) as u64;
                        program.load(at, 8, is_one).map_err(LabError::failed)?;
                    }
                    Ok::<(), LabError>(())
                };
                chase(pages)?;
                let steps = pages.min(20_000);
                let start = cpu.now();
                chase(steps)?;
                (start, steps as u64)
            }
            Loop::Tables => {
                // One in eight pages: few sets of a TLB have them all, and keep none. The second
                // level keeps the tables, as if they came to it ahead of walks.
                let (covered, lines) = (8 * PAGE, 2048);
                map(lines * covered)?;
                let mut walks = || {
                    for line in 0..lines {
                        cpu.retire(3);
                        program.load(AT + line * covered, 1, true).map_err(LabError::failed)?;
                    }
                    Ok::<(), LabError>(())
                };
                walks()?;
                let start = cpu.now();
                walks()?;
                (start, lines)
            }
            Loop::Stream(_) => {
                let lines = 8 * HUGE / 64;
                map(8 * HUGE)?;
                each(AT, true, HUGE, 8)?;
                let start = cpu.now();
                (start, each(AT, false, 64, lines)?)
            }
        };
        Ok((cpu.now() - start) as f64 / times as f64)
    }
}
