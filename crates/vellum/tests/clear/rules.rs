//! Rules F-1, F-8, F-10 and F-11: where clearing, huge zeros and pools meet. No deferral exists
//! yet; what it adds to F-1 and F-10 comes with it.
//!
//! The machine follows each frame of data from the moment it is taken: one that is mapped before it
//! was filled, or filled while it is mapped, is a panic, at whatever exit of the allocator. At
//! every scheduling point another task may do anything to the same space, and to its end: whatever
//! was held there it would wait for, and it never waits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::flat::{FrameHands, MachineHands, VmHands, during_flushes, rescheduled};
use crate::lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Advice, Attrs, Fault, Placement, Rights, Space};
use vellum::unstable::Want;

const OLD: u8 = 0xa5;
const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

/// A lab whose machine follows frames.
fn followed(switches: &[(&str, &str)]) -> Lab {
    let machine = Probe::new(512 * 8);
    machine.follow();
    lab_on(machine, switches)
}

/// An exit of the allocator: what is there before, and the verb that takes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    FaultBase,
    FaultHuge,
    FaultPool,
    Populate,
    PopulateHuge,
    CopyIn,
    Collapse,
    CopyBase,
    CopyHuge,
    CopyPiece,
    ZeroBase,
    ZeroHuge,
    ZeroShort,
    Force,
}

const EXITS: [Exit; 14] = [
    Exit::FaultBase,
    Exit::FaultHuge,
    Exit::FaultPool,
    Exit::Populate,
    Exit::PopulateHuge,
    Exit::CopyIn,
    Exit::Collapse,
    Exit::CopyBase,
    Exit::CopyHuge,
    Exit::CopyPiece,
    Exit::ZeroBase,
    Exit::ZeroHuge,
    Exit::ZeroShort,
    Exit::Force,
];

/// One exit, prepared.
struct Scene {
    lab: Lab,
    exit: Exit,
    spaces: RefCell<Vec<Space>>,
    hogged: RefCell<Vec<Pfn>>,
}

/// The page that is touched.
const TOUCHED: u64 = 100;

fn at(page: u64) -> Va {
    Va(AT.0 + page * KIB4)
}

impl Scene {
    fn new(exit: Exit, switches: &[(&str, &str)]) -> Rc<Scene> {
        use Exit::*;
        let huge = matches!(
            exit,
            FaultHuge | PopulateHuge | CopyHuge | CopyPiece | ZeroHuge | ZeroShort | Force
        );
        let mut all = vec![("thp", if huge { "always" } else { "never" })];
        all.extend(switches);
        let lab = followed(&all);
        let vm = &lab.vm;
        let space = vm.create().expect("memory");
        let mut spaces = Vec::new();
        match exit {
            FaultPool => {
                assert_eq!(vm.pool(Order::HUGE, 1), Ok(()));
                lab.map(&space, AT, MIB2, Order::HUGE);
            }
            _ => assert_eq!(vm.map(&space, Placement::At(AT), MIB2, RW), Ok(AT)),
        }
        match exit {
            Collapse => {
                for page in [0, 7, TOUCHED, 511] {
                    vm.copy_in(&space, at(page), &[page as u8]).expect("memory");
                }
                vm.fault(&space, at(3), Access::Read).expect("memory");
                vm.advise(&space, AT, MIB2, Advice::Huge).expect("mapped");
            }
            CopyBase | CopyHuge | CopyPiece => {
                vm.copy_in(&space, at(TOUCHED), &[1]).expect("memory");
                spaces.push(vm.fork(&space).expect("memory"));
            }
            ZeroBase | ZeroHuge | ZeroShort => {
                vm.fault(&space, at(TOUCHED + 1), Access::Read).expect("memory");
            }
            Force => {
                vm.protect(&space, AT, MIB2, Rights::READ).expect("mapped");
                vm.fault(&space, at(TOUCHED + 1), Access::Read).expect("memory");
            }
            _ => {}
        }
        if matches!(exit, ZeroBase) {
            vm.fault(&space, at(TOUCHED), Access::Read).expect("memory");
        }
        spaces.insert(0, space);
        let scene = Scene { lab, exit, spaces: RefCell::new(spaces), hogged: RefCell::default() };
        if matches!(exit, CopyPiece | ZeroShort) {
            let want = Want::kernel(Use::Slab);
            let hogged = std::iter::from_fn(|| {
                scene.lab.vm.frames().alloc(scene.lab.m(), Order::HUGE, &want).ok()
            });
            scene.hogged.replace(hogged.collect());
        }
        Rc::new(scene)
    }

    /// The verb. What it says is its own business where another task was faster.
    fn run(&self) -> Result<(), String> {
        use Exit::*;
        let vm = &self.lab.vm;
        let spaces = self.spaces.borrow();
        let space = &spaces[0];
        match self.exit {
            Populate | PopulateHuge => vm
                .advise(space, AT, MIB2, Advice::Populate { write: true })
                .map_err(|e| e.to_string()),
            CopyIn => vm.copy_in(space, at(TOUCHED), &[7; 40 * 4096]).map_err(|e| e.to_string()),
            Collapse => vm.advise(space, AT, MIB2, Advice::Collapse).map_err(|e| e.to_string()),
            Force => vm.write_forced(space, at(TOUCHED), b"x").map_err(|e| e.to_string()),
            _ => vm.fault(space, at(TOUCHED), Access::Write).map(drop).map_err(|e| e.to_string()),
        }
    }

    fn check(&self) {
        let audit = self
            .lab
            .vm
            .audit(&self.spaces.borrow().iter().collect::<Vec<_>>())
            .expect("a valid state");
        assert_eq!(audit.other_frames, 512 * self.hogged.borrow().len() as u64, "frames lost");
    }

    fn end(self: Rc<Self>) {
        let scene = Rc::into_inner(self).expect("no other task has it");
        let vm = &scene.lab.vm;
        scene
            .hogged
            .take()
            .into_iter()
            .for_each(|pfn| vm.frames().put(scene.lab.m(), pfn, Order::HUGE));
        scene.check();
        scene.spaces.take().into_iter().for_each(|space| vm.exit(space));
        vm.shrink_zeros();
        vm.pool(Order::HUGE, 0).expect("less is always to be had");
        scene.lab.check(&[]);
    }
}

/// The settings each exit is gone through with. Base pages know one form of zeros only.
fn settings() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut all = Vec::new();
    for form in ["off", "page", "table", "table-private"] {
        for zeroing in ["off", "on"] {
            all.push(vec![("zero.huge", form), ("alloc.zero", zeroing), ("clear.batch", "256K")]);
        }
    }
    all
}

#[test]
fn f_01_at_every_exit_of_the_allocator_a_frame_is_taken_then_filled_then_mapped() {
    for exit in EXITS {
        for switches in settings() {
            let scene = Scene::new(exit, &switches);
            // Whatever is free, or in a pool, holds old bytes.
            let node = scene.lab.m().topology().node[0];
            for pfn in (0..node.frames)
                .map(|i| node.first.add(i))
                .filter(|&pfn| scene.lab.m().is_idle(pfn))
            {
                scene.lab.soil(pfn, 1, OLD);
            }
            let before = scene.lab.m().followed();
            scene.run().unwrap_or_else(|error| panic!("{exit:?} {switches:?}: {error}"));
            let after = scene.lab.m().followed();
            let form = switches[0].1;
            let frames = match exit {
                Exit::FaultBase | Exit::CopyBase | Exit::CopyPiece | Exit::ZeroBase => 1,
                // With huge zeros off the read before has made a page of 2 MiB.
                Exit::ZeroHuge | Exit::ZeroShort | Exit::Force if form == "off" => 0,
                // A debugger leaves a table of a space's own what it is.
                Exit::Force if form == "table-private" => 1,
                Exit::ZeroShort => 1,
                Exit::CopyIn => 40,
                // The table's four pages went.
                Exit::Collapse => 508,
                _ => 512,
            };
            assert_eq!(after - before, frames, "{exit:?} {switches:?}");
            scene.check();
            // Old bytes nowhere: what is read is zero, or was written here.
            let spaces = scene.spaces.borrow();
            let mut bytes = vec![0xff; MIB2 as usize];
            scene.lab.vm.copy_out(&spaces[0], AT, &mut bytes).expect("memory");
            assert!(bytes.iter().all(|&b| b != OLD), "{exit:?} {switches:?}: old bytes");
            drop((bytes, spaces));
            scene.end();
        }
    }
}

#[test]
#[should_panic(expected = "is mapped before it was filled")]
fn f_01_the_machine_that_follows_frames_notices_one_that_nobody_filled() {
    let lab = followed(&[("thp", "never")]);
    let space = lab.vm.create().expect("memory");
    lab.map(&space, AT, MIB2, Order::BASE);
    lab.vm.fault(&space, AT, Access::Write).expect("memory");
    let want = Want::kernel(Use::Data);
    let page = lab.vm.frames().alloc(lab.m(), Order::BASE, &want).expect("memory");
    // Any table will do.
    lab.m().set_entry(page, 0, page.addr() | 1);
}

/// What another task does to the space meanwhile.
type Other = fn(&Scene);

const OTHERS: [(&str, Other); 9] = [
    ("unmaps it", |s| may(s.lab.vm.unmap(&s.spaces.borrow()[0], AT, MIB2))),
    ("unmaps a page", |s| may(s.lab.vm.unmap(&s.spaces.borrow()[0], at(TOUCHED), KIB4))),
    ("maps over it", |s| {
        may(s.lab.vm.map(
            &s.spaces.borrow()[0],
            Placement::Replace(AT),
            MIB2,
            Attrs::anonymous(Rights::READ),
        ));
    }),
    ("protects it", |s| may(s.lab.vm.protect(&s.spaces.borrow()[0], AT, MIB2, Rights::READ))),
    ("forgets it", |s| may(s.lab.vm.advise(&s.spaces.borrow()[0], AT, MIB2, Advice::DontNeed))),
    ("writes it", |s| {
        may(s.lab.vm.fault(&s.spaces.borrow()[0], at(TOUCHED), Access::Write));
        may(s.lab.vm.copy_in(&s.spaces.borrow()[0], at(TOUCHED + 3), &[9]));
    }),
    ("remaps it", |s| {
        may(s.lab.vm.remap(
            &s.spaces.borrow()[0],
            AT,
            MIB2,
            MIB2,
            Placement::At(Va(AT.0 + 8 * MIB2)),
        ));
    }),
    ("forks", |s| {
        // Its list of spaces is in use.
        let forked = s.lab.vm.fork(&s.spaces.borrow()[0]);
        forked.into_iter().for_each(|child| s.lab.vm.exit(child));
    }),
    ("forbids zeros and shrinks them", |s| {
        s.lab.vm.forbid_zeros(&s.spaces.borrow()[0]);
        s.lab.vm.shrink_zeros();
    }),
];

/// A verb that may well be refused here.
fn may<T>(_: T) {}

#[test]
fn f_11_at_every_scheduling_point_of_a_clear_or_copy_any_verb_of_another_task_runs_to_its_end() {
    let mut points = 0;
    for exit in EXITS {
        for form in ["off", "page", "table", "table-private"] {
            // Scheduling points before portions of 64 pages.
            let switches = [("zero.huge", form), ("clear.batch", "256K")];
            for (name, other) in OTHERS {
                for point in 0.. {
                    let scene = Scene::new(exit, &switches);
                    let met = Rc::new(Cell::new(false));
                    let act = {
                        let (scene, met) = (Rc::clone(&scene), Rc::clone(&met));
                        Box::new(move || {
                            scene.lab.m().flat.run_on(1);
                            // Waiting for anything would be a panic: this CPU, which holds it,
                            // stands still.
                            other(&scene);
                            met.set(true);
                        })
                    };
                    scene.lab.m().flat.run_on(0);
                    let due = rescheduled(point, act, || may(scene.run()));
                    scene.lab.m().flat.run_on(0);
                    assert_eq!(
                        due,
                        met.get(),
                        "{exit:?}, zero.huge={form}: another task {name} at point {point}"
                    );
                    scene.check();
                    scene.end();
                    if !due {
                        break;
                    }
                    points += 1;
                }
            }
        }
    }
    assert!(points > 1000, "{points} scheduling points");
}

#[test]
fn f_08_a_write_to_huge_zeros_clears_2_mib_around_the_written_address_last() {
    let cases: [(u64, &[(u64, u64)]); 5] = [
        (100, &[(103, 511), (0, 97), (98, 102)]),
        (0, &[(3, 511), (0, 2)]),
        (511, &[(0, 508), (509, 511)]),
        (2, &[(5, 511), (0, 4)]),
        (509, &[(0, 506), (507, 511)]),
    ];
    for form in ["page", "table", "table-private"] {
        for (written, expected) in cases {
            for by in ["program", "kernel", "debugger"] {
                // What was read, elsewhere, must not matter.
                for read in [0, 256, 511] {
                    let lab = followed(&[("zero.huge", form)]);
                    let space = lab.vm.create().unwrap();
                    lab.vm.map(&space, Placement::At(AT), MIB2, RW).unwrap();
                    assert!(matches!(
                        lab.vm.fault(&space, at(read), Access::Read),
                        Ok(Fault::ZeroHuge | Fault::ZeroTable(_))
                    ));
                    lab.m().acts();
                    let va = Va(at(written).0 + 24);
                    match by {
                        "program" => {
                            assert_eq!(lab.vm.fault(&space, va, Access::Write), Ok(Fault::Huge))
                        }
                        "kernel" => lab.vm.copy_in(&space, va, &[1]).unwrap(),
                        _ => lab.vm.write_forced(&space, va, &[1]).unwrap(),
                    }
                    let acts = lab.m().acts();
                    if by == "debugger" && form == "table-private" {
                        // A debugger's breakpoint leaves a space's own table what it is, and takes
                        // one page.
                        assert_eq!(lab.vm.usage(&space).rss_pages, 1);
                        lab.vm.exit(space);
                        continue;
                    }
                    let block = lab.block(&space, AT);
                    let ranges = acts.iter().filter_map(|a| match *a {
                        Act::Range(first, frames) => {
                            Some((first.0 - block.0, first.0 - block.0 + frames - 1))
                        }
                        _ => None,
                    });
                    assert_eq!(
                        ranges.collect::<Vec<_>>(),
                        expected,
                        "{form}, page {written} by a {by}"
                    );
                    let last = acts.iter().rev().find_map(|a| {
                        if let Act::Run(first, n, _) = *a { Some((first, n)) } else { None }
                    });
                    assert_eq!(
                        last,
                        Some((block.add(written), 1)),
                        "{form}, page {written} by a {by}"
                    );
                    assert_eq!(
                        (lab.vm.usage(&space).rss_pages, lab.vm.usage(&space).huge_leaves),
                        (512, 1)
                    );
                    lab.vm.exit(space);
                    lab.vm.shrink_zeros();
                    lab.check(&[]);
                }
            }
        }
    }
}

#[test]
fn f_10_a_block_enters_the_pool_after_its_last_flush_and_leaves_it_to_be_cleared() {
    let lab = Rc::new(followed(&[]));
    assert_eq!(lab.vm.pool(Order::HUGE, 1), Ok(()));
    let space = lab.vm.create().unwrap();
    lab.m().flat.run_on(1);
    lab.vm.activate(&space);
    lab.m().flat.run_on(0);
    let others: Rc<RefCell<Option<Space>>> = Rc::default();
    let mut last = None;
    for round in 0..3 {
        let block = lab.huge_fault(&space, AT, 9);
        assert!(lab.is_zero(block, 512) && last.is_none_or(|last| last == block), "round {round}");
        assert_eq!(lab.vm.audit(&[&space]).unwrap().pool_frames, 0);
        // Its bytes are a program's while it waits in the pool, and nobody has cleared it.
        lab.soil(block, 512, 0x77);
        let flushes = Rc::new(Cell::new(0));
        let during = {
            let (lab, flushes, others) = (Rc::clone(&lab), Rc::clone(&flushes), Rc::clone(&others));
            move |_| {
                flushes.set(flushes.get() + 1);
                assert_eq!(
                    lab.vm.frames().record(block).use_(),
                    Use::Data,
                    "CPU 1 may still write to it"
                );
                // Who wants such a block now gets another.
                let other = lab.vm.create().unwrap();
                assert_ne!(lab.huge_fault(&other, AT, 9), block);
                let want = Want::kernel(Use::Slab);
                let all =
                    std::iter::from_fn(|| lab.vm.frames().alloc(lab.m(), Order::HUGE, &want).ok());
                let all: Vec<Pfn> = all.collect();
                assert!(!all.contains(&block));
                all.into_iter().for_each(|pfn| lab.vm.frames().put(lab.m(), pfn, Order::HUGE));
                others.replace(Some(other));
            }
        };
        during_flushes(during, || lab.vm.unmap(&space, AT, MIB2).unwrap());
        assert!(flushes.get() >= 1);
        // The pool holds one block; what comes back once it is full is free memory.
        others.take().into_iter().for_each(|other| lab.vm.exit(other));
        let audit = lab.vm.audit(&[&space]).unwrap();
        assert_eq!(audit.pool_frames, 512);
        assert_eq!(
            lab.m().flat.asked.became[Use::Pending as usize].load(Ordering::Relaxed),
            0,
            "and nothing pends"
        );
        assert_eq!(lab.m().uniform(block), Some(0x77), "clearing is for whoever takes it out");
        last = Some(block);
    }
    lab.m().flat.run_on(1);
    lab.vm.idle();
    lab.m().flat.run_on(0);
    lab.vm.exit(space);
    lab.vm.pool(Order::HUGE, 0).unwrap();
    lab.check(&[]);
}
