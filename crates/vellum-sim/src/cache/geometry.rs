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
//!
//! [`Index::Pages`] is for guests. A cache is indexed by the host's addresses, and a hypervisor
//! that backs a guest by 4 KiB pages puts each of them anywhere. So the guest's pages are shuffled,
//! as the numbers of pages by multiplications that are undone when a line leaves.

use super::replacement::rrip;

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
    /// Ages predict when lines are used again: what is used once leaves before what was used again.
    /// For up to 21 ways.
    Rrip,
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
    /// Modulo, of pages of 4 KiB that lie anywhere: as a guest's do that a hypervisor backs by such
    /// pages. Lines of one page stay beside each other.
    Pages,
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
    /// More ways than a set has ages for.
    #[error("{0} ways: the policy \"rrip\" is for up to {max}", max = MAX_AGES)]
    Ages(u32),
    /// Pages that lie anywhere make no difference.
    #[error(
        "{0} sets: the index \"pages\" is for caches with at least the {PAGE_LINES} lines of a page"
    )]
    FewSets(u64),
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
/// The same under [`Policy::Rrip`].
pub const MAX_AGES: u32 = rrip::MAX_WAYS;
/// Line addresses are below this (2^42 lines of 64 bytes: 256 TiB), and below [`Geometry::reach`].
pub const MAX_LINE: u64 = 1 << 42;
/// Quotients are below this: a tag is 32 bits, two of which are flags, and one quotient stands for
/// "no line".
pub(crate) const MAX_QUOTIENT: u64 = (1 << (32 - super::set::FLAG_BITS)) - 1;

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
        if self.policy == Policy::Rrip && self.ways > MAX_AGES {
            return Err(GeometryError::Ages(self.ways));
        }
        if self.index == Index::Pages && self.sets < PAGE_LINES {
            return Err(GeometryError::FewSets(self.sets));
        }
        Ok(())
    }

    /// Line addresses from 0 that the tags can tell apart: 2^30 - 1 a set.
    pub fn reach(&self) -> u64 {
        let reach = (self.sets * MAX_QUOTIENT).min(MAX_LINE);
        match self.index {
            // Who is shuffled may come out anywhere among as many.
            Index::Pages => reach - reach % (SHUFFLED * PAGE_LINES),
            Index::Modulo | Index::Hash => reach,
        }
    }

    /// Lines the cache holds.
    pub fn lines(&self) -> u64 {
        self.sets * u64::from(self.ways)
    }
}

/// Lines of a page.
const PAGE_LINES: u64 = 64;
/// Pages are shuffled within so many (1 TiB), those beyond within the next as many.
const SHUFFLED: u64 = 1 << 28;
/// Half the bits of their numbers.
const HALF: u32 = 14;
/// Odd numbers below [`SHUFFLED`], and by what a multiplication by each is undone.
const MIX: [u64; 2] = [0x0c1b_3c6d, 0x097d_11b5];
const UNMIX: [u64; 2] = [inverse(MIX[0]), inverse(MIX[1])];

/// What times `odd` is 1 modulo [`SHUFFLED`]: each step doubles the number of bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut bits = 3;
    while bits < 2 * HALF {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse % SHUFFLED
}

/// The line in the place that the page of `line` is shuffled to; with the constants of undoing, in
/// the place that it came from.
fn shuffled(line: u64, [first, second]: [u64; 2]) -> u64 {
    let page = line / PAGE_LINES;
    let mut low = page % SHUFFLED;
    for factor in [first, second] {
        low ^= low >> HALF;
        low = low.wrapping_mul(factor) % SHUFFLED;
    }
    low ^= low >> HALF;
    (page - page % SHUFFLED + low) * PAGE_LINES + line % PAGE_LINES
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
    /// Whether the hash is a shuffle of pages.
    pages: bool,
}

impl Divider {
    /// `sets` is from 1 to [`MAX_SETS`].
    pub(crate) fn new(sets: u64, index: Index) -> Divider {
        let shift = match index {
            // One set leaves nothing to choose.
            Index::Hash | Index::Pages if sets > 1 => HASHED,
            _ if sets.is_power_of_two() => sets.trailing_zeros(),
            _ => RECIPROCAL,
        };
        let reciprocal = if shift < RECIPROCAL { 0 } else { u64::MAX / sets + 1 };
        Divider { sets, shift, reciprocal, pages: index == Index::Pages }
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
        if self.pages {
            return self.split_plain(shuffled(line, MIX));
        }
        let (rest, quotient) = self.split_plain(line);
        let turned = rest as u64 + self.turn(quotient);
        let set = if turned < self.sets { turned } else { turned - self.sets };
        (set as usize, quotient)
    }

    /// The line of a set and quotient.
    #[inline(always)]
    pub(crate) fn join(&self, set: usize, quotient: u64) -> u64 {
        if self.shift == HASHED {
            self.join_hashed(set as u64, quotient)
        } else {
            quotient * self.sets + set as u64
        }
    }

    #[inline(never)]
    fn join_hashed(&self, set: u64, quotient: u64) -> u64 {
        if self.pages {
            return shuffled(quotient * self.sets + set, [UNMIX[1], UNMIX[0]]);
        }
        let turn = self.turn(quotient);
        let rest = if set < turn { set + self.sets - turn } else { set - turn };
        quotient * self.sets + rest
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

    #[test]
    fn a_shuffled_set_and_the_quotient_name_one_line_each() {
        for sets in SETS.into_iter().filter(|s| *s >= PAGE_LINES) {
            let d = Divider::new(sets, Index::Pages);
            let shape =
                Geometry { sets, ways: 1, policy: Policy::Lru, index: Index::Pages, seed: 0 };
            shape.check().expect("a shape");
            for_edges(sets, |line| {
                if line >= shape.reach() {
                    return;
                }
                let (set, quotient) = d.split(line);
                assert!((set as u64) < sets && quotient < MAX_QUOTIENT);
                assert_eq!(d.join(set, quotient), line, "{line} in {sets} sets");
            });
        }
        let few = Geometry { sets: 63, ways: 1, policy: Policy::Lru, index: Index::Pages, seed: 0 };
        assert_eq!(few.check(), Err(GeometryError::FewSets(63)));
    }

    /// 512 pages in a cache of as many: a random place for each makes some sets too full, and by as
    /// much as chance does. That is what a guest's block of 2 MiB meets in a cache of 2 MiB.
    #[test]
    fn pages_that_lie_anywhere_fill_sets_as_chance_does() {
        let (sets, ways) = (2048, 16);
        let beyond = |index, first: u64| {
            let d = Divider::new(sets, index);
            let mut held = vec![0u64; sets as usize];
            (0..sets * ways).for_each(|n| held[d.split(first + n).0] += 1);
            held.iter().map(|n| n.saturating_sub(ways)).sum::<u64>()
        };
        let blocks = 64;
        let mean = |index| {
            let all: u64 = (0..blocks).map(|n| beyond(index, n * sets * ways)).sum();
            all as f64 / (blocks * sets * ways) as f64
        };
        assert_eq!([mean(Index::Modulo), mean(Index::Hash)], [0.0, 0.0]);
        // Of balls thrown into 32 bins, 16 a bin: the mean of what is beyond 16, over 16, is
        // sqrt(16 / (2 pi)) / 16.
        let pages = mean(Index::Pages);
        assert!((0.08..0.12).contains(&pages), "{pages}");
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
