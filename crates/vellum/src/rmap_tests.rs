//! From a page to the spaces that may map it.

use crate::rmap::attachment::Attach;
use crate::sync::Token;
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
