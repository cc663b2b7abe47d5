//! Verbs on an object beside faults on its pages, of which none takes the object's guard. As in
//! `verbs`, with one preemption.

use crate::fixture::{Memory, model, race};
use crate::machine::Machine;
use crate::machines::{BYTES, Metal, PAGE};
use crate::object::{GrabWait, Object, ObjectPart};
use crate::space::{Access, Attrs, Page, Placement, Rights, Space};
use crate::vm::Vm;

/// A machine, and a space that maps an object of one page.
struct Fixture {
    vm: Vm<Metal>,
    object: Object,
    space: Space,
}

impl Fixture {
    /// `logged`: writes are logged; `present`: the page is there, but not mapped.
    fn with(logged: bool, present: bool) -> impl FnOnce(&mut Memory) -> Fixture {
        move |memory| {
            let vm = Metal::vm(memory, 1024, false);
            let objects = vm.objects();
            let object = match logged {
                true => objects.create_logged(BYTES),
                false => objects.create(BYTES),
            };
            let object = object.expect("memory");
            let space = vm.create().expect("memory");
            let attrs = Attrs::anonymous(Rights::READ_WRITE);
            let part = ObjectPart { object: &object, offset: 0 };
            vm.map_object(&space, Placement::At(PAGE), BYTES, attrs, part).expect("a hole");
            if present {
                vm.objects().grab(&object, 0, 1, GrabWait::Never).map_or_else(
                    |error| panic!("{error:?}"),
                    |page| vm.objects().release(page, false),
                );
            }
            Fixture { vm, object, space }
        }
    }

    fn fault(&self, access: Access) {
        self.vm.fault(&self.space, PAGE, access).expect("memory");
    }

    /// Nothing is lost, and the object has so many pages; says whether the space maps one.
    fn check(&self, pages: u64) -> bool {
        // SAFETY: one thread is left.
        let audit = unsafe { self.vm.validate(&[&self.space]) }.expect("a valid state");
        assert_eq!((audit.object_frames, audit.other_frames), (pages, 0), "{audit:?}");
        matches!(self.vm.query(&self.space, PAGE), Page::Mapped { .. })
    }
}

#[test]
fn two_faults_make_one_page() {
    model(1, Fixture::with(false, false), |f| {
        race(|| f.fault(Access::Write), || f.fault(Access::Read));
        assert!(f.check(1));
    });
}

#[test]
fn a_page_that_goes_is_mapped_by_nobody() {
    model(1, Fixture::with(false, true), |f| {
        race(
            || f.vm.objects().punch(&f.object, 0, BYTES).expect("a hole"),
            || {
                f.fault(Access::Read);
            },
        );
        // Where the fault came later it has made another one.
        let pages = f.vm.objects().usage(&f.object).pages;
        assert_eq!(f.check(pages), pages == 1);
    });
}

#[test]
fn what_is_written_is_harvested_then_or_later() {
    model(1, Fixture::with(true, true), |f| {
        let harvest = || f.vm.objects().harvest(&f.object, 0, &mut [0]).expect("a logged object");
        let write = || f.vm.objects().write(&f.object, 8, &[7]);
        let (told, wrote) = race(harvest, write);
        assert_eq!(wrote, (1, Ok(())));
        let left = f.vm.objects().usage(&f.object).dirty_pages;
        assert!(told as u64 + left >= 1, "told {told}, left {left}");
        f.check(1);
    });
}

#[test]
fn an_entry_that_may_be_written_is_of_a_page_that_counts_as_written() {
    model(1, Fixture::with(true, true), |f| {
        let harvest = || f.vm.objects().harvest(&f.object, 0, &mut [0]).expect("a logged object");
        race(harvest, || f.fault(Access::Write));
        // Which `validate` looks at.
        f.check(1);
    });
}

#[test]
fn a_page_that_is_grabbed_is_read_by_nobody_else() {
    model(1, Fixture::with(false, true), |f| {
        let grab = || {
            let objects = f.vm.objects();
            let page = objects.grab(&f.object, 0, 1, GrabWait::Always).expect("a page");
            // SAFETY: the page is this thread's alone.
            unsafe { f.vm.machine().write(page.frames()[0], 0, &[7]) };
            objects.release(page, true);
        };
        race(grab, || f.vm.objects().read(&f.object, 0, &mut [0]).0);
        f.check(1);
    });
}
