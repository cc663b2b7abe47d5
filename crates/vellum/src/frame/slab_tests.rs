//! Slabs: objects are zero, nobody else's, and their pages come back.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use proptest::prelude::*;

use crate::addr::PAGE_SIZE;
use crate::error::NoMemory;
use crate::frame::{Slab, SlabCounts, SlabRef};
use crate::sync::Token;
use crate::testkit::prelude::{FramesFixture, Random, at_each_step, flat, on_cpus};

/// Frames, and calls of a slab over them.
struct Fixture(FramesFixture);

fn fixture(cpus: usize, frames: u64) -> Fixture {
    Fixture(FramesFixture::new(flat(cpus, frames)))
}

impl Deref for Fixture {
    type Target = FramesFixture;
    fn deref(&self) -> &FramesFixture {
        &self.0
    }
}

impl Fixture {
    fn object(&self, slab: &Slab) -> Result<SlabRef, NoMemory> {
        slab.alloc(&self.m, &self.frames, &mut Token::top())
    }
    fn give(&self, slab: &Slab, object: SlabRef) {
        slab.free(&self.m, &self.frames, &mut Token::top(), object);
    }
    fn holds_only(&self, slab: &Slab, object: SlabRef, byte: u8) -> bool {
        // SAFETY: the test holds the object, and nobody writes to it while it looks.
        unsafe { std::slice::from_raw_parts(object.ptr(&self.m).as_ptr(), slab.size) }
            .iter()
            .all(|&b| b == byte)
    }
    fn fill(&self, slab: &Slab, object: SlabRef, byte: u8) {
        // SAFETY: the test holds the object.
        unsafe { object.ptr(&self.m).write_bytes(byte, slab.size) }
    }
}

#[test]
fn whoever_finds_no_room_in_a_slab_finds_the_frame_of_its_last_page() {
    let r = Rc::new(fixture(1, 512));
    let slab = Rc::new(Slab::new(64));
    let object = r.object(&slab).unwrap();
    let free = r.frames.free_frames(0);
    let steps = Rc::new(Cell::new(0));
    let (all, of) = (Rc::clone(&steps), (Rc::clone(&r), Rc::clone(&slab)));
    at_each_step(move |_| {
        all.set(all.get() + 1);
        let (r, slab) = &of;
        assert!(slab.lock.is_locked() || slab.pages() != 0 || r.frames.free_frames(0) == free + 1);
    });
    r.give(&slab, object);
    assert!(steps.get() > 1);
}

#[test]
fn objects_of_every_size_are_zero_aligned_and_apart() {
    for size in [1, 64, 65, 128, 192, 576, 1024, 1400, 2048, 4096] {
        let r = fixture(1, 512);
        let slab = Slab::new(size);
        assert!(slab.size >= size && slab.size.is_multiple_of(64));
        let objects: Vec<SlabRef> = (0..100).map(|_| r.object(&slab).unwrap()).collect();
        for (i, &o) in objects.iter().enumerate() {
            let zero = r.holds_only(&slab, o, 0);
            assert!(zero, "size {size}, object {i} is not zero, or not its own");
            assert_eq!(o.ptr(&r.m).addr().get() % 64, 0);
            r.fill(&slab, o, 0xaa);
            assert_eq!(SlabRef::from_raw(o.raw()), Some(o));
        }
        let counts = slab.validate(&r.frames).unwrap();
        assert_eq!(counts.objects, 100);
        assert_eq!(counts.pages, 100_usize.div_ceil(PAGE_SIZE / slab.size) as u64);
        assert_eq!(r.used(), counts.pages);
        objects.into_iter().for_each(|o| r.give(&slab, o));
        assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
        assert_eq!(r.used(), 0);
    }
}

#[test]
fn a_slab_without_memory_says_so_and_goes_on_when_there_is_some() {
    let r = fixture(1, 512);
    let slab = Slab::new(1024);
    let held = r.take_all(0);
    assert_eq!(r.object(&slab), Err(NoMemory));
    assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
    r.free(held[0], 0);
    let four: Vec<_> = (0..4).map(|_| r.object(&slab).unwrap()).collect();
    assert_eq!(r.object(&slab), Err(NoMemory));
    r.give(&slab, four[2]);
    assert_eq!(r.object(&slab), Ok(four[2]));
    assert_eq!(slab.validate(&r.frames).unwrap().objects, 4);
}

#[test]
#[cfg(debug_assertions)]
fn an_object_freed_twice_or_by_another_slab_is_noticed() {
    let bad = |f: fn(&Fixture, &Slab, SlabRef)| {
        std::panic::catch_unwind(|| {
            let r = fixture(1, 512);
            let slab = Slab::new(128);
            let keeps_the_page = r.object(&slab).unwrap();
            let object = r.object(&slab).unwrap();
            f(&r, &slab, object);
            r.give(&slab, keeps_the_page);
        })
        .is_err()
    };
    assert!(!bad(|r, s, o| r.give(s, o)));
    assert!(bad(|r, s, o| {
        r.give(s, o);
        r.give(s, o);
    }));
    assert!(bad(|r, _, o| r.give(&Slab::new(64), o)));
}

#[test]
fn many_cpus_share_a_slab() {
    const CPUS: usize = 4;
    let r = fixture(CPUS, 2048);
    let slab = Slab::new(192);
    on_cpus(0..CPUS, |cpu| {
        let mut held = vec![];
        let mut random = Random::new(cpu as u64);
        for _ in 0..20_000 {
            if held.len() < 60 && random.one_in(2) || held.is_empty() {
                let o = r.object(&slab).unwrap();
                assert!(r.holds_only(&slab, o, 0));
                r.fill(&slab, o, cpu as u8 + 1);
                held.push(o);
            } else {
                let o = held.swap_remove(random.below(held.len() as u64) as usize);
                assert!(r.holds_only(&slab, o, cpu as u8 + 1), "someone else's object");
                r.give(&slab, o);
            }
        }
        held.into_iter().for_each(|o| r.give(&slab, o));
    });
    assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
    assert_eq!(r.used(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_sequence_of_calls_keeps_objects_apart(
        size in 1..=4096usize,
        steps in prop::collection::vec((any::<bool>(), any::<usize>()), 1..300),
    ) {
        let r = fixture(1, 512);
        let slab = Slab::new(size);
        let mut held: BTreeMap<u64, u8> = BTreeMap::new();
        for (i, (alloc, pick)) in steps.into_iter().enumerate() {
            if alloc || held.is_empty() {
                let o = r.object(&slab).unwrap();
                prop_assert!(r.holds_only(&slab, o, 0));
                let mark = (i % 255) as u8 + 1;
                r.fill(&slab, o, mark);
                prop_assert_eq!(held.insert(o.raw(), mark), None);
            } else {
                let (&raw, &mark) = held.iter().nth(pick % held.len()).unwrap();
                let o = SlabRef::from_raw(raw).unwrap();
                prop_assert!(r.holds_only(&slab, o, mark));
                r.give(&slab, o);
                held.remove(&raw);
            }
            prop_assert_eq!(slab.validate(&r.frames).unwrap().objects, held.len() as u64);
        }
    }
}
