//! The model of an object: its size, and a map from index to the bytes of a page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use vellum::addr::PAGE_SIZE;

use crate::small::{Contents, samples};

const PAGE: u64 = PAGE_SIZE as u64;

/// An object. A page that was never touched is absent.
#[derive(Clone, Debug)]
pub struct Object {
    bytes: u64,
    pages: BTreeMap<u64, Contents>,
    /// Absent pages that the library may have: an access made the page, and then there was no
    /// memory to map it.
    unsure: BTreeSet<u64>,
}

impl Object {
    /// An object of so many bytes, all zero.
    pub fn new(bytes: u64) -> Object {
        Object { bytes, pages: BTreeMap::new(), unsure: BTreeSet::new() }
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
        sure..=sure + self.unsure.len() as u64
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
        self.has(index) || self.unsure.contains(&index)
    }

    /// What a page holds.
    pub fn contents(&self, index: u64) -> Contents {
        self.pages.get(&index).copied().unwrap_or_default()
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

    /// Another size. Zero is what lies past the smaller one of both.
    pub fn resize(&mut self, bytes: u64) {
        self.clear(self.bytes.min(bytes)..u64::MAX);
        self.bytes = bytes;
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
}
