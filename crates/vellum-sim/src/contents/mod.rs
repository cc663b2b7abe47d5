//! The contents of data frames, without their bytes.
//!
//! A simulated machine of 100 GiB cannot keep 100 GiB of bytes, and only these questions are asked:
//! was this frame made fit for its new owner, are two frames equal, and (in correctness tests)
//! which store does this load see. A *version* answers them. 0 is whatever the last owner left, 1
//! is zeros, and every other state has a number of its own. A store only sets a bit (`WRITTEN`:
//! differs from the version). Numbers are assigned when a frame is copied, so a store is one `or`.
//! In walk mode each 64-byte line has a version as well, and every store makes a new one.
//!
//! Rejected: hashing real bytes (memory, time); a new version at every store in timing runs (a
//! counter on the hot path that nothing reads).

use crate::machine::lazy::Lazy;

/// The frame differs from its version: a program or the kernel stored into it.
const WRITTEN: u32 = 1 << 31;
/// The frame's real bytes are in use.
const BYTES: u32 = 1 << 30;
const VERSION: u32 = BYTES - 1;
/// Version of what the last owner left.
const FOREIGN: u32 = 0;
/// Version of a frame of zeros.
const ZEROS: u32 = 1;

/// Lines in a frame.
const LINES: u64 = 64;

/// What a frame holds, apart from real bytes, for who keeps it elsewhere.
pub(crate) struct Saved {
    version: u32,
    lines: Option<Box<[u32]>>,
}

/// Versions of all frames.
pub(crate) struct Contents {
    frames: Lazy<u32>,
    lines: Option<Lazy<u32>>,
    next_frame: u32,
    next_line: u32,
}

impl Contents {
    /// All frames foreign. `by_line`: keep versions of lines too.
    pub(crate) fn new(frames: u64, by_line: bool) -> Option<Contents> {
        let lines = if by_line {
            Some(Lazy::new(usize::try_from(frames * LINES).ok()?, false)?)
        } else {
            None
        };
        Some(Contents {
            frames: Lazy::new(usize::try_from(frames).ok()?, true)?,
            lines,
            next_frame: ZEROS,
            next_line: ZEROS,
        })
    }

    /// A program stored into a frame.
    #[inline(always)]
    pub(crate) fn store(&mut self, pfn: u64) {
        self.frames[pfn as usize] |= WRITTEN;
    }

    /// A store into one line in walk mode; returns the line's new version.
    pub(crate) fn store_line(&mut self, line: u64) -> u64 {
        let Some(lines) = &mut self.lines else { return 0 };
        self.next_line += 1;
        lines[line as usize] = self.next_line;
        u64::from(self.next_line)
    }

    /// The version of one line, 0 outside walk mode.
    #[inline]
    pub(crate) fn line(&self, line: u64) -> u64 {
        self.lines.as_ref().map_or(0, |lines| u64::from(lines[line as usize]))
    }

    /// Whether a frame still holds what its last owner left.
    #[inline]
    pub(crate) fn is_foreign(&self, pfn: u64) -> bool {
        self.frames[pfn as usize] & VERSION == FOREIGN
    }

    /// Whether a frame is known to be zero.
    pub(crate) fn is_zero(&self, pfn: u64) -> bool {
        self.frames[pfn as usize] & (VERSION | WRITTEN) == ZEROS
    }

    /// Whether two frames are known to be equal.
    pub(crate) fn equal(&self, a: u64, b: u64) -> bool {
        let (fa, fb) = (self.frames[a as usize], self.frames[b as usize]);
        a == b
            || (fa | fb) & WRITTEN == 0 && fa & VERSION == fb & VERSION && fa & VERSION != FOREIGN
    }

    /// Whether a frame's real bytes are in use.
    pub(crate) fn has_bytes(&self, pfn: u64) -> bool {
        self.frames[pfn as usize] & BYTES != 0
    }

    /// The frame was filled with zeros.
    pub(crate) fn clear(&mut self, pfn: u64) {
        let f = &mut self.frames[pfn as usize];
        *f = *f & BYTES | ZEROS;
        if let Some(lines) = &mut self.lines {
            lines[(pfn * LINES) as usize..][..LINES as usize].fill(ZEROS);
        }
    }

    /// A frame's word, with a version of its own if it was stored into since it had the last one.
    fn numbered(&mut self, pfn: u64) -> u32 {
        let f = &mut self.frames[pfn as usize];
        if *f & WRITTEN != 0 && *f & VERSION != FOREIGN {
            self.next_frame += 1;
            *f = *f & BYTES | self.next_frame;
        }
        *f
    }

    /// The frame was overwritten with a copy of another. Real bytes follow if either had them.
    pub(crate) fn copy(&mut self, to: u64, from: u64) {
        let source = self.numbered(from);
        let f = &mut self.frames[to as usize];
        *f = (*f | source) & BYTES | source & (VERSION | WRITTEN);
        if let Some(lines) = &mut self.lines {
            let (from, to) = ((from * LINES) as usize, (to * LINES) as usize);
            lines.copy_within(from..from + LINES as usize, to);
        }
    }

    /// Contents that nothing else has.
    pub(crate) fn fresh(&mut self) -> Saved {
        self.next_frame += 1;
        let lines = self.lines.is_some().then(|| {
            self.next_line += 1;
            vec![self.next_line; LINES as usize].into()
        });
        Saved { version: self.next_frame, lines }
    }

    /// What a frame holds.
    pub(crate) fn save(&mut self, pfn: u64) -> Saved {
        let version = self.numbered(pfn) & (VERSION | WRITTEN);
        let of = |lines: &Lazy<u32>| lines[(pfn * LINES) as usize..][..LINES as usize].into();
        Saved { version, lines: self.lines.as_ref().map(of) }
    }

    /// What is kept elsewhere is zeros from a byte of the page on.
    pub(crate) fn cut_saved(&mut self, saved: &mut Saved, from: usize) {
        self.next_frame += 1;
        saved.version = self.next_frame;
        if let Some(lines) = &mut saved.lines {
            lines[from.div_ceil(64)..].fill(ZEROS);
            if !from.is_multiple_of(64) {
                self.next_line += 1;
                lines[from / 64] = self.next_line;
            }
        }
    }

    /// The frame was overwritten with what is kept elsewhere.
    pub(crate) fn restore(&mut self, pfn: u64, saved: &Saved, bytes: bool) {
        let f = &mut self.frames[pfn as usize];
        *f = *f & BYTES | if bytes { BYTES } else { 0 } | saved.version;
        if let (Some(lines), Some(saved)) = (&mut self.lines, &saved.lines) {
            lines[(pfn * LINES) as usize..][..LINES as usize].copy_from_slice(saved);
        }
    }

    /// The kernel wrote bytes into a frame; from here its real bytes count.
    pub(crate) fn write(&mut self, pfn: u64, offset: usize, length: usize) {
        let f = &mut self.frames[pfn as usize];
        *f |= BYTES | WRITTEN;
        if length == 4096 && *f & VERSION == FOREIGN {
            *f |= ZEROS;
        }
        if length > 0 && self.lines.is_some() {
            for line in offset / 64..=(offset + length - 1) / 64 {
                self.store_line(pfn * LINES + line as u64);
            }
        }
    }

    /// The frame becomes a table or a slab: its bytes are real from here.
    #[inline]
    pub(crate) fn use_bytes(&mut self, pfn: u64) {
        self.frames[pfn as usize] |= BYTES;
    }

    /// The frame leaves its owner: whatever it holds is foreign from here.
    #[inline]
    pub(crate) fn disown(&mut self, pfn: u64) {
        let f = &mut self.frames[pfn as usize];
        *f &= BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents::new(8, true).expect("memory")
    }

    #[test]
    fn a_frame_is_foreign_until_it_is_cleared_or_overwritten() {
        let mut c = contents();
        assert!(c.is_foreign(3));
        c.write(3, 0, 8);
        assert!(c.is_foreign(3), "a partial write leaves the rest of the old bytes");
        c.clear(3);
        assert!(!c.is_foreign(3) && c.is_zero(3));
        c.disown(3);
        assert!(c.is_foreign(3) && !c.is_zero(3));
        c.write(3, 0, 4096);
        assert!(!c.is_foreign(3));
        c.copy(4, 5);
        assert!(c.is_foreign(4), "a copy of foreign bytes is foreign");
    }

    #[test]
    fn copies_are_equal_until_either_is_stored_into() {
        let mut c = contents();
        c.clear(0);
        c.store(0);
        c.copy(1, 0);
        c.copy(2, 0);
        assert!(c.equal(0, 1) && c.equal(1, 2) && c.equal(0, 2));
        c.store(1);
        assert!(!c.equal(0, 1) && c.equal(0, 2));
        c.copy(3, 1);
        assert!(c.equal(3, 1) && !c.equal(3, 0));
    }

    #[test]
    fn zeroed_frames_are_equal_and_foreign_ones_never() {
        let mut c = contents();
        assert!(!c.equal(0, 1));
        c.clear(0);
        c.clear(1);
        assert!(c.equal(0, 1));
    }

    #[test]
    fn each_line_remembers_its_last_store() {
        let mut c = contents();
        c.clear(2);
        assert_eq!(c.line(2 * 64 + 5), 1);
        let v = c.store_line(2 * 64 + 5);
        assert_eq!((c.line(2 * 64 + 5), c.line(2 * 64 + 6)), (v, 1));
        c.copy(3, 2);
        assert_eq!(c.line(3 * 64 + 5), v);
        c.write(3, 60, 8);
        assert!(c.line(3 * 64) > v && c.line(3 * 64 + 1) > v && c.line(3 * 64 + 5) == v);
    }
}
