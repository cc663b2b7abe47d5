//! Replacement by "not recently used": a bit for each way, set by a use.
//!
//! The bits of a set are one word. When a use would set the last of them, all others are cleared,
//! so that a set of two ways and more always has a way without the bit; the first such way holds
//! the next victim. Ways are counted from 0 or, where the search rotates, from the way behind the
//! last victim. The second-level caches of the UltraSPARC T1 and T2 choose victims by such bits (K.
//! Kedzierski et al., "Adapting cache partitioning algorithms to pseudo-LRU replacement policies",
//! IPDPS 2010).

/// The bits of a set after `way` of `ways` was used.
#[inline]
pub(crate) fn touch(bits: u64, way: usize, ways: usize) -> u64 {
    let used = bits | 1 << way;
    if used == all(ways) { 1 << way } else { used }
}

/// The first way without its bit, counted from `from` and around. One way alone is always the
/// victim.
#[inline]
pub(crate) fn victim(bits: u64, from: usize, ways: usize) -> usize {
    let free = !bits & all(ways);
    let behind = free & u64::MAX << from;
    let first = if behind != 0 { behind } else { free };
    if first == 0 { 0 } else { first.trailing_zeros() as usize }
}

/// A bit for each of 1 to 64 ways.
#[inline]
pub(crate) fn all(ways: usize) -> u64 {
    u64::MAX >> (64 - ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_sets_the_bit_of_its_way_and_the_last_one_clears_the_others() {
        let mut bits = 0;
        for (way, after) in [(2, 0b0100), (0, 0b0101), (0, 0b0101), (3, 0b1101), (1, 0b0010)] {
            bits = touch(bits, way, 4);
            assert_eq!(bits, after, "way {way}");
        }
    }

    #[test]
    fn the_victim_is_the_first_way_without_the_bit_from_where_the_search_starts() {
        for (bits, from, way) in
            [(0b0000, 0, 0), (0b0101, 0, 1), (0b0101, 2, 3), (0b1100, 2, 0), (0b1110, 1, 0)]
        {
            assert_eq!(victim(bits, from, 4), way, "{bits:04b} from {from}");
        }
    }

    #[test]
    fn one_way_and_64_ways_work_too() {
        assert_eq!((touch(0, 0, 1), victim(1, 0, 1)), (1, 0));
        let mut bits = 0;
        for way in 0..63 {
            assert_eq!(victim(bits, 0, 64), way);
            bits = touch(bits, way, 64);
        }
        assert_eq!((victim(bits, 0, 64), touch(bits, 63, 64)), (63, 1 << 63));
    }
}
