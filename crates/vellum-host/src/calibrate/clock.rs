//! The clock of a core.

use std::hint::black_box;

use super::figure::{Figure, fastest};

/// Steps of a piece, and cycles of a step: three shifts and three exclusive ors, each of which
/// needs the one before.
const STEPS: usize = 200_000;
const CYCLES: f64 = 6.0;

/// Cycles a second.
pub(super) fn hertz() -> u64 {
    let mut x = black_box(88_172_645_463_325_252_u64);
    let step = Figure::settle(|| {
        fastest(24, STEPS, || {
            for _ in 0..STEPS {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
            black_box(x);
        })
    });
    (CYCLES * 1e9 / step.ns) as u64
}
