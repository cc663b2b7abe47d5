//! A fault that has tables in hand while the tables it found go, and come back for other levels.

use std::rc::Rc;

use vellum_testkit::prelude::*;

/// Its slots at levels 2 and 3 are the same.
const FAULT: Va = Va(GIB + MIB2);

struct Mapped<C: Arch> {
    fx: Fixture<C>,
    object: Object,
    space: Space,
}

impl<C: Arch> Mapped<C> {
    /// An object of 1 GiB, of which a space maps 2 MiB.
    fn new(object_huge: Thp) -> Rc<Self> {
        let fx = fixture_of::<C>(2, 4096, Config { object_huge, ..no_thp() });
        let mapped = Mapped { object: fx.object(GIB), space: fx.vm.create().unwrap(), fx };
        mapped.map(FAULT, MIB2, MIB2);
        Rc::new(mapped)
    }

    fn map(&self, at: Va, bytes: u64, offset: u64) {
        let part = ObjectPart { object: &self.object, offset };
        let mapped = self.fx.vm.map_object(&self.space, Placement::At(at), bytes, RW, part);
        assert_eq!(mapped, Ok(at));
    }
}

on_both!(other_level, a_table_that_comes_back_at_another_level_gets_no_path_made_before);

fn other_level<C: Arch>() {
    for object_huge in [Thp::Never, Thp::Always] {
        let places = at_every_step(
            || Mapped::<C>::new(object_huge),
            |mapped| {
                let _ = mapped.fx.vm.fault(&mapped.space, FAULT, Access::Write);
            },
            // The same page of the object is at the same address again.
            |mapped| {
                mapped.fx.vm.unmap(&mapped.space, FAULT, MIB2).unwrap();
                mapped.map(Va(GIB), GIB, 0);
            },
            |Mapped { fx, object, space }| {
                fx.check(&[&space]);
                fx.poke(&space, FAULT, 7).unwrap();
                assert_eq!(fx.peek(&space, FAULT), Ok(7));
                fx.check(&[&space]);
                fx.vm.objects().discard(object);
                fx.end([space]);
            },
        );
        assert!(places >= 5, "{places}");
    }
}
