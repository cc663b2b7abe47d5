//! Replacement by re-reference interval prediction (static RRIP, of three bits).
//!
//! Each way has an age of 0 to 7: how long its line is expected not to be used. The line of the
//! first way of age 7 leaves; where no way has that age, all grow older until one has. A new line
//! is 6, and a use makes a line 0. So what is read once leaves before what was used again, and a
//! line that was used again outlasts seven times as many new lines as the others of its set.
//! A. Jaleel et al., "High Performance Cache Replacement Using Re-Reference Interval Prediction
//! (RRIP)", ISCA 2010; there with two and with three bits.
//!
//! The ages of a set are one word.

/// Bits of an age.
const BITS: usize = 3;
/// Ways that a word has ages for.
pub(crate) const MAX_WAYS: u32 = (u64::BITS as usize / BITS) as u32;
/// The low bit of each age.
const LOW: u64 = (1 << (BITS * MAX_WAYS as usize)) / 7;
/// The age of a new line, one year before it leaves.
pub(crate) const NEW: u64 = 6;

/// The ages after `way` got one.
#[inline]
pub(crate) fn with_age(ages: u64, way: usize, age: u64) -> u64 {
    ages & !(7 << (BITS * way)) | age << (BITS * way)
}

/// The way whose line leaves a full set of 1 to [`MAX_WAYS`], and the ages by then.
#[inline]
pub(crate) fn victim(mut ages: u64, ways: usize) -> (usize, u64) {
    let low = LOW & u64::MAX >> (u64::BITS as usize - BITS * ways);
    loop {
        let oldest = ages & ages >> 1 & ages >> 2 & low;
        if oldest != 0 {
            return (oldest.trailing_zeros() as usize / BITS, ages);
        }
        ages += low;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_way_of_age_7_leaves_and_all_grow_older_until_there_is_one() {
        let ages = |of: &[u64]| of.iter().rev().fold(0, |word, age| word << 3 | age);
        for (before, way, after) in [
            ([0, 7, 1, 7], 1, [0, 7, 1, 7]),
            ([6, 6, 1, 0], 0, [7, 7, 2, 1]),
            ([3, 0, 5, 4], 2, [5, 2, 7, 6]),
            ([0, 0, 0, 0], 0, [7, 7, 7, 7]),
        ] {
            assert_eq!(victim(ages(&before), 4), (way, ages(&after)), "{before:?}");
        }
        assert_eq!(victim(0, 1), (0, 7));
        assert_eq!(victim(0, 21), (0, u64::MAX >> 1));
        assert_eq!(with_age(u64::MAX >> 1, 20, 0), u64::MAX >> 4);
        assert_eq!(with_age(0, 20, NEW), 6 << 60);
    }
}
