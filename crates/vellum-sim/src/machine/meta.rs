//! Memory for the library's metadata: what `Vm::layout` asks for, zeroed, committed only where it
//! is touched.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::lazy::{Lazy, PageBytes};

/// A zeroed block of host memory. Must outlive the `Vm` it is handed to.
pub struct Meta(Lazy<PageBytes>);

impl Meta {
    /// Memory of at least `layout.size()` bytes, aligned to a page, or `None` if the host has no
    /// address space for it or the alignment asked for is more than a page.
    pub fn new(layout: Layout) -> Option<Meta> {
        if layout.align() > 4096 {
            return None;
        }
        Some(Meta(Lazy::new(layout.size().div_ceil(4096), false)?))
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.0.as_ptr().cast()
    }
}
