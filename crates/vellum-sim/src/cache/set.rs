//! Searching and reordering one set: the two operations that every simulated access needs.
//!
//! A set is a run of 32-bit tags (quotient + 1 << 2 | flags), 4 to a vector, so that 16 ways are
//! one line of the host's memory; a way without a line is 0, as fresh memory of the host is. Under
//! LRU, the order of the tags *is* the order of use: a hit moves its tag to the front, and a miss
//! inserts one at the front and drops the last. Both shift positions 0..=at up by one, which is a
//! shift and a blend of vectors, without a branch. Rejected: time stamps (twice the memory, a scan
//! to evict); rank nibbles (24 ways do not fit a word).
//!
//! SSE2 belongs to every x86_64; elsewhere the same functions are plain loops.

/// The bit of a tag that says the line was written.
pub(crate) const DIRTY: u32 = 1;
/// The bit of a tag that says the line came from a level that had kept it until it was used again.
pub(crate) const REUSED: u32 = 2;
/// All bits beside the quotient, and how many they are.
pub(crate) const FLAGS: u32 = DIRTY | REUSED;
pub(crate) const FLAG_BITS: u32 = 2;
/// The tag of a way without a line.
pub(crate) const INVALID: u32 = 0;

/// The tag of a line that nobody wrote, by its quotient.
#[inline(always)]
pub(crate) fn clean(quotient: u64) -> u32 {
    (quotient as u32 + 1) << FLAG_BITS
}

/// The quotient of the line that a tag is of.
#[inline(always)]
pub(crate) fn quotient(tag: u32) -> u64 {
    u64::from((tag >> FLAG_BITS) - 1)
}

/// Bit i is set when way i holds `key`, whatever its flags. `set` has `V * 4` tags.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub(crate) fn matches<const V: usize>(set: &[u32], key: u32) -> u64 {
    use std::arch::x86_64::*;
    assert!(set.len() == V * 4);
    let mut mask = 0;
    // SAFETY: SSE2 is part of x86_64; each unaligned load of 4 tags is inside `set`, whose length
    // was just checked.
    unsafe {
        let flags = _mm_set1_epi32(FLAGS as i32);
        let key = _mm_set1_epi32((key | FLAGS) as i32);
        for v in 0..V {
            let tags = _mm_loadu_si128(set.as_ptr().add(v * 4).cast());
            let equal = _mm_cmpeq_epi32(_mm_or_si128(tags, flags), key);
            mask |= (_mm_movemask_ps(_mm_castsi128_ps(equal)) as u64) << (v * 4);
        }
    }
    mask
}

/// Moves the tags before `at` up by one and puts `first` in front; the tag at `at` is lost. `set`
/// has `V * 4` tags.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub(crate) fn push_front<const V: usize>(set: &mut [u32], at: usize, first: u32) {
    use std::arch::x86_64::*;
    assert!(set.len() == V * 4);
    // SAFETY: SSE2 is part of x86_64; each unaligned access of 4 tags is inside `set`, whose length
    // was just checked.
    unsafe {
        let mut carry = _mm_cvtsi32_si128(first as i32);
        let last = _mm_set1_epi32(at as i32);
        let mut lane = _mm_setr_epi32(0, 1, 2, 3);
        for v in 0..V {
            let place = set.as_mut_ptr().add(v * 4);
            let tags = _mm_loadu_si128(place.cast());
            let moved = _mm_or_si128(_mm_slli_si128(tags, 4), carry);
            carry = _mm_srli_si128(tags, 12);
            let keep = _mm_cmpgt_epi32(lane, last);
            let out = _mm_or_si128(_mm_and_si128(keep, tags), _mm_andnot_si128(keep, moved));
            _mm_storeu_si128(place.cast(), out);
            lane = _mm_add_epi32(lane, _mm_set1_epi32(4));
        }
    }
}

/// Bit i is set when way i holds `key`, whatever its flags. `set` has `V * 4` tags.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn matches<const V: usize>(set: &[u32], key: u32) -> u64 {
    let equal = |&t: &u32| u64::from(t | FLAGS == key | FLAGS);
    set.iter().map(equal).enumerate().map(|(i, bit)| bit << i).sum()
}

/// Moves the tags before `at` up by one and puts `first` in front; the tag at `at` is lost. `set`
/// has `V * 4` tags.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn push_front<const V: usize>(set: &mut [u32], at: usize, first: u32) {
    set.copy_within(0..at, 1);
    set[0] = first;
}

/// Runs `$body` with `$V` bound to the constant number of 4-tag vectors in a set: the search is
/// unrolled for it.
macro_rules! with_vectors {
    ($vectors:expr, $V:ident, $body:expr) => {
        match $vectors {
            1 => {
                const $V: usize = 1;
                $body
            }
            2 => {
                const $V: usize = 2;
                $body
            }
            3 => {
                const $V: usize = 3;
                $body
            }
            4 => {
                const $V: usize = 4;
                $body
            }
            5 => {
                const $V: usize = 5;
                $body
            }
            6 => {
                const $V: usize = 6;
                $body
            }
            7..=8 => {
                const $V: usize = 8;
                $body
            }
            9..=12 => {
                const $V: usize = 12;
                $body
            }
            _ => {
                const $V: usize = 16;
                $body
            }
        }
    };
}
pub(crate) use with_vectors;

/// Tags a set of `ways` ways takes in memory: the vectors that [`with_vectors`] unrolls for, times
/// 4.
pub(crate) fn stride(ways: u32) -> usize {
    let vectors = match ways.div_ceil(4) {
        v @ 1..=6 => v,
        7..=8 => 8,
        9..=12 => 12,
        _ => 16,
    };
    vectors as usize * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_any_way_whatever_its_flags() {
        let mut set = [INVALID; 16];
        for way in 0..16 {
            for flags in [0, DIRTY, REUSED, FLAGS] {
                set[way] = clean(42) | flags;
                assert_eq!(matches::<4>(&set, clean(42)), 1 << way);
                set[way] = INVALID;
            }
        }
        assert_eq!(matches::<4>(&set, clean(0)), 0);
    }

    #[test]
    fn pushing_in_front_shifts_exactly_the_ways_before() {
        for at in 0..12 {
            let mut set: [u32; 12] = std::array::from_fn(|i| i as u32 * 2);
            let mut expect = set;
            expect.copy_within(0..at, 1);
            expect[0] = 99;
            push_front::<3>(&mut set, at, 99);
            assert_eq!(set, expect, "at {at}");
        }
    }
}
