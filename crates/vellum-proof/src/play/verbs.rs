//! The verbs that change what is mapped where.

use vellum::addr::{Order, Va};
use vellum::entry::Codec;
use vellum::error::SpaceError;
use vellum::space::{Access, Advice, Attrs, LeafSize, Placement, Rights};

use super::{Play, Skewed, is_range};
use crate::command::{MapTarget, Stretch};
use crate::model::Cell;
use crate::small::Contents;

/// Mappings of the library's own placing that a space has at most.
const STRAYS: usize = 6;
/// Pages that such a mapping has at most: what memory in plenty is enough for.
const STRAY: u64 = 512;

impl<C: Codec> Play<'_, C> {
    pub(super) fn map(&mut self, n: usize, to: MapTarget, stretch: Stretch, attrs: Attrs) {
        let exactly = attrs.leaf != LeafSize::Policy;
        let mut stretch = stretch;
        let at = match to {
            MapTarget::At(spot) | MapTarget::Replace(spot) => spot,
            _ if self.sides[n].strays.len() >= STRAYS => return,
            _ => {
                stretch.pages = stretch.pages.min(STRAY);
                stretch.at
            }
        };
        let Skewed { mut range, start, bytes } = self.range(n, Stretch { at, ..stretch });
        let placement = match to {
            MapTarget::At(_) => Placement::At(start),
            MapTarget::Replace(_) => Placement::Replace(start),
            _ => Placement::Anywhere,
        };
        let got = self.vm.map(&self.sides[n].space, placement, bytes, attrs);
        let anywhere = placement == Placement::Anywhere;
        let (start, bad) = if anywhere {
            (Va(0), self.bad_range(Va(0), bytes))
        } else {
            (start, self.bad_target(start, bytes))
        };
        if let Some(why) = bad {
            // Which of two errors is told is the library's choice.
            assert!(
                is_range(&got, why) || exactly && got == Err(SpaceError::LeafSize),
                "map gave {got:?}"
            );
            return;
        }
        if exactly && !start.is_aligned(Order::HUGE.bytes()) {
            return assert_eq!(got, Err(SpaceError::LeafSize));
        }
        let pages = &self.sides[n].pages;
        match got {
            Err(SpaceError::NoMemory) => return self.no_memory(),
            Ok(at) if anywhere => {
                assert!(at.is_aligned(if bytes >= Order::HUGE.bytes() {
                    Order::HUGE.bytes()
                } else {
                    4096
                }));
                assert!(
                    at.0 >= 64 << 10 && at.0 + bytes <= self.vm.user_end().0,
                    "placed at {at:?}"
                );
                range = at.page()..at.page() + (range.end - range.start);
                assert_eq!(pages.count(range.clone()), 0, "placed on top of something at {at:?}");
                self.sides[n].strays.push((range.start, range.end - range.start));
            }
            got if matches!(to, MapTarget::At(_)) && pages.count(range.clone()) != 0 => {
                return assert_eq!(got, Err(SpaceError::Occupied));
            }
            got => assert_eq!(got, Ok(start)),
        }
        self.sides[n].pages.fill(range, Some(Cell::zero(attrs.rights, exactly)));
    }

    pub(super) fn unmap(&mut self, n: usize, stretch: Stretch) {
        let Skewed { range, start, bytes } = self.range(n, stretch);
        let got = self.vm.unmap(&self.sides[n].space, start, bytes);
        match (got, self.bad_range(start, bytes)) {
            (got, Some(why)) => assert!(is_range(&got, why), "unmap gave {got:?}"),
            (Err(SpaceError::NoMemory), _) => self.no_memory(),
            (got, None) => {
                assert_eq!(got, Ok(()));
                self.forget(n, range);
            }
        }
    }

    /// The range is unmapped.
    fn forget(&mut self, n: usize, range: std::ops::Range<u64>) {
        let side = &mut self.sides[n];
        side.pages.fill(range, None);
        let pages = &side.pages;
        side.strays.retain(|&(first, count)| pages.count(first..first + count) != 0);
    }

    pub(super) fn protect(&mut self, n: usize, stretch: Stretch, rights: Rights) {
        let Skewed { range, start, bytes } = self.range(n, stretch);
        let got = self.vm.protect(&self.sides[n].space, start, bytes, rights);
        match (got, self.bad_range(start, bytes)) {
            (got, Some(why)) => assert!(is_range(&got, why), "protect gave {got:?}"),
            (got, None) if !self.is_mapped(n, &range) => assert_eq!(got, Err(SpaceError::Unmapped)),
            (Err(SpaceError::NoMemory), _) => self.no_memory(),
            (got, None) => {
                assert_eq!(got, Ok(()));
                self.sides[n].pages.each(range, |cell| cell.rights = rights);
            }
        }
    }

    pub(super) fn advise(&mut self, n: usize, stretch: Stretch, advice: Advice) {
        let Skewed { range, start, bytes } = self.range(n, stretch);
        let got = self.vm.advise(&self.sides[n].space, start, bytes, advice);
        if let Some(why) = self.bad_range(start, bytes) {
            return assert!(is_range(&got, why), "{advice:?} gave {got:?}");
        }
        let mapped = self.is_mapped(n, &range);
        let side = &mut self.sides[n];
        match (got, advice) {
            (Err(SpaceError::NoMemory), Advice::Populate { .. })
                if side.pages.any(range.clone(), |c| c.exactly) => {}
            // A huge page may be missing where base pages are left.
            (Err(SpaceError::NoMemory), Advice::Collapse) => {}
            (Err(SpaceError::NoMemory), _) => self.no_memory(),
            (Err(SpaceError::Unmapped), _) => {
                assert!(!mapped, "{advice:?} finds a hole in {range:x?}")
            }
            (Err(SpaceError::Rights), Advice::Populate { write }) => {
                let access = if write { Access::Write } else { Access::Read };
                assert!(
                    side.pages.any(range, |cell| !cell.rights.allows(access)),
                    "{advice:?} was refused"
                );
            }
            (got, _) => {
                assert_eq!(got, Ok(()), "{advice:?}");
                assert!(mapped, "{advice:?} was followed in a hole of {range:x?}");
                if advice == Advice::DontNeed {
                    side.pages.each(range, |cell| cell.bytes = Contents::default());
                }
            }
        }
    }

    pub(super) fn remap(
        &mut self,
        n: usize,
        stretch: Stretch,
        to: MapTarget,
        new_pages: Option<u64>,
    ) {
        let Skewed { range: old, start, bytes } = self.range(n, stretch);
        let pages = old.end - old.start;
        let mut new_pages = new_pages.unwrap_or(pages);
        let target = match to {
            MapTarget::At(spot) | MapTarget::Replace(spot) => self.page(n, spot),
            _ => old.start,
        };
        let placement = match to {
            MapTarget::At(_) | MapTarget::Here => Placement::At(Va(target << 12)),
            MapTarget::Replace(_) => Placement::Replace(Va(target << 12)),
            MapTarget::Anywhere if self.sides[n].strays.len() >= STRAYS => return,
            MapTarget::Anywhere => {
                new_pages = new_pages.min(STRAY);
                Placement::Anywhere
            }
        };
        let got = self.vm.remap(&self.sides[n].space, start, bytes, new_pages << 12, placement);
        if let Some(why) = self.bad_range(start, bytes) {
            return assert!(is_range(&got, why), "remap gave {got:?}");
        }
        if !self.is_mapped(n, &old) {
            return assert_eq!(got, Err(SpaceError::Unmapped));
        }
        let stays = placement == Placement::At(start);
        let new = target..target + new_pages;
        let model = &self.sides[n].pages;
        let last = model.get(old.end - 1).expect("it is mapped");
        let overlap = target < old.end && old.start < new.end;
        let in_hole = |range: std::ops::Range<u64>| model.count(range) == 0;
        let no_target = self.bad_target(Va(target << 12), new_pages << 12);
        match got {
            Err(SpaceError::LeafSize) => {
                let odd = |page: u64| !page.is_multiple_of(512);
                assert!(
                    last.exactly
                        && (odd(new_pages) || odd(target) && placement != Placement::Anywhere)
                );
            }
            Err(SpaceError::Range(why)) => assert_eq!(Some(why), no_target, "remap gave {got:?}"),
            Err(SpaceError::Occupied) if stays => {
                assert!(!in_hole(old.end..new.end), "nothing is in its way")
            }
            Err(SpaceError::Occupied) => {
                let taken = matches!(placement, Placement::At(_)) && !in_hole(new);
                assert!(taken || overlap, "nothing is in its way");
            }
            Err(SpaceError::NoMemory) => self.no_memory(),
            Err(error) => panic!("remap of what is mapped gave {error:?}"),
            Ok(at) => {
                assert!(
                    placement == Placement::Anywhere || at.page() == target,
                    "it went to {at:?}"
                );
                assert_eq!(self.bad_target(at, new_pages << 12), None, "it went to {at:?}");
                let new = at.page()..at.page() + new_pages;
                if new.start != old.start {
                    assert!(
                        new.end <= old.start || old.end <= new.start,
                        "it went to {at:?}, over itself"
                    );
                    assert!(
                        matches!(placement, Placement::Replace(_)) || in_hole(new.clone()),
                        "{at:?} is taken"
                    );
                } else {
                    assert!(
                        new_pages <= pages || in_hole(old.end..new.end),
                        "it grew over something"
                    );
                }
                let cells: Vec<Option<Cell>> =
                    old.clone().take(new_pages as usize).map(|p| model.get(p)).collect();
                self.sides[n].pages.fill(old.clone(), None);
                self.sides[n].pages.fill(new.clone(), Some(Cell::zero(last.rights, last.exactly)));
                for (page, cell) in new.clone().zip(cells) {
                    self.sides[n].pages.set(page, cell);
                }
                self.forget(n, old.end..old.end);
                if placement == Placement::Anywhere && new.start != old.start {
                    self.sides[n].strays.push((new.start, new_pages));
                }
            }
        }
    }
}
