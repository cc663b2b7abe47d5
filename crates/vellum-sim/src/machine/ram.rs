//! Simulated physical memory.
//!
//! Page tables and slabs are real bytes: the library writes them through pointers, and the
//! simulated walker reads what the library wrote. Data frames have a place too but nothing touches
//! it unless someone reads or writes their bytes
//! ([`Machine::read`](vellum::machine::Machine::read)); what is in them is tracked as versions by
//! `contents`. A frame that nobody ever wrote is known to be zero without being looked at, since
//! the host takes a fault at the first look at each.
//!
//! All accesses go through raw pointers: the library holds its own pointers into the same pages
//! (`direct`), so no Rust reference to a page may ever exist here. Entries are read and written as
//! atomics, as the library does.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::lazy::{Lazy, PageBytes};

/// Bytes of a frame.
pub const PAGE: usize = 4096;

/// The bytes of all frames, from frame 0.
pub struct Ram {
    pages: Lazy<PageBytes>,
    /// 1 for each frame that may hold something else than zeros.
    written: Lazy<u8>,
    frames: u64,
    /// From this frame on they are a device's.
    device: u64,
}

impl Ram {
    /// Memory of `own` frames, and behind it so many of a device, all zero, or `None` if the host
    /// has no address space.
    pub fn new(own: u64, devices: u64) -> Option<Ram> {
        let frames = own + devices;
        let count = usize::try_from(frames).ok()?;
        let (pages, written) = (Lazy::new(count, false)?, Lazy::new(count, false)?);
        Some(Ram { pages, written, frames, device: own })
    }

    /// Number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of frames that the library has.
    pub fn own(&self) -> u64 {
        self.device
    }

    /// Whether a frame is a device's, which the library maps and no more.
    #[inline]
    pub fn is_device(&self, pfn: u64) -> bool {
        pfn >= self.device
    }

    /// The first byte of a frame, for whoever may write there. The frame must exist.
    #[inline(always)]
    pub fn page(&self, pfn: u64) -> NonNull<u8> {
        let start = self.start(pfn);
        // SAFETY: `pfn` is inside, as `start` found; no reference to the array exists.
        unsafe { self.written.as_ptr().add(pfn as usize).write(1) }
        start
    }

    /// The first byte of a frame.
    #[inline(always)]
    fn start(&self, pfn: u64) -> NonNull<u8> {
        assert!(pfn < self.frames, "frame {pfn:#x} is past the end of simulated memory");
        // SAFETY: `pfn` is inside the mapping.
        unsafe { self.pages.as_ptr().add(pfn as usize).cast() }
    }

    /// Whether a frame may hold something else than zeros.
    #[inline]
    fn is_written(&self, pfn: u64) -> bool {
        self.written[pfn as usize] != 0
    }

    #[inline(always)]
    fn entry(&self, page: NonNull<u8>, address: u64) -> &AtomicU64 {
        // SAFETY: inside the page, 8-byte aligned since the low 3 bits are masked, and whoever else
        // touches table entries (the library through `direct`, before a node is linked) does so on
        // this same thread.
        unsafe { &*page.as_ptr().add((address & 0xff8) as usize).cast::<AtomicU64>() }
    }

    /// Reads the entry at a physical address.
    #[inline(always)]
    pub fn load(&self, address: u64) -> u64 {
        self.entry(self.start(address >> 12), address).load(Ordering::Relaxed)
    }

    /// Writes the entry at a physical address.
    #[inline(always)]
    pub fn store(&self, address: u64, raw: u64) {
        self.entry(self.page(address >> 12), address).store(raw, Ordering::Relaxed);
    }

    /// Fills a frame with zeros.
    pub fn zero(&self, pfn: u64) {
        if self.is_written(pfn) {
            // SAFETY: 4096 bytes inside the mapping; no reference to them exists.
            unsafe { self.start(pfn).as_ptr().write_bytes(0, 4096) }
        }
    }

    /// Copies a frame.
    pub fn copy(&self, to: u64, from: u64) {
        if !self.is_written(from) {
            return self.zero(to);
        }
        // SAFETY: both frames are inside the mapping; `copy_to` allows them to be the same.
        unsafe { self.start(from).as_ptr().copy_to(self.page(to).as_ptr(), 4096) }
    }

    /// Reads bytes of one frame; `offset + bytes.len()` must be at most 4096.
    pub fn read(&self, pfn: u64, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= 4096);
        if !self.is_written(pfn) {
            return bytes.fill(0);
        }
        // SAFETY: the run lies in one frame; `bytes` is the caller's and not simulated memory.
        unsafe {
            self.start(pfn)
                .as_ptr()
                .add(offset)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
    }

    /// Writes bytes of one frame; `offset + bytes.len()` must be at most 4096.
    pub fn write(&self, pfn: u64, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= 4096);
        // Zeros in a frame of zeros take no memory of the host.
        if !self.is_written(pfn) && bytes.iter().all(|b| *b == 0) {
            return;
        }
        // SAFETY: as in `read`.
        unsafe {
            self.page(pfn)
                .as_ptr()
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Whether all bytes of a frame are zero.
    pub fn is_zero(&self, pfn: u64) -> bool {
        !self.is_written(pfn) || (0..512).all(|slot| self.load(pfn << 12 | slot << 3) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames of memory, one of a device.
    fn ram() -> Ram {
        Ram::new(2, 1).expect("address space")
    }

    fn bytes(ram: &Ram, pfn: u64) -> [u8; 8] {
        let mut bytes = [7; 8];
        ram.read(pfn, 16, &mut bytes);
        bytes
    }

    #[test]
    fn what_nobody_wrote_is_zero_and_stays_untouched() {
        let ram = ram();
        ram.write(0, 16, &[0; 8]);
        ram.copy(1, 0);
        ram.zero(2);
        for pfn in 0..3 {
            assert_eq!(bytes(&ram, pfn), [0; 8]);
            assert!(ram.is_zero(pfn) && !ram.is_written(pfn), "frame {pfn}");
        }
    }

    #[test]
    fn every_way_to_write_is_seen() {
        let writes: [fn(&Ram); 4] = [
            |ram| ram.write(0, 16, &[0, 0, 1, 0, 0, 0, 0, 0]),
            |ram| ram.store(16, 1 << 16),
            // SAFETY: inside the frame; there is no reference to it.
            |ram| unsafe { ram.page(0).as_ptr().add(18).write(1) },
            |ram| {
                ram.store(4096 + 16, 1 << 16);
                ram.copy(0, 1);
            },
        ];
        for write in writes {
            let ram = ram();
            write(&ram);
            assert_eq!(bytes(&ram, 0), [0, 0, 1, 0, 0, 0, 0, 0]);
            assert!(!ram.is_zero(0));
            ram.copy(1, 0);
            assert_eq!(bytes(&ram, 1), bytes(&ram, 0));
            ram.zero(0);
            assert!(ram.is_zero(0) && !ram.is_zero(1));
            ram.copy(1, 2);
            assert!(ram.is_zero(1), "of a frame that nobody wrote");
            write(&ram);
            ram.write(0, 16, &[0; 8]);
            assert!(ram.is_zero(0), "zeros over what was there");
        }
    }
}
