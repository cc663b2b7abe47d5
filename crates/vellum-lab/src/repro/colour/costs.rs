//! The cost of colours: zeros that are read in bulk take as many pages of cache as there are
//! colours.
//!
//! The posting does not measure it. It is its reviewers' objection, in figures: more zero pages
//! could just as well evict useful data.

use vellum_sim::Parts;
use vellum_sim::file::Machine;

use crate::error::LabError;
use crate::repro::bench::{Counted, MemoryAccess, REAL, Setting, ZERO, count};

/// Real data of the large run: the last-level cache of the machine the posting is thought to have
/// used. Fixed, so that another machine file is another experiment.
pub const LARGE: u64 = 32 << 20;

fn setting(colours: u64, zero_pages: u64, huge_pages: u64, turns: [u64; 2], seed: u64) -> Setting {
    Setting {
        huge_pages,
        zero_pages,
        switches: vec![("zero.colours", colours.to_string())],
        turns,
        seed,
    }
}

/// A turn reads real data of three quarters of L1D, line by line, then one page of zeros, the next
/// each turn.
pub fn beside_hot_data(machine: &Machine, colours: u64, seed: u64) -> Result<Counted, LabError> {
    let lines = machine.l1d.size.0 * 3 / 4 / 64;
    count(
        &Parts::of(machine, seed),
        &setting(colours, 64, 1, [128, 512], seed),
        &|memory: &mut dyn MemoryAccess, turn| {
            (0..lines).for_each(|n| memory.read(REAL + n * 64, false));
            (0..64).for_each(|n| memory.read(ZERO + turn % 64 * 4096 + n * 64, false));
        },
    )
}

/// A turn reads [`LARGE`] bytes of real data, line by line, then 32 pages of zeros.
pub fn beside_large_data(machine: &Machine, colours: u64, seed: u64) -> Result<Counted, LabError> {
    count(
        &Parts::of(machine, seed),
        &setting(colours, 32, LARGE >> 21, [1, 1], seed),
        &|memory: &mut dyn MemoryAccess, _| {
            (0..LARGE / 64).for_each(|n| memory.read(REAL + n * 64, false));
            (0..32 * 64).for_each(|n| memory.read(ZERO + n * 64, false));
        },
    )
}
