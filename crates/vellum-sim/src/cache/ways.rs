//! A predictor of ways that goes by linear addresses, as beside the first level of AMD's Zen cores.
//!
//! Such a core reads one way of a set, before it knows the physical address. Each line has a hash
//! of the linear address by which it was used last, and a load reads the way whose hash is that of
//! its own address. The law:
//!
//! - A load of a line that is in the cache under another linear address misses, and asks the
//!   second level. From then on the line is found by the new address, and not by the old one
//!   (Software Optimization Guide for AMD Family 17h Processors, 55723, section 2.6.2.2, as others
//!   quote it).
//! - Of lines in one set with the same hash only the last one used is found (chases on a Zen 3
//!   host, 2026-11-27).
//!
//! The hash is not in the guides. It was found from outside (M. Lipp et al., "Take A Way: Exploring
//! the Security Implications of AMD's Cache Way Predictors", AsiaCCS 2020): eight exclusive ors of
//! two bits each. Alternating chases over pairs of addresses on a Zen 3 host show the same eight.
//!
//! This file knows no cache: it says whether the way is predicted, and the caller whether the line
//! is there. A set remembers as many lines as it has ways, those used last, which under LRU are the
//! lines that are there.

use super::geometry::Geometry;

/// No line has this address.
const NO_LINE: u64 = u64::MAX;

/// The hash of a linear address: bits 12 to 19, each with one of bits 27, 26, 25, 20, 21, 22, 23,
/// 24. It is the same for all bytes of a page.
#[inline]
pub fn linear_hash(va: u64) -> u8 {
    let first_three = va >> 27 & 1 | va >> 25 & 2 | va >> 23 & 4;
    (va >> 12 ^ (va >> 20 & 31) << 3 ^ first_three) as u8
}

/// A line and the hash by which it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tagged {
    line: u64,
    hash: u8,
}

const NOTHING: Tagged = Tagged { line: NO_LINE, hash: 0 };

/// By which hash each line of a cache is found.
#[derive(Clone, Debug)]
pub struct WayPredictor {
    ways: usize,
    /// `ways` of each set; the line used last first.
    tagged: Vec<Tagged>,
}

impl WayPredictor {
    /// For a cache of this shape.
    pub fn new(cache: &Geometry) -> WayPredictor {
        WayPredictor { ways: cache.ways as usize, tagged: vec![NOTHING; cache.lines() as usize] }
    }

    /// Whether the last access to the set was to this line by this hash.
    #[inline]
    pub fn is_last(&self, set: usize, line: u64, hash: u8) -> bool {
        self.tagged[set * self.ways] == Tagged { line, hash }
    }

    /// Whether an access by an address with this hash finds the line. From now on it does, and no
    /// other line of the set is found by the hash, nor the line by another.
    #[inline]
    pub fn access(&mut self, set: usize, line: u64, hash: u8) -> bool {
        let used = Tagged { line, hash };
        let tagged = &mut self.tagged[set * self.ways..][..self.ways];
        if tagged[0] == used {
            return true;
        }
        let found = tagged.iter().position(|&t| t == used);
        let last = found.unwrap_or_else(|| {
            tagged
                .iter_mut()
                .filter(|t| t.line == line || t.hash == hash)
                .for_each(|t| *t = NOTHING);
            tagged.iter().position(|&t| t == NOTHING).unwrap_or(self.ways - 1)
        });
        tagged[..=last].rotate_right(1);
        tagged[0] = used;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Index, Policy};

    fn predictor(sets: u64, ways: u32) -> WayPredictor {
        let index = Index::Modulo;
        WayPredictor::new(&Geometry { sets, ways, policy: Policy::Lru, index, seed: 1 })
    }

    #[test]
    fn a_line_is_found_by_the_address_that_used_it_last_and_by_no_other() {
        let mut p = predictor(2, 4);
        assert!(!p.access(0, 10, 1), "nobody has used it");
        assert!(p.access(0, 10, 1));
        assert!(!p.access(0, 10, 2), "another address");
        assert!(p.access(0, 10, 2));
        assert!(!p.access(0, 10, 1), "the first address lost it");
        assert!(!p.access(1, 11, 1) && p.access(0, 10, 1), "sets are apart");
    }

    #[test]
    fn of_lines_with_one_hash_in_a_set_the_last_is_found() {
        let mut p = predictor(1, 4);
        for line in [1, 2, 1, 2] {
            assert!(!p.access(0, line, 7), "line {line}");
        }
        assert!(!p.access(0, 3, 8));
        assert!(p.access(0, 2, 7) && p.access(0, 3, 8), "other hashes do not disturb");
        // Both at once: the line by another hash, the hash by another line.
        assert!(!p.access(0, 2, 8));
        assert!(p.access(0, 2, 8) && !p.access(0, 3, 8) && !p.access(0, 2, 7));
    }

    #[test]
    fn as_many_lines_as_ways_are_remembered_and_the_one_used_longest_ago_is_forgotten() {
        let mut p = predictor(1, 4);
        (0..4).for_each(|n| _ = p.access(0, n, n as u8));
        assert!((0..4).all(|n| p.access(0, n, n as u8)), "all ways");
        assert!(!p.access(0, 4, 4));
        assert!(!p.access(0, 0, 0), "one line more");
        assert!([2, 3, 4, 0].into_iter().all(|n| p.access(0, n, n as u8)), "line 1 left");
    }

    /// Pairs of bits of a linear address whose exclusive ors are the bits of its hash.
    const PAIRS: [[u32; 2]; 8] =
        [[12, 27], [13, 26], [14, 25], [15, 20], [16, 21], [17, 22], [18, 23], [19, 24]];

    #[test]
    fn the_hash_is_eight_pairs_of_bits_of_the_page() {
        let counts = |n: &u32| linear_hash(1 << n) != 0;
        assert_eq!((0..64).filter(counts).collect::<Vec<_>>(), (12..28).collect::<Vec<_>>());
        let hashes: std::collections::BTreeSet<_> =
            (0..256).map(|page| linear_hash(0x7f00_0000_0000 + page * 4096)).collect();
        assert_eq!(hashes.len(), 256, "pages of 1 MiB differ");
        for (n, [low, high]) in PAIRS.into_iter().enumerate() {
            assert_eq!([low, high].map(|bit| linear_hash(1 << bit)), [1 << n; 2]);
            assert_eq!(linear_hash(1 << low | 1 << high), 0);
            assert_ne!(linear_hash(1 << low), 0);
        }
    }
}
