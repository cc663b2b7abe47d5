//! The store buffer of a core: stores that are issued, and are not in the first level yet.
//!
//! Stores leave it in program order. So one whose line comes from memory holds up all stores behind
//! it, those too whose lines are there, and the core goes no further when the buffer is full of
//! them. x86-64 promises this order to programs (Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 3, "Memory Ordering": total store order).

use super::pending::{CAPACITY, Pending, Queue};
use super::ticks::Ticks;

/// Only stores that leave later than those before them are kept, 64 at most: all others leave with
/// one before.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    /// 0: it is never full.
    size: u64,
    issued: u64,
    /// The store with this number finds it full.
    limit: u64,
    /// By the number of the store, and so by the time at which they leave.
    waiting: Queue,
    last: Ticks,
}

impl StoreBuffer {
    /// An empty one.
    pub(super) fn new(size: u32) -> StoreBuffer {
        let (size, limit) = (size.into(), u64::MAX);
        StoreBuffer { size, issued: 0, limit, waiting: Queue::EMPTY, last: Ticks::ZERO }
    }

    /// A store is issued. Says whether it has a place at once.
    #[inline(always)]
    pub(super) fn has_place(&mut self) -> bool {
        self.issued += 1;
        self.issued < self.limit
    }

    /// The store that must leave before the last one that was issued has a place.
    pub(super) fn in_the_way(&self) -> Option<Pending> {
        self.waiting.first().filter(|p| p.position + self.size <= self.issued)
    }

    /// The last store that was issued waits for its line. Returns the store that must leave for it
    /// to be kept, if there is one.
    pub(super) fn waits(&mut self, p: Pending, now: Ticks) -> Option<Pending> {
        // It leaves with the one before.
        if self.size == 0 || p.done <= self.last.max(now) {
            return None;
        }
        while self.waiting.first().is_some_and(|first| first.done <= now) {
            self.waiting.pop();
        }
        let first = self.waiting.first().filter(|_| self.waiting.len() == CAPACITY);
        if first.is_some() {
            self.waiting.pop();
        }
        self.last = p.done;
        self.waiting.push(Pending { position: self.issued, ..p });
        self.set_limit();
        first
    }

    /// Stores that wait for their lines, but for those that leave with one before.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Pending> {
        self.waiting.iter()
    }

    /// The oldest has left.
    pub(super) fn leaves(&mut self) {
        self.waiting.pop();
        self.set_limit();
    }

    #[inline]
    fn set_limit(&mut self) {
        self.limit = self.waiting.first().map_or(u64::MAX, |p| p.position + self.size);
    }

    /// Stores leave in order, and the limit is that of the oldest.
    pub(super) fn validate(&self) -> Result<(), String> {
        let oldest = self.waiting.first().map_or(u64::MAX, |p| p.position + self.size);
        if self.limit != oldest {
            return Err(format!("the store buffer is full at {}, not {oldest}", self.limit));
        }
        let in_order = |a: &&Pending, b: &&Pending| a.position < b.position && a.done < b.done;
        let too_late = self.waiting.iter().any(|p| p.done > self.last);
        if too_late || !self.waiting.iter().is_sorted_by(in_order) {
            return Err("stores leave the store buffer out of order".into());
        }
        Ok(())
    }
}
