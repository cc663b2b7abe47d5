//! Ways to clear on x86_64.

use super::{Method, PAGES};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, _mm_sfence, CpuidResult};
use std::sync::OnceLock;

pub fn exists(method: Method) -> bool {
    match method {
        Method::Strings | Method::Memset | Method::NonTemporal16 => true,
        Method::Vector32 | Method::NonTemporal32 => std::arch::is_x86_feature_detected!("avx2"),
        Method::Vector64 | Method::NonTemporal64 | Method::Four64 => {
            std::arch::is_x86_feature_detected!("avx512f")
        }
        Method::Ahead => {
            static PREFETCHW: OnceLock<bool> = OnceLock::new();
            let asks = *PREFETCHW
                .get_or_init(|| extended(0x8000_0001).is_some_and(|r| r.ecx & 1 << 8 != 0));
            asks && exists(Method::Vector32)
        }
        Method::Lines | Method::FourLines => {
            static CLZERO: OnceLock<bool> = OnceLock::new();
            *CLZERO.get_or_init(|| extended(0x8000_0008).is_some_and(|r| r.ebx & 1 != 0))
        }
    }
}

/// An extended leaf, if there is one.
fn extended(leaf: u32) -> Option<CpuidResult> {
    (__cpuid(0x8000_0000).eax >= leaf).then(|| __cpuid(leaf))
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// Lines that [`Method::Ahead`] asks for. More are no better, and cost a page that is in the
/// caches.
const AHEAD: usize = 16;

/// A loop of four stores of `$width` bytes.
macro_rules! stores {
    (
        $store:literal, $register:literal, $width:literal, $zero:literal, $after:literal,
        $at:ident, $bytes:ident
    ) => {
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
    // SAFETY: the caller owns `bytes` bytes at `at`, a multiple of every loop's step; the
    // instructions exist by contract. Registers that are written are named; stores of memory are
    // what asm is assumed to do.
    unsafe {
        match method {
            Method::Strings => {
                asm!(
                    "rep stosb",
                    inout("rcx") bytes => _,
                    inout("rdi") at => _,
                    in("al") 0u8,
                    options(nostack, preserves_flags)
                )
            }
            Method::Memset => at.write_bytes(0, bytes),
            Method::Vector32 => {
                stores!("vmovdqa", "ymm0", "32", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
            }
            Method::Vector64 => {
                stores!(
                    "vmovdqa64",
                    "zmm0",
                    "64",
                    "vpxor xmm0, xmm0, xmm0",
                    "vzeroupper",
                    at,
                    bytes
                )
            }
            Method::Ahead => {
                for line in 0..AHEAD {
                    asm!(
                        "prefetchw [{}]",
                        in(reg) at.add(line * 64),
                        options(nostack, preserves_flags)
                    );
                }
                let widest =
                    if exists(Method::Vector64) { Method::Vector64 } else { Method::Vector32 };
                clear(widest, at, bytes)
            }
            Method::NonTemporal16 => {
                stores!("movntdq", "xmm0", "16", "pxor xmm0, xmm0", "", at, bytes)
            }
            Method::NonTemporal32 => {
                stores!("vmovntdq", "ymm0", "32", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
            }
            Method::NonTemporal64 => {
                stores!("vmovntdq", "zmm0", "64", "vpxor xmm0, xmm0, xmm0", "vzeroupper", at, bytes)
            }
            Method::Four64 | Method::FourLines => {
                let whole = bytes / (PAGES * PAGE) * (PAGES * PAGE);
                for group in (0..whole).step_by(PAGES * PAGE) {
                    clear_four(method, [0, 1, 2, 3].map(|page| at.add(group + page * PAGE)));
                }
                let rest =
                    if method == Method::Four64 { Method::NonTemporal64 } else { Method::Lines };
                clear(rest, at.add(whole), bytes - whole)
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

/// # Safety
/// As [`Method::clear_four`].
#[inline]
pub unsafe fn clear_four(method: Method, [a, b, c, d]: [*mut u8; PAGES]) {
    // SAFETY: the caller owns 4096 bytes at each, which is what the loops write, a line of each at
    // a time; the instructions exist by contract. Registers that are written are named.
    unsafe {
        match method {
            Method::Four64 => asm!(
                "vpxor xmm0, xmm0, xmm0",
                "2:",
                "vmovntdq [{a}], zmm0",
                "vmovntdq [{b}], zmm0",
                "vmovntdq [{c}], zmm0",
                "vmovntdq [{d}], zmm0",
                "add {a}, 64",
                "add {b}, 64",
                "add {c}, 64",
                "add {d}, 64",
                "sub {bytes:e}, 64",
                "jnz 2b",
                "vzeroupper",
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                c = inout(reg) c => _,
                d = inout(reg) d => _,
                bytes = inout(reg) PAGE => _,
                out("xmm0") _,
                options(nostack),
            ),
            Method::FourLines => asm!(
                "2:",
                "mov rax, {a}",
                "clzero",
                "mov rax, {b}",
                "clzero",
                "mov rax, {c}",
                "clzero",
                "mov rax, {d}",
                "clzero",
                "add {a}, 64",
                "add {b}, 64",
                "add {c}, 64",
                "add {d}, 64",
                "sub {bytes:e}, 64",
                "jnz 2b",
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                c = inout(reg) c => _,
                d = inout(reg) d => _,
                bytes = inout(reg) PAGE => _,
                out("rax") _,
                options(nostack),
            ),
            _ => [a, b, c, d].into_iter().for_each(|at| clear(method, at, PAGE)),
        }
    }
}

#[inline]
pub fn fence() {
    // SAFETY: every x86_64 has it, and a fence touches nothing.
    unsafe { _mm_sfence() };
}
