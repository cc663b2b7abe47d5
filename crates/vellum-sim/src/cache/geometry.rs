//! Sizes of a set-associative structure, and the division of a line address into set and tag.
//!
//! Real last-level caches have set counts that are no power of two (30 MB in ten slices), so the
//! index cannot always be a mask. A hardware division costs some 25 cycles on the path of every
//! simulated access; a multiplication by the rounded-up reciprocal gives the same quotient in 4 as
//! long as `line * sets < 2^64`, which [`Geometry::check`] guarantees. For powers of two a shift
//! does, and the branch between them is the same for the life of a cache.
//!
//! Last levels since Sandy Bridge hash the address, so that lines at a regular distance do not meet
//! in a few sets (C. Maurice et al., RAID 2015; the functions differ by model). [`Index::Hash`]
//! turns the sets by a hash of the quotient: a run of lines as long as a way takes each set once,
//! and lines further apart fall as if at random. Rejected, since each has bad distances near good
//! ones: the exclusive or of parts of the address ("a way and a line"; powers of two only), and the
//! quotient times the golden ratio (199 pages put 100 lines into a set).

/// How a full set chooses the line that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The least recently used line leaves: exact, by order within the set.
    Lru,
    /// Any line, by a generator seeded from the geometry's seed.
    Random,
    /// A tree of bits points away from recent lines (what most first-level caches build).
    Plru,
    /// A line whose way has not been used since the bits of the set were last cleared: the first
    /// such way, counted from way 0.
    Nru,
    /// The same, counted from behind the last victim of the set.
    #[serde(rename = "nru-rotating")]
    NruRotating,
}

/// How the set of a line is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Index {
    /// The line address modulo the number of sets.
    #[default]
    Modulo,
    /// The same, turned by a hash of the rest of the address: lines at any regular distance spread
    /// over all sets.
    Hash,
}

/// The shape of one cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Number of sets; any number, not only powers of two.
    pub sets: u64,
    /// Lines in a set, at most 64.
    pub ways: u32,
    /// Who leaves a full set.
    pub policy: Policy,
    /// How the set of a line is chosen.
    pub index: Index,
    /// Seed of the generator that [`Policy::Random`] uses.
    pub seed: u64,
}

/// A shape that cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// No sets.
    #[error("0 sets: size must be at least ways * line size")]
    NoSets,
    /// More sets than the reciprocal division allows.
    #[error("{0} sets: at most {max} are supported", max = MAX_SETS)]
    ManySets(u64),
    /// No ways or too many.
    #[error("{0} ways: use 1 to {max}", max = MAX_WAYS)]
    Ways(u32),
    /// Memory is larger than the tags can tell apart.
    #[error(
        "{sets} sets can tell {reach} lines apart, memory has {lines}: use more sets or less memory"
    )]
    Reach {
        /// Sets of the cache.
        sets: u64,
        /// Lines it can tell apart.
        reach: u64,
        /// Lines of memory.
        lines: u64,
    },
}

/// Most sets a cache may have.
pub const MAX_SETS: u64 = 1 << 22;
/// Most ways a set may have.
pub const MAX_WAYS: u32 = 64;
/// Line addresses are below this (2^42 lines of 64 bytes: 256 TiB), and below [`Geometry::reach`].
pub const MAX_LINE: u64 = 1 << 42;
/// Quotients are below this: a tag is 32 bits, one of which says "dirty", and one quotient stands
/// for "no line".
pub(crate) const MAX_QUOTIENT: u64 = (1 << 31) - 1;

impl Geometry {
    /// Whether a cache of this shape can be built.
    pub fn check(&self) -> Result<(), GeometryError> {
        if self.sets == 0 {
            return Err(GeometryError::NoSets);
        }
        if self.sets > MAX_SETS {
            return Err(GeometryError::ManySets(self.sets));
        }
        if self.ways == 0 || self.ways > MAX_WAYS {
            return Err(GeometryError::Ways(self.ways));
        }
        Ok(())
    }

    /// Line addresses from 0 that the tags can tell apart: 2^31 - 1 a set.
    pub fn reach(&self) -> u64 {
        (self.sets * MAX_QUOTIENT).min(MAX_LINE)
    }

    /// Lines the cache holds.
    pub fn lines(&self) -> u64 {
        self.sets * u64::from(self.ways)
    }
}

/// [`Divider::shift`] of a number of sets that is no power of two.
const RECIPROCAL: u32 = 64;
/// [`Divider::shift`] of a hashed index; the division is by the reciprocal, if there is one.
const HASHED: u32 = 65;

/// Division by a fixed number of sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    sets: u64,
    /// log2 of `sets` if that is exact, else [`RECIPROCAL`]; [`HASHED`] for any hashed index. One
    /// comparison tells the three apart.
    shift: u32,
    /// 2^64 / sets, rounded up; unused where `shift` is a logarithm.
    reciprocal: u64,
}

impl Divider {
    /// `sets` is from 1 to [`MAX_SETS`].
    pub(crate) fn new(sets: u64, index: Index) -> Divider {
        let shift = match index {
            // One set leaves nothing to choose.
            Index::Hash if sets > 1 => HASHED,
            _ if sets.is_power_of_two() => sets.trailing_zeros(),
            _ => RECIPROCAL,
        };
        let reciprocal = if shift < RECIPROCAL { 0 } else { u64::MAX / sets + 1 };
        Divider { sets, shift, reciprocal }
    }

    /// Set and quotient of a line address below [`MAX_LINE`].
    #[inline(always)]
    pub(crate) fn split(&self, line: u64) -> (usize, u64) {
        if self.shift == HASHED { self.split_hashed(line) } else { self.split_plain(line) }
    }

    /// The same where the index is no hash.
    #[inline(always)]
    pub(crate) fn split_plain(&self, line: u64) -> (usize, u64) {
        if self.shift < RECIPROCAL {
            ((line & (self.sets - 1)) as usize, line >> self.shift)
        } else {
            let quotient = ((u128::from(line) * u128::from(self.reciprocal)) >> 64) as u64;
            ((line - quotient * self.sets) as usize, quotient)
        }
    }

    // Out of line: the plain paths are in every lookup, and stay as small as without it.
    #[inline(never)]
    fn split_hashed(&self, line: u64) -> (usize, u64) {
        let (rest, quotient) = self.split_plain(line);
        let turned = rest as u64 + self.turn(quotient);
        let set = if turned < self.sets { turned } else { turned - self.sets };
        (set as usize, quotient)
    }

    /// The line of a set and quotient.
    #[inline(always)]
    pub(crate) fn join(&self, set: usize, quotient: u64) -> u64 {
        let rest =
            if self.shift == HASHED { self.unturned(set as u64, quotient) } else { set as u64 };
        quotient * self.sets + rest
    }

    #[inline(never)]
    fn unturned(&self, set: u64, quotient: u64) -> u64 {
        let turn = self.turn(quotient);
        if set < turn { set + self.sets - turn } else { set - turn }
    }

    /// By how many sets the lines of a quotient are turned: below `sets`. Two multiplications mix
    /// the quotient, the third takes a part of `sets`.
    #[inline(always)]
    fn turn(&self, quotient: u64) -> u64 {
        let mixed = quotient.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((u128::from(mixed) * u128::from(self.sets)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Powers of two, real last levels (slices of 2048, odd numbers of slices), and odd numbers.
    const SETS: [u64; 15] =
        [1, 2, 3, 5, 7, 10, 48, 1000, 16384, 20480, 24576, 30720, 40960, MAX_SETS - 1, MAX_SETS];

    #[test]
    fn the_reciprocal_divides_exactly_at_every_edge() {
        for sets in SETS {
            let d = Divider::new(sets, Index::Modulo);
            for_edges(sets, |line| {
                assert_eq!(d.split(line), ((line % sets) as usize, line / sets), "{line} / {sets}");
                let (s, q) = d.split(line);
                assert_eq!(d.join(s, q), line);
            });
        }
    }

    fn for_edges(sets: u64, mut see: impl FnMut(u64)) {
        let top = MAX_LINE / sets;
        for quotient in [0, 1, 2, 3, 1000, top / 2, top - 1] {
            for rest in [0, 1, sets / 2, sets - 1] {
                see(quotient * sets + rest.min(sets - 1));
            }
        }
    }

    #[test]
    fn a_hashed_set_and_the_quotient_name_one_line_each() {
        for sets in SETS {
            let d = Divider::new(sets, Index::Hash);
            for_edges(sets, |line| {
                let (set, quotient) = d.split(line);
                assert!((set as u64) < sets && quotient == line / sets, "{line} in {sets} sets");
                assert_eq!(d.join(set, quotient), line, "{line} in {sets} sets");
            });
            // Each run of lines as long as a way has a line for each set.
            for quotient in [0, 1, 2, 1000].into_iter().filter(|_| sets < 1 << 16) {
                let mut seen = vec![false; sets as usize];
                (0..sets).for_each(|rest| seen[d.split(quotient * sets + rest).0] = true);
                assert!(seen.iter().all(|&s| s), "way {quotient} of {sets} sets");
            }
        }
    }

    /// Lines in each set, of `lines` lines at a distance.
    fn held(sets: u64, index: Index, distance: u64, lines: u64) -> Vec<u64> {
        let d = Divider::new(sets, index);
        let mut held = vec![0; sets as usize];
        (0..lines.min(MAX_LINE / distance)).for_each(|n| held[d.split(n * distance).0] += 1);
        held
    }

    #[test]
    fn lines_at_any_regular_distance_stay_in_16_ways_of_hashed_sets() {
        for sets in [64, 1024, 2048, 16384, 20480, 24576, 30720] {
            let (page, huge, cache) = (64, 32768, sets * 16);
            let twos = (0..24).map(|n| 1 << n);
            let pages = (1..200).map(|n| n * page);
            let others = [sets - 1, sets + 1, sets / 3, 3 * sets / 2, 5 * sets + 1, 1001, 99991];
            let large = (1..64).flat_map(|n| [n * huge, n * sets, n * cache]);
            for distance in twos.chain(pages).chain(large).chain(others) {
                // An eighth of the cache: all stay. A quarter: all but one in a thousand.
                for (lines, leave) in [(sets * 2, 0), (sets * 4, sets * 4 / 1000)] {
                    let held = held(sets, Index::Hash, distance, lines);
                    let beyond: u64 = held.iter().map(|n| n.saturating_sub(16)).sum();
                    assert!(beyond <= leave, "{beyond} of {lines}, {distance} apart, {sets} sets");
                }
            }
            let plain = held(sets, Index::Modulo, sets, sets * 2);
            assert_eq!(plain[0], sets * 2, "without a hash they meet in one set");
        }
    }
}
