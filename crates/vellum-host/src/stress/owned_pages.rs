//! The pages of a space that one thread owns, and what they must hold.
//!
//! Threads share spaces, so that they contend for locks, table nodes and huge pages. Only its owner
//! changes a page, so the owner knows the page's contents. Even chunks of 2 MiB are divided into
//! one slice for each thread, which share table nodes. Each odd chunk belongs to one thread, for
//! huge pages. The window crosses a 1 GiB boundary, so that larger ranges share upper nodes.
//!
//! Three words of a page are compared: the first, one in the middle, and the last. A word is 0 or a
//! *stamp*: its owner and a serial number. Another thread cannot know the serial number, but a
//! stamp of another owner is a leak.

use std::collections::BTreeMap;

use vellum::addr::Va;
use vellum::space::Rights;

use crate::rng::Rng;

/// Byte offsets of the sampled words.
pub const SAMPLES: [u64; 3] = [0, 2040, 4088];
/// Pages in 2 MiB.
pub const CHUNK: u64 = 512;
/// First page of the window: half of it below 8 GiB, half above.
const MIDDLE: u64 = 8 << 18;

/// A page as its taken knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// What the region gives.
    pub rights: Rights,
    /// The sampled words.
    pub words: [u64; 3],
}

/// A run of pages, by page number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First page.
    pub first: u64,
    /// How many.
    pub pages: u64,
}

impl Run {
    /// The first address.
    pub fn start(self) -> Va {
        Va(self.first << 12)
    }
    /// The length in bytes.
    pub fn bytes(self) -> u64 {
        self.pages << 12
    }
    /// The page numbers.
    pub fn numbers(self) -> std::ops::Range<u64> {
        self.first..self.first + self.pages
    }
    /// Whether a page lies in it.
    pub fn has(self, page: u64) -> bool {
        self.numbers().contains(&page)
    }
}

/// How much of a run is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// Nothing.
    None,
    /// Some pages.
    Some,
    /// Every page.
    All,
}

/// Which pages of the window belong to whom.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Threads.
    pub threads: u64,
}

impl Window {
    /// Chunks of 2 MiB in the window: two of either kind for each thread.
    pub fn chunks(self) -> u64 {
        4 * self.threads
    }
    /// First page of the window.
    pub fn first(self) -> u64 {
        self.chunk(0)
    }
    /// Pages in the window.
    pub fn pages(self) -> u64 {
        self.chunks() * CHUNK
    }
    /// First page of a chunk.
    fn chunk(self, n: u64) -> u64 {
        MIDDLE - self.chunks() / 2 * CHUNK + n * CHUNK
    }
    /// The runs of a owner.
    pub fn runs(self, owner: u64) -> Vec<Run> {
        let slice = CHUNK / self.threads;
        (0..self.chunks())
            .filter_map(|n| match n % 2 {
                0 => Some(Run { first: self.chunk(n) + owner * slice, pages: slice }),
                _ if n / 2 % self.threads == owner => {
                    Some(Run { first: self.chunk(n), pages: CHUNK })
                }
                _ => None,
            })
            .collect()
    }
    /// Any page of the window of another owner, and that owner.
    pub fn foreign(self, owner: u64, rng: &mut Rng) -> Option<(u64, u64)> {
        let other =
            (owner + 1 + rng.below(self.threads.checked_sub(1).filter(|&n| n > 0)?)) % self.threads;
        let runs = self.runs(other);
        let run = runs[rng.below(runs.len() as u64) as usize];
        Some((run.first + rng.below(run.pages), other))
    }
}

/// A stamp: the owner of a word and a serial number.
pub fn stamp(lineage: u64, owner: u64, serial: u64) -> u64 {
    (lineage + 1) << 48 | owner << 40 | (serial & ((1 << 40) - 1))
}

/// Whether a word found in a page of `owner` can be there at all.
pub fn is_sane(word: u64, lineage: u64, owner: u64) -> bool {
    word == 0 || word >> 40 == stamp(lineage, owner, 0) >> 40
}

/// A owner of one space.
#[derive(Clone, Debug)]
pub struct OwnedPages {
    /// Which base space its contents come from, through forks.
    pub lineage: u64,
    /// Whose it is.
    pub owner: u64,
    /// Its runs of the window.
    pub runs: Vec<Run>,
    /// Runs the library placed.
    pub strays: Vec<Run>,
    /// Every mapped page.
    pub pages: BTreeMap<u64, Page>,
    /// Stamps given.
    pub serial: u64,
}

impl OwnedPages {
    /// Nothing mapped.
    pub fn new(window: Window, lineage: u64, owner: u64) -> OwnedPages {
        OwnedPages {
            lineage,
            owner,
            runs: window.runs(owner),
            strays: Vec::new(),
            pages: BTreeMap::new(),
            serial: 0,
        }
    }
    /// How much of a run is mapped.
    pub fn cover(&self, run: Run) -> Cover {
        match self.pages.range(run.numbers()).count() as u64 {
            0 => Cover::None,
            n if n == run.pages => Cover::All,
            _ => Cover::Some,
        }
    }
    /// A fresh stamp.
    pub fn stamp(&mut self) -> u64 {
        self.serial += 1;
        stamp(self.lineage, self.owner, self.serial)
    }
    /// The run was mapped anew.
    pub fn map(&mut self, run: Run, rights: Rights) {
        run.numbers().for_each(|p| {
            self.pages.insert(p, Page { rights, words: [0; 3] });
        });
    }
    /// The run was unmapped.
    pub fn unmap(&mut self, run: Run) {
        run.numbers().for_each(|p| {
            self.pages.remove(&p);
        });
    }
    /// Changes every mapped page of a run.
    pub fn each(&mut self, run: Run, f: impl FnMut(&mut Page)) {
        self.pages.range_mut(run.numbers()).map(|(_, page)| page).for_each(f);
    }
    /// A whole chunk of 2 MiB, if the owner has one.
    pub fn chunk(&self, rng: &mut Rng) -> Option<Run> {
        let whole: Vec<Run> = self.runs.iter().copied().filter(|r| r.pages == CHUNK).collect();
        (!whole.is_empty()).then(|| whole[rng.below(whole.len() as u64) as usize])
    }
    /// A part of the owner: usually a few pages, now and then a whole run.
    pub fn part(&self, rng: &mut Rng) -> Run {
        if rng.once_in(6)
            && let Some(run) = self.chunk(rng)
        {
            return run;
        }
        let run = self.runs[rng.below(self.runs.len() as u64) as usize];
        part_of(run, rng)
    }
    /// A mapped page, if a few draws find one.
    pub fn mapped(&self, rng: &mut Rng) -> Option<u64> {
        if !self.strays.is_empty() && rng.once_in(10) {
            let run = self.strays[rng.below(self.strays.len() as u64) as usize];
            return Some(run.first + rng.below(run.pages));
        }
        let run = self.runs[rng.below(self.runs.len() as u64) as usize];
        let from = run.first + rng.below(run.pages);
        let after = self.pages.range(from..run.first + run.pages).next();
        after.or_else(|| self.pages.range(run.first..from).next_back()).map(|(&page, _)| page)
    }
}

/// A part of a run: one page, some pages, or all of it.
pub fn part_of(run: Run, rng: &mut Rng) -> Run {
    let longest = match rng.below(10) {
        0..4 => 1,
        4..7 => 8,
        7..9 => run.pages,
        _ => return run,
    };
    let pages = 1 + rng.below(longest.min(run.pages));
    Run { first: run.first + rng.below(run.pages - pages + 1), pages }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_the_window_without_overlap() {
        for threads in [1, 2, 3, 5, 8] {
            let window = Window { threads };
            let mut taken = BTreeMap::new();
            for owner in 0..threads {
                for run in window.runs(owner) {
                    run.numbers().for_each(|p| assert_eq!(taken.insert(p, owner), None));
                }
            }
            let mut rng = Rng::new(threads);
            for _ in 0..100 {
                let Some((page, whose)) = window.foreign(0, &mut rng) else {
                    assert_eq!(threads, 1);
                    continue;
                };
                assert!(whose != 0 && taken[&page] == whose);
            }
        }
    }

    #[test]
    fn a_stamp_is_sane_in_its_own_lane_only() {
        let word = stamp(2, 3, 99);
        assert!(is_sane(word, 2, 3) && is_sane(0, 2, 3));
        assert!(!is_sane(word, 2, 4) && !is_sane(word, 1, 3) && !is_sane(99, 2, 3));
    }

    #[test]
    fn parts_stay_inside_their_run() {
        let mut rng = Rng::new(9);
        let run = Run { first: 1000, pages: 64 };
        for _ in 0..1000 {
            let p = part_of(run, &mut rng);
            assert!(p.pages > 0 && run.has(p.first) && run.has(p.first + p.pages - 1));
        }
    }
}
