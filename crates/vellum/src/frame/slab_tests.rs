//! Slabs: objects are zero, nobody else's, and their pages come back.

#[path = "../../tests/common/flat.rs"]
pub(crate) mod flat;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flat::{Flat, FrameHands, Meta, at_each_step, flat};
use proptest::prelude::*;

use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::error::NoMemory;
use crate::frame::{AllocRequest, Frames, Slab, SlabCounts, SlabRef};
use crate::machine::{Machine, Use};
use crate::sync::Token;

struct Rig {
    frames: Frames,
    m: Flat,
    _meta: Meta,
}

fn rig(cpus: usize, frames: u64) -> Rig {
    let m = flat(cpus, frames);
    let meta = Meta::new(Frames::layout(m.topology()).unwrap());
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
    Rig { frames, m, _meta: meta }
}

impl Rig {
    fn alloc(&self, slab: &Slab) -> Result<SlabRef, NoMemory> {
        slab.alloc(&self.m, &self.frames, &mut Token::top())
    }
    fn free(&self, slab: &Slab, object: SlabRef) {
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
    let r = Rc::new(rig(1, 512));
    let slab = Rc::new(Slab::new(64));
    let object = r.alloc(&slab).unwrap();
    let free = r.frames.free_frames(0);
    let steps = Rc::new(Cell::new(0));
    let (all, of) = (Rc::clone(&steps), (Rc::clone(&r), Rc::clone(&slab)));
    at_each_step(move |_| {
        all.set(all.get() + 1);
        let (r, slab) = &of;
        assert!(slab.lock.is_locked() || slab.pages() != 0 || r.frames.free_frames(0) == free + 1);
    });
    r.free(&slab, object);
    assert!(steps.get() > 1);
}

#[test]
fn objects_of_every_size_are_zero_aligned_and_apart() {
    for size in [1, 64, 65, 128, 192, 576, 1024, 1400, 2048, 4096] {
        let r = rig(1, 512);
        let slab = Slab::new(size);
        assert!(slab.size >= size && slab.size.is_multiple_of(64));
        let objects: Vec<SlabRef> = (0..100).map(|_| r.alloc(&slab).unwrap()).collect();
        for (i, &o) in objects.iter().enumerate() {
            assert!(
                r.holds_only(&slab, o, 0),
                "size {size}, object {i} is not zero, or not its own"
            );
            assert_eq!(o.ptr(&r.m).addr().get() % 64, 0);
            r.fill(&slab, o, 0xaa);
            assert_eq!(SlabRef::from_raw(o.raw()), Some(o));
        }
        let counts = slab.validate(&r.frames).unwrap();
        assert_eq!(counts.objects, 100);
        assert_eq!(counts.pages, 100_usize.div_ceil(PAGE_SIZE / slab.size) as u64);
        assert_eq!(r.frames.audit(&r.m).unwrap().used, counts.pages);
        for o in objects {
            r.free(&slab, o);
        }
        assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
        assert_eq!(r.frames.audit(&r.m).unwrap().used, 0);
    }
}

#[test]
fn a_slab_without_memory_says_so_and_goes_on_when_there_is_some() {
    let r = rig(1, 512);
    let slab = Slab::new(1024);
    let held: Vec<Pfn> = std::iter::from_fn(|| {
        r.frames.alloc(&r.m, Order::BASE, &AllocRequest::kernel(Use::Table)).ok()
    })
    .collect();
    assert_eq!(r.alloc(&slab), Err(NoMemory));
    assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
    r.frames.put(&r.m, held[0], Order::BASE);
    let four: Vec<_> = (0..4).map(|_| r.alloc(&slab).unwrap()).collect();
    assert_eq!(r.alloc(&slab), Err(NoMemory));
    r.free(&slab, four[2]);
    assert_eq!(r.alloc(&slab), Ok(four[2]));
    assert_eq!(slab.validate(&r.frames).unwrap().objects, 4);
}

#[test]
#[cfg(debug_assertions)]
fn an_object_freed_twice_or_by_another_slab_is_noticed() {
    let bad = |f: fn(&Rig, &Slab, SlabRef)| {
        std::panic::catch_unwind(|| {
            let r = rig(1, 512);
            let slab = Slab::new(128);
            let keeps_the_page = r.alloc(&slab).unwrap();
            let object = r.alloc(&slab).unwrap();
            f(&r, &slab, object);
            r.free(&slab, keeps_the_page);
        })
        .is_err()
    };
    assert!(!bad(|r, s, o| r.free(s, o)));
    assert!(bad(|r, s, o| {
        r.free(s, o);
        r.free(s, o);
    }));
    assert!(bad(|r, _, o| r.free(&Slab::new(64), o)));
}

#[test]
fn many_cpus_share_a_slab() {
    const CPUS: usize = 4;
    let r = rig(CPUS, 2048);
    let slab = Slab::new(192);
    std::thread::scope(|s| {
        for cpu in 0..CPUS {
            let (r, slab) = (&r, &slab);
            s.spawn(move || {
                r.m.run_on(cpu);
                let mut held = vec![];
                let mut seed = cpu as u64 + 1;
                for _ in 0..20_000 {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    if held.len() < 60 && seed >> 40 & 1 == 0 || held.is_empty() {
                        let o = r.alloc(slab).unwrap();
                        assert!(r.holds_only(slab, o, 0));
                        r.fill(slab, o, cpu as u8 + 1);
                        held.push(o);
                    } else {
                        let o = held.swap_remove((seed >> 33) as usize % held.len());
                        assert!(r.holds_only(slab, o, cpu as u8 + 1), "someone else's object");
                        r.free(slab, o);
                    }
                }
                for o in held {
                    r.free(slab, o);
                }
            });
        }
    });
    assert_eq!(slab.validate(&r.frames), Ok(SlabCounts::default()));
    assert_eq!(r.frames.audit(&r.m).unwrap().used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_sequence_of_calls_keeps_objects_apart(
        size in 1..=4096usize,
        steps in prop::collection::vec((any::<bool>(), any::<usize>()), 1..300),
    ) {
        let r = rig(1, 512);
        let slab = Slab::new(size);
        let mut held: BTreeMap<u64, u8> = BTreeMap::new();
        for (i, (alloc, pick)) in steps.into_iter().enumerate() {
            if alloc || held.is_empty() {
                let o = r.alloc(&slab).unwrap();
                prop_assert!(r.holds_only(&slab, o, 0));
                let mark = (i % 255) as u8 + 1;
                r.fill(&slab, o, mark);
                prop_assert_eq!(held.insert(o.raw(), mark), None);
            } else {
                let (&raw, &mark) = held.iter().nth(pick % held.len()).unwrap();
                let o = SlabRef::from_raw(raw).unwrap();
                prop_assert!(r.holds_only(&slab, o, mark));
                r.free(&slab, o);
                held.remove(&raw);
            }
            prop_assert_eq!(slab.validate(&r.frames).unwrap().objects, held.len() as u64);
        }
    }
}
