//! Which pages a file has: a kernel gives it those that a write finds missing, and that takes time.

use std::collections::BTreeMap;
use std::ops::Range;

/// The pages that a file had when it appeared, and those that calls have written since.
#[derive(Debug, Default)]
pub struct Written {
    /// Ends of ranges that do not touch, by their starts.
    ranges: BTreeMap<u64, u64>,
}

impl Written {
    /// A file of so many pages.
    pub fn new(pages: u64) -> Written {
        Written { ranges: [(0, pages)].into_iter().filter(|(_, end)| *end > 0).collect() }
    }

    /// A call writes these; says whether the file lacked one of them.
    pub fn write(&mut self, pages: Range<u64>) -> bool {
        let before =
            self.ranges.range(..=pages.start).next_back().map(|(start, end)| (*start, *end));
        let (start, mut end) = match before {
            Some((_, end)) if end >= pages.end => return false,
            Some((start, end)) if end >= pages.start => (start, pages.end),
            _ => (pages.start, pages.end),
        };
        while let Some((&next, &its_end)) = self.ranges.range(start + 1..=end).next() {
            self.ranges.remove(&next);
            end = end.max(its_end);
        }
        self.ranges.insert(start, end);
        true
    }

    /// The file has no more than so many pages.
    pub fn cut(&mut self, pages: u64) {
        self.ranges.split_off(&pages);
        if let Some((_, end)) = self.ranges.iter_mut().next_back() {
            *end = pages.min(*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_lacking_until_it_is_written_and_after_it_is_cut() {
        let mut naive = [false; 64];
        naive[..8].fill(true);
        let (mut written, mut x) = (Written::new(8), 0x9e37_79b9_7f4a_7c15u64);
        for step in 0..20_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let (from, len) = ((x >> 8) % 64, (x >> 16) % 9);
            let pages = from..(from + len).min(64);
            if x & 15 == 0 {
                written.cut(from);
                naive[from as usize..].fill(false);
                continue;
            }
            if pages.is_empty() {
                continue;
            }
            let part = &mut naive[pages.start as usize..pages.end as usize];
            let lacks = part.contains(&false);
            part.fill(true);
            assert_eq!(written.write(pages), lacks, "step {step}");
        }
        assert!(Written::new(0).write(0..1));
    }
}
