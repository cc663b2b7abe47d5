//! B-10: a space that forbids shared zeros has none from the moment the verb returns, whatever
//! faults are under way.

use std::cell::Cell;
use vellum_testkit::ext::VmExt;

use crate::common::{MmuKind, hunting, options, parts, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::space::{Access, Advice, Attrs, Fault, Page, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Check, Kind, Meta, Options, Program, SimMachine, Stop};

const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);
const AT: u64 = 0x4000_0000;
const PAGES: u64 = 48;

fn page(n: u64) -> u64 {
    AT + n * 4096
}

trait Work {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>, seed: u64) -> Result<(), Stop>;
}

fn on<W: Work>(mmu: MmuKind, options: Options, work: &W) -> Result<(), Stop> {
    fn go<F: Format, W: Work>(mmu: MmuKind, options: Options, work: &W) -> Result<(), Stop> {
        let sim = SimMachine::<F>::build(&parts(mmu), options).expect("tiny can be built");
        let meta =
            Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory for metadata");
        let mut config = Config::default();
        [("thp", "never"), ("zero.colours", "8")]
            .iter()
            .for_each(|(k, v)| config.set(k, v).expect("a switch"));
        // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
        let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
        work.run(&vm, options.seed)?;
        vm.machine().audit(Some(0))?;
        assert_eq!(vm.audit(&[]).expect("everything adds up").other_frames, 0);
        Ok(())
    }
    if mmu == MmuKind::Arm {
        go::<Arm, W>(mmu, options, work)
    } else {
        go::<X86, W>(mmu, options, work)
    }
}

fn zeros_mapped<F: Format>(vm: &Vm<SimMachine<F>>, space: &Space) -> u64 {
    (0..PAGES)
        .filter(|&n| matches!(vm.query(space, Va(page(n))), Page::Mapped { zero: true, .. }))
        .count() as u64
}

struct Serially;
impl Work for Serially {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>, _: u64) -> Result<(), Stop> {
        vm.machine().solo(0, |cpu| {
            let space = vm.create().expect("memory");
            vm.activate(&space);
            vm.map(&space, Placement::At(Va(AT)), PAGES * 4096, RW).expect("a hole");
            vm.map(&space, Placement::At(Va(1 << 40)), 1 << 30, RW).expect("a hole");
            let mut p = Program::new(cpu, |va, kind| {
                let access = if kind == Kind::Store { Access::Write } else { Access::Read };
                vm.fault(&space, Va(va), access).map(|_| ())
            });
            (0..PAGES).for_each(|n| assert!(p.load(page(n), 8, false).is_ok()));
            (0..PAGES).step_by(4).for_each(|n| assert!(p.store(page(n), 8, false).is_ok()));
            // Another CPU holds translations of the zeros.
            cpu.script(1, |cpu| {
                vm.activate(&space);
                (0..PAGES).for_each(|n| assert!(cpu.access(page(n), 8, Kind::Load, false).is_ok()));
            });
            assert_eq!(zeros_mapped(vm, &space), PAGES * 3 / 4);
            let resident = vm.usage(&space).rss_pages;

            vm.forbid_zeros(&space);
            assert_eq!((zeros_mapped(vm, &space), vm.usage(&space).zero_leaves), (0, 0));
            assert_eq!(vm.usage(&space).rss_pages, resident, "pages that were written are kept");
            cpu.script(1, |cpu| {
                let hit = (0..PAGES)
                    .filter(|&n| cpu.access(page(n), 8, Kind::Load, false).is_ok())
                    .count() as u64;
                assert_eq!(hit, PAGES / 4, "no CPU reads shared zeros any more");
                vm.deactivate();
            });

            // Every producer.
            assert_eq!(vm.fault(&space, Va(page(1)), Access::Read), Ok(Fault::Base));
            vm.advise(&space, Va(AT), PAGES * 4096, Advice::Populate { write: false })
                .expect("mapped");
            vm.advise(&space, Va(AT), PAGES * 4096, Advice::DontNeed).expect("mapped");
            let mut bytes = [1; 64];
            vm.copy_out(&space, Va(page(5)), &mut bytes).expect("mapped");
            assert_eq!(bytes, [0; 64]);
            (0..PAGES).for_each(|n| assert!(p.load(page(n), 8, false).is_ok()));
            vm.protect(&space, Va(AT), PAGES * 4096, Rights::NONE).expect("mapped");
            vm.protect(&space, Va(AT), PAGES * 4096, Rights::READ_WRITE).expect("mapped");
            let child = vm.fork(&space).expect("memory");
            for space in [&space, &child] {
                vm.unmap(space, Va(page(7)), 4096).expect("mapped");
                vm.map(space, Placement::At(Va(page(7))), 4096, RW).expect("a hole");
                assert_eq!(
                    vm.fault(space, Va(page(7)), Access::Read),
                    Ok(Fault::Base),
                    "children inherit it"
                );
                assert_eq!(vm.fault(space, Va(1 << 40), Access::Read), Ok(Fault::Base));
                assert_eq!(vm.usage(space).zero_leaves, 0);
            }
            vm.audit(&[&space, &child]).expect("sound");
            // Others keep theirs.
            let other = vm.create().expect("memory");
            vm.map(&other, Placement::At(Va(AT)), 4096, RW).expect("a hole");
            assert_eq!(vm.fault(&other, Va(AT), Access::Read), Ok(Fault::Zero));
            [space, child, other].into_iter().for_each(|space| vm.exit(space));
        })
    }
}

#[test]
fn b_10_forbidding_zeros_replaces_those_there_are_and_no_producer_maps_one_afterwards() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for check in [Check::Incremental, Check::Walk] {
            on(mmu, options(check), &Serially).unwrap_or_else(|stop| panic!("{mmu:?}: {stop}"));
        }
    }
}

/// Two CPUs read and write while a third forbids; each page is written by one CPU only.
struct Racing;
impl Work for Racing {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>, seed: u64) -> Result<(), Stop> {
        let space = Cell::new(None);
        let (forbidden, working) = (Cell::new(false), Cell::new(0));
        vm.machine().solo(0, |_| space.set(Some(vm.create().expect("memory"))))?;
        let space = space.take().expect("it was made");
        vm.map(&space, Placement::At(Va(AT)), PAGES * 4096, RW).expect("a hole");
        vm.machine().run(|run| {
            for id in 0..2usize {
                let (space, forbidden, working) = (&space, &forbidden, &working);
                run.spawn(id, move |cpu| {
                    vm.activate(space);
                    working.set(working.get() + 1);
                    let mut rng = Rng::new(seed << 8 | id as u64);
                    let mut last = [1u64; PAGES as usize];
                    for _ in 0..120 {
                        let n = rng.below(PAGES);
                        let mine = n as usize % 2 == id;
                        let kind = if mine && rng.one_in(4) { Kind::Store } else { Kind::Load };
                        let mut p = Program::new(cpu, |va, kind| {
                            let before = forbidden.get();
                            let access =
                                if kind == Kind::Store { Access::Write } else { Access::Read };
                            let fault =
                                vm.fault(space, Va(va), access).map_err(|e| e.to_string())?;
                            if before && fault == Fault::Zero {
                                cpu.stop(format!("zeros at {va:#x} after they were forbidden"));
                            }
                            Ok::<(), String>(())
                        });
                        let seen = p.access(page(n), 8, kind, false).expect("mapped").0;
                        if mine && kind == Kind::Load && seen != last[n as usize] {
                            cpu.stop(format!(
                                "page {n}: version {seen}, its only writer left {}",
                                last[n as usize]
                            ));
                        }
                        if kind == Kind::Store {
                            last[n as usize] = seen;
                        }
                        if rng.one_in(16) {
                            let back = n & !1 | id as u64;
                            vm.advise(space, Va(page(back)), 4096, Advice::DontNeed)
                                .expect("mapped");
                            last[back as usize] = 1;
                        }
                    }
                    vm.deactivate();
                });
            }
            let (space, forbidden, working) = (&space, &forbidden, &working);
            run.spawn(2, move |cpu| {
                cpu.wait_until(|| working.get() == 2);
                (0..seed % 40).for_each(|_| cpu.relax());
                vm.forbid_zeros(space);
                forbidden.set(true);
                if zeros_mapped(vm, space) != 0 {
                    cpu.stop("zeros are mapped after they were forbidden".into());
                }
            });
        })?;
        vm.machine().solo(0, |_| {
            assert_eq!(vm.usage(&space).zero_leaves, 0);
            vm.audit(&[&space]).expect("sound");
            vm.exit(space);
        })
    }
}

#[test]
fn b_10_faults_under_way_while_zeros_are_forbidden_leave_none_behind() {
    for seed in seeds(40) {
        for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
            on(mmu, hunting(seed), &Racing)
                .unwrap_or_else(|stop| panic!("{mmu:?} seed {seed}: {stop}"));
        }
    }
}
