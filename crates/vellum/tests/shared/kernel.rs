//! Memory of the kernel's own, which no space maps.

use vellum_testkit::prelude::*;

#[test]
fn pages_are_made_where_they_are_missing_and_keep_their_frames() {
    let fx = fixture(4096, Config::default());
    let (objects, space) = (fx.vm.objects(), fx.vm.create().unwrap());
    let object = objects.create_kernel(100 * KIB4 + 5).unwrap();
    let back = |page: u64, count: usize| {
        let mut frames = vec![Pfn(0); count];
        let (told, done) = objects.back(&object, page * KIB4, NumaPolicy::Local, &mut frames);
        frames.truncate(told);
        (frames, done)
    };
    let (frames, done) = back(3, 70);
    assert_eq!((frames.len(), done), (70, Ok(())));
    let usage = objects.usage(&object);
    assert_eq!((usage.pages, fx.count(Counter::KernelPages)), (70, 70));
    assert_eq!([Counter::ShmemPages, Counter::FilePages].map(|counter| fx.count(counter)), [0; 2]);
    // What the kernel writes is the object's.
    // SAFETY: the page is the kernel's.
    unsafe { fx.m().write(frames[9], 8, &[7]) };
    let mut bytes = [1; 2];
    assert_eq!(objects.read(&object, 12 * KIB4 + 8, &mut bytes), (2, Ok(())));
    assert_eq!(bytes, [7, 0]);
    // Once more, and others around.
    let (more, done) = back(0, 200);
    assert_eq!((more.len(), done), (101, Err(ObjectError::Beyond)));
    assert_eq!(more[3..73], frames);
    // Nothing moves them, nobody maps them.
    assert_eq!(objects.resize(&object, 4 * MIB2), Ok(()));
    assert_eq!(objects.collapse(&object, 0), Ok(false));
    let part = ObjectPart { object: &object, offset: 0 };
    for at in [Placement::At(AT), Placement::Anywhere] {
        assert_eq!(fx.vm.map_object(&space, at, KIB4, RW, part), Err(SpaceError::Kernel));
        assert_eq!(fx.vm.map_private(&space, at, KIB4, RW, part), Err(SpaceError::Kernel));
    }
    // A part goes, and comes as zeros.
    assert_eq!(objects.punch(&object, 10 * KIB4, 5 * KIB4), Ok(()));
    assert_eq!(objects.usage(&object).pages, 96);
    let (again, _) = back(9, 7);
    assert_eq!([again[0], again[6]], [more[9], more[15]]);
    assert_eq!(objects.read(&object, 12 * KIB4 + 8, &mut bytes), (2, Ok(())));
    assert_eq!(bytes, [0, 0]);
    let other = fx.object(KIB4);
    let refused = objects.back(&other, 0, NumaPolicy::Local, &mut [Pfn(0)]);
    assert_eq!(refused, (0, Err(ObjectError::NotKernel)));
    objects.discard(other);
    fx.check(&[&space]);
    objects.discard(object);
    assert_eq!(fx.count(Counter::KernelPages), 0);
    fx.end([space]);
}

#[test]
fn without_memory_the_pages_before_are_there() {
    let fx = fixture(1024, Config::default());
    let (objects, mut frames) = (fx.vm.objects(), [Pfn(0); 40]);
    let object = objects.create_kernel(40 * KIB4).unwrap();
    for left in 0.. {
        let taken = fx.take_all_but(left, Order::BASE);
        let (told, done) = objects.back(&object, 0, NumaPolicy::Local, &mut frames);
        fx.vm.audit(&[]).unwrap_or_else(|e| panic!("{left} left: {e}"));
        let pages = objects.usage(&object).pages;
        assert!((told as u64..=told as u64 + 1).contains(&pages), "{told} told, {pages} there");
        fx.give_back(taken, Order::BASE);
        if done == Ok(()) {
            assert_eq!((told, left > 30), (40, true));
            break;
        }
        assert_eq!(done, Err(ObjectError::NoMemory));
        objects.punch(&object, 0, 40 * KIB4).unwrap();
    }
    objects.discard(object);
    fx.check(&[]);
}
