//! Which pages of a block are cleared first.
//!
//! Whoever faulted touches its page next, and soon its neighbours; clearing a large block washes
//! everything else out of the caches. So the neighbourhood goes last and the page itself as the
//! very last. Everything else is two long runs, right and left of it: right first, since most
//! blocks are entered at their first page, where only the right one exists.
//!
//! Sides are computed by differences that say "nothing" when there is nothing: clamping both ends
//! of an empty side into the block would make up a page (a bug the published form had before it was
//! merged).
//!
//! [`converge`] is the order before extents, kept for `clear.unit=page`: from the far end towards
//! the page, then left and right in turn. Rejected: runs that shrink geometrically towards the page
//! (more runs, and no cache that would notice).

use core::ops::Range;

/// Pages on each side of the one that faulted which count as near it.
const RADIUS: u64 = 2;

/// The ranges of a block in the order they are cleared. Empty ones are skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ranges {
    /// Everything right of the neighbourhood.
    pub right: Range<u64>,
    /// Everything left of it.
    pub left: Range<u64>,
    /// The neighbourhood: 3 to 5 pages, fewer in a shorter block. The page that faulted lies in it.
    pub near: Range<u64>,
}

/// The ranges of a block of `pages` pages whose page `fault` was touched.
pub(super) fn ranges(pages: u64, fault: u64) -> Ranges {
    debug_assert!(fault < pages, "the page that faulted lies in the block");
    let near = fault.saturating_sub(RADIUS)..(fault + RADIUS + 1).min(pages);
    Ranges { right: near.end..pages, left: 0..near.start, near }
}

/// The parts of the neighbourhood: before the page, after it, the page.
pub(super) fn parts(near: &Range<u64>, fault: u64) -> [Range<u64>; 3] {
    [near.start..fault, fault + 1..near.end, fault..fault + 1]
}

/// The pages of a block, one by one: the half that `fault` is not in from its far end, then from
/// both sides towards `fault`.
pub(super) fn converge(pages: u64, fault: u64) -> impl Iterator<Item = u64> {
    // The pages that lie symmetrically about the page, less one where the block has an even number
    // of them.
    let (far, base, around) = if 2 * fault < pages {
        (2 * fault + 1..pages, 0, 2 * fault + 1)
    } else {
        let left = 2 * fault + 1 - pages;
        (0..left, left, pages - left)
    };
    let down = 2 * fault < pages;
    let count = far.end - far.start;
    let outer = (0..count).map(move |i| if down { far.end - 1 - i } else { far.start + i });
    let inner =
        (0..around).map(move |i| if i % 2 == 0 { base + i / 2 } else { base + around - 1 - i / 2 });
    outer.chain(inner)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec;
    use std::vec::Vec;

    const BLOCKS: [u64; 9] = [1, 2, 3, 4, 5, 8, 16, 512, 262_144];

    fn edges(pages: u64) -> impl Iterator<Item = u64> {
        let ends = [0, 1, 2, 3, 4, pages / 2];
        let last = (1..=5).filter_map(move |back| pages.checked_sub(back));
        ends.into_iter().filter(move |&f| f < pages).chain(last)
    }

    #[test]
    fn a_02_ranges_of_512_pages_are_right_then_left_then_near() {
        let all = |f| {
            let r = ranges(512, f);
            (r.right, r.left, r.near)
        };
        assert_eq!(all(100), (103..512, 0..98, 98..103));
        assert_eq!(all(0), (3..512, 0..0, 0..3));
        assert_eq!(all(511), (512..512, 0..509, 509..512));
        assert_eq!(all(2), (5..512, 0..0, 0..5));
    }

    #[test]
    fn a_03_ranges_are_disjoint_and_their_lengths_sum_to_the_block_for_every_edge() {
        for pages in BLOCKS {
            for f in edges(pages) {
                let r = ranges(pages, f);
                let sum: u64 = [&r.right, &r.left, &r.near].iter().map(|r| r.end - r.start).sum();
                assert_eq!(sum, pages, "{pages} pages, page {f}");
                assert!(
                    r.left.end == r.near.start && r.near.end == r.right.start && r.left.start == 0,
                    "{r:?}"
                );
                assert!(
                    r.near.contains(&f) && r.near.end - r.near.start <= 2 * RADIUS + 1,
                    "{r:?}"
                );
                assert!(
                    pages > RADIUS + 1 || r.near == (0..pages),
                    "{pages} pages: only the neighbourhood, {r:?}"
                );
                let parts: Vec<u64> = parts(&r.near, f).into_iter().flatten().collect();
                assert_eq!(parts.last(), Some(&f), "the page that faulted is the very last");
                assert_eq!(parts.len() as u64, r.near.end - r.near.start);
            }
        }
    }

    #[test]
    fn converging_visits_each_page_once_and_the_one_that_faulted_last() {
        for pages in BLOCKS {
            for f in edges(pages) {
                let order: Vec<u64> = converge(pages, f).collect();
                assert_eq!(order.last(), Some(&f), "{pages} pages, page {f}");
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..pages), "{pages} pages, page {f}: {order:?}");
            }
        }
        assert_eq!(converge(8, 1).collect::<Vec<_>>(), vec![7, 6, 5, 4, 3, 0, 2, 1]);
        assert_eq!(converge(8, 6).collect::<Vec<_>>(), vec![0, 1, 2, 3, 4, 5, 7, 6]);
        assert_eq!(converge(5, 2).collect::<Vec<_>>(), vec![0, 4, 1, 3, 2]);
    }
}
