//! Simulated physical memory.
//!
//! Page tables and slabs are real bytes: the library writes them through pointers, and the
//! simulated walker reads what the library wrote. Data frames have a place too but nothing touches
//! it unless someone reads or writes their bytes
//! ([`Machine::read`](vellum::machine::Machine::read)); what is in them is tracked as versions by
//! `contents`.
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
    frames: u64,
    /// From this frame on they are a device's.
    device: u64,
}

impl Ram {
    /// Memory of `own` frames, and behind it so many of a device, all zero, or `None` if the host
    /// has no address space.
    pub fn new(own: u64, devices: u64) -> Option<Ram> {
        let frames = own + devices;
        let pages = Lazy::new(usize::try_from(frames).ok()?, false)?;
        Some(Ram { pages, frames, device: own })
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

    /// The first byte of a frame. The frame must exist.
    #[inline(always)]
    pub fn page(&self, pfn: u64) -> NonNull<u8> {
        assert!(pfn < self.frames, "frame {pfn:#x} is past the end of simulated memory");
        // SAFETY: `pfn` is inside the mapping.
        unsafe { self.pages.as_ptr().add(pfn as usize).cast() }
    }

    #[inline(always)]
    fn entry(&self, address: u64) -> &AtomicU64 {
        let page = self.page(address >> 12);
        // SAFETY: inside the page, 8-byte aligned since the low 3 bits are masked, and whoever else
        // touches table entries (the library through `direct`, before a node is linked) does so on
        // this same thread.
        unsafe { &*page.as_ptr().add((address & 0xff8) as usize).cast::<AtomicU64>() }
    }

    /// Reads the entry at a physical address.
    #[inline(always)]
    pub fn load(&self, address: u64) -> u64 {
        self.entry(address).load(Ordering::Relaxed)
    }

    /// Writes the entry at a physical address.
    #[inline(always)]
    pub fn store(&self, address: u64, raw: u64) {
        self.entry(address).store(raw, Ordering::Relaxed);
    }

    /// Fills a frame with zeros.
    pub fn zero(&self, pfn: u64) {
        // SAFETY: 4096 bytes inside the mapping; no reference to them exists.
        unsafe { self.page(pfn).as_ptr().write_bytes(0, 4096) }
    }

    /// Copies a frame.
    pub fn copy(&self, to: u64, from: u64) {
        // SAFETY: both frames are inside the mapping; `copy_to` allows them to be the same.
        unsafe { self.page(from).as_ptr().copy_to(self.page(to).as_ptr(), 4096) }
    }

    /// Reads bytes of one frame; `offset + bytes.len()` must be at most 4096.
    pub fn read(&self, pfn: u64, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= 4096);
        // SAFETY: the run lies in one frame; `bytes` is the caller's and not simulated memory.
        unsafe {
            self.page(pfn)
                .as_ptr()
                .add(offset)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
    }

    /// Writes bytes of one frame; `offset + bytes.len()` must be at most 4096.
    pub fn write(&self, pfn: u64, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= 4096);
        // SAFETY: as in `read`; the slice ends before the write.
        unsafe {
            let at = self.page(pfn).as_ptr().add(offset);
            // What is there already is not written, so that zeros in an untouched frame take no
            // memory of the host.
            if core::slice::from_raw_parts(at, bytes.len()) != bytes {
                at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
    }

    /// Whether all bytes of a frame are zero.
    pub fn is_zero(&self, pfn: u64) -> bool {
        (0..512).all(|slot| self.load(pfn << 12 | slot << 3) == 0)
    }
}
