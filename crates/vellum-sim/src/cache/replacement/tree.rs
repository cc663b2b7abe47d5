//! Tree-PLRU: one bit for each inner node of a binary tree over the ways, pointing towards the next
//! victim.
//!
//! Touching a way turns the bits on its path away from it. Which bits those are depends on the way
//! alone, so they are kept as two masks a way and a touch is two operations on one word. With a
//! number of ways that is no power of two the tree has leaves without a way; the descent to a
//! victim goes left where the right half has none.

/// The tree of one shape, shared by all sets.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Leaves: ways rounded up to a power of two.
    leaves: usize,
    ways: usize,
    /// For each way: bits to keep, bits to set.
    touch: Vec<(u64, u64)>,
}

impl Tree {
    pub(crate) fn new(ways: u32) -> Tree {
        let ways = ways as usize;
        let leaves = ways.next_power_of_two();
        let path = |way: usize| {
            let (mut keep, mut set) = (u64::MAX, 0);
            let mut node = leaves + way;
            while node > 1 {
                let from_right = node & 1 == 1;
                node /= 2;
                keep &= !(1 << node);
                if !from_right {
                    set |= 1 << node;
                }
            }
            (keep, set)
        };
        Tree { leaves, ways, touch: (0..ways).map(path).collect() }
    }

    /// The bits after `way` was used.
    #[inline]
    pub(crate) fn touch(&self, bits: u64, way: usize) -> u64 {
        let (keep, set) = self.touch[way];
        bits & keep | set
    }

    /// The way the bits point to.
    #[inline]
    pub(crate) fn victim(&self, bits: u64) -> usize {
        let mut node = 1;
        let mut half = self.leaves / 2;
        let mut first = 0;
        while half > 0 {
            let right = bits >> node & 1 == 1 && first + half < self.ways;
            node = node * 2 + usize::from(right);
            first += if right { half } else { 0 };
            half /= 2;
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_victim_is_never_the_way_just_touched_and_every_way_comes_up() {
        for ways in [2, 3, 4, 8, 12, 20, 24, 64] {
            let tree = Tree::new(ways);
            let mut bits = 0;
            let mut seen = vec![false; ways as usize];
            for _ in 0..ways * 64 {
                let victim = tree.victim(bits);
                assert!(victim < ways as usize);
                seen[victim] = true;
                bits = tree.touch(bits, victim);
                assert_ne!(tree.victim(bits), victim, "{ways} ways");
            }
            assert!(seen.iter().all(|&s| s), "{ways} ways: {seen:?}");
        }
    }
}
