//! Ways to clear on aarch64.

use super::{Method, PAGES};
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
            unsafe {
                asm!("dc zva, {}", in(reg) at.add(offset), options(nostack, preserves_flags))
            };
        }
    } else {
        // SAFETY: the caller's memory.
        unsafe { at.write_bytes(0, bytes) };
    }
}

/// # Safety
/// As [`Method::clear_four`].
#[inline]
pub unsafe fn clear_four(method: Method, pages: [*mut u8; PAGES]) {
    // SAFETY: the caller's pages.
    pages.into_iter().for_each(|at| unsafe { clear(method, at, 4096) });
}

#[inline]
pub fn fence() {
    // SAFETY: a barrier touches nothing.
    unsafe { asm!("dmb ishst", options(nostack, preserves_flags)) };
}
