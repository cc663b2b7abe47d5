//! When the next scan comes, and which block it looks at next.

use vellum::config::Thp;

use super::regions::{BLOCK, Regions};
use super::{BLOCK_PAGES, CollapseScan};

/// `alloc_sleep_millisecs`.
const SLEEP_WITHOUT_MEMORY: u64 = 60_000;

/// The state between scans.
#[derive(Debug)]
pub struct Scanner {
    /// The switches.
    pub rules: CollapseScan,
    thp: Thp,
    clock_hz: u64,
    regions: Regions,
    /// The program has memory that may be collapsed.
    is_registered: bool,
    /// When the next scan comes, or the rest of this one.
    due: Option<u64>,
    is_running: bool,
    /// The block that comes next; `None`: the first of all.
    position: Option<u64>,
    scan: Scan,
}

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Pages looked at, as Linux counts them: 512 for a block whatever is in it, 1 for a mapping
    /// without any, and 1 each time it begins or goes on.
    progress: u64,
    /// It is inside the program's space.
    is_inside: bool,
    /// It has begun with the first block.
    has_begun: bool,
    /// It has waited for memory.
    has_waited: bool,
}

impl Scanner {
    /// Nothing is mapped yet.
    pub fn new(rules: CollapseScan, thp: Thp, clock_hz: u64) -> Scanner {
        Scanner {
            rules,
            thp,
            clock_hz,
            regions: Regions::default(),
            is_registered: false,
            due: None,
            is_running: false,
            position: None,
            scan: Scan::default(),
        }
    }

    /// What is mapped changes, at `va` among others. A program with memory that may be collapsed is
    /// registered for good. Nothing is noted if nothing is ever scanned.
    pub fn change(&mut self, va: u64, change: impl FnOnce(&mut Regions)) {
        if self.rules.pages > 0 && self.thp != Thp::Never {
            change(&mut self.regions);
            self.is_registered |= self.regions.is_candidate(va, self.thp);
        }
    }

    /// Whether a scan begins, or goes on, at this time. If so, the caller does it.
    pub fn begins(&mut self, now: u64) -> bool {
        if !self.is_registered || self.is_running {
            return false;
        }
        let first = if self.thp == Thp::Advise { 0 } else { self.sleep() };
        let due = *self.due.get_or_insert(now.saturating_add(first));
        self.is_running = now >= due;
        self.is_running
    }

    /// The scan is over.
    pub fn ends(&mut self) {
        self.scan = Scan::default();
        self.sleeps(self.sleep());
    }

    /// The scan has no memory for a block: it waits, but only once, and is over then.
    pub fn lacks_memory(&mut self) {
        if self.is_done() || self.scan.has_waited {
            return self.ends();
        }
        self.scan.has_waited = true;
        self.sleeps(self.cycles(SLEEP_WITHOUT_MEMORY));
    }

    /// A block is to be collapsed: Linux leaves the program's space for that, and comes back.
    pub fn leaves(&mut self) {
        self.scan.is_inside = false;
    }

    /// Scans that are due until `now` are left out.
    pub fn skips(&mut self, now: u64) {
        let next = now.saturating_add(self.sleep());
        self.due = self.due.map(|due| due.max(next));
    }

    /// Cycles from a scan to the next.
    fn sleep(&self) -> u64 {
        self.cycles(u64::from(self.rules.sleep))
    }

    fn cycles(&self, milliseconds: u64) -> u64 {
        milliseconds.saturating_mul(self.clock_hz) / 1000
    }

    fn sleeps(&mut self, cycles: u64) {
        self.due = self.due.map(|due| due.saturating_add(cycles));
        self.is_running = false;
    }

    fn is_done(&self) -> bool {
        self.scan.progress >= u64::from(self.rules.pages)
    }

    /// The next block that this scan looks at.
    pub fn next_to_scan(&mut self) -> Option<u64> {
        loop {
            // A scan begins with the first block once.
            let is_over = self.position.is_none() && self.scan.has_begun;
            if self.is_done() || !self.scan.is_inside && is_over {
                return None;
            }
            if !self.scan.is_inside {
                self.scan.is_inside = true;
                self.scan.has_begun |= self.position.is_none();
                self.scan.progress += 1;
            }
            let (passed, block) = self.regions.next_block(self.position.unwrap_or(0), self.thp);
            self.position = block.map(|block| block + BLOCK);
            self.scan.progress += passed;
            if block.is_some() {
                self.scan.progress += BLOCK_PAGES;
                return block;
            }
            self.scan.is_inside = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::space::{Attrs, HugeAdvice, Rights};

    const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

    #[test]
    fn after_scans_that_are_left_out_the_next_comes_a_sleep_later() {
        let mut scanner = scanner(1, 0, 4096);
        assert!(!scanner.begins(0) && scanner.begins(1_000_000));
        scanner.ends();
        assert!(scanner.begins(1_000_000), "it is far behind");
        scanner.ends();
        scanner.skips(1_000_000);
        assert!(!scanner.begins(1_000_009) && scanner.begins(1_000_010));
    }

    /// A scanner of so many blocks, with as many untouched mappings before them.
    fn scanner(blocks: u64, mappings: u64, pages: u32) -> Scanner {
        let rules = CollapseScan { pages, ..CollapseScan::default() };
        let mut scanner = Scanner::new(rules, Thp::Always, 1);
        let first = mappings * 2 * BLOCK;
        scanner.change(first, |regions| {
            for n in 0..mappings {
                regions.map((n * 2 * BLOCK, (n * 2 + 1) * BLOCK), RW, true);
            }
            regions.map((first, first + blocks * BLOCK), RW, true);
            regions.touch(first);
        });
        scanner
    }

    /// How many blocks a scan looks at, and the first of them.
    fn looks_at(scanner: &mut Scanner, collapses: bool) -> (u64, u64) {
        let (mut count, mut first) = (0, None);
        while let Some(block) = scanner.next_to_scan() {
            count += 1;
            first.get_or_insert(block / BLOCK);
            if collapses {
                scanner.leaves();
            }
        }
        scanner.scan = Scan::default();
        (count, first.unwrap_or(u64::MAX))
    }

    #[test]
    fn a_scan_goes_on_where_the_last_stopped_and_begins_anew_once() {
        for collapses in [false, true] {
            let mut s = scanner(20, 0, 4096);
            let scans = [0; 4].map(|_| looks_at(&mut s, collapses));
            assert_eq!(scans, [(8, 0), (8, 8), (8, 16), (8, 4)], "{collapses}");
            let mut s = scanner(3, 0, 4096);
            assert_eq!([0; 2].map(|_| looks_at(&mut s, collapses)), [(3, 0); 2]);
        }
    }

    /// Linux counts 1 for a mapping that it passes and 1 for each time that it comes back.
    #[test]
    fn pages_are_counted_as_linux_counts_them() {
        assert_eq!(looks_at(&mut scanner(20, 0, 2 * 512 + 1), false).0, 2);
        assert_eq!(looks_at(&mut scanner(20, 0, 2 * 512 + 2), false).0, 3);
        assert_eq!(looks_at(&mut scanner(20, 0, 2 * 512 + 2), true).0, 2);
        assert_eq!(looks_at(&mut scanner(20, 1, 2 * 512 + 2), false).0, 2);
    }

    #[test]
    fn scans_come_every_ten_seconds_from_the_first_candidate_on() {
        let mut s = scanner(1, 0, 4096);
        assert!(!s.begins(100) && !s.begins(109) && s.begins(110));
        // Another CPU comes by while it is under way.
        assert!(!s.begins(130));
        s.ends();
        assert!(!s.begins(119) && s.begins(121));
        s.lacks_memory();
        assert!(!s.begins(179) && s.begins(180));
        s.lacks_memory();
        assert!(!s.begins(189) && s.begins(190));
    }

    #[test]
    fn the_time_from_a_scan_to_the_next_is_set() {
        let mut s = scanner(1, 0, 4096);
        s.rules.sleep = 2500;
        s.clock_hz = 2;
        assert!(!s.begins(100) && !s.begins(104) && s.begins(105));
        s.ends();
        assert!(!s.begins(109) && s.begins(110));
    }

    #[test]
    fn a_program_is_registered_by_its_first_candidate_however_it_becomes_one() {
        let rules = CollapseScan { pages: 4096, ..CollapseScan::default() };
        let is_scanned = |s: &mut Scanner| {
            let at_once = s.begins(1);
            assert!(!at_once || s.thp == Thp::Advise);
            at_once || s.begins(100)
        };
        let touched = |end: u64, thp: Thp| {
            let mut s = Scanner::new(rules, thp, 1);
            s.change(0, |r| r.map((0, end), RW, true));
            s.change(0, |r| r.touch(0));
            assert_eq!(is_scanned(&mut s), thp == Thp::Always && end >= BLOCK);
            s
        };
        touched(BLOCK, Thp::Always);
        let mut grown = touched(BLOCK - 4096, Thp::Always);
        grown.change(BLOCK - 4096, |r| r.map((BLOCK - 4096, BLOCK), RW, true));
        assert!(is_scanned(&mut grown));
        let mut advised = touched(BLOCK, Thp::Advise);
        let advise = |attrs: &mut Attrs| attrs.thp = Some(HugeAdvice::Huge);
        advised.change(0, |r| r.change((0, BLOCK), advise));
        assert!(is_scanned(&mut advised));
        // Neither of these scans at all.
        touched(BLOCK, Thp::Never);
        let mut off = Scanner::new(CollapseScan::default(), Thp::Always, 1);
        off.change(0, |r| r.map((0, BLOCK), RW, true));
        off.change(0, |r| r.touch(0));
        assert!(!is_scanned(&mut off));
    }
}
