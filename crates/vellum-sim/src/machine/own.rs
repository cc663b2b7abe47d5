//! The machine's state behind `&self`.
//!
//! The library calls a machine through `&self`, from coroutines that all run on one OS thread. A
//! `RefCell` would pay for a borrow flag on every simulated access. Instead all state is reached
//! through [`Own::with`], whose closures never call back into the library, never suspend the
//! coroutine and never nest; debug builds check the last.

use core::cell::{Cell, UnsafeCell};

/// A value reached only inside short, non-nesting closures of one thread.
pub(crate) struct Own<T> {
    value: UnsafeCell<T>,
    busy: Cell<bool>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { value: UnsafeCell::new(value), busy: Cell::new(false) }
    }

    /// Runs `f` on the value. `f` must not reach this `Own` again nor suspend a coroutine.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if cfg!(debug_assertions) {
            assert!(
                !self.busy.replace(true),
                "the machine's state was reached while it was already in use"
            );
        }
        // SAFETY: `Own` is not `Sync`, so this is the only thread; closures passed here do not nest
        // (checked in debug builds, and every one of them is in this crate) and do not suspend, so
        // no other reference is live.
        let r = f(unsafe { &mut *self.value.get() });
        if cfg!(debug_assertions) {
            self.busy.set(false);
        }
        r
    }
}
