//! Hunting for races on a file: three CPUs, each in a space of its own, map the same pages of an
//! object whose pager is the machine's disk. Each line is stored to by one CPU only, which knows
//! what it must hold, while others store beside it, sync, evict, and map anew. Requests take any
//! time and some of them fail. Oracle by full walk; contents by version.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::common::{MmuKind, hunting, parts, program, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::error::{FaultError, ObjectError};
use vellum::machine::Use;
use vellum::space::{Attrs, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::{Object, ObjectPart, Vm};
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Cpu, Kind, Meta, Mode, Options, SimMachine, Stop};

const PAGE: u64 = 4096;
const CPUS: usize = 3;
const PAGES: u64 = 20;
/// Where each CPU maps the file.
const AT: [u64; CPUS] = [0x5000_0000, 0x5040_3000, 0x7000_0000];

struct Player<'r, 'a, F: Format> {
    vm: &'r Vm<SimMachine<F>>,
    cpu: &'r Cpu<'a, F>,
    space: &'r Space,
    file: &'r Object,
    rng: Rng,
    /// What the lines that it stores to must hold, by their place in the file.
    lines: BTreeMap<u64, u64>,
    checked: u64,
}

impl<F: Format> Player<'_, '_, F> {
    fn at(&self) -> u64 {
        AT[self.cpu.id()]
    }

    /// A line of this CPU's: each page has some of each.
    fn own(&mut self) -> u64 {
        self.rng.below(PAGES) * PAGE + (self.rng.below(2) * CPUS as u64 + self.cpu.id() as u64) * 64
    }

    fn access(&self, place: u64, kind: Kind) -> Option<u64> {
        loop {
            match program::access(self.vm, self.cpu, self.space, self.at() + place, kind) {
                Ok(version) => return Some(version),
                // The disk failed: again.
                Err(FaultError::Io) => self.cpu.relax(),
                Err(_) => return None,
            }
        }
    }

    fn check(&mut self, place: u64) {
        let Some(&expect) = self.lines.get(&place) else { return };
        let Some(seen) = self.access(place, Kind::Load) else { return };
        self.checked += 1;
        if seen != expect {
            let what = format!("byte {place:#x} of the file is version {seen}, not {expect}");
            self.cpu.stop(what);
        }
    }

    fn map(&self) {
        let part = ObjectPart { object: self.file, offset: 0 };
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let place = Placement::At(Va(self.at()));
        while self.vm.map_object(self.space, place, PAGES * PAGE, attrs, part).is_err() {
            self.cpu.relax();
        }
    }

    fn step(&mut self) {
        let objects = self.vm.objects();
        let (first, pages) = (self.rng.below(PAGES) * PAGE, (1 + self.rng.below(6)) * PAGE);
        match self.rng.below(14) {
            0 => match objects.sync(self.file, first, pages) {
                Ok(()) | Err(ObjectError::Io) => {}
                Err(e) => self.cpu.stop(format!("sync: {e}")),
            },
            1 | 2 => drop(objects.evict(self.file, first, pages)),
            3 if self.vm.unmap(self.space, Va(self.at()), PAGES * PAGE).is_ok() => self.map(),
            4 => {
                let mut bytes = [0; 300];
                let _ = objects.read(self.file, first + 4000, &mut bytes);
            }
            5..=8 => {
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

/// Does something with a `Vm` on a machine with a disk.
fn on_a_disk<F: Format, R>(
    mmu: MmuKind,
    options: Options,
    act: impl FnOnce(&Vm<SimMachine<F>>) -> R,
) -> R {
    let sim = SimMachine::<F>::build(&parts(mmu), options).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, Config::default(), meta.start()) }.expect("a Vm");
    act(&vm)
}

/// Checks that were made, and writes that the disk refused.
fn hunt<F: Format>(mmu: MmuKind, seed: u64) -> Result<(u64, i64), Stop> {
    on_a_disk(mmu, Options { disk_fails: 5, ..hunting(seed) }, |vm| hunt_on::<F>(vm, seed))
}

fn hunt_on<F: Format>(vm: &Vm<SimMachine<F>>, seed: u64) -> Result<(u64, i64), Stop> {
    let sim = vm.machine();
    let (file, spaces) = sim.solo(0, |_| {
        let file = vm.objects().create_paged(PAGES * PAGE, 7).expect("memory");
        (file, [0; CPUS].map(|_| vm.create().expect("memory")))
    })?;
    let (checked, lines) = (Cell::new(0), Cell::new(BTreeMap::new()));
    sim.run(|run| {
        for (id, space) in spaces.iter().enumerate() {
            let (file, checked, lines) = (&file, &checked, &lines);
            run.spawn(id, move |cpu: &Cpu<'_, F>| {
                vm.activate(space);
                let rng = Rng::new(seed << 8 | id as u64);
                let (all, checks) = (BTreeMap::new(), 0);
                let mut player = Player { vm, cpu, space, file, rng, lines: all, checked: checks };
                player.map();
                (0..120).for_each(|_| player.step());
                vm.deactivate();
                checked.set(checked.get() + player.checked);
                let mut all = lines.take();
                all.append(&mut player.lines);
                lines.set(all);
            });
        }
    })?;
    // All of it is on the disk when a sync says so, and comes back from there.
    let lines = lines.take();
    let lost = sim.solo(0, |cpu| {
        sim.finish_io(|done| vm.objects().answer(done));
        while vm.objects().sync(&file, 0, u64::MAX).is_err() {}
        vm.objects().evict(&file, 0, u64::MAX);
        assert_eq!(vm.objects().usage(&file).pages, 0);
        vm.activate(&spaces[0]);
        let rng = Rng::new(seed);
        let (space, file, checked) = (&spaces[0], &file, 0);
        let mut last = Player { vm, cpu, space, file, rng, lines, checked };
        let places: Vec<u64> = last.lines.keys().copied().collect();
        places.iter().for_each(|&place| last.check(place));
        vm.deactivate();
        sim.finish_io(|done| vm.objects().answer(done));
        places.len() as u64 - last.checked
    })?;
    assert_eq!(lost, 0);
    let errors = vm.stats().get(Counter::WritebackErrors);
    sim.solo(0, |_| {
        spaces.into_iter().for_each(|space| vm.exit(space));
        vm.objects().discard(file);
    })?;
    sim.audit(Some(0))?;
    let left = [Use::Data, Use::Object, Use::Table, Use::Pending].map(|u| sim.frames_in(u));
    assert_eq!(left, [0; 4]);
    Ok((checked.get(), errors))
}

#[test]
fn a_file_that_cpus_store_to_sync_and_evict_loses_nothing_on_a_disk_that_fails() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        let (mut checked, mut errors) = (0, 0);
        for seed in seeds(12) {
            let hunt = if mmu == MmuKind::Arm { hunt::<Arm> } else { hunt::<X86> };
            let (checks, refused) =
                hunt(mmu, seed).unwrap_or_else(|stop| panic!("{mmu:?} seed {seed}\n{stop}"));
            checked += checks;
            errors += refused;
        }
        assert!(checked > 300 && errors > 20, "{mmu:?}: {checked} checks, {errors} errors");
    }
}

/// Byte 200 of a file that is on the disk, cut to 100 bytes and made longer again.
fn cut_and_grown(evict_first: bool) -> u8 {
    let options = Options { mode: Mode::Timing, ..hunting(1) };
    let read = on_a_disk::<X86, _>(MmuKind::X86, options, |vm| {
        let (sim, objects) = (vm.machine(), vm.objects());
        sim.solo(0, |_| {
            let file = objects.create_paged(2 * PAGE, 7).expect("memory");
            assert_eq!(objects.write(&file, 0, &[0xaa; 8192]), (8192, Ok(())));
            assert_eq!(objects.sync(&file, 0, u64::MAX), Ok(()));
            if evict_first {
                assert_eq!(objects.evict(&file, 0, u64::MAX), 2);
            }
            objects.resize(&file, 100).expect("shorter");
            sim.cut_file(7, 100);
            objects.evict(&file, 0, u64::MAX);
            objects.resize(&file, 2 * PAGE).expect("longer");
            let mut seen = [9; 1];
            assert_eq!(objects.read(&file, 99, &mut seen), (1, Ok(())));
            assert_eq!(seen[0], 0xaa);
            assert_eq!(objects.read(&file, 200, &mut seen), (1, Ok(())));
            objects.discard(file);
            seen[0]
        })
    });
    read.expect("no stop")
}

#[test]
fn a_file_cut_inside_a_page_has_zeros_there_when_it_grows() {
    assert_eq!([true, false].map(cut_and_grown), [0, 0]);
}

#[test]
fn a_file_is_cut_though_nobody_waits_for_what_is_read_of_it() {
    for seed in 0..20 {
        let cut = on_a_disk::<X86, _>(MmuKind::X86, hunting(seed), |vm| {
            vm.machine().solo(0, |_| {
                let file = vm.objects().create_paged(PAGES * PAGE, 7).expect("memory");
                vm.objects().will_need(&file, 0, u64::MAX);
                let done = vm.objects().resize(&file, 0);
                let left = vm.objects().usage(&file).pages;
                vm.objects().discard(file);
                (done, left)
            })
        });
        assert_eq!(cut.unwrap_or_else(|stop| panic!("seed {seed}: {stop}")), (Ok(()), 0));
    }
}

#[test]
fn a_page_is_poisoned_though_nobody_waits_for_its_write() {
    for seed in 0..20 {
        let poisoned = on_a_disk::<X86, _>(MmuKind::X86, hunting(seed), |vm| {
            vm.machine().solo(0, |cpu| {
                let space = vm.create().expect("memory");
                let file = vm.objects().create_paged(PAGES * PAGE, 7).expect("memory");
                let (at, part) = (Va(AT[0]), ObjectPart { object: &file, offset: 0 });
                let attrs = Attrs::anonymous(Rights::READ_WRITE);
                let mapped = vm.map_object(&space, Placement::At(at), PAGES * PAGE, attrs, part);
                assert_eq!(mapped, Ok(at));
                vm.activate(&space);
                program::access(vm, cpu, &space, AT[0], Kind::Store).expect("a page");
                vm.objects().write_back(&file, 0, u64::MAX);
                let done = vm.poison(&space, at);
                vm.deactivate();
                vm.exit(space);
                vm.objects().discard(file);
                (done, vm.stats().get(Counter::FramesPoisoned))
            })
        });
        assert_eq!(poisoned.unwrap_or_else(|stop| panic!("seed {seed}: {stop}")), (Ok(()), 1));
    }
}
