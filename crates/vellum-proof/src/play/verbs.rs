//! The verbs that change what is mapped where.

use std::ops::Range;

use vellum::addr::{Order, PAGE_SIZE, Va};
use vellum::entry::{CacheMode, Codec};
use vellum::error::{FaultError, SpaceError};
use vellum::space::{Access, Advice, Attrs, LeafSize, Page, Placement, Rights};
use vellum::vm::{DeviceMemory, ObjectPart};

use super::objects::{KERNEL, Part};
use super::{Play, Skewed, is_range};
use crate::command::{MapTarget, Stretch};
use crate::model::{Cell, Page as Behind};
use crate::small::{DEVICE, DEVICE_FRAMES};

/// Mappings of the library's own placing that a space has at most.
const STRAYS: usize = 6;
/// Pages that such a mapping has at most: what memory in plenty is enough for.
const STRAY: u64 = 512;

impl<C: Codec> Play<'_, C> {
    /// Maps private memory, or a part of an object.
    pub(super) fn map(
        &mut self,
        n: usize,
        to: MapTarget,
        stretch: Stretch,
        attrs: Attrs,
        part: Option<Part>,
    ) {
        let exactly = attrs.leaf == LeafSize::Exactly(Order::HUGE);
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
        let space = &self.sides[n].space;
        let got = match part {
            None => self.vm.map(space, placement, bytes, attrs),
            Some(part) => {
                let of = self.objects.part(part);
                if part.private {
                    self.vm.map_private(space, placement, bytes, attrs, of)
                } else {
                    self.vm.map_object(space, placement, bytes, attrs, of)
                }
            }
        };
        let bad_part = part.is_some_and(|part| part.is_bad(bytes));
        if part.is_some_and(|part| part.slot == KERNEL) {
            let wanted = if bad_part { SpaceError::Part } else { SpaceError::Kernel };
            return assert_eq!(got, Err(wanted));
        }
        let is_sealed = part.is_some_and(|part| self.objects.is_sealed(part, attrs.rights));
        let anywhere = placement == Placement::Anywhere;
        let (start, bad) = if anywhere {
            (Va(0), self.bad_range(Va(0), bytes))
        } else {
            (start, self.bad_target(start, bytes))
        };
        if let Some(why) = bad {
            // Which of two errors is told is the library's choice.
            assert!(
                is_range(&got, why)
                    || exactly && got == Err(SpaceError::LeafSize)
                    || bad_part && got == Err(SpaceError::Part)
                    || is_sealed && got == Err(SpaceError::Rights),
                "map gave {got:?}"
            );
            return;
        }
        if bad_part {
            let leaf = exactly && got == Err(SpaceError::LeafSize);
            return assert!(leaf || got == Err(SpaceError::Part), "map gave {got:?}");
        }
        if is_sealed {
            return assert_eq!(got, Err(SpaceError::Rights));
        }
        if exactly && (part.is_some() || !start.is_aligned(Order::HUGE.bytes())) {
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
        let first = Cell::zero(attrs.rights, exactly);
        let page = part.map_or(first.page, |part| self.objects.page(part));
        self.sides[n].pages.lay(range, Cell { page, ..first });
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
    fn forget(&mut self, n: usize, range: Range<u64>) {
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
            (got, None) if rights.write && self.is_sealed(n, &range) => {
                assert_eq!(got, Err(SpaceError::Rights));
            }
            (got, None) => {
                assert_eq!(got, Ok(()));
                self.sides[n].pages.each(range, |cell| cell.rights = rights);
            }
        }
    }

    /// Whether some page of a range is of an object whose contents are sealed.
    fn is_sealed(&self, n: usize, range: &Range<u64>) -> bool {
        self.sides[n].pages.any(range.clone(), |cell| {
            let is_shared = matches!(cell.page, Behind::Object(..));
            is_shared && self.objects.of(cell.page).is_some_and(|(of, _)| of.seals().write)
        })
    }

    pub(super) fn advise(&mut self, n: usize, stretch: Stretch, advice: Advice) {
        let Skewed { range, start, bytes } = self.range(n, stretch);
        let (done, got) = self.vm.advise_part(&self.sides[n].space, start, bytes, advice);
        if let Some(why) = self.bad_range(start, bytes) {
            return assert!(is_range(&got, why), "{advice:?} gave {got:?}");
        }
        let mapped = self.is_mapped(n, &range);
        if let Advice::Populate { write } = advice {
            let done = range.start + done / PAGE_SIZE as u64;
            return self.populated(n, range.start..done, write, got);
        }
        if advice == Advice::Collapse {
            for page in range.clone().filter(|page| page % 512 == 0) {
                if let Some(cell) = self.sides[n].pages.get(page)
                    && let Some((object, _)) = self.objects.of_mut(cell.page)
                {
                    object.may_have_blocks();
                }
            }
        }
        match got {
            // A huge page may be missing where base pages are left.
            Err(SpaceError::NoMemory) if advice == Advice::Collapse => {}
            Err(SpaceError::Io) if advice == Advice::Collapse && self.fails().0 => {}
            Err(SpaceError::NoMemory) => self.no_memory(),
            Err(SpaceError::Unmapped) => assert!(!mapped, "{advice:?} finds a hole in {range:x?}"),
            got => {
                assert_eq!(got, Ok(()), "{advice:?}");
                assert!(mapped, "{advice:?} was followed in a hole of {range:x?}");
                if advice == Advice::DontNeed {
                    self.sides[n].pages.each(range, Cell::forget);
                }
            }
        }
    }

    /// Pages of a range were populated, up to the end or to one that gave an error.
    fn populated(&mut self, n: usize, range: Range<u64>, write: bool, got: Result<(), SpaceError>) {
        let access = if write { Access::Write } else { Access::Read };
        for page in range.clone() {
            let known = self.found(self.sides[n].pages.get(page), access);
            let known = known.unwrap_or_else(|e| panic!("populated page {page:#x}, wanted {e:?}"));
            self.becomes(n, page, access, known);
        }
        let error = match got {
            Ok(()) => return,
            Err(SpaceError::Unmapped) => FaultError::Unmapped,
            Err(SpaceError::Rights) => FaultError::Rights,
            Err(SpaceError::Beyond) => FaultError::Beyond,
            Err(SpaceError::Io) => FaultError::Io,
            Err(SpaceError::NoMemory) => FaultError::NoMemory,
            Err(error) => panic!("populate gave {error:?}"),
        };
        self.refused(self.sides[n].pages.get(range.end), access, error, "by populate");
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
        let in_hole = |range: Range<u64>| model.count(range) == 0;
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
                self.sides[n].pages.fill(new.clone(), None);
                let grown = (new.start + pages).min(new.end)..new.end;
                if !grown.is_empty() {
                    self.sides[n].pages.lay(grown, last.ahead(1));
                }
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

    /// A device is mapped, all of it, and is what programs see until it goes.
    pub(super) fn device(&mut self, n: usize) {
        let bytes = DEVICE_FRAMES as u64 * PAGE_SIZE as u64;
        let (address, cache) = (DEVICE.addr(), CacheMode::WriteCombining);
        let memory = DeviceMemory { address, bytes, cache, writable: true };
        // SAFETY: only programs of this machine access it.
        let Ok(device) = (unsafe { self.vm.objects().create_device(memory) }) else {
            return self.no_memory();
        };
        let (vm, space) = (self.vm, &self.sides[n].space);
        let part = ObjectPart { object: &device, offset: 0 };
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let mapped = vm.map_object(space, Placement::Anywhere, bytes, attrs, part);
        let done = mapped.and_then(|at| {
            let there = vm.advise(space, at, bytes, Advice::Populate { write: true });
            for page in 0..if there.is_ok() { DEVICE_FRAMES as u64 } else { 0 } {
                let seen = vm.query(space, Va(at.0 + page * PAGE_SIZE as u64));
                let is_page = |pfn, mode| pfn == DEVICE.add(page) && mode == cache;
                let right = matches!(seen, Page::Device { pfn, cache, .. } if is_page(pfn, cache));
                assert!(right, "page {page} of a device is {seen:?}");
            }
            vm.unmap(space, at, bytes)?;
            there
        });
        vm.objects().discard(device);
        match done {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, SpaceError::NoMemory, "mapping a device");
                self.no_memory();
            }
        }
    }
}
