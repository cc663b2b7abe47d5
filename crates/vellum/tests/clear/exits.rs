//! Rules F-1, F-8 and F-11: every exit of the allocator, and tasks that run at scheduling points.
//!
//! The machine follows each frame of data from the moment it is taken: one that is mapped before it
//! was filled, or filled while it is mapped, is a panic, at whatever exit of the allocator. At
//! every scheduling point another task may do anything to the same space, and to its end: whatever
//! was held there it would wait for, and it never waits.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

listed! {
    /// A way out of the allocator: what is mapped before, and the verb that allocates.
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
}

/// One exit, prepared.
struct Scene {
    fx: ProbeFixture,
    exit: Exit,
    spaces: RefCell<Vec<Space>>,
    taken: Vec<Pfn>,
}

/// The page that is touched.
const TOUCHED: u64 = 100;

impl Scene {
    fn new(exit: Exit, switches: &[(&str, &str)]) -> Rc<Scene> {
        use Exit::*;
        let huge = matches!(
            exit,
            FaultHuge | PopulateHuge | CopyHuge | CopyPiece | ZeroHuge | ZeroShort | Force
        );
        let mut all = vec![("thp", if huge { "always" } else { "never" })];
        all.extend(switches);
        let fx = followed(&all);
        let vm = &fx.vm;
        let space = vm.create().expect("memory");
        let mut spaces = Vec::new();
        match exit {
            FaultPool => {
                assert_eq!(vm.pool(Order::HUGE, 1), Ok(()));
                fx.map_leaves(&space, AT, MIB2, Order::HUGE);
            }
            _ => assert_eq!(vm.map(&space, Placement::At(AT), MIB2, RW), Ok(AT)),
        }
        match exit {
            Collapse => {
                for page in [0, 7, TOUCHED, 511] {
                    vm.copy_in(&space, page_at(page), &[page as u8]).expect("memory");
                }
                vm.fault(&space, page_at(3), Access::Read).expect("memory");
                vm.advise(&space, AT, MIB2, Advice::Huge).expect("mapped");
            }
            CopyBase | CopyHuge | CopyPiece => {
                vm.copy_in(&space, page_at(TOUCHED), &[1]).expect("memory");
                spaces.push(vm.fork(&space).expect("memory"));
            }
            ZeroBase | ZeroHuge | ZeroShort => {
                vm.fault(&space, page_at(TOUCHED + 1), Access::Read).expect("memory");
            }
            Force => {
                vm.protect(&space, AT, MIB2, Rights::READ).expect("mapped");
                vm.fault(&space, page_at(TOUCHED + 1), Access::Read).expect("memory");
            }
            _ => {}
        }
        if matches!(exit, ZeroBase) {
            vm.fault(&space, page_at(TOUCHED), Access::Read).expect("memory");
        }
        spaces.insert(0, space);
        let short = matches!(exit, CopyPiece | ZeroShort);
        let taken = if short { fx.take_all(Order::HUGE) } else { Vec::new() };
        Rc::new(Scene { fx, exit, spaces: RefCell::new(spaces), taken })
    }

    /// Runs the verb. It may fail where another task was faster.
    fn run(&self) -> Result<(), String> {
        use Exit::*;
        let vm = &self.fx.vm;
        let spaces = self.spaces.borrow();
        let space = &spaces[0];
        let touched = page_at(TOUCHED);
        let done: Result<(), Box<dyn Error>> = match self.exit {
            Populate | PopulateHuge => self.fx.populate(space, AT, MIB2).map_err(Box::from),
            CopyIn => vm.copy_in(space, touched, &[7; 40 * 4096]).map_err(Box::from),
            Collapse => vm.advise(space, AT, MIB2, Advice::Collapse).map_err(Box::from),
            Force => vm.write_forced(space, touched, b"x").map_err(Box::from),
            _ => vm.fault(space, touched, Access::Write).map(drop).map_err(Box::from),
        };
        done.map_err(|error| error.to_string())
    }

    fn check(&self) {
        let spaces = self.spaces.borrow();
        let audit = self.fx.vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("a valid state");
        assert_eq!(audit.other_frames, 512 * self.taken.len() as u64, "frames lost");
    }

    fn end(self: Rc<Self>) {
        let Scene { fx, spaces, taken, .. } = Rc::into_inner(self).expect("no other task has it");
        fx.give_back(taken, Order::HUGE);
        fx.vm.pool(Order::HUGE, 0).expect("less is always to be had");
        fx.end_zeros(spaces.take());
    }
}

/// What huge zeros may be.
const FORMS: [&str; 4] = ["off", "page", "table", "table-private"];

/// The settings each exit is gone through with. Base pages know one form of zeros only.
fn settings() -> Vec<Vec<(&'static str, &'static str)>> {
    let all = |zeroing| {
        FORMS
            .map(|form| vec![("zero.huge", form), ("alloc.zero", zeroing), ("clear.batch", "256K")])
    };
    [all("off"), all("on")].concat()
}

#[test]
fn f_01_at_every_exit_of_the_allocator_a_frame_is_taken_then_filled_then_mapped() {
    for &exit in Exit::ALL {
        for switches in settings() {
            let scene = Scene::new(exit, &switches);
            // Whatever is free, or in a pool, holds old bytes.
            let idle = scene.fx.m().frames().filter(|&pfn| scene.fx.m().is_idle(pfn));
            idle.for_each(|pfn| scene.fx.soil(pfn, 1, OLD));
            let before = scene.fx.m().followed();
            scene.run().unwrap_or_else(|error| panic!("{exit:?} {switches:?}: {error}"));
            let after = scene.fx.m().followed();
            let form = switches[0].1;
            let frames = match exit {
                Exit::FaultBase | Exit::CopyBase | Exit::CopyPiece | Exit::ZeroBase => 1,
                // With huge zeros off the read before has made a page of 2 MiB.
                Exit::ZeroHuge | Exit::ZeroShort | Exit::Force if form == "off" => 0,
                // A forced write leaves a private table of zeros as it is.
                Exit::Force if form == "table-private" => 1,
                Exit::ZeroShort => 1,
                Exit::CopyIn => 40,
                // Four pages were there already.
                Exit::Collapse => 508,
                _ => 512,
            };
            assert_eq!(after - before, frames, "{exit:?} {switches:?}");
            scene.check();
            // No old bytes: each byte is zero, or was written by this test.
            let spaces = scene.spaces.borrow();
            let mut bytes = vec![0xff; MIB2 as usize];
            scene.fx.vm.copy_out(&spaces[0], AT, &mut bytes).expect("memory");
            assert!(bytes.iter().all(|&b| b != OLD), "{exit:?} {switches:?}: old bytes");
            drop((bytes, spaces));
            scene.end();
        }
    }
}

#[test]
#[should_panic(expected = "is mapped before it was filled")]
fn f_01_the_machine_that_follows_frames_notices_one_that_nobody_filled() {
    let fx = followed(&[("thp", "never")]);
    let space = fx.leaves(AT, MIB2, Order::BASE);
    fx.vm.fault(&space, AT, Access::Write).expect("memory");
    let want = AllocRequest::kernel(Use::Data);
    let page = fx.vm.frames().alloc(fx.m(), Order::BASE, &want).expect("memory");
    // Any table will do.
    fx.m().set_entry(page, 0, page.addr() | 1);
}

/// What another task does to the space meanwhile.
type Other = fn(&ProbeFixture, &Space);

const OTHERS: [(&str, Other); 9] = [
    ("unmaps it", |fx, space| may(fx.vm.unmap(space, AT, MIB2))),
    ("unmaps a page", |fx, space| may(fx.vm.unmap(space, page_at(TOUCHED), KIB4))),
    ("maps over it", |fx, space| {
        may(fx.vm.map(space, Placement::Replace(AT), MIB2, Attrs::anonymous(Rights::READ)));
    }),
    ("protects it", |fx, space| may(fx.vm.protect(space, AT, MIB2, Rights::READ))),
    ("forgets it", |fx, space| may(fx.vm.advise(space, AT, MIB2, Advice::DontNeed))),
    ("writes it", |fx, space| {
        may(fx.vm.fault(space, page_at(TOUCHED), Access::Write));
        may(fx.vm.copy_in(space, page_at(TOUCHED + 3), &[9]));
    }),
    ("remaps it", |fx, space| {
        may(fx.vm.remap(space, AT, MIB2, MIB2, Placement::At(Va(AT.0 + 8 * MIB2))));
    }),
    ("forks", |fx, space| {
        fx.vm.fork(space).into_iter().for_each(|child| fx.vm.exit(child));
    }),
    ("forbids zeros and shrinks them", |fx, space| {
        fx.vm.forbid_zeros(space);
        fx.vm.shrink_zeros();
    }),
];

/// For a verb that may fail here.
fn may<T>(_: T) {}

#[test]
fn f_11_at_every_scheduling_point_of_a_clear_or_copy_any_verb_of_another_task_runs_to_its_end() {
    let mut points = 0;
    for &exit in Exit::ALL {
        for form in FORMS {
            // Scheduling points before portions of 64 pages.
            let switches = [("zero.huge", form), ("clear.batch", "256K")];
            for (name, other) in OTHERS {
                for point in 0.. {
                    let scene = Scene::new(exit, &switches);
                    let met = Rc::new(Cell::new(false));
                    let act = {
                        let (scene, met) = (Rc::clone(&scene), Rc::clone(&met));
                        Box::new(move || {
                            scene.fx.run_on(1);
                            // Waiting would be a panic: the CPU that it would wait for stands
                            // still.
                            other(&scene.fx, &scene.spaces.borrow()[0]);
                            met.set(true);
                        })
                    };
                    scene.fx.run_on(0);
                    let due = rescheduled(point, act, || may(scene.run()));
                    scene.fx.run_on(0);
                    let what = format!("{exit:?}, zero.huge={form}: another task {name}");
                    assert_eq!(due, met.get(), "{what} at point {point}");
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
    for form in ["page", "table", "table-private"] {
        for (written, expected) in NEAR_LAST {
            for by in ["program", "kernel", "debugger"] {
                // Where the zeros were read must not matter.
                for read in [0, 256, 511] {
                    let fx = followed(&[("zero.huge", form)]);
                    let space = fx.mapped(AT, MIB2, RW);
                    let zeros = fx.vm.fault(&space, page_at(read), Access::Read);
                    assert!(matches!(zeros, Ok(Fault::ZeroHuge | Fault::ZeroTable(_))));
                    fx.m().acts();
                    let va = Va(page_at(written).0 + 24);
                    match by {
                        "program" => {
                            assert_eq!(fx.vm.fault(&space, va, Access::Write), Ok(Fault::Huge))
                        }
                        "kernel" => fx.vm.copy_in(&space, va, &[1]).unwrap(),
                        _ => fx.vm.write_forced(&space, va, &[1]).unwrap(),
                    }
                    let acts = fx.m().acts();
                    if by == "debugger" && form == "table-private" {
                        // A forced write leaves a private table of zeros as it is, and takes one
                        // page.
                        assert_eq!(fx.usage(&space).rss_pages, 1);
                        fx.vm.exit(space);
                        continue;
                    }
                    let block = fx.frame(&space, AT);
                    let what = format!("{form}, page {written} by a {by}");
                    assert_eq!(acts.ranges(block), expected, "{what}");
                    let last = (acts.pages(block).last().copied(), acts.runs().last().copied());
                    assert_eq!(last, (Some(written), Some((1, Stores::Cached))), "{what}");
                    let usage = fx.usage(&space);
                    assert_eq!((usage.rss_pages, usage.huge_leaves), (512, 1));
                    fx.end_zeros([space]);
                }
            }
        }
    }
}
