//! A kernel of one screen: page tables written by hand, so that each test of the oracle is one
//! interleaving in full view.
#![allow(dead_code)] // Each test file uses its part.

pub mod beside;
pub mod program;

use std::cell::Cell;
use vellum_testkit::ext::MachineExt;

use vellum::addr::{Level, Order, Pfn, Va};
use vellum::entry::{Codec, Entry, Flags};
use vellum::machine::{Asid, CpuMask, Hooks, Machine, Root, Scope, Use, Verb};
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Check, Cpu, Kind, Mode, Options, Outcome, Parts, Rule, SimMachine, Stop, file};

/// The three sets of MMU rules that correctness tests run under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmuKind {
    X86,
    Pcid,
    Arm,
}

pub fn parts(mmu: MmuKind) -> Parts {
    let mut p = Parts::of(&file::preset("tiny").expect("tiny is a preset"), 1);
    let arm = mmu == MmuKind::Arm;
    p.format = if arm { "aarch64".into() } else { "x86_64".into() };
    p.mmu.levels = 4;
    p.mmu.contexts = match mmu {
        MmuKind::X86 => 0,
        MmuKind::Pcid => 4095,
        MmuKind::Arm => 255,
    };
    (p.mmu.fault_invalidates, p.mmu.break_before_make, p.mmu.broadcast) = (!arm, arm, arm);
    p
}

pub fn options(check: Check) -> Options {
    Options { check, ..Options::default() }
}

pub const RW: Flags = Flags { write: true, exec: false, accessed: true, dirty: true };
pub const RW_CLEAN: Flags = Flags { write: true, exec: false, accessed: true, dirty: false };
pub const RO: Flags = Flags { write: false, exec: false, accessed: true, dirty: false };

/// An address, and one in another level-1 table.
pub const A: u64 = 0x4000_0000;
pub const B: u64 = A + (5 << 21);

pub struct Kernel<'a, F: Format> {
    pub sim: &'a SimMachine<F>,
    pub root: Pfn,
    pub context: Asid,
    next: &'a Cell<u64>,
}

impl<'a, F: Format> Kernel<'a, F> {
    pub fn new(sim: &'a SimMachine<F>, next: &'a Cell<u64>, context: u16) -> Self {
        let context = Asid(if sim.rules().asids == 0 { 0 } else { context });
        let mut k = Kernel { sim, root: Pfn(0), context, next };
        k.root = k.table();
        k
    }

    pub fn frame(&self, used: Use) -> Pfn {
        self.block(Order::BASE, used)
    }

    pub fn block(&self, order: Order, used: Use) -> Pfn {
        let first = self.next.get().next_multiple_of(order.frames());
        self.next.set(first + order.frames());
        self.sim.becomes(Pfn(first), order, used);
        Pfn(first)
    }

    /// A page of 2 MiB of zeros, mapped at `va`.
    pub fn map_huge(&self, va: u64, flags: Flags) -> Pfn {
        let pfn = self.block(Order::HUGE, Use::Data);
        self.sim.zero_out(pfn, 512);
        self.set_at(va, 2, Entry::Leaf(pfn, flags));
        pfn
    }

    pub fn becomes(&self, pfn: Pfn, used: Use) {
        self.sim.becomes(pfn, Order::BASE, used);
    }

    pub fn table(&self) -> Pfn {
        self.frame(Use::Table)
    }

    pub fn data(&self) -> Pfn {
        let pfn = self.frame(Use::Data);
        self.sim.zero_out(pfn, 1);
        pfn
    }

    /// The node of `level` on the way to `va`; missing nodes are made.
    pub fn node(&self, va: u64, level: u8) -> Pfn {
        let mut table = self.root;
        let mut at = Level(self.sim.rules().levels);
        while at.0 > level {
            let slot = at.slot(Va(va));
            table = match F::Codec::decode(self.sim.entry(table, slot), at) {
                Entry::Table(next) => next,
                _ => {
                    let next = self.table();
                    self.sim.set_entry(table, slot, F::Codec::encode(Entry::Table(next), at));
                    next
                }
            };
            at = at.child();
        }
        table
    }

    pub fn set_at(&self, va: u64, level: u8, entry: Entry) {
        let table = self.node(va, level);
        self.sim.set_entry(table, Level(level).slot(Va(va)), F::Codec::encode(entry, Level(level)));
    }

    pub fn set(&self, va: u64, entry: Entry) {
        self.set_at(va, 1, entry);
    }

    pub fn get(&self, va: u64) -> Entry {
        let table = self.node(va, 1);
        F::Codec::decode(self.sim.entry(table, Level(1).slot(Va(va))), Level(1))
    }

    /// Maps a fresh cleared page.
    pub fn map(&self, va: u64, flags: Flags) -> Pfn {
        let pfn = self.data();
        self.set(va, Entry::Leaf(pfn, flags));
        pfn
    }

    pub fn load(&self) {
        self.sim.enter_root(Some(Root { table: self.root, asid: self.context, flush: false }));
    }

    pub fn load_on(&self, cpu: &Cpu<'_, F>, id: usize) {
        cpu.script(id, |_| self.load());
    }

    pub fn page(&self, va: u64) -> Scope {
        Scope::Page(self.context, Va(va))
    }

    pub fn flush_here(&self, va: u64) {
        self.sim.flush_local(self.page(va));
    }

    pub fn flush(&self, cpus: &[usize], scope: Scope) {
        let mut mask = CpuMask::EMPTY;
        cpus.iter().for_each(|&c| mask.insert(c));
        self.sim.flush_remote(&mask, scope);
    }

    /// Runs `work` as one verb.
    pub fn verb<T>(&self, verb: Verb, work: impl FnOnce() -> T) -> T {
        self.sim.begin(verb);
        let r = work();
        self.sim.end(verb);
        r
    }
}

pub fn load<F: Format>(cpu: &Cpu<'_, F>, va: u64) -> bool {
    cpu.access(va, 8, Kind::Load, false).is_ok()
}

pub fn store<F: Format>(cpu: &Cpu<'_, F>, va: u64) -> bool {
    cpu.access(va, 8, Kind::Store, false).is_ok()
}

/// One interleaving, on a machine with these MMU rules.
pub trait Script {
    fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>);
}

/// Plays a script in which CPUs 0 and 1 have the kernel's root loaded.
pub fn play<S: Script>(mmu: MmuKind, options: Options, script: &S) -> Result<(), Stop> {
    fn on<F: Format, S: Script>(parts: &Parts, options: Options, script: &S) -> Result<(), Stop> {
        let sim = SimMachine::<F>::build(parts, options).expect("tiny can be built");
        let next = Cell::new(16);
        sim.solo(0, |cpu| {
            let k = Kernel::new(&sim, &next, 1);
            k.load();
            k.load_on(cpu, 1);
            script.play(&k, cpu);
        })
    }
    let parts = parts(mmu);
    if mmu == MmuKind::Arm {
        on::<Arm, S>(&parts, options, script)
    } else {
        on::<X86, S>(&parts, options, script)
    }
}

pub fn broken(result: Result<(), Stop>) -> Option<Rule> {
    result.err().map(|stop| stop.rule)
}

/// Every set of MMU rules.
pub const ALL: [MmuKind; 3] = [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm];
/// Where a live entry may change its frame at all.
pub const INTEL: [MmuKind; 2] = [MmuKind::X86, MmuKind::Pcid];

/// Plays a script that is legal.
pub fn passes<S: Script>(mmu: &[MmuKind], s: &S) {
    for &h in mmu {
        for o in both() {
            if let Err(stop) = play(h, o, s) {
                panic!("{h:?} {:?}: {stop}", o.check);
            }
        }
    }
}

/// Plays a script that breaks a rule.
pub fn stops<S: Script>(mmu: &[MmuKind], rule: Rule, s: &S) {
    for &h in mmu {
        for o in both() {
            let r = play(h, o, s);
            let text = r.as_ref().err().map(ToString::to_string);
            assert_eq!(broken(r), Some(rule), "{h:?} {:?}: {text:?}", o.check);
        }
    }
}

/// Writes a script as a block: `script!(k, cpu, { .. })`.
#[macro_export]
macro_rules! script {
    ($k:ident, $cpu:ident, $body:block) => {{
        struct It;
        impl $crate::common::Script for It {
            fn play<F: vellum_sim::format::Format>(
                &self,
                $k: &$crate::common::Kernel<'_, F>,
                $cpu: &vellum_sim::Cpu<'_, F>,
            ) $body
        }
        It
    }};
}

pub fn both() -> [Options; 2] {
    [options(Check::Incremental), options(Check::Walk)]
}

pub fn hunting(seed: u64) -> Options {
    Options { seed, mode: Mode::Hunting, check: Check::Walk, quantum: 0, ..Options::default() }
}

pub fn elapsed(outcome: Result<Outcome, Stop>) -> u64 {
    outcome.expect("no stop").cycles
}

/// Seeds to try: `usual` of them, or as many as the environment variable VELLUM_SEEDS says (for a
/// long search).
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    0..std::env::var("VELLUM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
