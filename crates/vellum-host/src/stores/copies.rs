//! The ways to copy: the compiler's `memcpy`, which goes through the caches, and non-temporal
//! stores, which do not read what they overwrite.
//!
//! Both read the source through the caches, since its owner may have it there. Rejected: string
//! moves (`rep movsb`), which `memcpy` uses itself where they are good; non-temporal loads, which
//! processors treat as ordinary loads in ordinary memory.

/// Copies with non-temporal stores; a [`fence`](super::fence) must follow. As [`through`] where the
/// processor has no such stores.
///
/// # Safety
/// The runs are the caller's to read and to write, do not overlap, and both are aligned to 4096;
/// `bytes` is a multiple of 4096.
#[inline]
pub unsafe fn non_temporal(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as promised by the caller; the wider loop only where the processor has it.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx512f") {
            wide(to, from, bytes)
        } else {
            narrow(to, from, bytes)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as promised by the caller.
    unsafe {
        through(to, from, bytes)
    }
}

/// Copies through the caches.
///
/// # Safety
/// As [`non_temporal`].
#[inline]
pub unsafe fn through(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: as promised by the caller.
    unsafe { to.copy_from_nonoverlapping(from, bytes) }
}

/// A loop of four loads and four stores of `$width` bytes.
#[cfg(target_arch = "x86_64")]
macro_rules! moves {
    (
        $load:literal, $store:literal, $kind:literal, $width:literal, $after:literal,
        $to:ident, $from:ident, $bytes:ident
    ) => {
        core::arch::asm!(
            "2:",
            concat!($load, " ", $kind, "0, [{from}]"),
            concat!($load, " ", $kind, "1, [{from} + ", $width, "]"),
            concat!($load, " ", $kind, "2, [{from} + 2*", $width, "]"),
            concat!($load, " ", $kind, "3, [{from} + 3*", $width, "]"),
            concat!($store, " [{to}], ", $kind, "0"),
            concat!($store, " [{to} + ", $width, "], ", $kind, "1"),
            concat!($store, " [{to} + 2*", $width, "], ", $kind, "2"),
            concat!($store, " [{to} + 3*", $width, "], ", $kind, "3"),
            concat!("add {from}, 4*", $width),
            concat!("add {to}, 4*", $width),
            concat!("sub {bytes}, 4*", $width),
            "jnz 2b",
            $after,
            to = inout(reg) $to => _,
            from = inout(reg) $from => _,
            bytes = inout(reg) $bytes => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            options(nostack),
        )
    };
}

/// By 64 bytes.
///
/// # Safety
/// As [`non_temporal`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
unsafe fn wide(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: `bytes` is a multiple of the step, the runs are the caller's, registers that are
    // written are named.
    unsafe { moves!("vmovdqa64", "vmovntdq", "zmm", "64", "vzeroupper", to, from, bytes) }
}

/// By 16 bytes.
///
/// # Safety
/// As [`non_temporal`].
#[cfg(target_arch = "x86_64")]
unsafe fn narrow(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: as in `wide`, with instructions every x86_64 has.
    unsafe { moves!("movdqa", "movntdq", "xmm", "16", "", to, from, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    type Copy = unsafe fn(*mut u8, *const u8, usize);

    #[test]
    fn every_way_copies_what_it_is_told_and_not_a_byte_beside() {
        let memory = Memory::new(2 << 20, false).expect("memory");
        let mut ways: Vec<(&str, Copy)> = vec![("through", through), ("around", non_temporal)];
        #[cfg(target_arch = "x86_64")]
        ways.push(("narrow", narrow));
        for (name, copy) in ways {
            for pages in [0usize, 1, 2, 3, 7, 100] {
                // SAFETY: inside the mapping, which is this test's alone.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), 2 << 20) };
                let (to, from) = bytes.split_at_mut(1 << 20);
                to.fill(0xa5);
                from.iter_mut().enumerate().for_each(|(i, b)| *b = (i / 8 % 251) as u8);
                let (start, end) = (4096, 4096 * (1 + pages));
                // SAFETY: two halves; start and length are multiples of a page.
                unsafe { copy(to.as_mut_ptr().add(start), from.as_ptr().add(start), end - start) };
                super::super::fence();
                assert_eq!(to[start..end], from[start..end], "{name} {pages}");
                assert!(
                    to[..start].iter().chain(&to[end..]).all(|&b| b == 0xa5),
                    "{name} {pages}: guards"
                );
            }
        }
    }
}
