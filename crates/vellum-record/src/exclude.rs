//! Calls that exclude each other from entry to return.
//!
//! A lock that is taken in one callback of QEMU's and given back in another, so no guard holds it.
//! QEMU runs system calls outside its exclusive sections, so waiting here cannot stop a thread that
//! the running call needs.
use std::sync::{Condvar, Mutex};

/// Kinds of calls of which one runs at a time.
pub struct Exclusive {
    busy: Mutex<bool>,
    free: Condvar,
}

/// Calls that shape the address space.
pub static MEMORY: Exclusive = Exclusive::new();
/// Calls that move bytes of regular files or change their size.
pub static FILES: Exclusive = Exclusive::new();

impl Exclusive {
    const fn new() -> Exclusive {
        Exclusive { busy: Mutex::new(false), free: Condvar::new() }
    }

    /// Waits until no such call runs; then one does.
    pub fn acquire(&self) {
        let mut busy = self.busy.lock().unwrap_or_else(|e| e.into_inner());
        while *busy {
            busy = self.free.wait(busy).unwrap_or_else(|e| e.into_inner());
        }
        *busy = true;
    }

    /// The call has returned.
    pub fn release(&self) {
        *self.busy.lock().unwrap_or_else(|e| e.into_inner()) = false;
        self.free.notify_one();
    }
}
