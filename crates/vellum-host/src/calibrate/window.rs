//! Loads from memory that do not wait for one another: how many a core has on their way at once,
//! alone and among other instructions. And stores to memory, among others.
//!
//! A core runs ahead of its oldest unfinished load until something is used up: places for
//! instructions, or registers for their results, which are fewer. So what counts is what the
//! instructions do. Those between two loads here are of the kind that compilers write: three in
//! four have a result, one moves a register. Idle instructions would say twice as much (448 beside
//! 200 on an AMD EPYC of family 26). That loads do not come back in order, and the first of them
//! holds up the others, is in the figure, too.
//!
//! Stores leave a core in program order. Behind one whose line comes from memory wait all that are
//! issued after it, though their lines are there, until the store buffer is full of them. So where
//! one store in many goes to memory, as many of these are on their way at once as fit into the
//! buffer with the stores between them.

use super::chase::{Chain, LINE};
use super::figure::Figure;

/// Loads from memory by independent addresses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Independent {
    /// A load among few other instructions.
    pub alone: Figure,
    /// Instructions from a load to the next where there are many, and a turn of them.
    pub turn: usize,
    /// See there.
    pub among: Figure,
}

impl Independent {
    /// The instructions that a core runs ahead of its oldest unfinished load, by how many loads
    /// are on their way at once.
    pub(super) fn window(&self, latency: Figure) -> u32 {
        let loads = latency.ns / self.among.ns.max(1e-3);
        (loads * self.turn as f64).round().max(1.0) as u32
    }
}

/// Times that four instructions stand between two loads of [`Independent::among`].
#[cfg(target_arch = "x86_64")]
const BETWEEN: usize = 6;
/// Runs, each after the places were put out of the caches.
const RUNS: u32 = 6;

/// Instructions of a turn with so many times four between its loads.
#[cfg(target_arch = "x86_64")]
const fn of_turn(fours: usize) -> usize {
    5 + 4 * fours
}

/// Loads a word of each of these places, after each the other instructions.
#[cfg(target_arch = "x86_64")]
fn load<const FOURS: usize>(base: *const u8, places: &[usize]) {
    // SAFETY: each place is a word behind `base`, of the same area, which nobody writes now; there
    // is at least one.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov {t}, [{places} + {i} * 8]",
            "add {sum}, [{base} + {t}]",
            ".rept {fours}",
            "lea {a}, [{i} + 1]",
            "xor {a}, {i}",
            "add {b}, {i}",
            "mov {b}, {a}",
            ".endr",
            "add {i}, 1",
            "cmp {i}, {n}",
            "jne 2b",
            fours = const FOURS,
            i = inout(reg) 0usize => _,
            n = in(reg) places.len(),
            base = in(reg) base,
            places = in(reg) places.as_ptr(),
            sum = inout(reg) 0usize => _,
            a = out(reg) _,
            b = inout(reg) 0usize => _,
            t = out(reg) _,
            options(nostack, readonly)
        );
    }
}

/// Measures at the places of a chain; `None` on architectures without a measurement.
#[cfg(target_arch = "x86_64")]
pub(super) fn independent(chain: &Chain<'_>) -> Option<Independent> {
    let (base, places) = chain.memory();
    debug_assert!(!places.is_empty() && places.iter().all(|place| place % LINE < LINE - 7));
    Some(Independent {
        alone: chain.cold(RUNS, || load::<0>(base, places))?,
        turn: of_turn(BETWEEN),
        among: chain.cold(RUNS, || load::<BETWEEN>(base, places))?,
    })
}

/// Programs of this architecture may not flush.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn independent(_: &Chain<'_>) -> Option<Independent> {
    None
}

/// Stores of a turn, the first of which goes to memory. Few turns fit into a buffer, fewer than
/// there are fill buffers.
#[cfg(target_arch = "x86_64")]
const TURN: usize = 16;
/// Memory for the other stores of a turn, each to a line of its own: a core may join stores to one
/// line.
#[cfg(target_arch = "x86_64")]
type Near = [[usize; LINE / 8]; TURN - 1];

/// Stores a word to each of these places, and the others of a turn to `near`.
#[cfg(target_arch = "x86_64")]
fn store(base: *mut u8, places: &[usize], near: &mut Near) {
    // SAFETY: each place is a word behind `base`, of the same area, which nobody else uses now;
    // there is at least one.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov {t}, [{places} + {i} * 8]",
            "mov [{base} + {t}], {i}",
            ".set vellum_line, 0",
            ".rept {others}",
            "mov [{near} + vellum_line], {i}",
            ".set vellum_line, vellum_line + {line}",
            ".endr",
            "add {i}, 1",
            "cmp {i}, {n}",
            "jne 2b",
            others = const TURN - 1,
            line = const LINE,
            i = inout(reg) 0usize => _,
            n = in(reg) places.len(),
            base = in(reg) base,
            places = in(reg) places.as_ptr(),
            near = in(reg) near,
            t = out(reg) _,
            options(nostack)
        );
    }
}

/// Measures at the places of a chain, which is no chain any more then. `latency`: of a load from
/// memory. `None` on architectures without a measurement.
#[cfg(target_arch = "x86_64")]
pub(super) fn store_buffer(chain: Chain<'_>, latency: Figure) -> Option<u32> {
    let (base, places) = chain.memory();
    debug_assert!(!places.is_empty() && places.iter().all(|place| place % LINE < LINE - 7));
    let turn = chain.cold(RUNS, || store(base.cast_mut(), places, &mut Near::default()))?;
    Some(places_of(turn, latency, TURN))
}

/// Programs of this architecture may not flush, and its stores keep no order.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn store_buffer(_: Chain<'_>, _: Figure) -> Option<u32> {
    None
}

/// The stores that are issued in the time of a load from memory.
#[cfg(any(target_arch = "x86_64", test))]
fn places_of(turn: Figure, latency: Figure, stores: usize) -> u32 {
    (latency.ns / turn.ns.max(1e-3) * stores as f64).round().clamp(1.0, 256.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_as_long_as_the_loads_on_their_way_are_apart() {
        let figure = |ns| Figure { ns, spread: 0.0 };
        let measured = |ns| Independent { alone: figure(2.5), turn: 29, among: figure(ns) };
        assert_eq!(measured(20.0).window(figure(140.0)), 203);
        assert_eq!(measured(140.0).window(figure(140.0)), 29, "one after the other");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_place_is_loaded_once() {
        let words: Vec<usize> = (0..64).collect();
        for places in [vec![0], (0..64).map(|n| n * 8).collect::<Vec<_>>()] {
            load::<0>(words.as_ptr().cast(), &places);
            load::<BETWEEN>(words.as_ptr().cast(), &places);
        }
        assert_eq!([of_turn(0), of_turn(BETWEEN)], [5, 29]);
    }

    #[test]
    fn a_buffer_has_the_stores_that_are_issued_while_one_goes_to_memory() {
        let figure = |ns| Figure { ns, spread: 0.0 };
        let of = |turn, latency| places_of(figure(turn), figure(latency), 16);
        assert_eq!(of(35.0, 140.0), 64);
        assert_eq!(of(140.0, 140.0), 16, "one turn after the other");
        assert_eq!((of(1e9, 140.0), of(0.0, 140.0)), (1, 256), "never none, never any number");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_place_is_stored_to_once() {
        let mut words = vec![usize::MAX; 64];
        let places: Vec<usize> = (0..64).map(|n| n * 7 % 64 * 8).collect();
        let mut near = Near::default();
        store(words.as_mut_ptr().cast(), &places, &mut near);
        assert!(near.iter().all(|line| line[0] == 63), "the last: {near:?}");
        for (n, place) in places.iter().enumerate() {
            assert_eq!(words[place / 8], n);
        }
    }
}
