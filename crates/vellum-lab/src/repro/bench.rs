//! A small program on a simulated machine, with the library under it, counted.
//!
//! Published microbenchmarks are loops over a few mappings. Here the loop is a closure that makes
//! accesses. It runs for some turns until caches and TLBs have settled, then for the turns that
//! count. Mappings, faults, zero frames and walks are the library's, under the oracle.

use vellum::addr::{Order, Va};
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights};
use vellum_sim::format::Format;
use vellum_sim::{Kind, Options, Parts, Program};

use super::fixture::{Fixture, Workload, boot};
use crate::error::LabError;

/// Where the program's real data lies: whole 2 MiB pages, written once, so that their frames follow
/// each other.
pub const REAL: u64 = 0x4000_0000;
/// Where memory lies that is only read: base pages of zeros.
pub const ZERO: u64 = 0x40_0000_0000;

/// What the program has mapped, and which switches are set.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Huge pages at [`REAL`].
    pub huge_pages: u64,
    /// Base pages at [`ZERO`].
    pub zero_pages: u64,
    /// Switches and values.
    pub switches: Vec<(&'static str, String)>,
    /// Turns before counting, and turns counted.
    pub turns: [u64; 2],
    /// The simulator's seed.
    pub seed: u64,
}

/// Makes accesses for a turn's closure.
pub trait MemoryAccess {
    /// Reads at an address; `after`: the address depends on the load before.
    fn read(&mut self, va: u64, after: bool);
    /// Retires instructions that touch no memory.
    fn run(&mut self, instructions: u64);
}

/// One turn of the loop, by its number.
pub type Turn<'t> = dyn Fn(&mut dyn MemoryAccess, u64) + 't;

/// What a counted turn cost on average.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counted {
    /// Misses of the program's data accesses, by level.
    pub l1: f64,
    /// In the second level.
    pub l2: f64,
    /// In the last level.
    pub llc: f64,
    /// Page walks.
    pub walks: f64,
    /// Cycles of the program, walks included.
    pub cycles: f64,
    /// TLB hits the oracle compared, in all.
    pub checked: u64,
}

/// Runs a program on a machine.
pub fn count(parts: &Parts, setting: &Setting, turn: &Turn<'_>) -> Result<Counted, LabError> {
    let options = Options { seed: setting.seed, ..Options::default() };
    let chosen = setting.switches.iter().map(|(name, value)| (*name, value.as_str()));
    let switches: Vec<_> = [("thp", "never")].into_iter().chain(chosen).collect();
    boot(parts, options, &switches, Loop { setting, turn })
}

struct Loop<'l> {
    setting: &'l Setting,
    turn: &'l Turn<'l>,
}

struct Reader<'p, 'c, 'a, F: Format, H> {
    program: &'p mut Program<'c, 'a, F, H>,
    refused: Option<String>,
}

impl<F: Format, H: FnMut(u64, Kind) -> Result<(), String>> MemoryAccess
    for Reader<'_, '_, '_, F, H>
{
    #[inline]
    fn read(&mut self, va: u64, after: bool) {
        if let Err(why) = self.program.access(va, 4, Kind::Load, after) {
            self.refused.get_or_insert(why);
        }
    }

    #[inline]
    fn run(&mut self, instructions: u64) {
        self.program.cpu().retire(instructions);
    }
}

impl Workload for Loop<'_> {
    type Out = Counted;
    fn run<F: Format>(self, fixture: &Fixture<'_, '_, F>) -> Result<Counted, LabError> {
        let Loop { setting, turn } = self;
        let Fixture { vm, cpu, space } = *fixture;
        let rw = Attrs::anonymous(Rights::READ_WRITE);
        let huge = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..rw };
        let pages =
            [(REAL, setting.huge_pages, huge, 2 << 20), (ZERO, setting.zero_pages, rw, 4096)];
        for (at, pages, attrs, bytes) in pages {
            if pages > 0 {
                vm.map(space, Placement::At(Va(at)), pages * bytes, attrs)
                    .map_err(LabError::failed)?;
            }
        }
        for page in 0..setting.huge_pages {
            vm.fault(space, Va(REAL + (page << 21)), Access::Write).map_err(LabError::failed)?;
        }
        let mut program = Program::new(cpu, |va, _| {
            vm.fault(space, Va(va), Access::Read).map(|_| ()).map_err(|e| format!("{e} at {va:#x}"))
        });
        let mut memory = Reader { program: &mut program, refused: None };
        let [settle, counted] = setting.turns;
        (0..settle).for_each(|n| turn(&mut memory, n));
        let before = vm.machine().counters(0);
        (settle..settle + counted).for_each(|n| turn(&mut memory, n));
        if let Some(why) = memory.refused {
            return Err(LabError::failed(why));
        }
        let counters = vm.machine().counters(0).since(&before);
        let turns = counted.max(1) as f64;
        let get = |name: &str| counters.get(name).map_or(f64::NAN, |n| n as f64 / turns);
        Ok(Counted {
            l1: get("l1d_demand_miss"),
            l2: get("l2_demand_miss"),
            llc: get("llc_demand_miss"),
            walks: get("walks_data"),
            cycles: get("cycles_program") + get("cycles_stlb") + get("cycles_walk"),
            checked: vm.machine().checked(),
        })
    }
}
