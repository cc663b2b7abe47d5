//! The numbers of a machine that the tests depend on.

use vellum::machine::CacheLevel;
use vellum::unstable::colours_of;
use vellum_sim::Parts;
use vellum_sim::file::Machine;

use crate::error::LabError;

/// Pages, ways and strides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Ways of L1D: frames in a row that fit.
    pub l1_ways: u64,
    /// Ways of L2: strided reads of a turn.
    pub l2_ways: u64,
    /// Colours of L1D, L2.
    pub colours: [u64; 2],
    /// Bytes between two strided reads: a way of L2.
    pub stride: u64,
}

impl Shape {
    /// Of a machine with at least two colours in its second level.
    pub fn of(machine: &Machine) -> Result<Shape, LabError> {
        let caches = Parts::of(machine, 0).caches;
        let level = |g: &vellum_sim::cache::Geometry| CacheLevel {
            sets: g.sets,
            ways: g.ways.into(),
            line: 64,
        };
        let colours = [&caches.l1d, &caches.l2].map(|g| colours_of(level(g)).frames());
        let shape = Shape {
            l1_ways: caches.l1d.ways.into(),
            l2_ways: caches.l2.ways.into(),
            colours,
            stride: level(&caches.l2).way_bytes(),
        };
        if colours[1] < 2
            || !shape.stride.is_power_of_two()
            || shape.stride * shape.l2_ways > 2 << 20
        {
            return Err(LabError::usage(format_args!(
                "the second level of `{}` has {} colour{} and {} ways of {} bytes: this \
                 experiment wants two colours or more, ways that are a power of two, and 2 MiB at \
                 most; take thunderx2, milan or icelake-x",
                machine.name,
                colours[1],
                if colours[1] == 1 { "" } else { "s" },
                shape.l2_ways,
                shape.stride
            )));
        }
        Ok(shape)
    }
}
