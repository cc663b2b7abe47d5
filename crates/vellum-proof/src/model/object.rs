//! The model of an object: its size, a map from index to the bytes of a page, and what its pager
//! has, if it has one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use vellum::addr::PAGE_SIZE;
use vellum::space::Seals;

use crate::small::disk::{Disk, cut};
use crate::small::{Contents, samples};

const PAGE: u64 = PAGE_SIZE as u64;
const BLOCK: u64 = 2 << 20;

/// An object. A page that was never touched is absent.
#[derive(Clone, Debug)]
pub struct Object {
    bytes: u64,
    pages: BTreeMap<u64, Contents>,
    /// Absent pages that the library may have: an access made the page, and then there was no
    /// memory to map it.
    unsure: BTreeSet<u64>,
    /// The library may make blocks of 2 MiB: any page of one may be there.
    blocks: bool,
    seals: Seals,
    /// Pages that were written, if that is noted.
    written: Option<Written>,
    file: Option<File>,
}

/// Pages that were written.
#[derive(Clone, Debug, Default)]
struct Written {
    dirty: BTreeSet<u64>,
    /// Others that may count as written: an access was about to, and then there was no memory.
    perhaps: BTreeSet<u64>,
}

/// What a pager has of an object.
#[derive(Clone, Debug)]
struct File {
    disk: BTreeMap<u64, Contents>,
    /// The library reads ahead: any page that nobody wrote may be there.
    ahead: bool,
    /// Something could not be written, or may not have been, and no `sync` has said so yet.
    failed: (bool, bool),
}

impl Object {
    /// An object of so many bytes, all zero.
    pub fn new(bytes: u64) -> Object {
        let (pages, unsure) = (BTreeMap::new(), BTreeSet::new());
        let seals = Seals::default();
        Object { bytes, pages, unsure, blocks: false, seals, written: None, file: None }
    }

    /// The same where the library may make blocks of 2 MiB.
    pub fn of_blocks(bytes: u64) -> Object {
        Object { blocks: true, ..Object::new(bytes) }
    }

    /// Pages around an index were collapsed; whether it may be that there is a block now, or none.
    pub fn collapse(&mut self, index: u64, is_block: bool) -> bool {
        let first = index & !(BLOCK / PAGE - 1);
        let range = first..first + BLOCK / PAGE;
        let is_dirty = self.written.as_ref().is_some_and(|Written { dirty, perhaps }| {
            dirty.range(range.clone()).chain(perhaps.range(range.clone())).next().is_some()
        });
        let is_whole = range.end <= self.bytes / PAGE;
        let has_some = self.is_paged() || self.pages.range(range).next().is_some();
        self.blocks = true;
        is_block || !is_whole || is_dirty || !has_some
    }

    /// Whether it may have blocks.
    pub fn has_blocks(&self) -> bool {
        self.blocks
    }

    /// The library may make blocks of 2 MiB.
    pub fn may_have_blocks(&mut self) {
        self.blocks = true;
    }

    /// One of which writes are logged.
    pub fn logged(bytes: u64) -> Object {
        Object { written: Some(Written::default()), ..Object::new(bytes) }
    }

    /// One whose contents a pager has: those pages, in their order. `ahead`: pages are read ahead.
    pub fn paged(bytes: u64, disk: impl Iterator<Item = Contents>, ahead: bool) -> Object {
        let disk = (0..).zip(disk).collect();
        let file = File { disk, ahead, failed: (false, false) };
        Object { file: Some(file), ..Object::logged(bytes) }
    }

    /// Whether a pager has its contents.
    pub fn is_paged(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it is noted which pages were written.
    pub fn notes_writes(&self) -> bool {
        self.written.is_some()
    }

    /// Whether the page has to be read before it can be used, as far as is known.
    pub fn is_to_be_read(&self, index: u64) -> bool {
        self.is_paged() && !self.may_have(index)
    }

    /// Pages that the pager does not have as they are.
    pub fn dirty(&self) -> RangeInclusive<u64> {
        self.written.as_ref().map_or(0..=0, |written| {
            let sure = written.dirty.len() as u64;
            sure..=sure + written.perhaps.len() as u64
        })
    }

    /// A page was written.
    pub fn note_write(&mut self, index: u64) {
        if let Some(written) = &mut self.written {
            written.dirty.insert(index);
            written.perhaps.remove(&index);
        }
    }

    /// Whether it counts as written nobody knows.
    pub fn doubt_write(&mut self, index: u64) {
        if let Some(written) = &mut self.written
            && !written.dirty.contains(&index)
        {
            written.perhaps.insert(index);
        }
    }

    /// What is dirty in a range of pages is written, or cannot be.
    pub fn write_back(&mut self, range: Range<u64>, fails: bool) {
        let (Some(file), Some(written)) = (&mut self.file, &mut self.written) else { return };
        let of = |set: &BTreeSet<u64>| set.iter().copied().filter(|i| range.contains(i)).collect();
        let (dirty, perhaps): (Vec<u64>, Vec<u64>) = (of(&written.dirty), of(&written.perhaps));
        file.failed.1 |= fails && !dirty.is_empty();
        file.failed.0 |= fails && !(dirty.is_empty() && perhaps.is_empty());
        if fails {
            return;
        }
        for index in dirty {
            let mut page = self.pages[&index];
            let old = file.disk.get(&index).copied().unwrap_or_default();
            let kept = self.bytes.saturating_sub(index * PAGE).min(PAGE) as usize;
            samples(kept, PAGE_SIZE - kept).for_each(|(i, _)| page[i] = old[i]);
            file.disk.insert(index, page);
            written.dirty.remove(&index);
        }
        perhaps.iter().for_each(|index| _ = written.perhaps.remove(index));
    }

    /// The same, and says whether something may have failed since the last time, and whether it
    /// must have.
    pub fn sync(&mut self, range: Range<u64>, fails: bool) -> (bool, bool) {
        self.write_back(range, fails);
        self.file.as_mut().map_or((false, false), |file| std::mem::take(&mut file.failed))
    }

    /// Those pages are told to be what was written of a range, and are not written any more; says
    /// whether that may be.
    pub fn harvest(&mut self, range: Range<u64>, told: &[u64]) -> bool {
        let Some(Written { dirty, perhaps }) = &mut self.written else { return false };
        let may_be = |index: &u64| dirty.contains(index) || perhaps.contains(index);
        let is_in_order = told.is_sorted_by(|a, b| a < b);
        let fits = is_in_order
            && told.iter().all(|index| range.contains(index) && may_be(index))
            && dirty.range(range.clone()).all(|index| told.contains(index));
        dirty.retain(|index| !range.contains(index));
        perhaps.retain(|index| !range.contains(index));
        fits
    }

    /// Clean pages of a range go.
    pub fn evict(&mut self, range: Range<u64>) {
        let (Some(_), Some(written)) = (&self.file, &self.written) else { return };
        let (pages, unsure) = (&mut self.pages, &mut self.unsure);
        unsure.retain(|index| !range.contains(index) || written.perhaps.contains(index));
        for index in &written.perhaps {
            if range.contains(index) && pages.remove(index).is_some() {
                unsure.insert(*index);
            }
        }
        pages.retain(|index, _| !range.contains(index) || written.dirty.contains(index));
    }

    /// Whether the pager has what the model says.
    pub fn is_on(&self, disk: &Disk, pager: u64) -> bool {
        let file = self.file.as_ref();
        file.is_none_or(|f| f.disk.iter().all(|(&index, page)| disk.page(pager, index) == *page))
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a page of that index has a byte of it.
    pub fn reaches(&self, index: u64) -> bool {
        index < self.bytes.div_ceil(PAGE)
    }

    /// Pages that the library has made.
    pub fn count(&self) -> RangeInclusive<u64> {
        let sure = self.pages.len() as u64;
        let most = sure + self.unsure.len() as u64;
        let all = match (self.is_read_ahead(), self.blocks) {
            // One that crosses the end may be left whole.
            (_, true) => self.bytes.div_ceil(BLOCK).saturating_mul(BLOCK / PAGE),
            (true, _) => self.bytes.div_ceil(PAGE),
            _ => 0,
        };
        sure..=most.max(all)
    }

    /// The indices of pages that there are.
    pub fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Whether there is that page.
    pub fn has(&self, index: u64) -> bool {
        self.pages.contains_key(&index)
    }

    /// Whether the library may have that page.
    pub fn may_have(&self, index: u64) -> bool {
        let may_be_ahead = (self.is_read_ahead() || self.blocks) && self.reaches(index);
        self.has(index) || self.unsure.contains(&index) || may_be_ahead
    }

    fn is_read_ahead(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.ahead)
    }

    /// Whether that may be the first byte from one on that lies in a page.
    pub fn may_be_data(&self, from: u64, found: Option<u64>) -> bool {
        if from >= self.bytes {
            return found.is_none();
        }
        if self.is_paged() {
            return found == Some(from);
        }
        let at = |index: &u64| from.max(index * PAGE);
        let sure = self.pages.range(from / PAGE..).next().map(|(index, _)| at(index));
        if self.blocks {
            let is_start = |found: u64| found == from || found > from && found.is_multiple_of(PAGE);
            let before = |found: u64| found < self.bytes && sure.is_none_or(|sure| found <= sure);
            return found.map_or(sure.is_none(), |found| is_start(found) && before(found));
        }
        let mut unsure = self.unsure.range(from / PAGE..).map(at);
        found == sure || unsure.any(|at| found == Some(at) && sure.is_none_or(|sure| at < sure))
    }

    /// Whether that may be the first byte from one on that lies in no page.
    pub fn may_be_hole(&self, from: u64, found: Option<u64>) -> bool {
        if from >= self.bytes {
            return found.is_none();
        }
        if self.is_paged() {
            return found == Some(self.bytes);
        }
        if self.blocks {
            // Any page that is not sure to be there.
            let is_start = |found: u64| found == from || found > from && found.is_multiple_of(PAGE);
            return found.is_some_and(|found| {
                found == self.bytes
                    || found < self.bytes && is_start(found) && !self.has(found / PAGE)
            });
        }
        let at = |index: u64| Some(from.max(index * PAGE).min(self.bytes));
        let mut index = from / PAGE;
        while self.may_have(index) {
            if self.unsure.contains(&index) && found == at(index) {
                return true;
            }
            index += 1;
        }
        found == at(index)
    }

    /// What a page holds.
    pub fn contents(&self, index: u64) -> Contents {
        let on_disk = || {
            let mut page = *self.file.as_ref()?.disk.get(&index)?;
            cut(&mut page, index, self.bytes);
            Some(page)
        };
        self.pages.get(&index).copied().or_else(on_disk).unwrap_or_default()
    }

    /// Makes a page, or makes it that.
    pub fn set(&mut self, index: u64, contents: Contents) {
        self.unsure.remove(&index);
        self.pages.insert(index, contents);
    }

    /// Whether the page was made nobody knows.
    pub fn doubt(&mut self, index: u64) {
        if !self.has(index) {
            self.unsure.insert(index);
        }
    }

    /// What is forbidden of its size.
    pub fn seals(&self) -> Seals {
        self.seals
    }

    /// Forbids that, too.
    pub fn seal(&mut self, Seals { shrink, grow, write }: Seals) {
        self.seals.shrink |= shrink;
        self.seals.grow |= grow;
        self.seals.write |= write;
    }

    /// Whether the size may not become that.
    pub fn is_sealed(&self, bytes: u64) -> bool {
        match bytes.cmp(&self.bytes) {
            Ordering::Less => self.seals.shrink,
            Ordering::Equal => false,
            Ordering::Greater => self.seals.grow,
        }
    }

    /// Another size. Zero is what lies past the smaller one of both; the pager has it no more.
    pub fn resize(&mut self, bytes: u64) {
        self.clear(self.bytes.min(bytes)..u64::MAX);
        if bytes < self.bytes {
            let pages = bytes.div_ceil(PAGE);
            if let Some(file) = &mut self.file {
                file.disk.iter_mut().for_each(|(&index, page)| cut(page, index, bytes));
            }
            if let Some(written) = &mut self.written {
                written.dirty.retain(|&index| index < pages);
                written.perhaps.retain(|&index| index < pages);
            }
        }
        self.bytes = bytes;
    }

    /// Zeros are written to a range of bytes.
    pub fn write_zeros(&mut self, range: Range<u64>) {
        let range = range.start..range.end.min(self.bytes);
        if range.is_empty() {
            return;
        }
        for index in range.start / PAGE..range.end.div_ceil(PAGE) {
            let within = |at: u64| at.saturating_sub(index * PAGE).min(PAGE) as usize;
            let (start, end) = (within(range.start), within(range.end));
            let mut page = self.contents(index);
            samples(start, end - start).for_each(|(i, _)| page[i] = 0);
            self.set(index, page);
            self.note_write(index);
        }
    }

    /// Zeros for a range of bytes; pages that it covers go.
    pub fn clear(&mut self, range: Range<u64>) {
        let covered = |index: u64| {
            let end = index.saturating_mul(PAGE).saturating_add(PAGE);
            range.start <= index * PAGE && end <= range.end
        };
        self.unsure.retain(|&index| !covered(index));
        self.pages.retain(|&index, _| !covered(index));
        for (&index, contents) in self.pages.range_mut(range.start / PAGE..=range.end / PAGE) {
            let within = |at: u64| at.saturating_sub(index * PAGE).min(PAGE) as usize;
            let (start, end) = (within(range.start), within(range.end));
            samples(start, end.saturating_sub(start)).for_each(|(i, _)| contents[i] = 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small::{BYTES, SAMPLES};

    /// Every byte of twelve pages, beside the samples.
    #[test]
    fn samples_are_cleared_as_bytes_are() {
        const LEN: usize = 12 * PAGE_SIZE;
        let mut rng = vellum_host::rng::Rng::new(9);
        let (mut object, mut bytes) = (Object::new(LEN as u64), vec![0u8; LEN]);
        for step in 0..4000u32 {
            let index = rng.below(12);
            let start = index as usize * PAGE_SIZE;
            if object.reaches(index) {
                bytes[start..start + PAGE_SIZE].fill(step as u8);
                object.set(index, [step as u8; BYTES]);
            }
            // Mostly about a sample.
            let mut draw = || match rng.below(3) {
                0 => rng.below(LEN as u64),
                _ => (rng.below(12) * PAGE + SAMPLES[rng.below(4) as usize] as u64 + rng.below(9))
                    .saturating_sub(4),
            };
            let (one, other) = (draw(), draw());
            if step % 4 == 0 {
                let cut = object.bytes().min(one) as usize;
                bytes[cut..].fill(0);
                object.resize(one);
            } else {
                let (from, to) = (one.min(other), one.max(other));
                bytes[from as usize..(to as usize).min(LEN)].fill(0);
                object.clear(from..to);
            }
            for index in 0..12 {
                let page = &bytes[index as usize * PAGE_SIZE..][..PAGE_SIZE];
                let same = |(i, at): (usize, usize)| object.contents(index)[i] == page[at];
                assert!(samples(0, PAGE_SIZE).all(same), "page {index} at step {step}");
            }
            assert!(object.indices().all(|index| object.reaches(index)));
        }
    }

    #[test]
    fn what_is_in_doubt_is_counted_until_it_is_known() {
        let mut object = Object::new(5 * PAGE);
        object.doubt(2);
        object.doubt(4);
        object.set(1, [1; BYTES]);
        assert_eq!(object.count(), 1..=3);
        object.set(2, [0; BYTES]);
        assert_eq!((object.count(), object.may_have(4)), (2..=3, true));
        object.resize(4 * PAGE);
        assert_eq!((object.count(), object.may_have(4)), (2..=2, false));
    }

    #[test]
    fn pages_and_gaps_are_found_in_order() {
        let mut object = Object::new(5 * PAGE + 7);
        [1, 2, 5].into_iter().for_each(|index| object.set(index, [1; BYTES]));
        for (from, data, hole) in [
            (0, Some(PAGE), Some(0)),
            (PAGE + 3, Some(PAGE + 3), Some(3 * PAGE)),
            (3 * PAGE + 1, Some(5 * PAGE), Some(3 * PAGE + 1)),
            (5 * PAGE + 6, Some(5 * PAGE + 6), Some(5 * PAGE + 7)),
            (5 * PAGE + 7, None, None),
        ] {
            assert!(object.may_be_data(from, data) && object.may_be_hole(from, hole), "{from}");
            let wrong = Some(4 * PAGE + 9);
            assert!(!object.may_be_data(from, wrong) && !object.may_be_hole(from, wrong), "{from}");
        }
        object.doubt(3);
        for (from, at) in [(PAGE, 3), (PAGE, 4), (3 * PAGE, 3), (3 * PAGE, 4)] {
            assert!(object.may_be_hole(from, Some(at * PAGE)), "{from} {at}");
        }
        let data = [3, 4, 5].map(|at| object.may_be_data(3 * PAGE, Some(at * PAGE)));
        assert_eq!(data, [true, false, true]);
    }
}
