//! The library on the machine: whole workloads under the oracle, on the three sets of MMU rules.

use crate::common::{ALL, MmuKind, hunting, options, parts, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::machine::Use;
use vellum::space::{Access, Advice, Attrs, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::tlb::{NestedShape, PageSize, WalkCacheShape};
use vellum_sim::{Bug, Check, Cpu, Kind, Meta, Options, Parts, Program, SimMachine, Stop};
use vellum_testkit::ext::VmExt;

const MIB: u64 = 1 << 20;

/// Something to do with a machine and the library on it.
trait Work {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>) -> Result<(), Stop>;
}

fn on<W: Work>(
    mmu: MmuKind,
    options: Options,
    switches: &[(&str, &str)],
    work: &W,
) -> Result<(), Stop> {
    on_parts(&parts(mmu), options, switches, work)
}

fn on_parts<W: Work>(
    parts: &Parts,
    options: Options,
    switches: &[(&str, &str)],
    work: &W,
) -> Result<(), Stop> {
    fn go<F: Format, W: Work>(
        parts: &Parts,
        options: Options,
        config: Config,
        work: &W,
    ) -> Result<(), Stop> {
        let sim = SimMachine::<F>::build(parts, options).expect("tiny can be built");
        let meta =
            Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory for metadata");
        // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
        let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
        let free = vm.machine().frames_in(Use::Free);
        work.run(&vm)?;
        vm.machine().audit(Some(0))?;
        let left = vm.audit(&[]).expect("everything adds up");
        assert_eq!((left.data_frames, left.table_frames), (0, 0), "{left:?}");
        let zeros = vm.machine().frames_in(Use::Zero) + vm.machine().frames_in(Use::Slab);
        assert_eq!(vm.machine().frames_in(Use::Free) + zeros, free, "frames came back");
        Ok(())
    }
    let mut config = Config::default();
    switches.iter().for_each(|(k, v)| config.set(k, v).expect("a switch"));
    if parts.format == "aarch64" {
        go::<Arm, W>(parts, options, config, work)
    } else {
        go::<X86, W>(parts, options, config, work)
    }
}

fn handler<'v, F: Format>(
    vm: &'v Vm<SimMachine<F>>,
    space: &'v Space,
) -> impl FnMut(u64, Kind) -> Result<(), String> + 'v {
    move |va, kind| {
        let access = match kind {
            Kind::Load => Access::Read,
            Kind::Store => Access::Write,
            Kind::Fetch => Access::Exec,
        };
        vm.fault(space, Va(va), access).map(|_| ()).map_err(|e| format!("{e} at {va:#x}"))
    }
}

fn anonymous<F: Format>(vm: &Vm<SimMachine<F>>, space: &Space, bytes: u64) -> u64 {
    vm.map(space, Placement::Anywhere, bytes, Attrs::anonymous(Rights::READ_WRITE))
        .expect("a hole")
        .0
}

struct TouchAndUnmap;
impl Work for TouchAndUnmap {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>) -> Result<(), Stop> {
        vm.machine().solo(0, |cpu| {
            let space = vm.create().expect("memory");
            vm.activate(&space);
            let at = anonymous(vm, &space, 4 * MIB + 8192);
            let mut p = Program::new(cpu, handler(vm, &space));
            for n in 0..(4 * MIB + 8192) / 4096 {
                p.store(at + n * 4096 + n % 64 * 64, 8, false).expect("mapped");
                p.load(at + (n * 7919 % (n + 1)) * 4096, 8, true).expect("mapped");
            }
            vm.audit(&[&space]).expect("sound");
            vm.unmap(&space, Va(at + 0x10000), 3 * 4096).expect("mapped");
            vm.unmap(&space, Va(at), 4 * MIB).expect("mapped");
            assert!(p.load(at, 8, false).is_err());
            drop(p);
            vm.exit(space);
        })
    }
}

#[test]
fn touching_and_unmapping_gives_every_frame_back() {
    for h in ALL {
        for check in [Check::Incremental, Check::Walk] {
            for thp in ["never", "always"] {
                on(h, options(check), &[("thp", thp)], &TouchAndUnmap)
                    .unwrap_or_else(|s| panic!("{h:?} thp={thp}: {s}"));
            }
        }
    }
}

struct ForkAndWrite;
impl Work for ForkAndWrite {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>) -> Result<(), Stop> {
        vm.machine().solo(0, |cpu| {
            let parent = vm.create().expect("memory");
            vm.activate(&parent);
            let at = anonymous(vm, &parent, 3 * MIB);
            let mut p = Program::new(cpu, handler(vm, &parent));
            let before: Vec<_> =
                (0..700).map(|n| p.store(at + n * 4096, 8, false).expect("mapped")).collect();
            let child = vm.fork(&parent).expect("memory");
            vm.activate(&child);
            let mut c = Program::new(cpu, handler(vm, &child));
            for n in 0..700 {
                assert_eq!(
                    c.load(at + n * 4096, 8, false).expect("mapped"),
                    before[n as usize],
                    "page {n}"
                );
                if n % 3 == 0 {
                    c.store(at + n * 4096, 8, false).expect("mapped");
                }
            }
            vm.audit(&[&parent, &child]).expect("sound");
            vm.activate(&parent);
            for n in 0..700 {
                assert_eq!(
                    p.load(at + n * 4096, 8, false).expect("mapped"),
                    before[n as usize],
                    "page {n}"
                );
                p.store(at + n * 4096, 8, false).expect("mapped");
            }
            drop(c);
            vm.exit(child);
            for n in 0..700 {
                p.store(at + n * 4096, 8, false).expect("mapped");
            }
            drop(p);
            vm.exit(parent);
        })
    }
}

#[test]
fn a_fork_keeps_the_contents_of_both_sides_apart() {
    for h in ALL {
        for check in [Check::Incremental, Check::Walk] {
            for thp in ["never", "always"] {
                on(h, options(check), &[("thp", thp)], &ForkAndWrite)
                    .unwrap_or_else(|s| panic!("{h:?} thp={thp}: {s}"));
            }
        }
    }
}

/// Two CPUs in one space: one changes mappings while the other uses them.
struct Races;
impl Work for Races {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>) -> Result<(), Stop> {
        let sim = vm.machine();
        let space = sim.solo(0, |_| vm.create().expect("memory"))?;
        let at = sim.solo(0, |_| anonymous(vm, &space, 2 * MIB))?;
        let (space_ref, done) = (&space, &std::cell::Cell::new(0));
        sim.run(|run| {
            for id in 0..3 {
                run.spawn(id, move |cpu: &Cpu<'_, F>| {
                    vm.activate(space_ref);
                    let mut p = Program::new(cpu, handler(vm, space_ref));
                    for n in 0..60u64 {
                        let va = at + (n * 13 + id as u64 * 5) % 40 * 4096;
                        match (id, n % 6) {
                            (0, 5) => vm
                                .advise(space_ref, Va(va), 3 * 4096, Advice::DontNeed)
                                .expect("mapped"),
                            (1, 5) => {
                                vm.protect(space_ref, Va(va), 2 * 4096, Rights::READ)
                                    .expect("mapped");
                                vm.protect(space_ref, Va(va), 2 * 4096, Rights::READ_WRITE)
                                    .expect("mapped");
                            }
                            (2, 5) if n % 12 == 5 => {
                                let child = vm.fork(space_ref).expect("memory");
                                vm.exit(child);
                            }
                            // A page may be read-only for a moment: the program's store is refused,
                            // as it would be.
                            (_, 0..=2) => drop(p.store(va, 8, false)),
                            _ => drop(p.load(va, 8, false).expect("readable")),
                        }
                    }
                    vm.deactivate();
                    done.set(done.get() + 1);
                });
            }
        })?;
        assert_eq!(done.get(), 3);
        sim.solo(0, move |_| vm.exit(space))
    }
}

#[test]
fn hunting_finds_no_stale_translation_in_races_of_faults_and_verbs() {
    for h in ALL {
        for seed in seeds(12) {
            for thp in ["never", "always"] {
                on(h, hunting(seed), &[("thp", thp)], &Races)
                    .unwrap_or_else(|s| panic!("{h:?} seed {seed} thp={thp}: {s}"));
            }
        }
    }
}

#[test]
fn five_levels_work_as_four_do() {
    let mut parts = parts(MmuKind::Pcid);
    parts.mmu.levels = 5;
    for check in [Check::Incremental, Check::Walk] {
        on_parts(&parts, options(check), &[("levels", "5")], &TouchAndUnmap)
            .unwrap_or_else(|s| panic!("{s}"));
        on_parts(&parts, options(check), &[("levels", "5")], &ForkAndWrite)
            .unwrap_or_else(|s| panic!("{s}"));
    }
}

#[test]
fn a_machine_that_sets_no_marks_itself_works_by_faults() {
    for h in ALL {
        let mut parts = parts(h);
        (parts.mmu.sets_accessed, parts.mmu.sets_dirty) = (false, false);
        for check in [Check::Incremental, Check::Walk] {
            on_parts(&parts, options(check), &[("thp", "never")], &TouchAndUnmap)
                .unwrap_or_else(|s| panic!("{h:?}: {s}"));
            on_parts(&parts, options(check), &[("thp", "always")], &ForkAndWrite)
                .unwrap_or_else(|s| panic!("{h:?}: {s}"));
        }
    }
}

#[test]
fn contexts_that_run_out_are_shared_by_flushing() {
    let mut parts = parts(MmuKind::Pcid);
    parts.mmu.contexts = 1;
    for seed in seeds(12) {
        on_parts(&parts, hunting(seed), &[("thp", "never")], &Races)
            .unwrap_or_else(|s| panic!("seed {seed}: {s}"));
        on_parts(&parts, hunting(seed), &[("thp", "always")], &ForkAndWrite)
            .unwrap_or_else(|s| panic!("seed {seed}: {s}"));
    }
}

#[test]
fn a_machine_whose_largest_leaf_is_2_mib_and_one_without_a_second_level_tlb_work() {
    for h in ALL {
        let mut parts = parts(h);
        parts.mmu.max_leaf = vellum_sim::tlb::PageSize::M2;
        parts.tlb_l2 = None;
        on_parts(&parts, options(Check::Walk), &[], &TouchAndUnmap)
            .unwrap_or_else(|s| panic!("{h:?}: {s}"));
        on_parts(&parts, options(Check::Walk), &[], &ForkAndWrite)
            .unwrap_or_else(|s| panic!("{h:?}: {s}"));
    }
}

/// A machine that is a guest, backed by pages of a size.
fn guest(mmu: MmuKind, page: PageSize) -> Parts {
    let walk = WalkCacheShape { levels: [Some((2, 2)), Some((1, 1)), None, None] };
    let nested = NestedShape { page, levels: 4, entries: 4, ways: 2, walk };
    Parts { nested: Some(nested), ..parts(mmu) }
}

#[test]
fn a_guest_of_a_hypervisor_sees_the_same_memory_under_the_same_rules() {
    let machines = ALL.into_iter().flat_map(|h| PageSize::ALL.map(|page| (h, page)));
    for (h, page) in machines {
        let parts = guest(h, page);
        for thp in ["never", "always"] {
            let clean = |r: Result<(), Stop>| {
                r.unwrap_or_else(|s| panic!("{h:?} on {page:?} thp={thp}: {s}"));
            };
            for check in [Check::Incremental, Check::Walk] {
                clean(on_parts(&parts, options(check), &[("thp", thp)], &TouchAndUnmap));
                clean(on_parts(&parts, options(check), &[("thp", thp)], &ForkAndWrite));
            }
            for seed in seeds(6) {
                clean(on_parts(&parts, hunting(seed), &[("thp", thp)], &Races));
            }
        }
    }
}

/// A workload on a machine with a planted bug.
struct With<W>(Bug, W);

impl<W: Work> Work for With<W> {
    fn run<F: Format>(&self, vm: &Vm<SimMachine<F>>) -> Result<(), Stop> {
        vm.machine().plant(Some(self.0));
        self.1.run(vm)?;
        assert!(vm.machine().planted() > 0, "{:?} never had its chance", self.0);
        vm.machine().audit(Some(0))
    }
}

/// The workload stops with the bug, hunting for some seed; that it passes without is what the tests
/// above show.
fn found<W: Work>(bug: Bug, hunt: bool, work: W) {
    let work = With(bug, work);
    for h in ALL {
        let stops = |seed| {
            let options = if hunt { hunting(seed) } else { options(Check::Incremental) };
            on(h, options, &[("thp", "never")], &work).is_err()
        };
        assert!((0..if hunt { 20 } else { 1 }).any(stops), "{bug:?} under {h:?}");
    }
}

#[test]
fn planted_skipped_remote_flush_under_the_library_stops() {
    found(Bug::SkippedRemoteFlush, true, Races);
}

#[test]
fn planted_bugs_stop_on_a_guest_whose_large_pages_are_held_in_pieces() {
    let work = [Bug::SkippedRemoteFlush, Bug::DeafTlb].map(|bug| With(bug, Races));
    for (mmu, work) in ALL.into_iter().flat_map(|mmu| work.iter().map(move |w| (mmu, w))) {
        let parts = guest(mmu, PageSize::K4);
        let stops = |seed| on_parts(&parts, hunting(seed), &[("thp", "always")], work).is_err();
        assert!((0..20).any(stops), "{:?} under {mmu:?}", work.0);
    }
}

#[test]
fn planted_skipped_local_flush_under_the_library_stops() {
    found(Bug::SkippedLocalFlush, false, ForkAndWrite);
}

#[test]
fn planted_deaf_tlb_under_the_library_is_a_stale_read_that_stops() {
    found(Bug::DeafTlb, true, Races);
}

#[test]
fn planted_early_free_under_the_library_stops() {
    found(Bug::EarlyFree, false, TouchAndUnmap);
}

#[test]
fn planted_writable_shared_page_under_the_library_stops() {
    found(Bug::WritableShared, false, ForkAndWrite);
}

#[test]
fn planted_leaked_frame_under_the_library_stops() {
    found(Bug::Leak, false, TouchAndUnmap);
}

#[test]
fn planted_skipped_clear_and_copy_under_the_library_stop() {
    found(Bug::SkippedClear, false, TouchAndUnmap);
    found(Bug::SkippedCopy, false, ForkAndWrite);
}
