//! How many instructions a core runs ahead of its oldest unfinished load.
//!
//! Two chases go on in turn, with idle instructions between their loads. As long as the window
//! reaches from one load to the next, both are on their way at once, and a turn takes one latency.
//! Beyond it, a turn takes two.

use std::hint::black_box;

use super::chase::Chain;
use super::figure::fastest;

/// Turns of a piece, and pieces.
const TURNS: usize = 2048;
const PIECES: u32 = 4;

/// Idle instructions.
#[inline(always)]
fn idle<const N: usize>() {
    // SAFETY: they do nothing.
    unsafe {
        core::arch::asm!(
            ".rept {n}",
            "nop",
            ".endr",
            n = const N,
            options(nomem, nostack, preserves_flags)
        )
    };
}

/// Nanoseconds of a turn with `N` idle instructions after each load.
fn turn<const N: usize>(chain: &Chain<'_>) -> Option<f64> {
    let pieces = (0..PIECES).map(|_| {
        let (mut one, mut other) = chain.flushed_ends()?;
        Some(fastest(1, TURNS, || {
            for _ in 0..TURNS {
                // SAFETY: places of the chain, each of which holds the next one.
                unsafe {
                    one = one.read() as *const usize;
                    idle::<N>();
                    other = other.read() as *const usize;
                    idle::<N>();
                }
            }
            black_box((one, other));
        }))
    });
    pieces.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
}

/// The number of instructions; `None` where programs cannot flush caches.
pub(super) fn instructions(chain: &Chain<'_>) -> Option<u32> {
    let turns = [
        (96, turn::<96>(chain)?),
        (128, turn::<128>(chain)?),
        (160, turn::<160>(chain)?),
        (192, turn::<192>(chain)?),
        (224, turn::<224>(chain)?),
        (256, turn::<256>(chain)?),
        (320, turn::<320>(chain)?),
        (384, turn::<384>(chain)?),
        (448, turn::<448>(chain)?),
        (512, turn::<512>(chain)?),
        (640, turn::<640>(chain)?),
    ];
    let both = turn::<8>(chain)?;
    Some(reach(both, &turns))
}

/// The most idle instructions with which a turn takes nearer to one latency than to two.
fn reach(both: f64, turns: &[(u32, f64)]) -> u32 {
    let within = turns.iter().take_while(|(_, ns)| *ns < both * 1.5);
    within.last().or(turns.first()).map_or(0, |(n, _)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_ends_where_turns_take_two_latencies() {
        let turns = [(128, 101.0), (224, 104.0), (320, 195.0), (512, 210.0)];
        assert_eq!(reach(100.0, &turns), 224);
        assert_eq!(reach(100.0, &turns[2..]), 320, "none is short: the shortest tried");
        assert_eq!(reach(300.0, &turns), 512);
    }
}
