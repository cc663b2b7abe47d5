//! Hunting for two pages at one address: CPUs come to a space and leave it while others exchange
//! its pages.
//!
//! A write to zeros, or to a page that a fork shares, puts another page in their place. The entry
//! is absent until every CPU that may use the old page has dropped it, or nobody else can come to
//! use it meanwhile. On an MMU without break-before-make nothing but the library's own rule says
//! so; the oracle stops the run where the rule fails.

use std::cell::Cell;

use crate::common::{MmuKind, hunting, parts, program, seeds};
use vellum::addr::Va;
use vellum::config::{Config, Thp, ZeroHuge};
use vellum::space::{Attrs, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Bug, Cpu, Kind, Meta, Rule, SimMachine, Stop};

const AT: u64 = 0x4000_0000;

/// What a write finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scene {
    /// The shared page of zeros.
    Zeros,
    /// A page that a forked space maps as well.
    Shared,
    /// The huge page of zeros.
    HugeZeros,
}

const SCENES: [Scene; 3] = [Scene::Zeros, Scene::Shared, Scene::HugeZeros];

impl Scene {
    fn bytes(self) -> u64 {
        if self == Scene::HugeZeros { 2 << 20 } else { 4096 }
    }

    /// Pages that are exchanged.
    fn places(self) -> u64 {
        if self == Scene::HugeZeros { 3 } else { 16 }
    }

    /// Loads or stores at a place.
    fn access<F: Format>(
        self,
        vm: &Vm<SimMachine<F>>,
        cpu: &Cpu<'_, F>,
        space: &Space,
        place: u64,
        kind: Kind,
    ) {
        program::access(vm, cpu, space, AT + place * self.bytes(), kind).expect("memory");
    }

    /// How often a write has put another page in the place of one.
    fn exchanged<F: Format>(self, vm: &Vm<SimMachine<F>>) -> i64 {
        vm.stats().get(if self == Scene::HugeZeros {
            Counter::ThpFaultAlloc
        } else {
            Counter::CowCopies
        })
    }
}

/// A space in which every place holds what the scene is about, and a child if one shares it.
fn world<F: Format>(
    mmu: MmuKind,
    scene: Scene,
    seed: u64,
    work: impl FnOnce(&Vm<SimMachine<F>>, &Space) -> Result<(), Stop>,
) -> Result<i64, Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), hunting(seed)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let mut config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
    config.thp = if scene == Scene::HugeZeros { Thp::Always } else { Thp::Never };
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let (space, child) = vm.machine().solo(0, |cpu| {
        let space = vm.create().expect("memory");
        let bytes = scene.places() * scene.bytes();
        vm.map(&space, Placement::At(Va(AT)), bytes, Attrs::anonymous(Rights::READ_WRITE))
            .expect("a hole");
        vm.activate(&space);
        let kind = if scene == Scene::Shared { Kind::Store } else { Kind::Load };
        (0..scene.places()).for_each(|place| scene.access(&vm, cpu, &space, place, kind));
        vm.deactivate();
        let child = (scene == Scene::Shared).then(|| vm.fork(&space).expect("memory"));
        (space, child)
    })?;
    let before = scene.exchanged(&vm);
    work(&vm, &space)?;
    let exchanged = scene.exchanged(&vm) - before;
    vm.machine().solo(0, |_| {
        vm.exit(space);
        child.into_iter().for_each(|child| vm.exit(child));
        vm.shrink_zeros();
    })?;
    vm.machine().audit(Some(0))?;
    // SAFETY: every CPU is done.
    unsafe { vm.validate(&[]) }.expect("everything adds up");
    Ok(exchanged)
}

/// One CPU writes where another, which stays in the space, reads.
fn beside<F: Format>(mmu: MmuKind, scene: Scene, bug: Option<Bug>) -> Result<i64, Stop> {
    world::<F>(mmu, scene, 1, |vm, space| {
        let there = Cell::new(false);
        let done = Cell::new(false);
        vm.machine().plant(bug);
        vm.machine().run(|run| {
            let (there, done) = (&there, &done);
            run.spawn(1, move |cpu| {
                vm.activate(space);
                while !done.get() {
                    scene.access(vm, cpu, space, 0, Kind::Load);
                    there.set(true);
                }
                vm.deactivate();
            });
            run.spawn(0, move |cpu| {
                cpu.wait_until(|| there.get());
                vm.activate(space);
                scene.access(vm, cpu, space, 0, Kind::Store);
                vm.deactivate();
                done.set(true);
            });
        })?;
        Ok(())
    })
}

#[test]
fn oracle_3_without_the_step_through_an_absent_entry_a_write_beside_a_reader_stops() {
    for scene in SCENES {
        for mmu in [MmuKind::X86, MmuKind::Pcid] {
            let exchanged = beside::<X86>(mmu, scene, None);
            assert_eq!(exchanged.map_err(|stop| stop.to_string()), Ok(1), "{mmu:?} {scene:?}");
            let stopped =
                beside::<X86>(mmu, scene, Some(Bug::SkippedAbsent)).map_err(|stop| stop.rule);
            assert_eq!(stopped, Err(Rule::TwoPages), "{mmu:?} {scene:?}");
        }
        let exchanged = beside::<Arm>(MmuKind::Arm, scene, None);
        assert_eq!(exchanged.map_err(|stop| stop.to_string()), Ok(1), "{scene:?}");
        let stopped =
            beside::<Arm>(MmuKind::Arm, scene, Some(Bug::SkippedAbsent)).map_err(|stop| stop.rule);
        assert_eq!(stopped, Err(Rule::BreakBeforeMake), "{scene:?}");
    }
}

/// CPU 0 writes to one place after the other. CPUs 1 and 2 come at any time, look at a place, and
/// go.
fn hunt<F: Format>(mmu: MmuKind, scene: Scene, seed: u64) -> Result<(), Stop> {
    let exchanged = world::<F>(mmu, scene, seed, |vm, space| {
        let done = Cell::new(false);
        vm.machine().run(|run| {
            let done = &done;
            run.spawn(0, move |cpu| {
                vm.activate(space);
                (0..scene.places())
                    .for_each(|place| scene.access(vm, cpu, space, place, Kind::Store));
                vm.deactivate();
                done.set(true);
            });
            for id in [1, 2] {
                run.spawn(id, move |cpu| {
                    let mut rng = Rng::new(seed << 8 | id as u64);
                    while !done.get() {
                        (0..rng.below(24)).for_each(|_| cpu.relax());
                        vm.activate(space);
                        scene.access(vm, cpu, space, rng.below(scene.places()), Kind::Load);
                        vm.deactivate();
                    }
                });
            }
        })?;
        Ok(())
    })?;
    assert_eq!(exchanged, scene.places() as i64, "{mmu:?} {scene:?} seed {seed}");
    Ok(())
}

fn hunted(scene: Scene) {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for seed in seeds(40) {
            let hunt = if mmu == MmuKind::Arm { hunt::<Arm> } else { hunt::<X86> };
            hunt(mmu, scene, seed)
                .unwrap_or_else(|stop| panic!("{mmu:?} {scene:?} seed {seed}\n{stop}"));
        }
    }
}

#[test]
fn cpus_that_come_while_zeros_give_way_see_one_page() {
    hunted(Scene::Zeros);
}

#[test]
fn cpus_that_come_while_a_shared_page_is_copied_see_one_page() {
    hunted(Scene::Shared);
}

#[test]
fn cpus_that_come_while_huge_zeros_give_way_see_one_page() {
    hunted(Scene::HugeZeros);
}
