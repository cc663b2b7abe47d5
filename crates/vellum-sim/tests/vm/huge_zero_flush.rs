//! Statement D-7 without deferral and rule F-12, on TLBs: the huge page of zeros is not freed while
//! a CPU may still translate to it, and a fork does not return while a CPU may still write.
//!
//! One CPU reads through the page and goes on reading while another takes the mapping away, or has
//! just left the space while another ends it; a third lets the shrinker loose all the while.
//! Scheduling is hunted by seed, MMUs speculate, and the oracle, which stops the run where a verb
//! returns or a frame is freed with an obligation open, is shown to see it: with flushes that reach
//! nobody it does stop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use vellum_testkit::ext::VmExt;

use crate::common::{MmuKind, hunting, options, parts, program, seeds};
use vellum::addr::Va;
use vellum::config::{Config, ZeroHuge};
use vellum::machine::Use;
use vellum::space::{Access, Attrs, Fault, Placement, Rights};
use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Bug, Check, Kind, Meta, Rule, SimMachine, Stop};

const AT: u64 = 0x4000_0000;
const SLOT: u64 = 2 << 20;
const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

/// What CPU 0 does once CPU 1 reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scene {
    /// It unmaps what CPU 1 reads.
    Unmap,
    /// It writes there, so that zeros give way to a page.
    Write,
    /// It ends the space once CPU 1 has left it.
    Exit,
}

fn play<F: Format>(mmu: MmuKind, seed: u64, scene: Scene, bug: Option<Bug>) -> Result<(), Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), hunting(seed)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let space = vm.machine().solo(0, |_| {
        let space = vm.create().expect("memory");
        vm.map(&space, Placement::At(Va(AT)), 2 * SLOT, RW).expect("a hole");
        space
    })?;
    let space = Rc::new(space);
    let (mine, theirs) = (RefCell::new(Some(Rc::clone(&space))), RefCell::new(Some(space)));
    let (reads, left, over, released) =
        (Cell::new(0), Cell::new(false), Cell::new(false), Cell::new(0));
    vm.machine().plant(bug);
    vm.machine().run(|run| {
        let (vm, mine, theirs, reads, left, over, released) =
            (&vm, &mine, &theirs, &reads, &left, &over, &released);
        run.spawn(1, move |cpu| {
            let space = theirs.take().expect("a space");
            vm.activate(&space);
            for n in 0..40 {
                // Refused once it is unmapped.
                let Ok(seen) = program::access(vm, cpu, &space, AT + n % 8 * 4096, Kind::Load)
                else {
                    break;
                };
                if seen != 1 && scene != Scene::Write {
                    cpu.stop(format!("version {seen} where there are zeros"));
                }
                reads.set(reads.get() + 1);
            }
            vm.deactivate();
            drop(space);
            left.set(true);
        });
        run.spawn(0, move |cpu| {
            let space = mine.take().expect("a space");
            cpu.wait_until(|| reads.get() > 4 + seed % 20);
            match scene {
                Scene::Unmap => vm.unmap(&space, Va(AT), SLOT).expect("mapped"),
                Scene::Write => {
                    vm.fault(&space, Va(AT + 4096), Access::Write).expect("memory");
                }
                Scene::Exit => {}
            }
            if vm.huge_zero().is_none() {
                cpu.stop("the page of zeros went while a space held it".into());
            }
            cpu.wait_until(|| left.get());
            vm.exit(Rc::into_inner(space).expect("CPU 1 has let go of it"));
            over.set(true);
        });
        run.spawn(2, move |cpu| {
            cpu.wait_until(|| reads.get() > 0);
            while released.get() == 0 {
                released.set(vm.shrink_zeros());
                if released.get() != 0 && !left.get() {
                    cpu.stop("freed while CPU 1 runs in the space".into());
                }
                cpu.relax();
            }
            // The next read has a page again, all zero.
            cpu.wait_until(|| over.get());
            let space = vm.create().expect("memory");
            vm.map(&space, Placement::At(Va(AT)), SLOT, RW).expect("a hole");
            vm.activate(&space);
            if vm.fault(&space, Va(AT), Access::Read) != Ok(Fault::ZeroHuge) {
                cpu.stop("no page of zeros after the last was released".into());
            }
            for n in 0..8 {
                program::sees(vm, cpu, (&space, "a new page of zeros"), AT + n * 65536, 1);
            }
            vm.deactivate();
            vm.exit(space);
        });
    })?;
    assert_eq!((released.get(), vm.stats().get(Counter::ThpZeroAlloc)), (512, 2));
    vm.machine().solo(0, |_| assert_eq!(vm.shrink_zeros(), 512))?;
    vm.machine().audit(Some(0))?;
    vm.audit(&[]).expect("everything adds up");
    assert_eq!(vm.machine().frames_in(Use::Zero), 1);
    Ok(())
}

fn on(mmu: MmuKind, seed: u64, scene: Scene, bug: Option<Bug>) -> Result<(), Stop> {
    if mmu == MmuKind::Arm {
        play::<Arm>(mmu, seed, scene, bug)
    } else {
        play::<X86>(mmu, seed, scene, bug)
    }
}

#[test]
fn d_07_no_cpu_ever_translates_to_a_page_of_zeros_that_was_freed() {
    for seed in seeds(24) {
        for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
            for scene in [Scene::Unmap, Scene::Write, Scene::Exit] {
                on(mmu, seed, scene, None)
                    .unwrap_or_else(|stop| panic!("{mmu:?} {scene:?} seed {seed}: {stop}"));
            }
        }
    }
}

#[test]
fn d_07_with_flushes_that_reach_nobody_the_oracle_says_so() {
    for scene in [Scene::Unmap, Scene::Write, Scene::Exit] {
        for seed in 0..8 {
            let stopped = on(MmuKind::Pcid, seed, scene, Some(Bug::SkippedRemoteFlush))
                .map_err(|stop| stop.rule);
            let why = format!("{scene:?} seed {seed}: {stopped:?}");
            let seen = [
                Rule::OpenObligation,
                Rule::TwoPages,
                Rule::Stale,
                Rule::FreedTable,
                Rule::FrameState,
            ];
            assert!(stopped.is_err_and(|rule| seen.contains(&rule)), "{why}");
        }
    }
}

/// F-12: what a fork makes read-only no CPU writes to through what it had before, from the moment
/// the fork returns.
fn forks<F: Format>(mmu: MmuKind, bug: Option<Bug>) -> Result<(), Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), options(Check::Walk)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    vm.machine().solo(0, |cpu| {
        let space = vm.create().expect("memory");
        // Zeros, a huge page, and base pages.
        vm.map(&space, Placement::At(Va(AT)), 2 * SLOT + 3 * 4096, RW).expect("a hole");
        let written = [AT + SLOT, AT + 2 * SLOT, AT + 2 * SLOT + 8192];
        cpu.script(1, |cpu| {
            vm.activate(&space);
            assert_eq!(program::access(&vm, cpu, &space, AT, Kind::Load), Ok(1));
            written.iter().for_each(|&va| {
                assert!(program::access(&vm, cpu, &space, va, Kind::Store).is_ok())
            });
            assert!(
                cpu.access(written[0], 8, Kind::Store, false).is_ok(),
                "it may write by what it has"
            );
        });
        let before = cpu.script(1, |cpu| {
            written.map(|va| cpu.access(va, 8, Kind::Load, false).expect("mapped").0)
        });
        vm.machine().plant(bug);
        let child = vm.fork(&space).expect("memory");
        vm.machine().plant(None);
        cpu.script(1, |cpu| {
            written
                .iter()
                .for_each(|&va| assert!(cpu.access(va, 8, Kind::Store, false).is_err(), "{va:#x}"));
            written.iter().for_each(|&va| {
                assert!(program::access(&vm, cpu, &space, va, Kind::Store).is_ok())
            });
        });
        vm.activate(&child);
        let seen =
            written.map(|va| program::access(&vm, cpu, &child, va, Kind::Load).expect("memory"));
        assert_eq!(seen, before, "the child has what was there when it was made");
        vm.audit(&[&space, &child]).expect("everything adds up");
        cpu.script(1, |_| vm.deactivate());
        vm.deactivate();
        vm.exit(space);
        vm.exit(child);
    })
}

#[test]
fn f_12_when_a_fork_returns_no_cpu_can_write_to_what_is_shared() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        let run = |bug| {
            if mmu == MmuKind::Arm { forks::<Arm>(mmu, bug) } else { forks::<X86>(mmu, bug) }
        };
        run(None).unwrap_or_else(|stop| panic!("{mmu:?}: {stop}"));
        if mmu != MmuKind::Arm {
            let stopped = run(Some(Bug::SkippedRemoteFlush)).map_err(|stop| stop.rule);
            assert_eq!(stopped, Err(Rule::OpenObligation), "{mmu:?}: a fork that tells nobody");
        }
    }
}
