//! The folios in which Linux's page cache keeps a file: pieces of several pages, each of which a
//! fault maps whole (`file.folios`).
//!
//! * A write makes folios as long as what is left of it, where they are aligned.
//! * A fault on a page that is not there reads around it, page by page. Whoever comes to the mark
//!   in what was read makes the kernel read the part behind it, in folios four times as long.
//!
//! Basis: outside, `mm/filemap.c`, `mm/readahead.c` and `mm/memory.c` of Linux 6.18. Left out:
//! after a hundred misses Linux reads nothing around a fault any more. A file that was there before
//! the program began is taken to be kept page by page, since nobody knows how it was written.

use std::collections::BTreeMap;
use std::ops::Range;

/// The longest folio, 2 MiB: what one table of entries maps.
const MOST: u32 = 9;
const PAGE_SHIFT: u32 = 12;

/// Pages of the cache that follow each other, in folios of the same order.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    order: u32,
}

/// The folios of a file. All numbers are pages of it.
#[derive(Debug)]
pub struct Folios {
    runs: BTreeMap<u64, Run>,
    /// Where the next part begins that is read ahead.
    next: u64,
    /// The page whose use makes the kernel read that part.
    mark: u64,
    /// The order of the last part that was read.
    order: u32,
}

impl Folios {
    /// A file, of which so many pages are in the cache, each by itself.
    pub fn new(pages: u64) -> Folios {
        let mut folios = Folios { runs: BTreeMap::new(), next: 0, mark: u64::MAX, order: 0 };
        folios.fill(0..pages, 0);
        folios
    }

    /// The run that a page lies in.
    fn run(&self, page: u64) -> Option<Run> {
        self.runs.range(..=page).next_back().map(|(_, run)| *run).filter(|run| page < run.end)
    }

    /// Where what lies behind a page, which is in no folio, begins.
    fn gap_end(&self, page: u64) -> u64 {
        self.runs.range(page..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// Puts pages of one order behind those of the run before them.
    fn put(&mut self, pages: Range<u64>, order: u32) {
        if let Some((_, last)) = self.runs.range_mut(..=pages.start).next_back()
            && last.end == pages.start
            && last.order == order
        {
            last.end = pages.end;
        } else {
            self.runs.insert(pages.start, Run { end: pages.end, order });
        }
    }

    /// Makes folios of at most this order, of what lies in none.
    fn fill(&mut self, pages: Range<u64>, most: u32) {
        let mut at = pages.start;
        while at < pages.end {
            at = match self.run(at) {
                Some(run) => run.end,
                None => self.make(at, most, pages.end),
            };
        }
    }

    /// Makes a folio at a page that lies in none, or several of the same order; gives their end.
    fn make(&mut self, at: u64, most: u32, end: u64) -> u64 {
        let end = end.min(self.gap_end(at));
        let order = most.min(at.trailing_zeros()).min((end - at).ilog2());
        let alike = if order == most { (end - at) >> order } else { 1 };
        let end = at + (alike << order);
        self.put(at..end, order);
        end
    }

    /// The program wrote a part of the file, given in bytes.
    pub fn write(&mut self, offset: u64, bytes: u64) {
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let page = at >> PAGE_SHIFT;
            let behind = match self.run(page) {
                Some(run) => run.end,
                None => {
                    let left = end - at;
                    let most = left.ilog2().saturating_sub(PAGE_SHIFT).min(MOST);
                    // Each is as long as what is left, up to the longest.
                    let pages = if most == MOST { left >> PAGE_SHIFT } else { 1 << most };
                    self.make(page, most, page + pages)
                }
            };
            at = behind.saturating_mul(1 << PAGE_SHIFT);
        }
    }

    /// Pages are in the cache no more. A folio of which only a part goes is kept in pieces.
    pub fn forget(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let before = self.runs.range(..pages.start).next_back().map(|(start, _)| *start);
        let inside = self.runs.range(pages.clone()).map(|(start, _)| *start);
        for start in before.into_iter().chain(inside).collect::<Vec<_>>() {
            let Some(run) = self.runs.remove(&start) else { continue };
            self.fill(start..run.end.min(pages.start), run.order);
            self.fill(pages.end.max(start)..run.end, run.order);
        }
    }

    /// Nothing is in the cache.
    pub fn clear(&mut self) {
        *self = Folios::new(0);
    }

    /// A fault on a page of a file of `end` pages, of which the kernel reads `ahead` at once: the
    /// folio that it maps, if that has more than the page.
    pub fn fault(&mut self, page: u64, end: u64, ahead: u64) -> Option<Range<u64>> {
        let Some(Run { order, .. }) = self.run(page) else {
            let start = page.saturating_sub(ahead / 2);
            self.fill(start..(start + ahead).min(end), 0);
            (self.next, self.order) = (start + ahead, 0);
            self.mark = if ahead < 4 { u64::MAX } else { self.next - ahead / 4 };
            return None;
        };
        let start = page >> order << order;
        let folio = start..start + (1 << order);
        if folio.contains(&self.mark) {
            self.order = (self.order + 2).min(MOST).min(ahead.ilog2());
            self.fill(self.next..(self.next + ahead).min(end), self.order);
            (self.mark, self.next) = (self.next, self.next + ahead);
        }
        (order > 0).then_some(folio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of stores to every page of a file, in order, each of which maps a folio.
    fn faults(folios: &mut Folios, pages: u64, ahead: u64) -> u64 {
        let (mut at, mut faults) = (0, 0);
        while at < pages {
            let folio = folios.fault(at, pages, ahead);
            (at, faults) = (folio.map_or(at + 1, |folio| folio.end), faults + 1);
        }
        faults
    }

    /// As Linux 6.18 was measured on ext4 with 8 MiB of read-ahead (2026-11-28): stores to each
    /// page of a file of 32 MiB that was written by calls of so many KiB.
    #[test]
    fn a_file_written_by_calls_takes_the_faults_of_linux() {
        for (kib, measured) in
            [(4, 8192), (12, 5461), (64, 512), (100, 1516), (1024, 32), (2048, 16), (8192, 16)]
        {
            let mut folios = Folios::new(0);
            let (bytes, mut at) = (32 << 20, 0);
            while at < bytes {
                folios.write(at, kib << 10);
                at += kib << 10;
            }
            assert_eq!(faults(&mut folios, 8192, 2048), measured, "{kib} KiB");
        }
    }

    /// The same for a file that was made long and never written, of so many MiB.
    #[test]
    fn a_file_without_data_takes_the_faults_of_linux() {
        for (mib, measured) in
            [(4, 1024), (8, 2048), (16, 2560), (32, 2720), (64, 2740), (160, 2788)]
        {
            assert_eq!(faults(&mut Folios::new(0), mib * 256, 2048), measured, "{mib} MiB");
        }
    }

    #[test]
    fn pages_in_any_order_are_read_one_by_one() {
        let mut folios = Folios::new(0);
        for page in (0..8192).rev() {
            assert_eq!(folios.fault(page, 8192, 2048), None);
        }
        let mut folios = Folios::new(8192);
        assert_eq!(faults(&mut folios, 8192, 2048), 8192);
    }

    /// What goes may be less than a page, and what comes more than there is memory.
    #[test]
    fn nothing_and_very_much_are_parts_of_a_file_too() {
        let mut folios = Folios::new(16);
        folios.forget(3..3);
        folios.write(0, 1 << 62);
        assert_eq!(folios.fault(1 << 40, 1 << 50, 32), Some(1 << 40..(1 << 40) + 512));
        folios.forget(20..1 << 51);
        assert_eq!(folios.runs.len(), 2);
    }

    /// Folios lie apart, are aligned, and hold what was asked for, whatever is done.
    #[test]
    fn folios_never_overlap() {
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for ahead in [1, 2, 32, 100, 2048] {
            let (mut folios, mut there) = (Folios::new(40), vec![false; 4096]);
            there[..40].fill(true);
            for _ in 0..2000 {
                let (at, len) = (random(4000), 1 + random(90));
                match random(8) {
                    0 => {
                        folios.forget(at..at + len);
                        there[at as usize..(at + len) as usize].fill(false);
                    }
                    1..4 => {
                        folios.write(at * 4096 + 5, len * 4096 - 4090);
                        there[at as usize..(at + len).min(4096) as usize].fill(true);
                    }
                    _ => {
                        if let Some(folio) = folios.fault(at, 4096, ahead) {
                            let length = folio.end - folio.start;
                            assert!(length.is_power_of_two() && folio.contains(&at));
                            assert_eq!(folio.start % length, 0);
                        }
                        assert!(folios.run(at).is_some());
                    }
                }
                let mut end = 0;
                for (start, run) in &folios.runs {
                    assert!(end <= *start && *start < run.end);
                    assert_eq!((start | run.end) & ((1 << run.order) - 1), 0);
                    end = run.end;
                }
                let lost = (0..4096).find(|&n| there[n as usize] && folios.run(n).is_none());
                assert_eq!(lost, None);
            }
        }
    }
}
