//! Objects whose size may not change.

use std::cell::Cell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

const SHRINK: Seals = Seals { shrink: true, grow: false };
const GROW: Seals = Seals { shrink: false, grow: true };

on_both!(sealed, a_sealed_size_stays_and_nothing_else_does);

fn sealed<C: Arch>() {
    let fx = fixture_of::<C>(1, 1024, Config::default());
    let objects = fx.vm.objects();
    let object = fx.object(4 * KIB4 + 100);
    let space = fx.with_object(AT, 8 * KIB4, &object);
    (0..5).for_each(|n| fx.poke(&space, page_at(n), n + 1).unwrap());
    // Past the end, which a resize that is refused does not clear.
    fx.poke(&space, Va(page_at(4).0 + 200), 77).unwrap();
    let refused = |bytes| {
        let before = (objects.usage(&object), fx.state(&[&space]));
        assert_eq!(objects.resize(&object, bytes), Err(ObjectError::Sealed), "{bytes:#x} bytes");
        assert_eq!(objects.usage(&object), before.0);
        assert_same(&before.1, &fx.state(&[&space]), "a resize against a seal");
    };
    assert_eq!(objects.usage(&object).seals, Seals::default());
    objects.seal(&object, Seals::default());
    assert_eq!(objects.resize(&object, 4 * KIB4 + 96), Ok(()));
    assert_eq!(objects.resize(&object, 4 * KIB4 + 100), Ok(()));
    fx.poke(&space, Va(page_at(4).0 + 200), 77).unwrap();
    objects.seal(&object, SHRINK);
    assert_eq!(objects.usage(&object).seals, SHRINK);
    [0, KIB4, 4 * KIB4 + 99].into_iter().for_each(refused);
    assert_eq!(fx.peek(&space, Va(page_at(4).0 + 200)), Ok(77));
    // As long as it is, and longer; nothing takes the seal away.
    assert_eq!(objects.resize(&object, 4 * KIB4 + 100), Ok(()));
    assert_eq!(objects.resize(&object, 6 * KIB4), Ok(()));
    objects.seal(&object, Seals::default());
    refused(6 * KIB4 - 1);
    objects.seal(&object, GROW);
    assert_eq!(objects.usage(&object).seals, Seals { shrink: true, grow: true });
    [0, 6 * KIB4 - 1, 6 * KIB4 + 1, !(KIB4 - 1)].into_iter().for_each(refused);
    assert_eq!(objects.resize(&object, u64::MAX), Err(ObjectError::Size));
    assert_eq!(objects.resize(&object, 6 * KIB4), Ok(()));
    assert_eq!(fx.peek(&space, page_at(6)), Err(FaultError::Beyond));
    // The contents are not sealed.
    assert_eq!(objects.write(&object, 5 * KIB4, &[9; 8]), (8, Ok(())));
    objects.punch(&object, 0, 2 * KIB4).unwrap();
    assert_eq!((fx.peek(&space, AT), fx.peek(&space, page_at(2))), (Ok(0), Ok(3)));
    assert_eq!(objects.usage(&object).pages, 5);
    fx.check(&[&space]);
    objects.discard(object);
    fx.end([space]);
}

#[test]
fn an_object_that_may_not_grow_may_become_shorter() {
    let fx = fixture(1024, Config::default());
    let (objects, object, empty) = (fx.vm.objects(), fx.object(2 * KIB4), fx.object(0));
    objects.seal(&empty, GROW);
    assert_eq!(objects.resize(&empty, 0), Ok(()));
    assert_eq!(objects.resize(&empty, 1), Err(ObjectError::Sealed));
    objects.seal(&object, GROW);
    assert_eq!(objects.resize(&object, 2 * KIB4 + 1), Err(ObjectError::Sealed));
    assert_eq!(objects.resize(&object, KIB4), Ok(()));
    assert_eq!(objects.resize(&object, 2 * KIB4), Err(ObjectError::Sealed), "what it had before");
    assert_eq!(objects.usage(&object).bytes, KIB4);
    objects.discard(object);
    objects.discard(empty);
    fx.check(&[]);
}

struct Resized {
    fx: Fixture,
    object: Object,
    /// The size when the seals were there.
    sealed: Cell<u64>,
    done: Cell<Result<(), ObjectError>>,
}

impl Resized {
    fn new() -> Rc<Resized> {
        let fx = fixture(1024, Config::default());
        let object = fx.object(5 * KIB4 + 100);
        assert_eq!(fx.vm.objects().write(&object, 4 * KIB4, &[1; PAGE_SIZE + 9]).1, Ok(()));
        Rc::new(Resized { fx, object, sealed: Cell::new(0), done: Cell::new(Ok(())) })
    }

    fn resize(&self, bytes: u64) {
        self.done.set(self.fx.vm.objects().resize(&self.object, bytes));
    }

    fn seal(&self) {
        self.fx.vm.objects().seal(&self.object, Seals { shrink: true, grow: true });
        self.sealed.set(self.bytes());
    }

    fn bytes(&self) -> u64 {
        self.fx.vm.objects().usage(&self.object).bytes
    }

    /// The size is what it was when the seals were there, and the resize told the truth.
    fn check(self, bytes: u64) {
        assert_eq!(self.bytes(), self.sealed.get(), "it changed after the seal");
        let wanted = if self.bytes() == bytes { Ok(()) } else { Err(ObjectError::Sealed) };
        assert_eq!(self.done.get(), wanted);
        self.fx.vm.objects().discard(self.object);
        self.fx.check(&[]);
    }
}

#[test]
fn a_size_does_not_change_once_a_seal_is_there() {
    const SHORTER: u64 = 4 * KIB4 + 8;
    const LONGER: u64 = 9 * KIB4;
    // One of them waits for the other, except before its first step.
    let places = [
        at_every_step(Resized::new, |r| r.resize(SHORTER), Resized::seal, |r| r.check(SHORTER)),
        at_every_step(Resized::new, |r| r.resize(LONGER), Resized::seal, |r| r.check(LONGER)),
        at_every_step(Resized::new, Resized::seal, |r| r.resize(SHORTER), |r| r.check(SHORTER)),
        at_every_step(Resized::new, Resized::seal, |r| r.resize(LONGER), |r| r.check(LONGER)),
    ];
    assert!(places.iter().all(|&n| n > 0), "{places:?}");
}
