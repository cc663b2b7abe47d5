//! Reading and writing an object without a mapping, and beside one.

use vellum_testkit::prelude::*;

on_both!(written_is_read, what_is_written_to_an_object_is_read_through_every_mapping);

fn written_is_read<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, Config::default());
    let object = fx.object(4 * MIB2);
    let objects = fx.vm.objects();
    let (one, two) = (
        fx.with_object(AT, 4 * MIB2, &object),
        fx.with_object(Va(AT.0 + 77 * KIB4), 4 * MIB2, &object),
    );
    // Across a page boundary, and the last bytes.
    for (n, offset) in [KIB4 - 3, 5 * KIB4, MIB2 - 4, 4 * MIB2 - 8].into_iter().enumerate() {
        let bytes = [n as u8 + 1; 8];
        assert_eq!(objects.write(&object, offset, &bytes), (8, Ok(())));
        let mut read = [0; 8];
        assert_eq!(objects.read(&object, offset, &mut read), (8, Ok(())));
        assert_eq!(read, bytes);
        for (space, at) in [(&one, AT), (&two, Va(AT.0 + 77 * KIB4))] {
            let mut seen = [0; 8];
            assert_eq!(fx.vm.copy_out(space, Va(at.0 + offset), &mut seen), Ok(()));
            assert_eq!(seen, bytes, "offset {offset:#x}");
        }
    }
    // And back: what a program writes the object has, and the other space.
    fx.poke(&two, Va(AT.0 + 77 * KIB4 + 9 * KIB4), 99).unwrap();
    let mut read = [0; 8];
    assert_eq!(objects.read(&object, 9 * KIB4, &mut read), (8, Ok(())));
    assert_eq!(u64::from_le_bytes(read), 99);
    assert_eq!(fx.peek(&one, Va(AT.0 + 9 * KIB4)), Ok(99));
    assert_eq!(fx.frame(&one, Va(AT.0 + 9 * KIB4)), fx.frame(&two, Va(AT.0 + 86 * KIB4)));
    fx.check(&[&one, &two]);
    fx.vm.objects().discard(object);
    fx.end([one, two]);
}

#[test]
fn reads_end_at_the_objects_end_and_make_no_page() {
    let fx = fixture(1024, Config::default());
    let object = fx.object(3 * KIB4 + 100);
    let objects = fx.vm.objects();
    let mut bytes = [7; 300];
    assert_eq!(objects.read(&object, 3 * KIB4 - 50, &mut bytes), (150, Ok(())));
    assert_eq!((bytes[..150].iter().max(), bytes[150]), (Some(&0), 7));
    assert_eq!(objects.read(&object, 3 * KIB4 + 100, &mut bytes), (0, Ok(())));
    assert_eq!(objects.read(&object, u64::MAX - 3, &mut bytes), (0, Ok(())));
    assert_eq!(objects.usage(&object).pages, 0);
    // A write goes as far as the object does.
    assert_eq!(objects.write(&object, 3 * KIB4 + 90, &[1; 20]), (10, Err(ObjectError::Beyond)));
    assert_eq!(objects.write(&object, 3 * KIB4 + 100, &[1]), (0, Err(ObjectError::Beyond)));
    assert_eq!(objects.write(&object, u64::MAX, &[1]), (0, Err(ObjectError::Beyond)));
    let usage = objects.usage(&object);
    assert_eq!((usage.bytes, usage.pages), (3 * KIB4 + 100, 1));
    assert_eq!(objects.create(u64::MAX).unwrap_err(), ObjectError::Size);
    objects.discard(object);
    fx.check(&[]);
}

#[test]
fn an_object_goes_with_its_handle_or_with_its_last_mapping() {
    let fx = fixture(2048, no_around());
    let before = fx.check(&[]);
    for mapped_longer in [false, true] {
        let object = fx.object(64 * KIB4);
        assert_eq!(fx.vm.objects().write(&object, 0, &[5; 3 * KIB4 as usize]).1, Ok(()));
        let space = fx.with_object(AT, 64 * KIB4, &object);
        assert_eq!(fx.peek(&space, page_at(1)), Ok(u64::from_le_bytes([5; 8])));
        assert_eq!((fx.count(Counter::ShmemPages), fx.count(Counter::Mapped)), (3, 1));
        if mapped_longer {
            fx.vm.objects().discard(object);
            assert_eq!(fx.peek(&space, page_at(2)), Ok(u64::from_le_bytes([5; 8])));
            fx.check(&[&space]);
            assert_eq!(fx.vm.unmap(&space, AT, 64 * KIB4), Ok(()));
        } else {
            assert_eq!(fx.vm.unmap(&space, AT, 64 * KIB4), Ok(()));
            assert_eq!((fx.count(Counter::ShmemPages), fx.count(Counter::Mapped)), (3, 0));
            fx.check(&[&space]);
            fx.vm.objects().discard(object);
        }
        assert_eq!((fx.count(Counter::ShmemPages), fx.count(Counter::Mapped)), (0, 0));
        fx.end([space]);
    }
    // Without any mapping.
    let object = fx.object(64 * KIB4);
    assert_eq!(fx.vm.objects().write(&object, 9 * KIB4, &[1]), (1, Ok(())));
    fx.vm.objects().discard(object);
    assert!(fx.check(&[]) + 2 >= before, "no more than empty slabs stay");
}

#[test]
fn an_object_goes_though_others_are_mapped_beside_it() {
    let pages = [1, 600];
    for (n, at) in pages.into_iter().zip([AT, Va(AT.0 + MIB2 - 3 * KIB4)]) {
        let fx = fixture(2048, Config::default());
        let object = fx.object(n * KIB4);
        let space = fx.with_object(at, n * KIB4, &object);
        assert_eq!(fx.populate(&space, at, n * KIB4), Ok(()));
        // In the same tables, on both sides; the mapping of the object is cut in two.
        fx.map(&space, Va(at.0 + (n + 7) * KIB4), KIB4, RW);
        fx.map(&space, Va(at.0 - 9 * KIB4), KIB4, RW);
        assert_eq!(fx.vm.protect(&space, at, KIB4, Rights::READ), Ok(()));
        fx.vm.objects().discard(object);
        assert_eq!(fx.count(Counter::ShmemPages), n as i64);
        for part in [at.0 + (n / 2) * KIB4, at.0] {
            assert_eq!(fx.vm.unmap(&space, Va(part), n.div_ceil(2) * KIB4), Ok(()));
        }
        assert_eq!(fx.count(Counter::ShmemPages), 0);
        assert_eq!(fx.peek(&space, Va(at.0 - 9 * KIB4)), Ok(0));
        fx.end([space]);
    }
}

#[test]
fn an_object_goes_though_a_page_in_the_midst_of_it_was_replaced() {
    let fx = fixture(2048, Config::default());
    let object = fx.object(MIB2);
    let space = fx.with_object(AT, MIB2, &object);
    fx.poke(&space, page_at(3), 1).unwrap();
    fx.vm.objects().discard(object);
    // The table has a region of its own for it. What it says of the rest stands above.
    let replaced = fx.vm.map(&space, Placement::Replace(page_at(5)), KIB4, RW);
    assert_eq!(replaced, Ok(page_at(5)));
    assert_eq!(fx.vm.unmap(&space, AT, 5 * KIB4), Ok(()));
    assert_eq!(fx.count(Counter::ShmemPages), 1);
    assert_eq!(fx.vm.unmap(&space, page_at(6), MIB2 - 6 * KIB4), Ok(()));
    assert_eq!(fx.count(Counter::ShmemPages), 0);
    assert_eq!(fx.peek(&space, page_at(5)), Ok(0));
    fx.end([space]);
}

#[test]
fn an_object_of_another_vm_is_refused() {
    let (fx, other) = (fixture(512, Config::default()), fixture(512, Config::default()));
    let object = other.object(KIB4);
    let refused =
        |act: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err();
    assert!(refused(&|| _ = fx.vm.objects().usage(&object)));
    assert!(refused(&|| _ = fx.vm.objects().read(&object, 0, &mut [0])));
    assert!(refused(&|| _ = fx.vm.objects().write(&object, 0, &[0])));
    assert!(refused(&|| _ = fx.vm.objects().resize(&object, 0)));
    assert!(refused(&|| _ = fx.vm.objects().punch(&object, 0, 1)));
    assert!(refused(&|| _ = fx.vm.objects().seal(&object, Seals::default())));
    assert!(refused(&|| _ = fx.vm.objects().next_data(&object, 0)));
    assert!(refused(&|| _ = fx.vm.objects().next_hole(&object, 0)));
    let space = fx.vm.create().unwrap();
    let part = ObjectPart { object: &object, offset: 0 };
    assert!(refused(&|| _ = fx.vm.map_object(&space, Placement::Anywhere, KIB4, RW, part)));
    other.vm.objects().discard(object);
    fx.end([space]);
}
