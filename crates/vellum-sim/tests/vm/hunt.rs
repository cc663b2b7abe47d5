//! Hunting for races: three CPUs in one space, changing it under each other's feet, on MMUs that
//! speculate.
//!
//! Every page is written by one CPU only, its owner, which therefore knows what each line must hold
//! whatever the others do to the mapping meanwhile: they read, protect and unprotect, fork and
//! exit, collapse and split, while owners drop pages, unmap and map again, and move them. Some
//! hunts take frames out of use besides. Oracle by full walk; contents by version.

use std::cell::Cell;
use std::collections::BTreeMap;
use vellum_testkit::ext::VmExt;

use crate::common::{MmuKind, hunting, parts, program, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::error::FaultError;
use vellum::machine::Use;
use vellum::space::{Advice, Attrs, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Cpu, Kind, Meta, SimMachine, Stop};

const PAGE: u64 = 4096;
const CPUS: usize = 3;
/// Shared by all, 2 MiB aligned so that huge pages come and go in it.
const SHARED: u64 = 0x5000_0000;
const SHARED_PAGES: u64 = 512;
/// Each owner's own run of pages moves between two places.
const OWN: u64 = 0x7000_0000;
const OWN_PAGES: u64 = 6;

struct Player<'r, 'a, F: Format> {
    vm: &'r Vm<SimMachine<F>>,
    cpu: &'r Cpu<'a, F>,
    space: &'r Space,
    rng: Rng,
    /// What the lines of the pages it owns must hold; missing lines are zero.
    lines: BTreeMap<u64, u64>,
    /// Where its own run is now: 0 or 1.
    place: u64,
    checked: u64,
    /// Whether it takes frames out of use, and how many it took.
    poisons: bool,
    poisoned: u64,
}

impl<F: Format> Player<'_, '_, F> {
    fn own(&self, place: u64) -> u64 {
        OWN + self.cpu.id() as u64 * (16 << 20) + place * (4 << 20)
    }

    /// An address of a line this CPU owns.
    fn owned(&mut self) -> u64 {
        let line = self.rng.below(4) * 64;
        if self.rng.one_in(3) {
            return self.own(self.place) + self.rng.below(OWN_PAGES) * PAGE + line;
        }
        let page = self.rng.below(24) * CPUS as u64 + self.cpu.id() as u64;
        SHARED + page * PAGE + line
    }

    fn access(&self, space: &Space, va: u64, kind: Kind) -> Result<u64, FaultError> {
        program::access(self.vm, self.cpu, space, va, kind)
    }

    fn check(&mut self, space: &Space, va: u64, which: &str) {
        let expect = self.lines.get(&va).copied().unwrap_or(1);
        self.checked += u64::from(program::sees(self.vm, self.cpu, (space, which), va, expect));
    }

    fn forget(&mut self, start: u64, pages: u64) {
        self.lines.retain(|va, _| *va < start || *va >= start + pages * PAGE);
    }

    fn step(&mut self) {
        let (vm, space) = (self.vm, self.space);
        match self.rng.below(24 + 2 * u64::from(self.poisons)) {
            0 => {
                let va = self.owned() & !(PAGE - 1);
                vm.advise(space, Va(va), PAGE, Advice::DontNeed).expect("it is mapped");
                self.forget(va, 1);
            }
            1 => {
                let first = self.rng.below(64);
                let range = (Va(SHARED + first * PAGE), self.rng.below(8) * PAGE + PAGE);
                if vm.protect(space, range.0, range.1, Rights::READ).is_ok() {
                    self.cpu.retire(self.rng.below(200));
                    while vm.protect(space, range.0, range.1, Rights::READ_WRITE).is_err() {
                        self.cpu.relax();
                    }
                }
            }
            2 => self.family(),
            3 => {
                let (from, to) = (self.own(self.place), self.own(1 - self.place));
                let bytes = OWN_PAGES * PAGE;
                if vm.remap(space, Va(from), bytes, bytes, Placement::At(Va(to))).is_ok() {
                    let moved = self.lines.split_off(&OWN);
                    for (va, version) in moved {
                        self.lines.insert(va - from + to, version);
                    }
                    self.place = 1 - self.place;
                }
            }
            4 => {
                let (start, bytes) = (self.own(self.place), OWN_PAGES * PAGE);
                if vm.unmap(space, Va(start), bytes).is_ok() {
                    self.forget(start, OWN_PAGES);
                    self.map_own();
                }
            }
            5 if self.rng.one_in(2) => {
                let _ = vm.advise(space, Va(SHARED), SHARED_PAGES * PAGE, Advice::Collapse);
            }
            6..=10 => {
                let va = self.owned();
                self.check(space, va, "own page");
            }
            11..=14 => {
                // Somebody else's page: whatever it holds, the oracle must have nothing to say.
                let va = SHARED + self.rng.below(72) * PAGE + self.rng.below(4) * 64;
                let _ = self.access(space, va, Kind::Load);
                let other = OWN
                    + self.rng.below(CPUS as u64) * (16 << 20)
                    + self.rng.below(2) * (4 << 20)
                    + self.rng.below(OWN_PAGES) * PAGE;
                let _ = self.access(space, other, Kind::Load);
            }
            24.. => {
                // Anybody's: whoever owns it goes on with a copy, and loses no store.
                let page = Va(SHARED + self.rng.below(72) * PAGE);
                let va = if self.rng.one_in(3) { Va(self.own(self.place)) } else { page };
                self.poisoned += u64::from(vm.poison(space, va).is_ok());
            }
            _ => {
                let va = self.owned();
                // Refused while somebody holds the page read-only: then nothing was stored.
                if let Ok(version) = self.access(space, va, Kind::Store) {
                    self.lines.insert(va, version);
                }
            }
        }
    }

    fn map_own(&self) {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        while self
            .vm
            .map(self.space, Placement::At(Va(self.own(self.place))), OWN_PAGES * PAGE, attrs)
            .is_err()
        {
            self.cpu.relax();
        }
    }

    /// Forks, looks at what it owns in the child, writes there, and lets it go.
    fn family(&mut self) {
        let Ok(child) = self.vm.fork(self.space) else { return };
        self.vm.activate(&child);
        let owned: Vec<u64> = self.lines.keys().copied().take(6).collect();
        for va in owned {
            self.check(&child, va, "child");
            let _ = self.access(&child, va, Kind::Store);
        }
        self.vm.activate(self.space);
        self.vm.exit(child);
    }
}

/// Checks that were made, and frames that were taken out of use.
fn hunt<F: Format>(mmu: MmuKind, seed: u64, thp: &str, poisons: bool) -> Result<(u64, u64), Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), hunting(seed)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let mut config = Config::default();
    config.set("thp", thp).expect("a value");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let space = sim.solo(0, |_| {
        let space = vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(Va(SHARED)), SHARED_PAGES * PAGE, attrs).expect("a hole");
        space
    })?;
    let (checked, poisoned) = (Cell::new(0), Cell::new(0));
    sim.run(|run| {
        for id in 0..CPUS {
            let (vm, space, checked, poisoned) = (&vm, &space, &checked, &poisoned);
            run.spawn(id, move |cpu: &Cpu<'_, F>| {
                vm.activate(space);
                let rng = Rng::new(seed << 8 | id as u64);
                let lines = BTreeMap::new();
                let mut player = Player {
                    vm,
                    cpu,
                    space,
                    rng,
                    lines,
                    place: 0,
                    checked: 0,
                    poisons,
                    poisoned: 0,
                };
                player.map_own();
                for _ in 0..120 {
                    player.step();
                }
                vm.deactivate();
                checked.set(checked.get() + player.checked);
                poisoned.set(poisoned.get() + player.poisoned);
            });
        }
    })?;
    sim.solo(0, |_| {
        vm.audit(&[&space]).expect("everything adds up");
    })?;
    sim.solo(0, |_| vm.exit(space))?;
    sim.audit(Some(0))?;
    vm.audit(&[]).expect("everything adds up");
    assert_eq!(
        (sim.frames_in(Use::Data), sim.frames_in(Use::Table), sim.frames_in(Use::Pending)),
        (0, 0, 0)
    );
    assert_eq!(sim.frames_in(Use::Poisoned), poisoned.get());
    Ok((checked.get(), poisoned.get()))
}

/// The same for any MMU.
fn hunted_by(mmu: MmuKind, seed: u64, thp: &str, poisons: bool) -> (u64, u64) {
    let hunt = if mmu == MmuKind::Arm { hunt::<Arm> } else { hunt::<X86> };
    hunt(mmu, seed, thp, poisons)
        .unwrap_or_else(|stop| panic!("{mmu:?} seed {seed} thp={thp}\n{stop}"))
}

fn hunted(mmu: MmuKind, seed: u64, thp: &str) -> u64 {
    hunted_by(mmu, seed, thp, false).0
}

fn hunted_both(mmu: MmuKind, seed: u64) -> u64 {
    hunted(mmu, seed, "never") + hunted(mmu, seed, "always")
}

#[test]
fn races_with_frames_that_go_out_of_use_under_their_writers_leave_no_violation() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for thp in ["never", "always"] {
            let sums = seeds(8).map(|seed| hunted_by(mmu, seed, thp, true));
            let (checked, poisoned) = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert!(
                checked > 100 && poisoned > 20,
                "{mmu:?} thp={thp}: {checked} checks, {poisoned} frames"
            );
        }
    }
}

#[test]
fn races_under_x86_rules_leave_no_violation() {
    assert!(seeds(16).map(|seed| hunted_both(MmuKind::X86, seed)).sum::<u64>() > 500);
}

#[test]
fn races_under_x86_rules_with_contexts_leave_no_violation() {
    assert!(seeds(16).map(|seed| hunted_both(MmuKind::Pcid, seed)).sum::<u64>() > 500);
}

#[test]
fn races_under_aarch64_rules_leave_no_violation() {
    assert!(seeds(16).map(|seed| hunted_both(MmuKind::Arm, seed)).sum::<u64>() > 500);
}
