//! The few ranges that all threads work on, and what may be done to each.
//!
//! Some pages of each range are compared, its *slots*: all pages of a small range, a few of a huge
//! one. No store may be lost, except in ranges that are wiped. The first and the last range never
//! move, so that a mapping placed by the library does not land in a hole between the ranges.

use vellum::addr::Va;
use vellum::space::{Attrs, HugeAdvice, LeafSize, Rights};

use crate::rng::Rng;
use crate::stress::owned_pages::Run;

/// What is done to a range, beside what loses nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing: always there, always readable and writable, no store lost.
    Kept,
    /// Rights are taken and given.
    Rights,
    /// It is moved to another place, and back.
    Moved,
    /// Any thread may drop the contents; rights change with that.
    Wiped,
}

/// A range.
#[derive(Clone, Debug)]
pub struct Extent {
    /// What is done to it.
    pub kind: Kind,
    /// Where it is; for one that is moved, at first.
    pub run: Run,
    /// First page of its other place, if it is moved.
    pub other: u64,
    /// The number of its first slot.
    pub slot: usize,
    /// Which pages are looked at, counted from its first.
    pub pages: Vec<u64>,
    /// What huge pages it is mapped with at first.
    pub thp: Option<HugeAdvice>,
}

impl Extent {
    /// Its slots.
    pub fn slots(&self) -> std::ops::Range<usize> {
        self.slot..self.slot + self.pages.len()
    }
    /// Its slots in a run of pages, at its first place.
    pub fn slots_in(&self, run: Run) -> impl Iterator<Item = usize> + '_ {
        let inside = move |page: u64| run.has(self.run.first + page);
        self.pages
            .iter()
            .enumerate()
            .filter(move |&(_, &page)| inside(page))
            .map(|(i, _)| self.slot + i)
    }
    /// The page of a slot, at either place.
    pub fn page(&self, slot: usize, other: bool) -> u64 {
        let first = if other { self.other } else { self.run.first };
        first + self.pages[slot - self.slot]
    }
    /// Whether no store to it may be lost.
    pub fn keeps(&self) -> bool {
        self.kind != Kind::Wiped
    }
    /// What it is mapped with.
    pub fn attrs(&self, rights: Rights) -> Attrs {
        Attrs { rights, thp: self.thp, numa: None, leaf: LeafSize::Policy }
    }
    /// A part of it: one page, some, or all of it.
    pub fn part(&self, rng: &mut Rng) -> Run {
        let longest = match rng.below(8) {
            0..2 => return self.run,
            2..4 => 1,
            4..6 => 8,
            _ => self.run.pages,
        };
        // Around a page that is looked at.
        let pages = 1 + rng.below(longest.min(self.run.pages));
        let at = self.pages[rng.below(self.pages.len() as u64) as usize];
        let first = at.saturating_sub(rng.below(pages)).min(self.run.pages - pages);
        Run { first: self.run.first + first, pages }
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Arena {
    /// The ranges.
    pub extents: Vec<Extent>,
    /// The range of each slot.
    of: Vec<usize>,
}

/// First chunk of the arena; it lies across a boundary of 1 GiB.
const CHUNK: u64 = 4 << 9;
/// Pages looked at of a range of 2 MiB.
const IN_HUGE: [u64; 8] = [0, 1, 8, 100, 255, 256, 510, 511];

impl Arena {
    /// The arena.
    pub fn new() -> Arena {
        let mut arena = Arena { extents: Vec::new(), of: Vec::new() };
        let small = Some(HugeAdvice::NoHuge);
        // (kind, chunk, page in it, pages, chunk of the other place, huge pages)
        let ranges = [
            (Kind::Kept, 0, 506, 12, 0, small),
            (Kind::Wiped, 2, 500, 12, 0, small),
            (Kind::Kept, 4, 0, 512, 0, None),
            (Kind::Rights, 6, 508, 8, 0, small),
            (Kind::Wiped, 8, 0, 512, 0, None),
            (Kind::Wiped, 9, 0, 1024, 0, None),
            (Kind::Rights, 12, 0, 512, 0, None),
            (Kind::Moved, 14, 509, 6, 16, small),
            (Kind::Moved, 18, 0, 512, 20, None),
            (Kind::Kept, 22, 3, 5, 0, small),
        ];
        for (kind, chunk, page, pages, other, thp) in ranges {
            let first = |chunk: u64| (CHUNK - 12 + chunk) * 512 + page;
            let looked_at: Vec<u64> = match pages {
                512.. => {
                    (0..pages / 512).flat_map(|n| IN_HUGE.map(|page| n * 512 + page)).collect()
                }
                _ => (0..pages).collect(),
            };
            let (slot, run) = (arena.of.len(), Run { first: first(chunk), pages });
            arena.of.extend(looked_at.iter().map(|_| arena.extents.len()));
            arena.extents.push(Extent {
                kind,
                run,
                other: first(other),
                slot,
                pages: looked_at,
                thp,
            });
        }
        arena
    }
    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.of.len()
    }
    /// The number of the range that a slot is in.
    pub fn number(&self, slot: usize) -> usize {
        self.of[slot]
    }
    /// The range that a slot is in.
    pub fn extent(&self, slot: usize) -> &Extent {
        &self.extents[self.of[slot]]
    }
    /// Any range of one of these kinds.
    pub fn any(&self, kinds: &[Kind], rng: &mut Rng) -> usize {
        let fit = |n: &usize| kinds.contains(&self.extents[*n].kind);
        let all: Vec<usize> = (0..self.extents.len()).filter(fit).collect();
        all[rng.below(all.len() as u64) as usize]
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

/// The address of a thread's word of a slot, given the slot's page.
pub fn address(page: u64, writer: usize, slot: usize) -> Va {
    Va((page << 12) + super::word::offset(writer, slot) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_apart_and_edges_stay() {
        let arena = Arena::new();
        let place = |e: &Extent, first| Run { first, pages: e.run.pages };
        let mut all: Vec<Run> = arena.extents.iter().map(|e| e.run).collect();
        let moved = arena.extents.iter().filter(|e| e.kind == Kind::Moved);
        all.extend(moved.map(|e| place(e, e.other)));
        all.sort_by_key(|r| r.first);
        assert!(all.windows(2).all(|w| w[0].first + w[0].pages <= w[1].first), "{all:?}");
        let kind = |run: &Run| arena.extents.iter().find(|e| e.run == *run).map(|e| e.kind);
        assert_eq!(
            (kind(&all[0]), kind(&all[all.len() - 1])),
            (Some(Kind::Kept), Some(Kind::Kept))
        );
    }

    #[test]
    fn parts_lie_in_their_range_and_hold_slots() {
        let (arena, mut rng) = (Arena::new(), Rng::new(3));
        for extent in &arena.extents {
            for _ in 0..500 {
                let part = extent.part(&mut rng);
                assert!(
                    part.pages > 0
                        && extent.run.has(part.first)
                        && extent.run.has(part.first + part.pages - 1)
                );
                assert!(extent.slots_in(part).count() > 0, "{part:?} of {extent:?}");
            }
            assert_eq!(extent.slots_in(extent.run).count(), extent.slots().len());
        }
    }
}
