//! Copying 2 MiB, as after a write to a shared huge page: the library's choice beside copies
//! through the caches, in pairs.
//!
//! It is measured twice: when nobody reads the copy, and for a program with a working set that
//! reads half of the copy and then its working set. The source is not in the caches: other frames
//! are read first, as between two faults of a program.

use std::hint::black_box;

use vellum::addr::{PAGE_SIZE, Va};
use vellum::unstable::Extent;

use super::fixture::Fixture;
use crate::bench::measure::ratio::Ratios;
use crate::bench::measure::{Effort, time};
use crate::machine::FIRST;
use crate::stores::copies;

/// Pages of a copy.
const PAGES: usize = 512;

/// How many times as fast the library copies.
pub(super) fn beside(fixture: &Fixture, effort: Effort, used: bool) -> Ratios {
    let _cpu = fixture.host.vm.machine().bind(0);
    let pairs = (40 * effort.repetitions as u64 / effort.shrink).max(6);
    let set = fixture.last(fixture.working);
    // The upper half of what is left is copied to the lower one.
    let room = (fixture.pages - fixture.working) / 2 / PAGES;
    let mut next = 0;
    let mut one = |library: bool| {
        next = (next + 1) % room;
        let (to, from) =
            (FIRST.add((next * PAGES) as u64), FIRST.add(((room + next) * PAGES) as u64));
        (0..2).for_each(|_| _ = black_box(fixture.read(set, fixture.working)));
        time(1, || {
            if library {
                let extent = Extent { first: to, frames: PAGES as u64, at: Va(0), fault: Some(0) };
                // SAFETY: two different runs of this benchmark's frames.
                unsafe { fixture.host.vm.copy_extent(from, &extent) }.expect("nobody asks to stop");
            } else {
                // SAFETY: as above.
                unsafe { copies::through(fixture.at(to), fixture.at(from), PAGES * PAGE_SIZE) }
            }
            if used {
                black_box(fixture.read(to, PAGES / 2));
                black_box(fixture.read(set, fixture.working));
            }
        })
    };
    let mut ratios = Ratios::default();
    for pair in 0..pairs {
        if pair > 5 && (effort.stop)() {
            break;
        }
        let first = pair.is_multiple_of(2).then(|| one(true));
        let theirs = one(false);
        ratios.add(theirs / first.unwrap_or_else(|| one(true)));
    }
    ratios
}
