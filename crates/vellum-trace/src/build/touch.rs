//! Which pages have been read and written since they were last empty.
//!
//! A sampling window may leave out a billionth access to a page, but not the first read nor the
//! first write of it: those fault, and faults and resident memory have to come out exactly. Three
//! bits a page.
use crate::PAGE;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Read since it was last empty.
pub(crate) const READ: u8 = 1;
/// Written since it was last empty or shared.
pub(crate) const WRITTEN: u8 = 2;
/// Touched at any time.
const EVER: u8 = 4;

const CHUNK: u64 = 1024;

/// A multiplicative hash: keys are small numbers of our own, nobody attacks them.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(29) ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
}

type Chunks = HashMap<(u32, u64), Box<[u8; CHUNK as usize]>, BuildHasherDefault<Mixer>>;

/// Bits of all pages of all mappings.
#[derive(Default)]
pub(crate) struct Touches {
    chunks: Chunks,
    distinct: u64,
}

impl Touches {
    /// Notes a touch. Returns whether it is a first one of its kind, and the page's bits now.
    pub(crate) fn touch(&mut self, mapping: u32, offset: u64, write: bool) -> (bool, u8) {
        let page = offset / PAGE;
        let chunk = self
            .chunks
            .entry((mapping, page / CHUNK))
            .or_insert_with(|| Box::new([0; CHUNK as usize]));
        let bits = &mut chunk[(page % CHUNK) as usize];
        if *bits & EVER == 0 {
            self.distinct += 1;
        }
        let want = if write { READ | WRITTEN } else { READ };
        let first = *bits & want != want;
        *bits |= want | EVER;
        (first, *bits)
    }

    /// The pages of a range are empty again (`bits` = both), or have to fault on a write again.
    pub(crate) fn forget(&mut self, mapping: u32, offset: u64, len: u64, bits: u8) {
        let (first, last) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        let mut page = first;
        while page < last {
            let next = ((page / CHUNK + 1) * CHUNK).min(last);
            if let Some(chunk) = self.chunks.get_mut(&(mapping, page / CHUNK)) {
                for p in page..next {
                    chunk[(p % CHUNK) as usize] &= !bits;
                }
            }
            page = next;
        }
    }

    /// After a fork every page may have to be copied once more.
    pub(crate) fn forget_writes(&mut self) {
        for chunk in self.chunks.values_mut() {
            for bits in chunk.iter_mut() {
                *bits &= !WRITTEN;
            }
        }
    }

    /// Distinct pages touched so far.
    pub(crate) fn distinct(&self) -> u64 {
        self.distinct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_read_and_first_write_count_and_others_do_not() {
        let mut t = Touches::default();
        assert!(t.touch(0, 5000, false).0);
        assert!(!t.touch(0, 8191, false).0);
        assert!(t.touch(0, 5000, true).0);
        assert!(!t.touch(0, 5000, false).0);
        assert!(t.touch(0, 8192, true).0);
        assert!(!t.touch(0, 8192, false).0, "a write has faulted the page in for reads too");
        t.forget(0, 4096, 4096, READ | WRITTEN);
        assert!(t.touch(0, 5000, false).0);
        t.forget_writes();
        assert!(!t.touch(0, 8192, false).0);
        assert!(t.touch(0, 8192, true).0);
        assert_eq!(t.distinct(), 2);
    }
}
