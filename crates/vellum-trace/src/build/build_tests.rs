//! What a builder remembers of pages changes nothing but its speed.

use super::*;
use crate::{Advice, Header};

/// A trace of random accesses and calls by a builder that is made to forget before each, or not.
fn trace(seed: u64, forgets: bool) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let writer = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    let window = (seed < 10).then(|| "1K,10".parse().expect("a window"));
    let mut b = Builder::new(writer, window);
    b.start_thread().expect("memory");
    for _ in 0..20_000 {
        if forgets {
            b.pages.forget();
        }
        let slot = 0x10_0000 + random(8) * 0x4000 + random(2) * (1 << 28);
        let at = slot + random(0x4000);
        let wants_write = random(2) == 0;
        let done = match random(400) {
            0 => b.mmap(&MapRequest {
                addr: slot,
                len: 0x4000,
                prot: Prot(3),
                kind: MapKind::Anon,
                file_offset: 0,
                file: None,
                populate: false,
            }),
            1 => b.munmap(slot + random(2) * 0x1000, 0x2000),
            2 => b.mremap(slot, 0x4000, 0x10_0000 + (8 + random(4)) * 0x4000, 0x4000, false),
            3 => b.fork(false).map(drop),
            4 => b.madvise(slot, 0x2000, Advice::DontNeed),
            5 => b.mprotect(slot, 0x2000, Prot(1)),
            6..20 => b.kernel(at, random(0x3000), wants_write),
            20..40 => b.fetch(at, 3),
            _ => b.access(at, 8, if wants_write { Flags::WRITE } else { Flags::READ }),
        };
        done.expect("memory");
    }
    b.finish().expect("memory").1
}

#[test]
fn a_builder_that_remembers_pages_writes_what_one_writes_that_looks_each_time() {
    for seed in 0..20 {
        assert!(trace(seed, true) == trace(seed, false), "seed {seed}");
    }
}
