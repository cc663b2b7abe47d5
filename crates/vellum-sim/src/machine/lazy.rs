//! Arrays that cost only what is touched.
//!
//! A machine of 100 GiB has 26 million frames; their state must be indexable without a search on
//! the path of each access, and must not take memory for frames nobody uses. An anonymous private
//! mapping without reservation gives both: flat, and committed page by page as it is first written.
//! Rejected: a hash map (order and cost), a two-level radix array (one dependent load more on every
//! store, for memory the host's page table saves anyway).

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Types for which all bits zero is a value and which need no drop.
///
/// # Safety
/// Exactly that must hold.
pub unsafe trait Plain: Copy {}

// SAFETY: integers are valid with all bits zero.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
/// A page of simulated memory.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub struct PageBytes(pub [u8; 4096]);
// SAFETY: bytes.
unsafe impl Plain for PageBytes {}

/// A zeroed array whose untouched parts take no host memory.
pub struct Lazy<T: Plain> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
}

impl<T: Plain> Lazy<T> {
    /// An array of `len` zeros, or `None` if the host has no address space for it. `dense`:
    /// neighbours are used together, so the host may back it with large pages.
    pub fn new(len: usize, dense: bool) -> Option<Lazy<T>> {
        let bytes = len.max(1).checked_mul(size_of::<T>())?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address the host chooses replaces nothing.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }
        .ok()?;
        if dense {
            // SAFETY: the range is the mapping just made; the advice changes no contents. It is a
            // hint: failure is fine.
            let _ = unsafe { rustix::mm::madvise(at, bytes, Advice::LinuxHugepage) };
        }
        Some(Lazy { start: NonNull::new(at.cast())?, len, bytes })
    }

    /// The address of the first element. Reads and writes through it must not overlap a live
    /// reference to the array.
    pub fn as_ptr(&self) -> NonNull<T> {
        self.start
    }
}

impl<T: Plain> Deref for Lazy<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements of a mapping this value owns, zero-filled by the host, valid as T
        // by `Plain`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Lazy<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Lazy<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody can hold a reference to it any more. An error
        // would leak it, no more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_larger_than_the_host_is_zero_and_writable_anywhere() {
        let mut a = Lazy::<u64>::new(1 << 36, false).expect("512 GiB of address space");
        assert_eq!(a[(1 << 36) - 1], 0);
        a[1 << 35] = 7;
        assert_eq!(a[1 << 35], 7);
    }
}
