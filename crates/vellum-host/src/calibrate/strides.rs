//! Lines at the stride of a cache's sets.
//!
//! They are all in one set if the low bits of an address say in which, and a chase through more of
//! them than the cache and those above it have ways goes to memory. If a hash of the address says
//! so they are in many sets, and stay. Of physical addresses a program knows what lies within a
//! huge page. So the stride must be a part of one; where it is some of them, lines of as many huge
//! pages are in as many sets.

use super::chase::Chain;
use super::figure::Figure;
use super::topology::{CacheShape, Topology};
use crate::bench::linux::Area;
use crate::rng::Rng;

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Lines for each way that could hold one, so that a policy that keeps some of a set's lines keeps
/// few.
const TIMES: u64 = 4;
/// The same where there is not room for as many.
const AT_LEAST: u64 = 2;

/// A step of a chase through lines of one set of the last level, if its index is plain. `None`
/// where there is no such level, or where nobody knows what lies at the stride of its sets.
pub(super) fn measure(topology: &Topology, huge: &Area) -> Option<Figure> {
    let llc = topology.llc.filter(|llc| llc.ways_known && huge.is_huge())?;
    let places = places(topology.l2, llc, huge.bytes() as u64)?;
    Some(Chain::new(huge, &places).step())
}

/// Where those lines are in so many bytes of huge pages, in an order that no prefetcher knows.
fn places(above: CacheShape, cache: CacheShape, bytes: u64) -> Option<Vec<usize>> {
    let stride = cache.size / u64::from(cache.ways).max(1);
    if stride < 4096 || !(HUGE.is_multiple_of(stride) || stride.is_multiple_of(HUGE)) {
        return None;
    }
    let (apart, sets) = (stride.min(HUGE), (stride / HUGE).max(1));
    let ways = u64::from(above.ways + cache.ways) * sets;
    let count = (TIMES * ways).min(bytes / apart);
    let mut places: Vec<usize> = (0..count).map(|n| (n * apart) as usize).collect();
    Rng::new(4).shuffle(&mut places);
    (count >= AT_LEAST * ways).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_at_the_stride_of_the_sets_where_that_means_one_set() {
        let cache = |size: u64, ways| CacheShape { size, ways, ways_known: true };
        let l2 = cache(1 << 20, 16);
        // The sets of 64 MiB are 4 MiB apart: two of them, and 64 lines in each.
        for (size, stride) in [(32 << 20, 2 << 20), (16 << 20, 1 << 20), (64 << 20, 2 << 20)] {
            let mut places = places(l2, cache(size, 16), 256 << 20).expect("known");
            assert!(places.windows(2).any(|pair| pair[0] > pair[1]), "in a row");
            places.sort_unstable();
            let expected: Vec<usize> = (0..128).map(|n| n * stride).collect();
            assert_eq!(places, expected);
        }
        let fewer = places(l2, cache(32 << 20, 16), 128 << 20).expect("two for each way");
        assert_eq!(fewer.len(), 64);
        assert_eq!(places(l2, cache(96 << 20, 16), 256 << 20), None, "43 in each are too few");
        assert_eq!(places(l2, cache(30 << 20, 20), 256 << 20), None, "1.5 MiB");
    }
}
