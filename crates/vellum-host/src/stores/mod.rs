//! The ways this processor can fill memory with zeros.
//!
//! There is no best one. Strings of stores by microcode know how long they will run and start slowly; vector stores start at once and read each
//! line before they overwrite it; stores around the caches read nothing and need a fence; AMD's and Arm's instructions zero a line by
//! name. Which of them wins depends on the processor and the length, so all that exist here are offered, found at run time, and
//! [`choice`] picks among them by features or by measurement.
//!
//! Loops are in assembly: the compiler would turn some of them into calls of `memset`, and the width of the stores is what is
//! being chosen. Each can be interrupted anywhere: what is left to do is in registers.

pub mod choice;

pub use choice::Choice;

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
    /// The widest vector stores there are, after the first lines have been asked for: a page that is not in the caches is ready 5 % sooner,
    /// since lines asked for by name come in parallel from the start, those of stores in the order of the stores.
    Ahead,
    /// 16-byte stores around the caches.
    Around16,
    /// 32-byte stores around the caches.
    Around32,
    /// 64-byte stores around the caches.
    Around64,
    /// An instruction that zeroes a line: `clzero`, or `dc zva`.
    Lines,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 9] = [
        Method::Strings,
        Method::Memset,
        Method::Vector32,
        Method::Vector64,
        Method::Ahead,
        Method::Around16,
        Method::Around32,
        Method::Around64,
        Method::Lines,
    ];

    /// How reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Strings => "rep stosb",
            Method::Memset => "memset",
            Method::Vector32 => "32-byte",
            Method::Vector64 => "64-byte",
            Method::Ahead => "fetched ahead",
            Method::Around16 => "16-byte nt",
            Method::Around32 => "32-byte nt",
            Method::Around64 => "64-byte nt",
            Method::Lines => "zero line",
        }
    }

    /// Whether it goes around the caches, so that a [`fence`] must follow before others may look. `clzero` does; `dc zva` leaves the
    /// line in the cache.
    pub const fn goes_around(self) -> bool {
        let line = cfg!(target_arch = "x86_64") && matches!(self, Method::Lines);
        line || matches!(self, Method::Around16 | Method::Around32 | Method::Around64)
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
    /// The memory is the caller's, writable, aligned to 4096, and `bytes` is a multiple of 4096. The method [`exists`](Method::exists) here.
    #[inline]
    pub unsafe fn clear(self, at: *mut u8, bytes: usize) {
        // SAFETY: as promised by the caller.
        unsafe { arch::clear(self, at, bytes) }
    }
}

/// Orders stores around the caches before later stores.
#[inline]
pub fn fence() {
    arch::fence();
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::Method;
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, _mm_sfence, CpuidResult};
    use std::sync::OnceLock;

    pub fn exists(method: Method) -> bool {
        match method {
            Method::Strings | Method::Memset | Method::Around16 => true,
            Method::Vector32 | Method::Around32 => std::arch::is_x86_feature_detected!("avx2"),
            Method::Vector64 | Method::Around64 => std::arch::is_x86_feature_detected!("avx512f"),
            Method::Ahead => {
                static PREFETCHW: OnceLock<bool> = OnceLock::new();
                let asks = *PREFETCHW.get_or_init(|| extended(0x8000_0001).is_some_and(|r| r.ecx & 1 << 8 != 0));
                asks && exists(Method::Vector32)
            }
            Method::Lines => {
                static CLZERO: OnceLock<bool> = OnceLock::new();
                *CLZERO.get_or_init(|| extended(0x8000_0008).is_some_and(|r| r.ebx & 1 != 0))
            }
        }
    }

    /// An extended leaf, if there is one.
    fn extended(leaf: u32) -> Option<CpuidResult> {
        (__cpuid(0x8000_0000).eax >= leaf).then(|| __cpuid(leaf))
    }

    /// Lines that [`Method::Ahead`] asks for. More are no better, and cost a page that is in the caches.
    const AHEAD: usize = 16;

    /// A loop of four stores of `$width` bytes.
    macro_rules! stores {
        ($store:literal, $register:literal, $width:literal, $zero:literal, $after:literal, $at:ident, $bytes:ident) => {
            asm!(
                $zero,
                "2:",
                concat!($store, " [{at}], ", $register),
                concat!($store, " [{at} + ", $width, "], ", $register),
                concat!($store, " [{at} + 2*", $width, "], ", $register),
                concat!($store, " [{at} + 3*", $width, "], ", $register),
                concat!("add {at}, 4*", $width),
                concat!("sub {bytes}, 4*", $width),
                "jnz 2b",
                $after,
                at = inout(reg) $at => _,
                bytes = inout(reg) $bytes => _,
                out("xmm0") _,
                options(nostack),
            )
        };
    }

    /// # Safety
    /// As [`Method::clear`].
    #[inline]
    pub unsafe fn clear(method: Method, at: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller owns `bytes` bytes at `at`, a multiple of every loop's step; the instructions exist by contract. Registers that
        // are written are named; stores of memory are what asm is assumed to do.
        unsafe {
            match method {
                Method::Strings => {
                    asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") at => _, in("al") 0u8, options(nostack, preserves_flags))
                }
                Method::Memset => at.write_bytes(0, bytes),
                Method::Vector32 => {
                    stores!("vmovdqa", "ymm0", "32", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
                }
                Method::Vector64 => {
                    stores!("vmovdqa64", "zmm0", "64", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
                }
                Method::Ahead => {
                    for line in 0..AHEAD {
                        asm!("prefetchw [{}]", in(reg) at.add(line * 64), options(nostack, preserves_flags));
                    }
                    let widest = if exists(Method::Vector64) { Method::Vector64 } else { Method::Vector32 };
                    clear(widest, at, bytes)
                }
                Method::Around16 => stores!("movntdq", "xmm0", "16", "pxor xmm0, xmm0", "", at, bytes),
                Method::Around32 => {
                    stores!("vmovntdq", "ymm0", "32", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
                }
                Method::Around64 => {
                    stores!("vmovntdq", "zmm0", "64", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
                }
                Method::Lines => asm!(
                    "2:",
                    "clzero",
                    "add rax, 64",
                    "sub {bytes}, 64",
                    "jnz 2b",
                    inout("rax") at => _,
                    bytes = inout(reg) bytes => _,
                    options(nostack),
                ),
            }
        }
    }

    #[inline]
    pub fn fence() {
        // SAFETY: every x86_64 has it, and a fence touches nothing.
        unsafe { _mm_sfence() };
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::Method;
    use core::arch::asm;

    /// Bytes that `dc zva` zeroes, 0 where it is forbidden.
    fn zva() -> usize {
        let id: u64;
        // SAFETY: the register can be read by programs and reading it changes nothing.
        unsafe { asm!("mrs {}, dczid_el0", out(reg) id, options(nomem, nostack, preserves_flags)) };
        if id & 16 != 0 { 0 } else { 4 << (id & 15) }
    }

    pub fn exists(method: Method) -> bool {
        match method {
            Method::Memset => true,
            Method::Lines => (16..=4096).contains(&zva()),
            _ => false,
        }
    }

    /// # Safety
    /// As [`Method::clear`].
    #[inline]
    pub unsafe fn clear(method: Method, at: *mut u8, bytes: usize) {
        if method == Method::Lines {
            let step = zva();
            for offset in (0..bytes).step_by(step) {
                // SAFETY: inside the caller's memory, aligned to the step, which divides 4096.
                unsafe { asm!("dc zva, {}", in(reg) at.add(offset), options(nostack, preserves_flags)) };
            }
        } else {
            // SAFETY: the caller's memory.
            unsafe { at.write_bytes(0, bytes) };
        }
    }

    #[inline]
    pub fn fence() {
        // SAFETY: a barrier touches nothing.
        unsafe { asm!("dmb ishst", options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use super::Method;

    pub fn exists(method: Method) -> bool {
        method == Method::Memset
    }

    /// # Safety
    /// As [`Method::clear`].
    #[inline]
    pub unsafe fn clear(_method: Method, at: *mut u8, bytes: usize) {
        // SAFETY: the caller's memory.
        unsafe { at.write_bytes(0, bytes) };
    }

    pub fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
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
                let bytes = unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), 1 << 20) };
                bytes.fill(0xa5);
                let (start, end) = (4096, 4096 * (1 + pages));
                // SAFETY: as above; the start is aligned and the length a multiple of a page.
                unsafe { method.clear(bytes.as_mut_ptr().add(start), end - start) };
                fence();
                assert!(bytes[start..end].iter().all(|&b| b == 0), "{method:?} {pages}");
                assert!(bytes[..start].iter().chain(&bytes[end..]).all(|&b| b == 0xa5), "{method:?} {pages}: guards");
                // SAFETY: nothing to clear.
                unsafe { method.clear(bytes.as_mut_ptr(), 0) };
                assert_eq!(bytes[0], 0xa5);
            }
        }
    }
}
