//! Where an object has pages, and where it has none.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use vellum_testkit::prelude::*;

/// Makes pages of an object.
fn fill<C: Arch>(fx: &Fixture<C>, object: &Object, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        assert_eq!(fx.vm.objects().write(object, page * KIB4, &[0]).1, Ok(()), "page {page:#x}");
    }
}

/// Offsets at which data and holes begin, up to the object's end.
fn extents<C: Arch>(fx: &Fixture<C>, object: &Object) -> Vec<(u64, u64)> {
    let (objects, mut at, mut found) = (fx.vm.objects(), 0, Vec::new());
    while let Some(data) = objects.next_data(object, at) {
        at = objects.next_hole(object, data).expect("data lies before the end");
        found.push((data, at));
    }
    found
}

on_both!(edges, a_search_ends_at_the_objects_end);

fn edges<C: Arch>() {
    let fx = fixture_of::<C>(1, 1024, Config::default());
    let objects = fx.vm.objects();
    let both = |object: &Object, at| (objects.next_data(object, at), objects.next_hole(object, at));
    let empty = fx.object(0);
    for at in [0, 1, KIB4, u64::MAX] {
        assert_eq!(both(&empty, at), (None, None), "an empty object at {at:#x}");
    }
    // The last page has 100 bytes.
    let object = fx.object(3 * KIB4 + 100);
    assert_eq!(both(&object, 0), (None, Some(0)));
    assert_eq!(both(&object, 3 * KIB4 + 99), (None, Some(3 * KIB4 + 99)));
    fill(&fx, &object, [0, 3]);
    for (at, found) in [
        (0, (Some(0), Some(KIB4))),
        (KIB4 - 1, (Some(KIB4 - 1), Some(KIB4))),
        (KIB4, (Some(3 * KIB4), Some(KIB4))),
        (2 * KIB4 + 5, (Some(3 * KIB4), Some(2 * KIB4 + 5))),
        (3 * KIB4 + 99, (Some(3 * KIB4 + 99), Some(3 * KIB4 + 100))),
        (3 * KIB4 + 100, (None, None)),
        (4 * KIB4, (None, None)),
        (u64::MAX, (None, None)),
    ] {
        assert_eq!(both(&object, at), found, "at {at:#x}");
    }
    assert_eq!(objects.usage(&object).pages, 2, "a search makes no page");
    // One that is cut off is neither data nor a hole.
    assert_eq!(objects.resize(&object, 2 * KIB4), Ok(()));
    assert_eq!(
        (both(&object, 0), both(&object, KIB4)),
        ((Some(0), Some(KIB4)), (None, Some(KIB4)))
    );
    assert_eq!(both(&object, 2 * KIB4), (None, None));
    objects.discard(object);
    objects.discard(empty);
    fx.check(&[]);
}

on_both!(far, pages_far_apart_are_found);

fn far<C: Arch>() {
    let fx = fixture_of::<C>(1, 1024, Config::default());
    let objects = fx.vm.objects();
    // As long as an object may be: its last page has the last index but one that there is.
    let bytes = !(KIB4 - 1);
    let object = fx.object(bytes);
    let last = bytes / KIB4 - 1;
    let pages = [0, 1, 511, 512, 1 << 21, (1 << 40) - 1, (1 << 40) + 7, (1 << 40) + 9, last];
    assert_eq!(objects.next_data(&object, 0), None);
    for n in 1..=pages.len() {
        fill(&fx, &object, pages[n - 1..n].iter().copied());
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for page in &pages[..n] {
            match wanted.last_mut() {
                Some((_, end)) if *end == page * KIB4 => *end += KIB4,
                _ => wanted.push((page * KIB4, (page + 1) * KIB4)),
            }
        }
        assert_eq!(extents(&fx, &object), wanted, "{n} pages");
    }
    assert_eq!(objects.next_data(&object, (1 << 52) + 3), Some(((1 << 40) + 7) * KIB4));
    assert_eq!(objects.next_hole(&object, bytes - 1), Some(bytes));
    objects.discard(object);
    fx.check(&[]);
}

on_both!(long_runs, the_end_of_a_run_is_found_wherever_it_lies);

fn long_runs<C: Arch>() {
    let fx = fixture_of::<C>(1, 4096, Config::default());
    let objects = fx.vm.objects();
    // Appended in order: in large nodes but for the first pages.
    let object = fx.object(2000 * KIB4 + 100);
    fill(&fx, &object, 3..2001);
    assert_eq!(extents(&fx, &object), [(3 * KIB4, 2000 * KIB4 + 100)]);
    for hole in [4, 511, 512, 513, 1023, 1024, 1535, 1536, 1999, 2000] {
        objects.punch(&object, hole * KIB4, KIB4).unwrap();
        for from in [3, hole.saturating_sub(512).max(3), hole - 1] {
            let found = objects.next_hole(&object, from * KIB4 + 5);
            assert_eq!(found, Some(hole * KIB4), "from page {from} to {hole}");
        }
        assert_eq!(objects.next_hole(&object, hole * KIB4 + 9), Some(hole * KIB4 + 9));
        let next = (hole < 2000).then_some((hole + 1) * KIB4);
        assert_eq!(objects.next_data(&object, hole * KIB4), next);
        fill(&fx, &object, [hole]);
    }
    objects.discard(object);
    fx.check(&[]);
}

#[test]
fn extents_are_those_of_a_set_of_pages() {
    const PAGES: u64 = 1200;
    let fx = fixture(2048, Config::default());
    let (objects, object) = (fx.vm.objects(), fx.object(PAGES * KIB4 - 9));
    let (mut random, mut there) = (Random::new(11), BTreeSet::new());
    for round in 0..300 {
        let (first, len) = (random.below(PAGES), 1 + random.below(90));
        let pages = first..(first + len).min(PAGES);
        match round % 3 {
            0 => {
                objects.punch(&object, first * KIB4, len * KIB4).unwrap();
                there.retain(|page| !pages.contains(page));
            }
            _ => {
                let step = 1 + random.below(3) as usize;
                fill(&fx, &object, pages.clone().step_by(step));
                there.extend(pages.step_by(step));
            }
        }
        let from = random.below(PAGES);
        let data = there.range(from..).next().map(|page| page * KIB4);
        assert_eq!(objects.next_data(&object, from * KIB4), data, "round {round}, page {from}");
        let hole = (from..PAGES).find(|page| !there.contains(page));
        let hole = hole.map_or(PAGES * KIB4 - 9, |page| page * KIB4);
        assert_eq!(objects.next_hole(&object, from * KIB4), Some(hole), "round {round}, {from}");
    }
    assert_eq!(objects.usage(&object).pages, there.len() as u64);
    objects.discard(object);
    fx.check(&[]);
}

/// A space that maps an object, whose pages 2 to 5 are present.
struct Mapped {
    fx: Fixture,
    object: Object,
    space: Space,
    /// Searches that found pages which had left the space.
    frozen: Cell<u32>,
}

impl Mapped {
    fn new() -> Rc<Mapped> {
        let fx = fixture(1024, Config::default());
        let object = fx.object(8 * KIB4);
        let space = fx.with_object(AT, 8 * KIB4, &object);
        (2..6).for_each(|n| fx.poke(&space, page_at(n), n).unwrap());
        Rc::new(Mapped { fx, object, space, frozen: Cell::new(0) })
    }

    /// The first data, and the first hole from page 2 on.
    fn search(&self) -> (Option<u64>, Option<u64>) {
        let objects = self.fx.vm.objects();
        (objects.next_data(&self.object, 0), objects.next_hole(&self.object, 2 * KIB4))
    }

    fn end(self) {
        self.fx.vm.objects().discard(self.object);
        self.fx.end([self.space]);
    }
}

#[test]
fn a_frozen_page_is_data_until_it_leaves_the_object() {
    let search = |mapped: &Mapped| match mapped.search() {
        (data, Some(hole)) if hole == 6 * KIB4 => {
            assert_eq!(data, Some(2 * KIB4));
            let seen = mapped.fx.vm.query(&mapped.space, page_at(2));
            let has_left = u32::from(matches!(seen, Page::Reserved { .. }));
            mapped.frozen.set(mapped.frozen.get() + has_left);
        }
        found => assert_eq!(found, (Some(4 * KIB4), Some(2 * KIB4))),
    };
    let frozen = Cell::new(0);
    let places = at_every_step(
        Mapped::new,
        |mapped| mapped.fx.vm.objects().punch(&mapped.object, 2 * KIB4, 2 * KIB4).unwrap(),
        search,
        |mapped| {
            search(&mapped);
            frozen.set(frozen.get() + mapped.frozen.get());
            mapped.end();
        },
    );
    assert!(places > 20 && frozen.get() > 0, "{places} places, {} frozen", frozen.get());
}

#[test]
fn a_page_past_the_end_is_not_found_while_it_goes() {
    let search = |mapped: &Mapped| {
        let found = match mapped.fx.vm.objects().usage(&mapped.object).bytes / KIB4 {
            1 => (None, None),
            _ => (Some(2 * KIB4), Some(6 * KIB4)),
        };
        assert_eq!(mapped.search(), found);
    };
    let places = at_every_step(
        Mapped::new,
        |mapped| mapped.fx.vm.objects().resize(&mapped.object, 2 * KIB4 - 8).unwrap(),
        search,
        |mapped| {
            search(&mapped);
            mapped.end();
        },
    );
    assert!(places > 20, "{places} places");
}
