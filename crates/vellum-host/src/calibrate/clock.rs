//! The clock of a core.

use std::hint::black_box;

use super::figure::{Figure, fastest};

/// Steps of a piece, and cycles of a step: operations of one cycle, each of which needs the one
/// before.
const STEPS: usize = 10_000;
const CYCLES: usize = 100;

/// An exclusive or of two registers into the first.
#[cfg(target_arch = "x86_64")]
macro_rules! step {
    () => {
        "xor {x}, {y}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! step {
    () => {
        "eor {x}, {x}, {y}"
    };
}

/// A chain of exclusive ors. No core takes less than a cycle for one: there is nothing to rename or
/// to know beforehand, as there is for moves and small constants.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn chain(mut x: u64, y: u64) -> u64 {
    // SAFETY: arithmetic on two registers.
    unsafe {
        core::arch::asm!(
            ".rept 100",
            step!(),
            ".endr",
            x = inout(reg) x,
            y = in(reg) y,
            options(pure, nomem, nostack)
        );
    }
    x
}

/// A chain of multiplications and exclusive ors, 25 of four cycles as most cores do them.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn chain(x: u64, y: u64) -> u64 {
    (0..25).fold(x, |x, _| x.wrapping_mul(y | 1) ^ y)
}

/// Cycles a second.
pub(super) fn hertz() -> u64 {
    let mut x = black_box(88_172_645_463_325_252_u64);
    let y = black_box(1234567);
    let cycle = Figure::settle(|| {
        fastest(24, STEPS * CYCLES, || {
            for _ in 0..STEPS {
                x = chain(x, y);
            }
            black_box(x);
        })
    });
    (1e9 / cycle.ns) as u64
}
