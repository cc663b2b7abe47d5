//! Objects without memory: what fails has changed nothing.

use vellum_testkit::prelude::*;

/// Does `act` with 0, 1, 2 ... frames left, until it succeeds; each failure must leave all as it
/// was.
pub fn each_allocation_fails(
    fx: &Fixture,
    spaces: &[&Space],
    mut act: impl FnMut() -> Result<(), String>,
) {
    for left in 0.. {
        let taken = fx.take_all_but(left, Order::BASE);
        let before = fx.state(spaces);
        let done = act();
        if done.is_err() {
            assert_same(&before, &fx.state(spaces), format_args!("{left} frames left"));
        }
        fx.give_back(taken, Order::BASE);
        match done {
            Ok(()) => return assert!(left > 0, "it takes no memory"),
            Err(error) => assert_eq!(error, "out of physical memory"),
        }
    }
}

#[test]
fn making_mapping_and_filling_an_object_fail_as_a_whole() {
    let fx = fixture(600, no_thp());
    let space = fx.mapped(Va(GIB * 64), KIB4, RW);
    let mut object = None;
    each_allocation_fails(&fx, &[&space], || {
        let made = fx.vm.objects().create(MIB2).map_err(|error| error.to_string());
        made.map(|made| object = Some(made))
    });
    let object = object.unwrap();
    let part = ObjectPart { object: &object, offset: 0 };
    each_allocation_fails(&fx, &[&space], || {
        let at = Placement::At(Va(GIB * 200 + 5 * KIB4));
        let mapped = fx.vm.map_object(&space, at, MIB2, RW, part);
        mapped.map(drop).map_err(|error| error.to_string())
    });
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.fault(&space, Va(GIB * 200 + 6 * KIB4), Access::Write);
        done.map(drop).map_err(|error| error.to_string())
    });
    each_allocation_fails(&fx, &[&space], || {
        let (_, done) = fx.vm.objects().write(&object, 40 * KIB4, &[1; 8]);
        done.map_err(|error| error.to_string())
    });
    each_allocation_fails(&fx, &[&space], || {
        let (from, to) = (Va(GIB * 200 + 5 * KIB4), Placement::At(Va(GIB * 300)));
        let moved = fx.vm.remap(&space, from, MIB2, MIB2, to);
        moved.map(drop).map_err(|error| error.to_string())
    });
    let mut child = None;
    each_allocation_fails(&fx, &[&space], || {
        let forked = fx.vm.fork(&space).map_err(|error| error.to_string());
        forked.map(|forked| child = Some(forked))
    });
    let child = child.unwrap();
    each_allocation_fails(&fx, &[&space, &child], || {
        let done = fx.vm.poison(&child, Va(GIB * 300 + KIB4));
        done.map_err(|error| error.to_string())
    });
    assert_eq!(fx.peek(&space, Va(GIB * 300 + 40 * KIB4)), Ok(u64::from_le_bytes([1; 8])));
    fx.vm.objects().discard(object);
    fx.end([space, child]);
}

#[test]
fn a_fault_that_finds_no_memory_for_its_tables_leaves_no_page_in_the_object() {
    let fx = fixture(600, no_thp());
    let space = fx.mapped(Va(GIB * 64), KIB4, RW);
    let object = fx.object(MIB2);
    // No table is there but the root's.
    fx.map_object(&space, Va(GIB * 200), MIB2, &object);
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.fault(&space, Va(GIB * 200), Access::Write);
        done.map(drop).map_err(|error| error.to_string())
    });
    assert_eq!(fx.vm.objects().usage(&object).pages, 1);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn c_5_a_fault_that_finds_no_node_gives_its_page_back() {
    for alloc_cursor in [true, false] {
        let fx = fixture(600, Config { alloc_cursor, ..no_thp() });
        let object = fx.object(MIB2);
        let space = fx.with_object(AT, MIB2, &object);
        // The trie of one page has no node. The table is there from here on.
        assert_eq!(fx.poke(&space, page_at(1), 7), Ok(()));
        assert_eq!(fx.count(Counter::ObjectNodes), 0);
        each_allocation_fails(&fx, &[&space], || {
            let done = fx.vm.fault(&space, page_at(9), Access::Write);
            done.map(drop).map_err(|error| error.to_string())
        });
        assert_eq!((fx.count(Counter::ObjectNodes), fx.peek(&space, page_at(1))), (1, Ok(7)));
        fx.vm.objects().discard(object);
        fx.end([space]);
    }
}

#[test]
fn pages_of_objects_leave_the_minimum_to_tables() {
    let fx = fixture_of::<X86_64>(1, 1 << 15, Config::default());
    let min = fx.vm.frames().watermarks(0).min;
    let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    let object = fx.object(GIB);
    fx.map_object(&space, Va(16 * GIB), GIB, &object);
    let mut at = (16 * GIB..).step_by(KIB4 as usize);
    while fx.vm.fault(&space, Va(at.next().unwrap()), Access::Write).is_ok() {}
    assert!(fx.vm.frames().free_frames(0) + 8 >= min, "the minimum but for a few tables");
    let unmapped = fx.vm.unmap(&space, Va(GIB + 5 * KIB4), KIB4);
    assert_eq!(unmapped, Ok(()), "a cut that gives memory back, and takes a table");
}
