//! The program's mappings as the scan goes through them: ranges with one set of attributes, in the
//! order of their addresses. Neighbours that say the same are one, as Linux merges them.

use std::collections::BTreeMap;

use vellum::config::Thp;
use vellum::space::{Attrs, HugeAdvice};

use super::BLOCK_PAGES;

/// Bytes of a huge page.
pub const BLOCK: u64 = BLOCK_PAGES * 4096;

/// A range, which begins at its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    end: u64,
    attrs: Attrs,
    /// It is private memory of no file.
    anonymous: bool,
    /// It has had a page.
    touched: bool,
}

impl Region {
    /// The blocks that lie in it as a whole, from the first to the end of the last, if Linux would
    /// collapse them.
    fn blocks(&self, start: u64, thp: Thp) -> Option<(u64, u64)> {
        let wanted = match thp {
            Thp::Never => false,
            Thp::Advise => self.attrs.thp == Some(HugeAdvice::Huge),
            Thp::Always => self.attrs.thp != Some(HugeAdvice::NoHuge),
        };
        let (first, end) = (start.next_multiple_of(BLOCK), self.end & !(BLOCK - 1));
        (self.anonymous && self.touched && wanted && first < end).then_some((first, end))
    }
}

/// All mappings.
#[derive(Debug, Default)]
pub struct Regions(BTreeMap<u64, Region>);

impl Regions {
    /// A range is mapped, whatever was there.
    pub fn map(&mut self, (start, end): (u64, u64), attrs: Attrs, anonymous: bool) {
        self.place(start, Region { end, attrs, anonymous, touched: false });
    }

    /// A range is mapped no longer.
    pub fn unmap(&mut self, (start, end): (u64, u64)) {
        self.cut(start);
        self.cut(end);
        while let Some((&first, _)) = self.0.range(start..).next().filter(|(at, _)| **at < end) {
            self.0.remove(&first);
        }
    }

    /// What is mapped of a range gets other attributes.
    pub fn change(&mut self, (start, end): (u64, u64), change: impl Fn(&mut Attrs)) {
        self.cut(start);
        self.cut(end);
        self.0.range_mut(start..end).for_each(|(_, region)| change(&mut region.attrs));
        let starts: Vec<u64> = self.0.range(start..=end).map(|(&start, _)| start).collect();
        starts.into_iter().for_each(|start| self.join(start));
    }

    /// What was mapped at the beginning of a range is mapped in another, and all of the first is
    /// free.
    pub fn move_to(&mut self, from: (u64, u64), to: (u64, u64)) {
        let moved = self.at(from.0).map(|(_, region)| region);
        self.unmap(from);
        if let Some(region) = moved {
            self.place(to.0, Region { end: to.1, ..region });
        }
    }

    /// There is a page at `va` now.
    pub fn touch(&mut self, va: u64) {
        if let Some((start, region)) = self.at(va)
            && !region.touched
        {
            self.0.insert(start, Region { touched: true, ..region });
        }
    }

    /// Whether the range that has `va` has blocks that may be collapsed.
    pub fn is_candidate(&self, va: u64, thp: Thp) -> bool {
        self.at(va).is_some_and(|(start, region)| region.blocks(start, thp).is_some())
    }

    /// The first block from `at`, the start of one, on that may be collapsed, and how many ranges
    /// without any are passed on the way.
    pub fn next_block(&self, at: u64, thp: Thp) -> (u64, Option<u64>) {
        let first = self.at(at).map_or(at, |(start, _)| start);
        let mut passed = 0;
        for (&start, region) in self.0.range(first..) {
            match region.blocks(start, thp) {
                Some((first, end)) if at < end => return (passed, Some(at.max(first))),
                // Its last block was the one before.
                Some((_, end)) if at == end => {}
                _ => passed += 1,
            }
        }
        (passed, None)
    }

    /// The range that has `va`, and its start.
    fn at(&self, va: u64) -> Option<(u64, Region)> {
        let (&start, &region) = self.0.range(..=va).next_back()?;
        (va < region.end).then_some((start, region))
    }

    fn place(&mut self, start: u64, region: Region) {
        self.unmap((start, region.end));
        self.0.insert(start, region);
        self.join(region.end);
        self.join(start);
    }

    /// Makes `at` a boundary.
    fn cut(&mut self, at: u64) {
        if let Some((start, region)) = self.at(at)
            && start < at
        {
            self.0.insert(start, Region { end: at, ..region });
            self.0.insert(at, region);
        }
    }

    /// Joins the ranges on both sides of `at` if they say the same.
    fn join(&mut self, at: u64) {
        let before = self.0.range(..at).next_back().map(|(&start, &region)| (start, region));
        if let (Some((start, before)), Some(&after)) = (before, self.0.get(&at))
            && before.end == at
            && before.anonymous
            && after.anonymous
            && before.attrs == after.attrs
        {
            let touched = before.touched || after.touched;
            self.0.remove(&at);
            self.0.insert(start, Region { touched, ..after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::space::Rights;

    const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

    /// All blocks of touched memory, and how many ranges have none.
    fn blocks(regions: &Regions, thp: Thp) -> (Vec<u64>, u64) {
        let (mut all, mut passed, mut at) = (Vec::new(), 0, 0);
        loop {
            let (more, block) = regions.next_block(at, thp);
            passed += more;
            let Some(block) = block else { return (all, passed) };
            all.push(block / BLOCK);
            at = block + BLOCK;
        }
    }

    #[test]
    fn only_whole_blocks_of_touched_private_memory_are_given() {
        let mut r = Regions::default();
        r.map((BLOCK / 2, 3 * BLOCK + 4096), RW, true);
        r.map((5 * BLOCK, 7 * BLOCK), RW, false);
        r.map((8 * BLOCK, 9 * BLOCK), RW, true);
        assert_eq!(blocks(&r, Thp::Always), (vec![], 3));
        for va in [BLOCK / 2, 4 * BLOCK, 5 * BLOCK] {
            r.touch(va);
            assert_eq!(r.is_candidate(va, Thp::Always), va == BLOCK / 2);
        }
        assert_eq!(blocks(&r, Thp::Always), (vec![1, 2], 2));
        r.touch(8 * BLOCK);
        assert_eq!(blocks(&r, Thp::Always), (vec![1, 2, 8], 1));
        assert_eq!(r.next_block(2 * BLOCK, Thp::Always), (0, Some(2 * BLOCK)));
        assert_eq!(blocks(&r, Thp::Never), (vec![], 3));
    }

    #[test]
    fn advice_decides_with_the_switch() {
        let mut r = Regions::default();
        r.map((0, 4 * BLOCK), RW, true);
        r.touch(0);
        assert_eq!(blocks(&r, Thp::Advise), (vec![], 1));
        r.change((BLOCK, 2 * BLOCK), |attrs| attrs.thp = Some(HugeAdvice::Huge));
        r.change((3 * BLOCK, 4 * BLOCK), |attrs| attrs.thp = Some(HugeAdvice::NoHuge));
        assert_eq!(blocks(&r, Thp::Advise), (vec![1], 3));
        assert_eq!(blocks(&r, Thp::Always), (vec![0, 1, 2], 1));
        // What says the same again is one range again.
        r.change((0, 4 * BLOCK), |attrs| attrs.thp = None);
        assert_eq!(r.0.len(), 1);
    }

    #[test]
    fn a_heap_that_grows_in_pages_is_one_range_and_a_hole_makes_it_two() {
        let mut r = Regions::default();
        for page in 0..2 * BLOCK_PAGES {
            r.map((page * 4096, (page + 1) * 4096), RW, true);
            r.touch(page * 4096);
        }
        assert_eq!((r.0.len(), blocks(&r, Thp::Always)), (1, (vec![0, 1], 0)));
        r.unmap((BLOCK, BLOCK + 4096));
        assert_eq!((r.0.len(), blocks(&r, Thp::Always)), (2, (vec![0], 1)));
    }

    #[test]
    fn what_moves_keeps_its_attributes_and_leaves_a_hole() {
        let mut r = Regions::default();
        r.map((0, 2 * BLOCK), RW, true);
        r.touch(0);
        r.move_to((0, BLOCK), (4 * BLOCK, 6 * BLOCK));
        assert_eq!(blocks(&r, Thp::Always), (vec![1, 4, 5], 0));
        r.map((5 * BLOCK, 6 * BLOCK), Attrs::anonymous(Rights::READ), true);
        assert_eq!(blocks(&r, Thp::Always), (vec![1, 4], 1));
    }
}
