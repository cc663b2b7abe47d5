//! Calls that exclude each other from entry to return.
//!
//! A lock that is taken in one callback of QEMU's and given back in another, so no guard holds it.
//! QEMU runs system calls outside its exclusive sections, so waiting here cannot stop a thread that
//! a running memory call needs. A call on a file may need one: the file system can be served by the
//! program itself (FUSE). So the wait for those ends, and the call then runs beside the other.
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Kinds of calls of which one runs at a time.
pub struct Exclusive {
    busy: Mutex<bool>,
    free: Condvar,
    /// How long to wait for the other call; `None`: until it returns.
    patience: Option<Duration>,
}

/// Calls that shape the address space.
pub static MEMORY: Exclusive = Exclusive::new(None);
/// Calls that move bytes of regular files or change their size.
pub static FILES: Exclusive = Exclusive::new(Some(Duration::from_secs(2)));
/// Calls that take a descriptor by its number, and the moment in which ours are there by theirs.
pub static DESCRIPTORS: Exclusive = Exclusive::new(Some(Duration::from_secs(2)));

impl Exclusive {
    const fn new(patience: Option<Duration>) -> Exclusive {
        Exclusive { busy: Mutex::new(false), free: Condvar::new(), patience }
    }

    fn busy(&self) -> MutexGuard<'_, bool> {
        self.busy.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until no such call runs; then one does. `false`: the wait was too long, and this call
    /// must not be released.
    pub fn acquire(&self) -> bool {
        let wait = self.patience.unwrap_or(Duration::MAX);
        let waited = self.free.wait_timeout_while(self.busy(), wait, |busy| *busy);
        let (mut busy, result) = waited.unwrap_or_else(|e| e.into_inner());
        if result.timed_out() {
            return false;
        }
        *busy = true;
        true
    }

    /// The call has returned.
    pub fn release(&self) {
        *self.busy() = false;
        self.free.notify_one();
    }
}
