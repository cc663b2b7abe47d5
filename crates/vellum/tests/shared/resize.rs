//! Objects that become longer or shorter, and holes in them.

use vellum_testkit::prelude::*;

fn filled(pages: u64) -> (Fixture, Object) {
    let fx = fixture(4096, Config::default());
    let object = fx.object(pages * KIB4);
    assert_eq!(fx.vm.objects().write(&object, 0, &vec![0xee; (pages * KIB4) as usize]).1, Ok(()));
    (fx, object)
}

fn bytes(fx: &Fixture, object: &Object, from: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![1; len];
    let (there, _) = fx.vm.objects().read(object, from, &mut bytes);
    bytes.truncate(there);
    bytes
}

#[test]
fn what_is_cut_off_is_zero_when_it_comes_back() {
    let (fx, object) = filled(200);
    let space = fx.with_object(AT, 200 * KIB4, &object);
    let other = fx.with_object(Va(GIB * 9), 200 * KIB4, &object);
    for n in [0, 64, 65, 130, 199] {
        assert_eq!(fx.peek(&space, page_at(n)), Ok(0xeeee_eeee_eeee_eeee));
        assert_eq!(fx.peek(&other, Va(GIB * 9 + n * KIB4)), Ok(0xeeee_eeee_eeee_eeee));
    }
    let objects = fx.vm.objects();
    let cut = 65 * KIB4 + 100;
    assert_eq!(objects.resize(&object, cut), Ok(()));
    assert_eq!(objects.usage(&object).pages, 66);
    assert_eq!(fx.count(Counter::ShmemPages), 66);
    assert_eq!(fx.peek(&space, page_at(130)), Err(FaultError::Beyond));
    assert_eq!(fx.peek(&other, Va(GIB * 9 + 66 * KIB4)), Err(FaultError::Beyond));
    fx.check(&[&space, &other]);
    // The rest of the last page: through the mapping, which may write there, too.
    assert_eq!(fx.peek(&space, Va(page_at(65).0 + 96)), Ok(0xeeee_eeee));
    assert_eq!(fx.peek(&space, Va(page_at(65).0 + 104)), Ok(0));
    fx.poke(&space, Va(page_at(65).0 + 4088), 5).unwrap();
    assert_eq!(bytes(&fx, &object, cut - 4, 10), [0xee; 4]);
    assert_eq!(objects.resize(&object, 300 * KIB4), Ok(()));
    assert_eq!(bytes(&fx, &object, cut - 4, 8), [0xee, 0xee, 0xee, 0xee, 0, 0, 0, 0]);
    assert_eq!(fx.peek(&space, Va(page_at(65).0 + 4088)), Ok(0), "written past the end");
    assert_eq!(fx.peek(&space, page_at(130)), Ok(0));
    assert_eq!(objects.resize(&object, 1 << 63), Ok(()), "none of it has pages");
    assert_eq!(objects.resize(&object, u64::MAX), Err(ObjectError::Size));
    assert_eq!(objects.resize(&object, 0), Ok(()));
    assert_eq!((objects.usage(&object).pages, fx.count(Counter::Mapped)), (0, 0));
    fx.check(&[&space, &other]);
    objects.discard(object);
    fx.end([space, other]);
}

#[test]
fn a_hole_is_zero_to_the_byte() {
    let (fx, object) = filled(200);
    let space = fx.with_object(AT, 200 * KIB4, &object);
    let objects = fx.vm.objects();
    let mut random = Random::new(5);
    let mut model = vec![0xee; 200 * KIB4 as usize];
    for round in 0..60 {
        let from = random.below(200 * KIB4);
        let len = if round % 3 == 0 { random.below(64) } else { random.below(90 * KIB4) };
        fx.poke(&space, page_at(random.below(200)), 0x1111_1111_1111_1111).unwrap();
        let before = bytes(&fx, &object, 0, model.len());
        model.copy_from_slice(&before);
        objects.punch(&object, from, len).unwrap();
        let end = ((from + len) as usize).min(model.len());
        model[from as usize..end].fill(0);
        assert!(bytes(&fx, &object, 0, model.len()) == model, "punched {from:#x} {len:#x}");
        if round % 10 == 0 {
            fx.check(&[&space]);
        }
    }
    objects.punch(&object, u64::MAX, 2).unwrap();
    objects.punch(&object, 1 << 62, KIB4).unwrap();
    objects.punch(&object, 0, 200 * KIB4).unwrap();
    assert_eq!(objects.usage(&object).pages, 0);
    objects.discard(object);
    fx.end([space]);
}
