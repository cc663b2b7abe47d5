//! The ways this processor can fill memory with zeros.
//!
//! None is best everywhere. String stores know their length and start slowly. Vector stores start
//! at once and read each line before they overwrite it. Non-temporal stores read nothing and need a
//! fence. AMD and Arm have instructions that zero a line. The processor and the length decide, so
//! all that exist are found at run time, and [`choice`] picks by features or by measurement.
//!
//! The loops are in assembly: the compiler would turn some of them into calls of `memset`, and the
//! width of the stores is what is compared. Each loop can be interrupted anywhere, since its
//! progress is in registers.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod choice;
pub mod copies;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use choice::Choice;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use elsewhere as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

/// A way to fill memory with zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// `rep stosb`.
    Strings,
    /// What the compiler's library does.
    Memset,
    /// 32-byte vector stores.
    Vector32,
    /// 64-byte vector stores.
    Vector64,
    /// The widest vector stores there are, after the first lines have been asked for: a page that
    /// is not in the caches is ready 5 % sooner, since lines asked for by name come in parallel
    /// from the start, those of stores in the order of the stores.
    Ahead,
    /// 16-byte non-temporal stores.
    NonTemporal16,
    /// 32-byte non-temporal stores.
    NonTemporal32,
    /// 64-byte non-temporal stores.
    NonTemporal64,
    /// An instruction that zeroes a line: `clzero`, or `dc zva`.
    Lines,
    /// [`NonTemporal64`](Method::NonTemporal64), four pages at a time, a line of each in turn:
    /// pages lie in other banks of the memory, and their translations are looked up together. Half
    /// again as fast on scattered pages, a fifth on long runs.
    Four64,
    /// The same with `clzero`.
    FourLines,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 11] = [
        Method::Strings,
        Method::Memset,
        Method::Vector32,
        Method::Vector64,
        Method::Ahead,
        Method::NonTemporal16,
        Method::NonTemporal32,
        Method::NonTemporal64,
        Method::Lines,
        Method::Four64,
        Method::FourLines,
    ];

    /// How reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Strings => "rep stosb",
            Method::Memset => "memset",
            Method::Vector32 => "32-byte",
            Method::Vector64 => "64-byte",
            Method::Ahead => "fetched ahead",
            Method::NonTemporal16 => "16-byte nt",
            Method::NonTemporal32 => "32-byte nt",
            Method::NonTemporal64 => "64-byte nt",
            Method::Lines => "zero line",
            Method::Four64 => "64-byte nt, four pages at a time",
            Method::FourLines => "zero line, four pages at a time",
        }
    }

    /// Whether its stores are non-temporal, so that a [`fence`] must follow before others may look.
    /// `clzero` does; `dc zva` leaves the line in the cache.
    pub const fn is_non_temporal(self) -> bool {
        let line =
            cfg!(target_arch = "x86_64") && matches!(self, Method::Lines | Method::FourLines);
        line || matches!(
            self,
            Method::NonTemporal16 | Method::NonTemporal32 | Method::NonTemporal64 | Method::Four64
        )
    }

    /// Whether this processor has it.
    pub fn exists(self) -> bool {
        arch::exists(self)
    }

    /// Those this processor has.
    pub fn here() -> impl Iterator<Item = Method> {
        Method::ALL.into_iter().filter(|m| m.exists())
    }

    /// Zeroes `bytes` bytes.
    ///
    /// # Safety
    /// The memory is the caller's, writable, aligned to 4096, and `bytes` is a multiple of 4096.
    /// The method [`exists`](Method::exists) here.
    #[inline]
    pub unsafe fn clear(self, at: *mut u8, bytes: usize) {
        // SAFETY: as promised by the caller.
        unsafe { arch::clear(self, at, bytes) }
    }

    /// Zeroes four pages that lie anywhere.
    ///
    /// # Safety
    /// As [`clear`](Method::clear), for each of them; they are different pages.
    #[inline]
    pub unsafe fn clear_four(self, pages: [*mut u8; PAGES]) {
        // SAFETY: as promised by the caller.
        unsafe { arch::clear_four(self, pages) }
    }
}

/// Pages that [`Method::clear_four`] zeroes.
pub const PAGES: usize = 4;

/// Orders non-temporal stores before later stores.
#[inline]
pub fn fence() {
    arch::fence();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn every_method_zeroes_what_it_is_told_and_not_a_byte_beside() {
        let memory = Memory::new(1 << 20, false).expect("memory");
        for method in Method::here() {
            for pages in [1usize, 2, 3, 7, 16, 100] {
                // SAFETY: inside the mapping, which is this test's alone.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), 1 << 20) };
                bytes.fill(0xa5);
                let (start, end) = (4096, 4096 * (1 + pages));
                // SAFETY: as above; the start is aligned and the length a multiple of a page.
                unsafe { method.clear(bytes.as_mut_ptr().add(start), end - start) };
                fence();
                assert!(bytes[start..end].iter().all(|&b| b == 0), "{method:?} {pages}");
                assert!(
                    bytes[..start].iter().chain(&bytes[end..]).all(|&b| b == 0xa5),
                    "{method:?} {pages}: guards"
                );
                // SAFETY: nothing to clear.
                unsafe { method.clear(bytes.as_mut_ptr(), 0) };
                assert_eq!(bytes[0], 0xa5);
            }
        }
    }

    #[test]
    fn every_method_zeroes_four_scattered_pages_and_not_a_byte_beside() {
        let memory = Memory::new(1 << 20, false).expect("memory");
        for method in Method::here() {
            // SAFETY: inside the mapping, which is this test's alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), 1 << 20) };
            bytes.fill(0xa5);
            let chosen = [9usize, 2, 3, 100];
            let first = bytes.as_mut_ptr();
            // SAFETY: four pages of the mapping.
            unsafe { method.clear_four(chosen.map(|page| first.add(page * 4096))) };
            fence();
            for (page, bytes) in bytes.chunks(4096).enumerate() {
                let expected = if chosen.contains(&page) { 0 } else { 0xa5 };
                assert!(bytes.iter().all(|&b| b == expected), "{method:?}: page {page}");
            }
        }
    }
}
