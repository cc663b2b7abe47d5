//! Hunting for races on a device: three CPUs, two of them in one space, map the same memory, some
//! of it by a leaf of 2 MiB. Each line is stored to by one CPU only, which knows what it must hold,
//! while all of them unmap, move, protect, fork and populate. Oracle by full walk; contents by
//! version.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::common::{MmuKind, hunting, parts, program, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::entry::CacheMode;
use vellum::machine::Use;
use vellum::space::{Advice, Attrs, Placement, Rights, Space};
use vellum::vm::{DeviceMemory, Object, ObjectPart, Vm};
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Cpu, Kind, Meta, Options, SimMachine, Stop};

const PAGE: u64 = 4096;
const CPUS: usize = 3;
/// 2 MiB and some pages more.
const PAGES: u64 = 516;
/// The pages that are used: on both sides of the end of a leaf of 2 MiB, and at its beginning.
const USED: [u64; 6] = [0, 1, 7, 511, 512, 514];
const AT: u64 = 0x4000_0000;
/// Where a mapping goes for a while: the leaves there are small.
const ASIDE: u64 = 0x5000_1000;

struct Player<'r, 'a, F: Format> {
    vm: &'r Vm<SimMachine<F>>,
    cpu: &'r Cpu<'a, F>,
    space: &'r Space,
    device: &'r Object,
    rng: Rng,
    /// What the lines that it stores to must hold, by their place in the device.
    lines: BTreeMap<u64, u64>,
    checked: u64,
}

impl<F: Format> Player<'_, '_, F> {
    /// A line of this CPU's: each page has some of each.
    fn own(&mut self) -> u64 {
        let page = USED[self.rng.below(USED.len() as u64) as usize];
        page * PAGE + (self.rng.below(2) * CPUS as u64 + self.cpu.id() as u64) * 64
    }

    /// `None` where another CPU has the mapping elsewhere, or its rights.
    fn access(&self, place: u64, kind: Kind) -> Option<u64> {
        program::access(self.vm, self.cpu, self.space, AT + place, kind).ok()
    }

    fn check(&mut self, place: u64) {
        let Some(&expect) = self.lines.get(&place) else { return };
        let Some(seen) = self.access(place, Kind::Load) else { return };
        self.checked += 1;
        if seen != expect {
            let what = format!("byte {place:#x} of the device is version {seen}, not {expect}");
            self.cpu.stop(what);
        }
    }

    fn map(&self) {
        let part = ObjectPart { object: self.device, offset: 0 };
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let place = Placement::Replace(Va(AT));
        let mapped = self.vm.map_object(self.space, place, PAGES * PAGE, attrs, part);
        mapped.expect("memory");
    }

    fn step(&mut self) {
        let first = USED[self.rng.below(USED.len() as u64) as usize];
        let pages = (1 + self.rng.below(PAGES)).min(PAGES - first);
        let (vm, space, va, bytes) = (self.vm, self.space, Va(AT + first * PAGE), pages * PAGE);
        match self.rng.below(20) {
            0 => {
                let _ = vm.unmap(space, va, bytes);
                self.map();
            }
            1 | 2 => {
                let rights = if self.rng.below(2) == 0 { Rights::READ } else { Rights::NONE };
                let _ = vm.protect(space, va, bytes, rights);
                let _ = vm.protect(space, va, bytes, Rights::READ_WRITE);
            }
            3 => {
                let aside = Va(ASIDE + first * PAGE);
                if vm.remap(space, va, bytes, bytes, Placement::Replace(aside)).is_ok() {
                    let _ = vm.remap(space, aside, bytes, bytes, Placement::Replace(va));
                }
            }
            4 => drop(vm.advise(space, va, bytes, Advice::DontNeed)),
            5 => drop(vm.advise(space, va, bytes, Advice::Populate { write: true })),
            6 => vm.exit(vm.fork(space).expect("memory")),
            7..=12 => {
                let place = self.own();
                self.check(place);
            }
            _ => {
                let place = self.own();
                if let Some(version) = self.access(place, Kind::Store) {
                    self.lines.insert(place, version);
                }
            }
        }
    }
}

/// Checks that were made, and whether a leaf of 2 MiB was met.
fn hunt<F: Format>(mmu: MmuKind, seed: u64) -> Result<(u64, bool), Stop> {
    let options = Options { device_frames: 2048, ..hunting(seed) };
    let sim = SimMachine::<F>::build(&parts(mmu), options).expect("tiny can be built");
    let first = sim.topology().frames_end().next_multiple_of(512);
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, Config::default(), meta.start()) }.expect("a Vm");
    let sim = vm.machine();
    let memory = DeviceMemory {
        address: first * PAGE,
        bytes: PAGES * PAGE,
        cache: CacheMode::Uncached,
        writable: true,
    };
    let (device, spaces) = sim.solo(0, |_| {
        // SAFETY: only programs of this machine access it.
        let device = unsafe { vm.objects().create_device(memory) }.expect("memory");
        (device, [0; 2].map(|_| vm.create().expect("memory")))
    })?;
    let (checked, huge) = (Cell::new(0), Cell::new(false));
    sim.run(|run| {
        for id in 0..CPUS {
            let (vm, device, space) = (&vm, &device, &spaces[id / 2]);
            let (checked, huge) = (&checked, &huge);
            run.spawn(id, move |cpu: &Cpu<'_, F>| {
                vm.activate(space);
                let rng = Rng::new(seed << 8 | id as u64);
                let lines = BTreeMap::new();
                let mut player = Player { vm, cpu, space, device, rng, lines, checked: 0 };
                player.map();
                for _ in 0..60 {
                    player.step();
                    huge.set(huge.get() || vm.usage(space).device_pages >= 512);
                }
                vm.deactivate();
                checked.set(checked.get() + player.checked);
            });
        }
    })?;
    sim.solo(0, |_| {
        spaces.into_iter().for_each(|space| vm.exit(space));
        vm.objects().discard(device);
    })?;
    sim.audit(Some(0))?;
    let left = [Use::Data, Use::Object, Use::Table, Use::Pending].map(|u| sim.frames_in(u));
    assert_eq!(left, [0; 4]);
    Ok((checked.get(), huge.get()))
}

#[test]
fn a_device_that_cpus_map_move_and_protect_keeps_what_they_store() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        let (mut checked, mut huge) = (0, 0);
        for seed in seeds(12) {
            let hunt = if mmu == MmuKind::Arm { hunt::<Arm> } else { hunt::<X86> };
            let (checks, met) =
                hunt(mmu, seed).unwrap_or_else(|stop| panic!("{mmu:?} seed {seed}\n{stop}"));
            checked += checks;
            huge += u64::from(met);
        }
        assert!(checked > 100 && huge > 3, "{mmu:?}: {checked} checks, {huge} with large leaves");
    }
}
