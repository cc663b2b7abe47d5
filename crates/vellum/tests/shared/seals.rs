//! Objects whose size may not change, or whose contents.

use std::cell::Cell;
use std::rc::Rc;

use vellum_testkit::prelude::*;

const SHRINK: Seals = Seals { shrink: true, grow: false, write: false };
const BOTH: Seals = Seals { shrink: true, grow: true, write: false };
const WRITE: Seals = Seals { shrink: false, grow: false, write: true };
const GROW: Seals = Seals { shrink: false, grow: true, write: false };

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
    objects.seal(&object, Seals::default()).unwrap();
    assert_eq!(objects.resize(&object, 4 * KIB4 + 96), Ok(()));
    assert_eq!(objects.resize(&object, 4 * KIB4 + 100), Ok(()));
    fx.poke(&space, Va(page_at(4).0 + 200), 77).unwrap();
    objects.seal(&object, SHRINK).unwrap();
    assert_eq!(objects.usage(&object).seals, SHRINK);
    [0, KIB4, 4 * KIB4 + 99].into_iter().for_each(refused);
    assert_eq!(fx.peek(&space, Va(page_at(4).0 + 200)), Ok(77));
    // As long as it is, and longer; nothing takes the seal away.
    assert_eq!(objects.resize(&object, 4 * KIB4 + 100), Ok(()));
    assert_eq!(objects.resize(&object, 6 * KIB4), Ok(()));
    objects.seal(&object, Seals::default()).unwrap();
    refused(6 * KIB4 - 1);
    objects.seal(&object, GROW).unwrap();
    assert_eq!(objects.usage(&object).seals, BOTH);
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
    objects.seal(&empty, GROW).unwrap();
    assert_eq!(objects.resize(&empty, 0), Ok(()));
    assert_eq!(objects.resize(&empty, 1), Err(ObjectError::Sealed));
    objects.seal(&object, GROW).unwrap();
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
        self.fx.vm.objects().seal(&self.object, BOTH).unwrap();
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

on_both!(contents, sealed_contents_stay_and_are_mapped_to_be_read_alone);

fn contents<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, Config::default());
    let objects = fx.vm.objects();
    for logged in [false, true] {
        let object = match logged {
            true => objects.create_logged(9 * KIB4).unwrap(),
            false => fx.object(9 * KIB4),
        };
        let space = fx.with_object(AT, 9 * KIB4, &object);
        (0..8).for_each(|n| fx.poke(&space, page_at(n), n + 1).unwrap());
        let child = fx.vm.fork(&space).unwrap();
        let refused = |why: &str| {
            assert_eq!(objects.seal(&object, WRITE), Err(ObjectError::Busy), "{why}");
            assert_eq!(objects.usage(&object).seals, Seals::default());
        };
        refused("two spaces may write");
        fx.vm.protect(&space, AT, 9 * KIB4, Rights::READ).unwrap();
        refused("the child may");
        fx.vm.unmap(&child, AT, 4 * KIB4).unwrap();
        fx.vm.remap(&child, page_at(4), 5 * KIB4, 5 * KIB4, Placement::At(page_at(40))).unwrap();
        refused("it may write to a part, elsewhere");
        fx.vm.exit(child);
        fx.check(&[&space]);
        assert_eq!(objects.seal(&object, WRITE), Ok(()));
        assert_eq!(objects.seal(&object, WRITE), Ok(()), "once more");
        assert_eq!(objects.usage(&object).seals, WRITE);
        // By no call, and by no mapping.
        assert_eq!(objects.write(&object, KIB4, &[7]), (0, Err(ObjectError::Sealed)));
        assert_eq!(objects.punch(&object, KIB4, KIB4), Err(ObjectError::Sealed));
        let before = fx.state(&[&space]);
        let protected = fx.vm.protect(&space, AT, KIB4, Rights::READ_WRITE);
        assert_eq!(protected, Err(SpaceError::Rights));
        let part = ObjectPart { object: &object, offset: 0 };
        let at = Placement::At(page_at(40));
        let mapped = fx.vm.map_object(&space, at, KIB4, RW, part);
        assert_eq!(mapped, Err(SpaceError::Rights));
        assert_same(&before, &fx.state(&[&space]), "what a seal refused");
        assert_eq!(fx.poke(&space, AT, 9), Err(FaultError::Rights));
        let forced = fx.vm.write_forced(&space, AT, &[9]);
        assert_eq!(forced, Err(FaultError::Rights));
        // What is read, copied, grown and moved is as before.
        let read = Attrs { rights: Rights::READ, ..RW };
        assert_eq!(fx.vm.map_object(&space, at, KIB4, read, part), Ok(page_at(40)));
        let view = Placement::At(page_at(60));
        assert_eq!(fx.vm.map_private(&space, view, KIB4, RW, part), Ok(page_at(60)));
        fx.poke(&space, page_at(60), 99).unwrap();
        assert_eq!(objects.resize(&object, 10 * KIB4), Ok(()));
        let to = Placement::At(page_at(80));
        fx.vm.remap(&space, page_at(40), KIB4, 2 * KIB4, to).unwrap();
        let child = fx.vm.fork(&space).unwrap();
        assert_eq!(
            [AT, page_at(60), page_at(80)].map(|va| fx.peek(&child, va)),
            [Ok(1), Ok(99), Ok(1)]
        );
        assert_eq!((fx.peek(&space, page_at(7)), fx.peek(&space, page_at(81))), (Ok(8), Ok(2)));
        assert_eq!(fx.vm.poison(&space, page_at(7)), Ok(()));
        assert_eq!(fx.peek(&child, page_at(7)), Ok(8));
        fx.check(&[&space, &child]);
        objects.discard(object);
        [space, child].into_iter().for_each(|space| fx.vm.exit(space));
    }
    fx.check(&[]);
}

/// What happens beside a seal of contents.
struct Beside {
    fx: Fixture,
    object: Object,
    space: Space,
    /// Page 1 when the seal was there.
    word: Cell<Option<u64>>,
}

impl Beside {
    fn new() -> Rc<Beside> {
        let fx = fixture(1024, Config::default());
        let (object, space) = (fx.object(5 * KIB4), fx.vm.create().unwrap());
        Rc::new(Beside { fx, object, space, word: Cell::new(None) })
    }

    fn word(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fx.vm.objects().read(&self.object, KIB4, &mut bytes).1.unwrap();
        u64::from_le_bytes(bytes)
    }

    fn seal(&self) {
        match self.fx.vm.objects().seal(&self.object, WRITE) {
            Ok(()) => self.word.set(Some(self.word())),
            error => assert_eq!(error, Err(ObjectError::Busy)),
        }
    }

    fn map(&self) {
        let (part, vm) = (ObjectPart { object: &self.object, offset: 0 }, &self.fx.vm);
        match vm.map_object(&self.space, Placement::At(AT), 5 * KIB4, RW, part) {
            Ok(_) => self.fx.poke(&self.space, page_at(1), 7).unwrap(),
            error => assert_eq!(error, Err(SpaceError::Rights)),
        }
    }

    fn protect(&self) {
        match self.fx.vm.protect(&self.space, AT, 5 * KIB4, Rights::READ_WRITE) {
            Ok(()) => self.fx.poke(&self.space, page_at(1), 7).unwrap(),
            error => assert_eq!(error, Err(SpaceError::Rights)),
        }
    }

    fn check(self) {
        let sealed = self.fx.vm.objects().usage(&self.object).seals.write;
        assert_eq!(sealed, self.word.get().is_some());
        assert!(self.word.get().is_none_or(|word| word == self.word()), "it changed");
        self.fx.check(&[&self.space]);
    }
}

#[test]
fn contents_do_not_change_once_a_seal_is_there() {
    let read = Attrs { rights: Rights::READ, ..RW };
    let mapped = || {
        let b = Beside::new();
        let part = ObjectPart { object: &b.object, offset: 0 };
        b.fx.vm.map_object(&b.space, Placement::At(AT), 5 * KIB4, read, part).unwrap();
        b
    };
    let written = || {
        let b = Beside::new();
        assert_eq!(b.fx.vm.objects().write(&b.object, KIB4, &[5; 8]), (8, Ok(())));
        b
    };
    let write = |b: &Beside| _ = b.fx.vm.objects().write(&b.object, KIB4, &[9; 8]);
    let writes: fn(&Beside) = |b| _ = b.fx.vm.objects().write(&b.object, KIB4, &[9; 8]);
    let places = [
        at_every_step(Beside::new, Beside::map, Beside::seal, Beside::check),
        at_every_step(Beside::new, Beside::seal, Beside::map, Beside::check),
        at_every_step(mapped, Beside::protect, Beside::seal, Beside::check),
        at_every_step(mapped, Beside::seal, Beside::protect, Beside::check),
        at_every_step(Beside::new, write, Beside::seal, Beside::check),
        at_every_step(written, write, Beside::seal, Beside::check),
        at_every_step(Beside::new, Beside::seal, writes, Beside::check),
    ];
    assert!(places.iter().all(|&n| n > 0), "{places:?}");
}

/// A space and its child that may write, and a CPU that ends the child and seals.
struct Family {
    beside: Beside,
    child: Cell<Option<Space>>,
}

#[test]
fn contents_are_not_sealed_before_a_protect_has_taken_the_right_to_write() {
    let make = || {
        let beside = Rc::into_inner(Beside::new()).unwrap();
        beside.map();
        let child = Cell::new(Some(beside.fx.vm.fork(&beside.space).unwrap()));
        Rc::new(Family { beside, child })
    };
    let protect = |f: &Family| {
        f.beside.fx.vm.protect(&f.beside.space, AT, 5 * KIB4, Rights::READ).unwrap();
    };
    let act: fn(&Family) = |f| {
        f.child.take().into_iter().for_each(|child| f.beside.fx.vm.exit(child));
        f.beside.seal();
        // By the entry that is there.
        _ = f.beside.fx.vm.copy_in(&f.beside.space, page_at(1), &[8; 8]);
    };
    let places = at_every_step(make, protect, act, |f| f.beside.check());
    assert!(places > 3, "{places} places");
}
