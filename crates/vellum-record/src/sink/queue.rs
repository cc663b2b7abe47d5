//! Messages on their way to the background thread.
//!
//! It takes all that there are at once. So who waits for room is woken once for many messages,
//! which matters: a program that is faster than we are would be stopped and woken for each.
use std::sync::{Condvar, Mutex, MutexGuard};

/// Messages that wait at most, and as many may be in work; each carries at most 64 KiB, so this
/// bounds memory at 16 MiB.
pub const MOST: usize = 128;

/// See the file's head.
pub struct Queue<T: 'static> {
    /// Nothing, once nobody takes them any more.
    waiting: Mutex<Option<Vec<T>>>,
    changed: Condvar,
}

/// The end that takes; messages go nowhere when it is gone.
pub struct Receiver<T: 'static>(&'static Queue<T>);

impl<T> Queue<T> {
    pub const fn new() -> Queue<T> {
        Queue { waiting: Mutex::new(Some(Vec::new())), changed: Condvar::new() }
    }

    fn wait_while(&self, is_so: impl Fn(&Vec<T>) -> bool) -> MutexGuard<'_, Option<Vec<T>>> {
        let waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
        let waited = self.changed.wait_while(waiting, |w| w.as_ref().is_some_and(&is_so));
        waited.unwrap_or_else(|e| e.into_inner())
    }

    /// Appends a message, and waits for room before.
    pub fn send(&self, message: T) {
        let mut waiting = self.wait_while(|w| w.len() >= MOST);
        let Some(waiting) = waiting.as_mut() else { return };
        waiting.push(message);
        if waiting.len() == 1 {
            self.changed.notify_all();
        }
    }

    /// The one end that takes.
    pub fn receiver(&'static self) -> Receiver<T> {
        Receiver(self)
    }
}

impl<T> Receiver<T> {
    /// Waits for messages and takes them all.
    pub fn receive(&self) -> Vec<T> {
        let mut waiting = self.0.wait_while(Vec::is_empty);
        if waiting.as_ref().is_some_and(|w| w.len() >= MOST) {
            self.0.changed.notify_all();
        }
        waiting.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        *self.0.wait_while(|_| false) = None;
        self.0.changed.notify_all();
    }
}
