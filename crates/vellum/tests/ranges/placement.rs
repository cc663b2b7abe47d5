//! Where `Placement::Anywhere` puts a mapping: always the highest hole, whatever was mapped,
//! unmapped and searched before.
//!
//! The model is a sorted list of what is mapped. A space remembers where its last search ended, so
//! sequences matter: each step is compared, and `validate` recounts what is remembered.

use std::collections::BTreeMap;

use vellum_testkit::prelude::*;

#[test]
fn placement_takes_the_highest_hole_aligned_when_long_and_reuses_what_is_freed() {
    let fx = fixture(4096, no_thp());
    let space = fx.vm.create().unwrap();
    let any = |bytes| fx.vm.map(&space, Placement::Anywhere, bytes, RW).unwrap().0;
    assert_eq!(any(KIB4), USER_END - KIB4);
    assert_eq!(any(2 * KIB4), USER_END - 3 * KIB4);
    let long = any(MIB2 + KIB4);
    assert_eq!(long, (1 << 47) - 2 * MIB2);
    // The next small mapping fills the gap that the alignment left.
    assert_eq!(any(KIB4), USER_END - 4 * KIB4);
    fx.vm.unmap(&space, Va(USER_END - 3 * KIB4), 2 * KIB4).unwrap();
    assert_eq!(any(KIB4), USER_END - 2 * KIB4);
    assert_eq!(any(KIB4), USER_END - 3 * KIB4);
    let gib = any(GIB);
    assert_eq!((gib % MIB2, gib), (0, long - GIB));
    fx.end([space]);
}

/// Mapped ranges: first address, end.
struct Model {
    end: u64,
    mapped: BTreeMap<u64, u64>,
}

impl Model {
    /// The highest place for so many bytes.
    fn place(&self, bytes: u64) -> Option<u64> {
        let align = if bytes >= MIB2 { MIB2 } else { KIB4 };
        let starts = self.mapped.keys().rev().copied().chain([LOWEST]);
        let ends = [self.end].into_iter().chain(self.mapped.keys().rev().copied());
        // A hole ends where a range begins, and begins where the next lower one ends.
        ends.zip(starts).find_map(|(end, below)| {
            let start = self.mapped.get(&below).copied().unwrap_or(LOWEST).max(LOWEST);
            let at = end.checked_sub(bytes)? & !(align - 1);
            (at >= start).then_some(at)
        })
    }
    fn add(&mut self, at: u64, bytes: u64) {
        self.mapped.insert(at, at + bytes);
    }
    fn cut(&mut self, at: u64, bytes: u64) {
        let (from, to) = (at, at + bytes);
        let below = self.mapped.range(..to).map(|(&start, &end)| (start, end));
        let met: Vec<_> = below.filter(|&(_, end)| end > from).collect();
        for (start, end) in met {
            self.mapped.remove(&start);
            if start < from {
                self.mapped.insert(start, from);
            }
            if end > to {
                self.mapped.insert(to, end);
            }
        }
    }
}

#[test]
fn anywhere_is_the_highest_hole_after_any_sequence() {
    for seed in 1..=8u64 {
        let fx = fixture(1 << 14, no_thp());
        let space = fx.vm.create().expect("memory");
        let mut model = Model { end: fx.vm.user_end().0, mapped: BTreeMap::new() };
        let mut random = Random::new(seed);
        for step in 0..1500 {
            let bytes = match random.below(8) {
                0..=3 => KIB4,
                4 | 5 => KIB4 * (1 + random.below(30)),
                6 => KIB4 * (1 + random.below(700)),
                _ => MIB2 * (1 + random.below(3)),
            };
            let ranges = model.mapped.len() as u64;
            if !random.one_in(3) || ranges == 0 {
                let want = model.place(bytes).expect("a hole");
                let mapped = fx.vm.map(&space, Placement::Anywhere, bytes, RW);
                assert_eq!(mapped, Ok(Va(want)), "seed {seed} step {step}");
                model.add(want, bytes);
                if random.one_in(4) {
                    fx.vm.fault(&space, Va(want), Access::Write).expect("a page");
                }
            } else {
                let (&start, &end) =
                    model.mapped.iter().nth(random.below(ranges) as usize).expect("one of them");
                let from = start + random.below((end - start) / KIB4) * KIB4;
                let bytes = bytes.min(model.end - from);
                if random.one_in(5) && end - from > KIB4 {
                    // Moves it to the highest hole.
                    let bytes = end - from;
                    let place = model.place(bytes).expect("a hole");
                    let to = Placement::At(Va(place));
                    assert_eq!(fx.vm.remap(&space, Va(from), bytes, bytes, to), Ok(Va(place)));
                    model.cut(from, bytes);
                    model.add(place, bytes);
                } else {
                    fx.vm.unmap(&space, Va(from), bytes).expect("memory");
                    model.cut(from, bytes);
                }
            }
            if step % 50 == 0 {
                fx.check(&[&space]);
            }
        }
        fx.end([space]);
    }
}

#[test]
fn a_length_that_fits_nowhere_is_no_hole_and_forgets_nothing() {
    let fx = fixture(4096, no_thp());
    let space = fx.vm.create().expect("memory");
    let first = fx.vm.map(&space, Placement::Anywhere, KIB4, RW).expect("a hole");
    let anywhere = |bytes| fx.vm.map(&space, Placement::Anywhere, bytes, RW);
    assert_eq!(anywhere(fx.vm.user_end().0), Err(SpaceError::NoHole));
    assert_eq!(anywhere(KIB4), Ok(Va(first.0 - KIB4)));
    fx.vm.unmap(&space, first, KIB4).expect("memory");
    assert_eq!(anywhere(KIB4), Ok(first));
    fx.end([space]);
}
