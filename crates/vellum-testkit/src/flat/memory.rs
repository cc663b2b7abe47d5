//! Memory of the host for the library.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed memory handed to the library, freed when dropped (after what lives in it). The host's
/// allocator clears lazily only at its own alignment, so this asks for more and aligns by itself:
/// untouched parts of it cost nothing.
pub struct Meta {
    start: NonNull<u8>,
    base: NonNull<u8>,
    whole: Layout,
}

impl Meta {
    /// Memory of that layout.
    pub fn new(layout: Layout) -> Meta {
        let whole =
            Layout::from_size_align(layout.size() + layout.align(), 16).expect("a size that fits");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(whole) }).expect("host memory");
        // SAFETY: less than `align` bytes further, and `align` more were asked for.
        let base = unsafe { start.add(start.align_offset(layout.align())) };
        Meta { start, base, whole }
    }
    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.whole) }
    }
}

// SAFETY: plain memory.
unsafe impl Send for Meta {}
// SAFETY: plain memory.
unsafe impl Sync for Meta {}
