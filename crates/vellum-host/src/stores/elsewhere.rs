//! Ways to clear on processors that are neither x86_64 nor aarch64.

use super::{Method, PAGES};

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

/// # Safety
/// As [`Method::clear_four`].
#[inline]
pub unsafe fn clear_four(method: Method, pages: [*mut u8; PAGES]) {
    // SAFETY: the caller's pages.
    pages.into_iter().for_each(|at| unsafe { clear(method, at, 4096) });
}

pub fn fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
