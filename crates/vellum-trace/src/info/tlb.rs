//! A two-level TLB, as small a model as says something: first level fully associative, second level
//! set-associative, both true LRU, each fill goes to both.

/// Sizes of the two levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Entries of the first level (fully associative).
    pub first: usize,
    /// Entries of the second level.
    pub second: usize,
    /// Ways of the second level.
    pub ways: usize,
}

impl Default for Geometry {
    /// 64 entries before 2048 in 8 ways: AMD's Zen 2 and 3 (Software Optimization Guide for family
    /// 19h, 2.12).
    fn default() -> Geometry {
        Geometry { first: 64, second: 2048, ways: 8 }
    }
}

/// How often the TLB was asked and missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Program accesses.
    pub accesses: u64,
    /// Not in the first level.
    pub first_misses: u64,
    /// In neither: a walk.
    pub walks: u64,
}

/// Most recently used first.
pub(super) struct Tlb {
    first: Vec<u64>,
    first_len: usize,
    sets: Vec<Vec<u64>>,
    ways: usize,
}

/// Moves or puts `key` to the front; was it there?
fn touch(list: &mut Vec<u64>, most: usize, key: u64) -> bool {
    match list.iter().position(|k| *k == key) {
        Some(at) => {
            list[..=at].rotate_right(1);
            true
        }
        None => {
            list.truncate(most.saturating_sub(1));
            list.insert(0, key);
            false
        }
    }
}

impl Tlb {
    pub(super) fn new(g: Geometry) -> Tlb {
        let ways = g.ways.max(1);
        Tlb {
            first: Vec::new(),
            first_len: g.first.max(1),
            sets: vec![Vec::new(); (g.second / ways).max(1)],
            ways,
        }
    }

    /// One access to a page.
    #[inline]
    pub(super) fn access(&mut self, page: u64, p: &mut Pressure) {
        if self.first.first() == Some(&page) || touch(&mut self.first, self.first_len, page) {
            return;
        }
        p.first_misses += 1;
        let n = self.sets.len() as u64;
        let set = &mut self.sets[(page % n) as usize];
        if !touch(set, self.ways, page) {
            p.walks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_fits_misses_once_a_page_and_one_that_does_not_always_misses() {
        let walks = |pages: u64| {
            let mut t = Tlb::new(Geometry::default());
            let mut p = Pressure::default();
            for i in 0..10 * pages {
                t.access(i % pages, &mut p);
            }
            (p.first_misses, p.walks)
        };
        assert_eq!(walks(64), (64, 64));
        assert_eq!(walks(2048), (20_480, 2048));
        assert_eq!(walks(4096), (40_960, 40_960));
    }
}
