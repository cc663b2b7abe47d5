//! Sizes of a set-associative structure, and the division of a line address into set and tag.
//!
//! Real last-level caches have set counts that are no power of two (30 MB in ten slices), so the
//! index cannot always be a mask. A hardware division costs some 25 cycles on the path of every
//! simulated access; a multiplication by the rounded-up reciprocal gives the same quotient in 4 as
//! long as `line * sets < 2^64`, which [`Geometry::check`] guarantees. For powers of two a shift
//! does, and the branch between them is the same for the life of a cache.

/// How a full set chooses the line that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The least recently used line leaves: exact, by order within the set.
    Lru,
    /// A tree of bits points away from recent lines (what most first-level caches build).
    Plru,
    /// Any line, by a generator seeded from the geometry's seed.
    Random,
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

/// Division by a fixed number of sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    sets: u64,
    /// log2 of `sets` if that is exact, else 64.
    shift: u32,
    /// 2^64 / sets, rounded up; unused for powers of two.
    reciprocal: u64,
}

impl Divider {
    /// `sets` is from 1 to [`MAX_SETS`].
    pub(crate) fn new(sets: u64) -> Divider {
        let shift = if sets.is_power_of_two() { sets.trailing_zeros() } else { 64 };
        let reciprocal = if shift == 64 { u64::MAX / sets + 1 } else { 0 };
        Divider { sets, shift, reciprocal }
    }

    /// Set and quotient of a line address below [`MAX_LINE`].
    #[inline(always)]
    pub(crate) fn split(&self, line: u64) -> (usize, u64) {
        if self.shift < 64 {
            ((line & (self.sets - 1)) as usize, line >> self.shift)
        } else {
            let quotient = ((u128::from(line) * u128::from(self.reciprocal)) >> 64) as u64;
            ((line - quotient * self.sets) as usize, quotient)
        }
    }

    /// The line of a set and quotient.
    #[inline(always)]
    pub(crate) fn join(&self, set: usize, quotient: u64) -> u64 {
        quotient * self.sets + set as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reciprocal_divides_exactly_at_every_edge() {
        for sets in
            [1, 2, 3, 5, 7, 10, 48, 1000, 20480, 24576, 30720, 40960, MAX_SETS - 1, MAX_SETS]
        {
            let d = Divider::new(sets);
            let top = MAX_LINE / sets;
            for quotient in [0, 1, 2, 3, 1000, top / 2, top - 1] {
                for rest in [0, 1, sets / 2, sets - 1] {
                    let line = quotient * sets + rest.min(sets - 1);
                    assert_eq!(
                        d.split(line),
                        ((line % sets) as usize, line / sets),
                        "{line} / {sets}"
                    );
                    let (s, q) = d.split(line);
                    assert_eq!(d.join(s, q), line);
                }
            }
        }
    }
}
