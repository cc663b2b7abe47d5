//! Atomics like core's to the files that use them, loom's inside.
//!
//! loom's cannot be made in a constant, nor out of zeroed memory, and the library does both. So these are made at their first use, out of what
//! they were given or out of zeros; they are leaked, since nobody drops what lies in raw memory. A test touches them before it starts threads.

use std::cell::Cell;

pub use loom::sync::atomic::{Ordering, fence};

/// See `vellum::sync::atomic`: under loom an exchange is never more than acquire and release.
pub fn fence_after_exchange() {
    fence(Ordering::SeqCst);
}

macro_rules! atomic {
    ($name:ident, $loom:ident, $int:ty) => {
        /// As core's.
        #[repr(C)]
        pub struct $name {
            made: Cell<Option<&'static loom::sync::atomic::$loom>>,
            first: $int,
        }

        // SAFETY: loom runs one thread at a time, and a switch between threads is possible only inside loom's own calls.
        unsafe impl Sync for $name {}
        // SAFETY: as above.
        unsafe impl Send for $name {}

        #[allow(dead_code)]
        impl $name {
            pub const fn new(first: $int) -> $name {
                $name { made: Cell::new(None), first }
            }
            fn inner(&self) -> &loom::sync::atomic::$loom {
                self.made.get().unwrap_or_else(|| {
                    let made = Box::leak(Box::new(loom::sync::atomic::$loom::new(self.first)));
                    self.made.set(Some(made));
                    made
                })
            }
            pub fn load(&self, order: Ordering) -> $int {
                self.inner().load(order)
            }
            pub fn store(&self, value: $int, order: Ordering) {
                self.inner().store(value, order)
            }
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                self.inner().swap(value, order)
            }
            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.inner().fetch_and(value, order)
            }
            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.inner().fetch_or(value, order)
            }
            pub fn compare_exchange(&self, old: $int, new: $int, yes: Ordering, no: Ordering) -> Result<$int, $int> {
                self.inner().compare_exchange(old, new, yes, no)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
}

atomic!(AtomicU32, AtomicU32, u32);
atomic!(AtomicU64, AtomicU64, u64);
