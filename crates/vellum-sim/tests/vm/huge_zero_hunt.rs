//! Hunting for races around huge zeros: three CPUs, a space and its forks, on MMUs that speculate,
//! for every form of `zero.huge`.
//!
//! CPUs read everywhere and write to 2 MiB slots of their own, which they also forget, protect,
//! cut, unmap and map again; one forks, one lets the shrinker loose, memory is short at times. Each
//! knows what its own lines must hold. The oracle sees whether a translation outlives what it
//! translates (D-7 without deferral), whether zeros are ever writable or not zero, and whether
//! anything is lost.

use std::cell::Cell;
use std::collections::BTreeMap;
use vellum_testkit::ext::{FramesExt, VmExt};

use crate::common::{MmuKind, hunting, parts, program, seeds};
use vellum::addr::{Order, Va};
use vellum::config::Config;
use vellum::error::FaultError;
use vellum::machine::Use;
use vellum::space::{Advice, Attrs, Placement, Rights, Space};
use vellum::unstable::AllocRequest;
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Cpu, Kind, Meta, SimMachine, Stop};

const PAGE: u64 = 4096;
const SLOT: u64 = 2 << 20;
const GIB: u64 = 1 << 30;
const CPUS: usize = 3;
/// A whole GiB and a ragged end of it.
const SHARED: u64 = 2 * GIB;
const SHARED_BYTES: u64 = GIB + 3 * SLOT + 5 * PAGE;
/// Slots of it that are used: some of the GiB, those behind it, and the ragged end.
const SLOTS: [u64; 9] = [0, 1, 2, 255, 256, 511, 512, 513, 514];
/// A GiB of each CPU's own, mapped anew now and then.
const OWN: u64 = 8 * GIB;

struct Player<'r, 'a, F: Format> {
    vm: &'r Vm<SimMachine<F>>,
    cpu: &'r Cpu<'a, F>,
    space: &'r Space,
    rng: Rng,
    lines: BTreeMap<u64, u64>,
    checked: u64,
}

impl<F: Format> Player<'_, '_, F> {
    fn own_gib(&self) -> u64 {
        OWN + self.cpu.id() as u64 * GIB
    }

    /// First address of a slot this CPU owns.
    fn slot(&mut self) -> u64 {
        if self.rng.one_in(3) {
            return self.own_gib() + self.rng.below(3) * SLOT;
        }
        SHARED + SLOTS[self.rng.below(3) as usize * CPUS + self.cpu.id()] * SLOT
    }

    fn line(&mut self) -> u64 {
        self.rng.below(3) * PAGE * 2 + self.rng.below(2) * 64
    }

    fn access(&self, space: &Space, va: u64, kind: Kind) -> Result<u64, FaultError> {
        program::access(self.vm, self.cpu, space, va, kind)
    }

    fn check(&mut self, space: &Space, va: u64, which: &str) {
        let expect = self.lines.get(&va).copied().unwrap_or(1);
        self.checked += u64::from(program::sees(self.vm, self.cpu, (space, which), va, expect));
    }

    fn forget(&mut self, start: u64, bytes: u64) {
        self.lines.retain(|va, _| *va < start || *va >= start + bytes);
    }

    fn step(&mut self) {
        let (vm, space) = (self.vm, self.space);
        match self.rng.below(24) {
            0..=3 => {
                let va = self.slot();
                let bytes = if va == SHARED + 514 * SLOT { SLOT + 5 * PAGE } else { SLOT };
                if vm.advise(space, Va(va), bytes, Advice::DontNeed).is_ok() {
                    self.forget(va, bytes);
                }
            }
            4 => {
                let va = self.slot() + self.rng.below(4) * PAGE;
                if vm.advise(space, Va(va), PAGE, Advice::DontNeed).is_ok() {
                    self.forget(va, PAGE);
                }
            }
            5 => {
                let va = self.slot();
                if vm.protect(space, Va(va), SLOT, Rights::READ).is_ok() {
                    self.cpu.retire(self.rng.below(200));
                    while vm.protect(space, Va(va), SLOT, Rights::READ_WRITE).is_err() {
                        self.cpu.relax();
                    }
                }
            }
            6 => self.family(),
            7 => {
                let va = self.own_gib();
                if vm.unmap(space, Va(va), GIB).is_ok() {
                    self.forget(va, GIB);
                    self.map_own();
                }
            }
            8 => {
                let _ = vm.shrink_zeros();
            }
            9 if self.rng.one_in(3) => self.famine(),
            10..=14 => {
                let va = self.slot() + self.line();
                self.check(space, va, "own page");
            }
            15..=19 => {
                let va = SHARED + SLOTS[self.rng.below(9) as usize] * SLOT + self.line();
                let _ = self.access(space, va, Kind::Load);
                let other = OWN
                    + self.rng.below(CPUS as u64) * GIB
                    + self.rng.below(3) * SLOT
                    + self.line();
                let _ = self.access(space, other, Kind::Load);
            }
            _ => {
                let va = self.slot() + self.line();
                if let Ok(version) = self.access(space, va, Kind::Store) {
                    self.lines.insert(va, version);
                }
            }
        }
    }

    /// For a while no huge page is to be had.
    fn famine(&mut self) {
        let (vm, m) = (self.vm, self.vm.machine());
        let want = AllocRequest::kernel(Use::Slab);
        let taken: Vec<_> =
            std::iter::from_fn(|| vm.frames().alloc(m, Order::HUGE, &want).ok()).collect();
        for _ in 0..6 {
            let va = self.slot() + self.line();
            if let Ok(version) = self.access(self.space, va, Kind::Store) {
                self.lines.insert(va, version);
            }
            let va = self.slot() + self.line();
            self.check(self.space, va, "in a famine");
        }
        taken.into_iter().for_each(|pfn| vm.frames().put(m, pfn, Order::HUGE));
    }

    fn map_own(&self) {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        while self.vm.map(self.space, Placement::At(Va(self.own_gib())), GIB, attrs).is_err() {
            self.cpu.relax();
        }
    }

    /// Forks, looks at what it owns in the child, writes there, and lets it go.
    fn family(&mut self) {
        let Ok(child) = self.vm.fork(self.space) else { return };
        self.vm.activate(&child);
        for _ in 0..4 {
            let va = self.slot() + self.line();
            self.check(&child, va, "child");
        }
        for _ in 0..4 {
            let va = self.slot() + self.line();
            let _ = self.access(&child, va, Kind::Store);
        }
        self.vm.activate(self.space);
        self.vm.exit(child);
    }
}

fn hunt<F: Format>(mmu: MmuKind, seed: u64, form: &str) -> Result<u64, Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), hunting(seed)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let mut config = Config::default();
    config.set("zero.huge", form).expect("a value");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let space = sim.solo(0, |_| {
        let space = vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(Va(SHARED)), SHARED_BYTES, attrs).expect("a hole");
        space
    })?;
    let checked = Cell::new(0);
    sim.run(|run| {
        for id in 0..CPUS {
            let (vm, space, checked) = (&vm, &space, &checked);
            run.spawn(id, move |cpu: &Cpu<'_, F>| {
                vm.activate(space);
                let rng = Rng::new(seed << 8 | id as u64);
                let mut player = Player { vm, cpu, space, rng, lines: BTreeMap::new(), checked: 0 };
                player.map_own();
                for _ in 0..80 {
                    player.step();
                }
                vm.deactivate();
                checked.set(checked.get() + player.checked);
            });
        }
    })?;
    sim.solo(0, |_| {
        vm.audit(&[&space]).expect("everything adds up");
    })?;
    sim.solo(0, |_| {
        vm.exit(space);
        vm.shrink_zeros();
    })?;
    sim.audit(Some(0))?;
    vm.audit(&[]).expect("everything adds up");
    assert_eq!(
        (sim.frames_in(Use::Data), sim.frames_in(Use::Table), sim.frames_in(Use::Pending)),
        (0, 0, 0)
    );
    assert_eq!(sim.frames_in(Use::Zero), 1, "the huge page of zeros went");
    Ok(checked.get())
}

fn hunted(mmu: MmuKind, form: &str) {
    let mut checked = 0;
    for seed in seeds(4) {
        let r = if mmu == MmuKind::Arm {
            hunt::<Arm>(mmu, seed, form)
        } else {
            hunt::<X86>(mmu, seed, form)
        };
        checked += r.unwrap_or_else(|stop| panic!("{mmu:?} seed {seed} zero.huge={form}\n{stop}"));
    }
    assert!(checked > 100, "{checked} lines checked");
}

#[test]
fn races_around_the_huge_page_of_zeros_leave_no_lie_under_x86_rules() {
    hunted(MmuKind::X86, "page");
    hunted(MmuKind::Pcid, "page");
}

#[test]
fn races_around_the_huge_page_of_zeros_leave_no_lie_under_aarch64_rules() {
    hunted(MmuKind::Arm, "page");
}

#[test]
fn races_around_the_shared_tables_of_zeros_leave_no_lie_under_x86_rules() {
    hunted(MmuKind::X86, "table");
    hunted(MmuKind::Pcid, "table");
}

#[test]
fn races_around_the_shared_tables_of_zeros_leave_no_lie_under_aarch64_rules() {
    hunted(MmuKind::Arm, "table");
}

#[test]
fn races_around_private_tables_of_zeros_leave_no_lie() {
    hunted(MmuKind::X86, "table-private");
    hunted(MmuKind::Arm, "table-private");
}
