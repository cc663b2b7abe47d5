//! What a page index needs for the benchmark, and the peers of ours.
//!
//! Each batch of operations is one call, so that a structure with an epoch or a guard enters it
//! once. A lookup also reads a word of the record of the page it finds.

use std::collections::BTreeMap;

use congee::U64Congee;
use rart::keys::array_key::ArrayKey;
use rart::tree::AdaptiveRadixTree;

/// A page's record: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct PageRecord(pub [u64; 8]);

/// Pages in a run.
pub const RUN: u64 = 16;

/// An index and the frame of the page there.
pub type Page = (u64, u64);

/// A page index.
pub trait Index {
    /// Its name in reports.
    const NAME: &'static str;
    /// Whether it has a cursor, or something like it, for neighbouring indices.
    const CURSOR: bool = false;
    /// Whether pages are taken out of it.
    const REMOVES: bool = true;
    /// Puts pages in; with `near`, by a cursor.
    fn insert(&mut self, pages: impl Iterator<Item = Page>, near: bool);
    /// Looks pages up.
    fn lookup(&self, indices: impl Iterator<Item = u64>, near: bool, records: &[PageRecord])
    -> u64;
    /// Looks so many pages up; the record of each says which is next.
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64;
    /// Looks runs up, each in one call if there is such a call.
    fn runs(&self, starts: impl Iterator<Item = u64>, records: &[PageRecord]) -> u64 {
        self.lookup(starts.flat_map(|start| start..start + RUN), false, records)
    }
    /// Takes pages out; with `near`, by a cursor.
    fn remove(&mut self, indices: impl Iterator<Item = u64>, near: bool);
    /// Takes all pages below an index out in one call, if there is such a call.
    fn remove_all(&mut self, end: u64) {
        self.remove(0..end, false);
    }
    /// Looks for each page in vain and then puts it in; with `kept`, where the lookup has ended.
    fn miss(&mut self, pages: impl Iterator<Item = Page>, kept: bool);
}

/// Follows the records from page 0 on.
fn chase(count: u64, records: &[PageRecord], get: impl Fn(u64) -> u64) -> u64 {
    (0..count).fold(0, |at, _| records[get(at) as usize].0[0])
}

/// An array of frame numbers, of which each index has a place: the floor.
pub struct Array {
    pub frames: Vec<u64>,
    /// A shift of the indices.
    pub stride: u32,
}

impl Index for Array {
    const NAME: &'static str = "floor";
    fn insert(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        pages.for_each(|(index, frame)| self.frames[(index >> self.stride) as usize] = frame);
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, _: bool, records: &[PageRecord]) -> u64 {
        at.map(|index| records[self.frames[(index >> self.stride) as usize] as usize].0[1]).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        chase(count, records, |index| self.frames[index as usize])
    }
    fn remove(&mut self, indices: impl Iterator<Item = u64>, _: bool) {
        indices.for_each(|index| self.frames[index as usize] = 0);
    }
    fn remove_all(&mut self, end: u64) {
        self.frames[..end as usize].fill(0);
    }
    fn miss(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        self.insert(pages, false);
    }
}

/// The standard library's.
#[derive(Default)]
pub struct Btree(BTreeMap<u64, u64>);

impl Index for Btree {
    const NAME: &'static str = "btree";
    fn insert(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            let _ = self.0.insert(index, frame);
        }
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, _: bool, records: &[PageRecord]) -> u64 {
        at.map(|index| records[self.0[&index] as usize].0[1]).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        chase(count, records, |index| self.0[&index])
    }
    fn runs(&self, starts: impl Iterator<Item = u64>, records: &[PageRecord]) -> u64 {
        let run = |start: u64| self.0.range(start..start + RUN).map(|(_, frame)| *frame);
        starts.flat_map(run).map(|frame| records[frame as usize].0[1]).sum()
    }
    fn remove(&mut self, indices: impl Iterator<Item = u64>, _: bool) {
        for index in indices {
            let _ = self.0.remove(&index);
        }
    }
    fn remove_all(&mut self, end: u64) {
        self.0 = self.0.split_off(&end);
    }
    fn miss(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            self.0.entry(index).or_insert(frame);
        }
    }
}

/// The crate `hashbrown`. It knows no order.
#[derive(Default)]
pub struct Hash(hashbrown::HashMap<u64, u64>);

impl Index for Hash {
    const NAME: &'static str = "hashbrown";
    fn insert(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            let _ = self.0.insert(index, frame);
        }
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, _: bool, records: &[PageRecord]) -> u64 {
        at.map(|index| records[self.0[&index] as usize].0[1]).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        chase(count, records, |index| self.0[&index])
    }
    fn remove(&mut self, indices: impl Iterator<Item = u64>, _: bool) {
        for index in indices {
            let _ = self.0.remove(&index);
        }
    }
    fn remove_all(&mut self, _: u64) {
        self.0.clear();
    }
    fn miss(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            self.0.entry(index).or_insert(frame);
        }
    }
}

/// The crate `congee`.
#[derive(Default)]
pub struct Congee(U64Congee<usize>);

impl Index for Congee {
    const NAME: &'static str = "congee";
    fn insert(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        let pin = crossbeam_epoch::pin();
        for (index, frame) in pages {
            self.0.insert(index, frame as usize, &pin).expect("memory");
        }
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, _: bool, records: &[PageRecord]) -> u64 {
        let pin = crossbeam_epoch::pin();
        at.map(|index| records[self.0.get(index, &pin).expect("a page")].0[1]).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        let pin = crossbeam_epoch::pin();
        chase(count, records, |index| self.0.get(index, &pin).expect("a page") as u64)
    }
    fn runs(&self, starts: impl Iterator<Item = u64>, records: &[PageRecord]) -> u64 {
        let (pin, mut out) = (crossbeam_epoch::pin(), [([0; 8], 0); RUN as usize]);
        let mut sum = 0;
        for start in starts {
            let count = self.0.range(start, start + RUN, &mut out, &pin);
            sum += out[..count].iter().map(|(_, frame)| records[*frame].0[1]).sum::<u64>();
        }
        sum
    }
    fn remove(&mut self, indices: impl Iterator<Item = u64>, _: bool) {
        let pin = crossbeam_epoch::pin();
        for index in indices {
            let _ = self.0.remove(index, &pin);
        }
    }
    fn miss(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        let pin = crossbeam_epoch::pin();
        for (index, frame) in pages {
            if self.0.get(index, &pin).is_none() {
                self.0.insert(index, frame as usize, &pin).expect("memory");
            }
        }
    }
}

/// The crate `rart`.
pub struct Rart(AdaptiveRadixTree<ArrayKey<8>, u64>);

impl Default for Rart {
    fn default() -> Self {
        Rart(AdaptiveRadixTree::new())
    }
}

impl Index for Rart {
    const NAME: &'static str = "rart";
    /// Version 0.11.0 fails an assertion of its own there in checked builds.
    const REMOVES: bool = false;
    fn insert(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            let _ = self.0.insert(index, frame);
        }
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, _: bool, records: &[PageRecord]) -> u64 {
        at.map(|index| records[*self.0.get(index).expect("a page") as usize].0[1]).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        chase(count, records, |index| *self.0.get(index).expect("a page"))
    }
    fn remove(&mut self, _: impl Iterator<Item = u64>, _: bool) {}
    fn miss(&mut self, pages: impl Iterator<Item = Page>, _: bool) {
        for (index, frame) in pages {
            if self.0.get(index).is_none() {
                self.0.insert(index, frame);
            }
        }
    }
}
