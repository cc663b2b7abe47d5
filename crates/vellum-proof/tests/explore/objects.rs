//! Objects: what a program may count on while others change one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::scarce::{leave_blocks, starve};
use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::error::ObjectError;
use vellum::machine::MmuRules;
use vellum::space::{Access, Attrs, HugeAdvice, Placement, Rights};
use vellum::vm::{GrabWait, Object, ObjectPart};
use vellum_proof::explore::worlds::{AT, Fixture};
use vellum_proof::explore::{Script, Stop, World, explore, pause};

#[test]
fn what_a_program_wrote_past_the_end_before_a_resize_is_zero_after_it() {
    let object: Rc<RefCell<Option<Object>>> = Rc::default();
    let (left, before) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let make = {
        let (object, left, before) = (object.clone(), left.clone(), before.clone());
        move || {
            let config = Config { thp: Thp::Never, ..Config::default() };
            let fixture = Fixture::new(2, 2048, config, MmuRules::X86_64);
            fixture.enter(0);
            let space = fixture.vm.create().unwrap();
            let made = fixture.vm.objects().create(100).unwrap();
            let part = ObjectPart { object: &made, offset: 0 };
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            fixture.vm.map_object(&space, Placement::At(AT), 4096, attrs, part).unwrap();
            fixture.keep(space);
            *object.borrow_mut() = Some(made);
            left.set(2);
            before.set(false);
            fixture
        }
    };
    let last = {
        let (object, left, before) = (object.clone(), left.clone(), before.clone());
        move |l: &Fixture| {
            left.set(left.get() - 1);
            if left.get() == 0 {
                let object = object.borrow_mut().take().unwrap();
                let mut byte = [0; 4];
                assert_eq!(l.vm.objects().read(&object, 1000, &mut byte), (4, Ok(())));
                l.vm.objects().discard(object);
                assert!(!before.get() || byte == [0; 4], "written past the end before the resize");
            }
        }
    };
    let resize: Script<Fixture> = {
        let (object, last) = (object.clone(), last.clone());
        Rc::new(move |l: &Fixture| {
            let one = object.borrow();
            l.vm.objects().resize(one.as_ref().unwrap(), 4096).unwrap();
            drop(one);
            last(l);
        })
    };
    let write: Script<Fixture> = {
        let (object, last, before) = (object.clone(), last.clone(), before.clone());
        Rc::new(move |l: &Fixture| {
            let space = l.last();
            l.vm.copy_in(&space, Va(AT.0 + 1000), &[7; 4]).unwrap();
            drop(space);
            let one = object.borrow();
            before.set(l.vm.objects().usage(one.as_ref().unwrap()).bytes == 100);
            drop(one);
            last(l);
        })
    };
    let done = explore(&make, &[resize, write], 2, 20_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

/// An object of a page, and spaces that map it.
struct Mapped {
    fixture: Fixture,
    object: Object,
}

impl Mapped {
    fn new() -> Mapped {
        let config = Config { thp: Thp::Never, ..Config::default() };
        let fixture = Fixture::new(2, 2048, config, MmuRules::X86_64);
        fixture.enter(0);
        let object = fixture.vm.objects().create(4096).expect("memory");
        let mapped = Mapped { fixture, object };
        mapped.add_space();
        mapped
    }

    /// Another space that maps it, and has written to it.
    fn add_space(&self) {
        let vm = &self.fixture.vm;
        let space = vm.create().expect("memory");
        let part = ObjectPart { object: &self.object, offset: 0 };
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map_object(&space, Placement::At(AT), 4096, attrs, part).expect("memory");
        vm.copy_in(&space, Va(AT.0 + 1000), &[1; 4]).expect("memory");
        self.fixture.keep(space);
    }
}

impl World for Mapped {
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32 {
        self.fixture.run_on(cpu, preempt_off)
    }

    fn check(self) {
        let Mapped { fixture, object } = self;
        let vm = &fixture.vm;
        // No script writes past the end through a mapping. Of a page the machine keeps a few bytes,
        // those from 1000 on among them, and the others stay as they are here.
        let end = vm.objects().usage(&object).bytes;
        let mut rest = vec![0; 4096 - end as usize];
        assert_eq!(vm.copy_out(&fixture.last(), Va(AT.0 + end), &mut rest), Ok(()));
        assert!(rest.iter().all(|&byte| byte == 0), "bytes past the end, which is {end}");
        vm.objects().discard(object);
        fixture.check();
    }
}

#[test]
fn a_write_beside_a_cut_leaves_nothing_past_the_end() {
    let write: Script<Mapped> = Rc::new(|l| {
        // Before the cut, or refused.
        let (done, result) = l.fixture.vm.objects().write(&l.object, 1000, &[7; 4]);
        assert!(matches!((done, result), (4, Ok(())) | (0, Err(ObjectError::Beyond))));
    });
    let cut: Script<Mapped> = Rc::new(|l| l.fixture.vm.objects().resize(&l.object, 100).unwrap());
    let done = explore(&Mapped::new, &[write, cut], 2, u64::MAX);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

#[test]
fn a_space_ends_beside_a_punch_of_what_it_maps() {
    // The space that ends comes first on the object's list, and the page stays mapped by the other
    // one until the punch comes to that.
    let make = || {
        let mapped = Mapped::new();
        mapped.add_space();
        mapped
    };
    let exit: Script<Mapped> = Rc::new(|l| l.fixture.end_last());
    let punch: Script<Mapped> =
        Rc::new(|l| l.fixture.vm.objects().punch(&l.object, 0, 4096).unwrap());
    let done = explore(&make, &[exit, punch], 2, u64::MAX);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

/// An object without a space, of whose pages each has its number in each byte that is looked at.
struct Numbered {
    fixture: Fixture,
    object: Object,
    /// Pages that have that in the end.
    stays: RefCell<Vec<(u64, u8)>>,
}

impl Numbered {
    fn new(pages: u64, object_huge: Thp) -> Numbered {
        let config = Config { thp: Thp::Never, object_huge, ..Config::default() };
        let fixture = Fixture::new(2, 2048, config, MmuRules::X86_64);
        fixture.enter(0);
        fixture.keep(fixture.vm.create().expect("memory"));
        let object = fixture.vm.objects().create(pages * 4096).expect("memory");
        let numbered = Numbered { fixture, object, stays: RefCell::default() };
        (0..2).for_each(|page| numbered.write(page, page as u8 + 1));
        numbered
    }

    fn write(&self, page: u64, byte: u8) {
        let (_, done) = self.fixture.vm.objects().write(&self.object, page * 4096, &[byte; 4]);
        done.expect("memory");
    }

    fn read(&self, page: u64) -> u8 {
        let mut bytes = [0; 4];
        let (_, done) = self.fixture.vm.objects().read(&self.object, page * 4096, &mut bytes);
        done.expect("no pager");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{bytes:?}");
        bytes[0]
    }
}

impl World for Numbered {
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32 {
        self.fixture.run_on(cpu, preempt_off)
    }

    fn check(self) {
        let stays = self.stays.borrow();
        stays.iter().for_each(|&(page, byte)| assert_eq!(self.read(page), byte, "page {page}"));
        drop(stays);
        self.fixture.vm.objects().discard(self.object);
        self.fixture.check();
    }
}

#[test]
fn a_page_that_went_is_not_read_when_its_frame_is_used_anew() {
    let read: Script<Numbered> = Rc::new(|l| {
        let byte = l.read(0);
        assert!(byte < 2, "the first page, or zeros, and not {byte}");
    });
    let punch: Script<Numbered> = Rc::new(|l| {
        l.fixture.vm.objects().punch(&l.object, 0, 4096).unwrap();
        l.write(2, 9);
    });
    let make = || {
        let numbered = Numbered::new(3, Thp::Never);
        // No frame is free: the one of the page that goes is the next one taken.
        starve(&numbered.fixture, 0);
        numbered
    };
    let done = explore(&make, &[punch, read], 2, u64::MAX);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

#[test]
fn a_page_that_a_block_replaced_is_not_read_when_its_frame_is_used_anew() {
    let read: Script<Numbered> = Rc::new(|l| assert_eq!(l.read(0), 1));
    let collapse: Script<Numbered> = Rc::new(|l| {
        assert_eq!(l.fixture.vm.objects().collapse(&l.object, 0), Ok(true));
        l.write(600, 9);
    });
    let make = || {
        let numbered = Numbered::new(1024, Thp::Never);
        // A node is there for the page to come, and no frame but those that the block replaces.
        numbered.write(601, 9);
        leave_blocks(&numbered.fixture, 1);
        numbered
    };
    let done = explore(&make, &[collapse, read], 2, 200_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

#[test]
fn a_page_of_a_block_that_is_split_is_not_taken_for_the_first_one() {
    let read: Script<Numbered> = Rc::new(|l| assert_eq!(l.read(1), 2));
    let punch: Script<Numbered> = Rc::new(|l| {
        assert_eq!(l.fixture.vm.objects().usage(&l.object).huge_pages, 1);
        l.fixture.vm.objects().punch(&l.object, 2 * 4096, 4096).unwrap();
        assert_eq!(l.fixture.vm.objects().usage(&l.object).huge_pages, 0);
    });
    let done = explore(&|| Numbered::new(512, Thp::Always), &[punch, read], 2, 200_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

#[test]
fn who_does_not_wait_for_a_page_does_not_wait_for_its_block() {
    // The one who waits keeps the page until the other is at his end.
    let is_over = Rc::new(Cell::new(false));
    let make = {
        let is_over = is_over.clone();
        move || {
            is_over.set(false);
            Numbered::new(512, Thp::Always)
        }
    };
    let never: Script<Numbered> = {
        let is_over = is_over.clone();
        Rc::new(move |l| {
            let objects = l.fixture.vm.objects();
            match objects.grab(&l.object, 0, 1, GrabWait::Never) {
                Ok(pages) => objects.release(pages, false),
                Err(error) => assert_eq!(error, ObjectError::Busy),
            }
            is_over.set(true);
        })
    };
    let keeps: Script<Numbered> = Rc::new(move |l| {
        let objects = l.fixture.vm.objects();
        let pages = objects.grab(&l.object, 0, 1, GrabWait::Always).unwrap();
        while !is_over.get() {
            pause(Stop::Wait);
        }
        objects.release(pages, false);
    });
    let done = explore(&make, &[never, keeps], 2, 20_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

/// An object that a space maps from [`AT`] on.
fn in_a_space(numbered: Numbered, pages: u64, attrs: Attrs) -> Numbered {
    let part = ObjectPart { object: &numbered.object, offset: 0 };
    let space = numbered.fixture.last();
    let mapped =
        numbered.fixture.vm.map_object(&space, Placement::At(AT), pages * 4096, attrs, part);
    assert_eq!(mapped, Ok(AT));
    drop(space);
    numbered
}

#[test]
fn two_that_touch_one_block_make_one() {
    let make = || {
        let config = Config { thp: Thp::Never, object_huge: Thp::Always, ..Config::default() };
        let fixture = Fixture::new(2, 2048, config, MmuRules::X86_64);
        fixture.enter(0);
        fixture.keep(fixture.vm.create().expect("memory"));
        let object = fixture.vm.objects().create(512 * 4096).expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let numbered =
            in_a_space(Numbered { fixture, object, stays: RefCell::default() }, 512, attrs);
        // One block for each is left, and some single frames.
        (0..4).for_each(|_| numbered.fixture.take(9));
        (0..2).for_each(|_| numbered.fixture.give(0));
        numbered
    };
    let touch = |page: u64| -> Script<Numbered> {
        Rc::new(move |l| {
            let space = l.fixture.last();
            l.fixture.vm.copy_in(&space, Va(AT.0 + page * 4096), &[7; 4]).unwrap();
            l.stays.borrow_mut().push((page, 7));
            assert_eq!(l.fixture.vm.objects().usage(&l.object).huge_pages, 1);
        })
    };
    let done = explore(&make, &[touch(0), touch(1)], 2, 20_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

/// One whose space gives no rights to the pages in the end.
struct Hidden(Numbered);

impl World for Hidden {
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32 {
        self.0.run_on(cpu, preempt_off)
    }

    fn check(self) {
        let fixture = &self.0.fixture;
        fixture.vm.activate(&fixture.last());
        for page in 0..2 {
            let loaded = fixture.vm.machine().load(Va(AT.0 + page * 4096));
            assert!(loaded.is_err(), "a program reads page {page}, which its region forbids");
        }
        self.0.check();
    }
}

#[test]
fn a_region_without_rights_gets_no_entries_around_a_fault() {
    let attrs = Attrs { thp: Some(HugeAdvice::NoHuge), ..Attrs::anonymous(Rights::READ) };
    // The pages are of a block, so what is around one is mapped after it. Their table is there and
    // lists no region, so the rights change while the fault has its lock.
    let make = || {
        let numbered = in_a_space(Numbered::new(512, Thp::Always), 512, attrs);
        let (far, space) = (Va(AT.0 + 100 * 4096), numbered.fixture.last());
        numbered.fixture.vm.fault(&space, far, Access::Read).expect("memory");
        drop(space);
        Hidden(numbered)
    };
    let read: Script<Hidden> = Rc::new(|Hidden(l)| {
        let _ = l.fixture.vm.fault(&l.fixture.last(), AT, Access::Read);
    });
    let protect: Script<Hidden> = Rc::new(|Hidden(l)| {
        let space = l.fixture.last();
        l.fixture.vm.protect(&space, AT, 512 * 4096, Rights::NONE).unwrap();
    });
    let done = explore(&make, &[read, protect], 2, 40_000);
    println!("{done:?}");
    assert!(done.schedules > 10);
}

#[test]
fn a_fork_beside_a_harvest_leaves_no_right_to_write_unnoticed() {
    // A space alone, or one of a family: what that maps is its own until it forks, too.
    let make = |is_child: bool| {
        let config = Config { thp: Thp::Never, ..Config::default() };
        let fixture = Fixture::new(2, 2048, config, MmuRules::X86_64);
        fixture.enter(0);
        fixture.keep(fixture.vm.create().expect("memory"));
        if is_child {
            let child = fixture.vm.fork(&fixture.last()).expect("memory");
            fixture.keep(child);
        }
        let object = fixture.vm.objects().create_logged(4096).expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let numbered = Numbered { fixture, object, stays: RefCell::default() };
        let numbered = in_a_space(numbered, 1, attrs);
        numbered.fixture.vm.copy_in(&numbered.fixture.last(), AT, &[1; 4]).expect("memory");
        numbered
    };
    let fork: Script<Numbered> = Rc::new(|l| {
        let child = l.fixture.vm.fork(&l.fixture.last()).unwrap();
        l.fixture.keep(child);
    });
    let harvest: Script<Numbered> = Rc::new(|l| {
        assert_eq!(l.fixture.vm.objects().harvest(&l.object, 0, &mut [0; 2]), Ok(1));
    });
    for is_child in [false, true] {
        let make = || make(is_child);
        let done = explore(&make, &[fork.clone(), harvest.clone()], 2, u64::MAX);
        println!("{done:?}");
        assert!(done.schedules > 10);
    }
}
