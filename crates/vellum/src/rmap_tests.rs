//! From a page to the spaces that may map it.

use crate::rmap::attachment::Attach;
use crate::sync::Token;
use crate::sync::atomic::Ordering::SeqCst;
use crate::testkit::prelude::*;

#[test]
fn a_child_that_its_fork_has_not_finished_is_nobody_elses_to_look_into() {
    let fx = fixture(2048, Config::default());
    let layers = &fx.vm.layers;
    let object = fx.object(KIB4);
    let space = fx.with_object(AT, KIB4, &object);
    let child = fx.vm.fork(&space).unwrap();
    let record = layers.record_of(&child);
    let of_a_page = || {
        let mut seen = Vec::new();
        layers.with_mappings(layers.record_of(&space), 7, &mut Token::top(), |mappings| {
            mappings.for_each_mapping(|space, _| {
                seen.push(space.id());
                true
            });
        });
        seen
    };
    let of_an_object = || {
        let mut seen = Vec::new();
        let unfinished =
            Attach(layers).for_each_attachment(object.handle, &mut Token::top(), |space, _| {
                seen.push(space.id());
            });
        (seen, unfinished)
    };
    // The family's list begins with the youngest.
    let both = vec![child.id(), space.id()];
    assert_eq!((of_a_page(), of_an_object()), (both.clone(), (both, u64::MAX)));
    record.begin_child(7);
    let parent = vec![space.id()];
    assert_eq!((of_a_page(), of_an_object()), (parent.clone(), (parent, 7)));
    record.finish_child();
    fx.vm.objects().discard(object);
    fx.end([space, child]);
}

#[test]
fn a_page_that_is_mapped_too_often_is_left_out_of_those_around_a_fault() {
    let fx = fixture(2048, Config::default());
    let object = fx.object(512 * KIB4);
    for page in 0..128u64 {
        fx.vm.objects().write(&object, page * KIB4, &(page + 1).to_le_bytes()).1.unwrap();
    }
    let space = fx.with_object(AT, 512 * KIB4, &object);
    // It makes the table.
    assert_eq!(fx.peek(&space, page_at(100)), Ok(101));
    let grabbed = fx.vm.objects().grab(&object, 72 * KIB4, 1, GrabWait::Never).unwrap();
    let count = fx.vm.layers.frames.record(grabbed.frames()[0]).word(1);
    fx.vm.objects().release(grabbed, false);
    count.fetch_add(1 << 31, SeqCst);
    assert_eq!(fx.peek(&space, page_at(64)), Ok(65));
    let mapped = (64..80).filter(|&n| fx.frame_at(&space, page_at(n)).is_some());
    assert!(mapped.eq((64..80).filter(|&n| n != 72)));
    assert_eq!(fx.vm.fault(&space, page_at(72), Access::Read), Err(FaultError::NoMemory));
    count.fetch_sub(1 << 31, SeqCst);
    fx.check(&[&space]);
    assert_eq!(fx.peek(&space, page_at(72)), Ok(73));
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}
