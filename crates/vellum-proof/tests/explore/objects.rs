//! Objects: what a program may count on while others change one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::machine::MmuRules;
use vellum::space::{Attrs, Placement, Rights};
use vellum::vm::{Object, ObjectPart};
use vellum_proof::explore::worlds::{AT, Fixture};
use vellum_proof::explore::{Script, explore};

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
                assert_eq!(l.vm.objects().read(&object, 1000, &mut byte), 4);
                println!("OUT before={} byte={byte:?}", before.get());
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
