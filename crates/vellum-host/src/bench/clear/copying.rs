//! Copying 2 MiB, as a write to a shared huge page does: the library's choice beside copies through
//! the caches, pair by pair.
//!
//! Twice: where nobody looks at the copy, and for somebody who had a working set, reads half of the
//! copy next and goes on with what it had. The source is not in the caches: other frames were read
//! meanwhile, as between two faults of a program.

use std::hint::black_box;

use vellum::addr::{PAGE_SIZE, Va};
use vellum::unstable::Extent;

use super::super::measure::{Effort, time};
use super::super::ratio::Ratios;
use super::ground::Ground;
use crate::machine::FIRST;
use crate::stores::copies;

/// Pages of a copy.
const PAGES: usize = 512;

/// How many times as fast the library copies.
pub(super) fn beside(ground: &Ground, effort: Effort, used: bool) -> Ratios {
    let _seat = ground.host.vm.machine().sit(0);
    let pairs = (40 * effort.repetitions as u64 / effort.shrink).max(6);
    let set = ground.last(ground.working);
    // The upper half of what is left is copied to the lower one.
    let room = (ground.pages - ground.working) / 2 / PAGES;
    let mut next = 0;
    let mut one = |library: bool| {
        next = (next + 1) % room;
        let (to, from) =
            (FIRST.add((next * PAGES) as u64), FIRST.add(((room + next) * PAGES) as u64));
        (0..2).for_each(|_| _ = black_box(ground.read(set, ground.working)));
        time(1, || {
            if library {
                let extent = Extent { first: to, frames: PAGES as u64, at: Va(0), fault: 0 };
                // SAFETY: two different runs of this benchmark's frames.
                unsafe { ground.host.vm.copy_extent(from, &extent) }.expect("nobody asks to stop");
            } else {
                // SAFETY: as above.
                unsafe { copies::through(ground.at(to), ground.at(from), PAGES * PAGE_SIZE) }
            }
            if used {
                black_box(ground.read(to, PAGES / 2));
                black_box(ground.read(set, ground.working));
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
