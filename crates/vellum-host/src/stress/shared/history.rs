//! The order of each thread's stores, and what was done before each: a forked space is compared
//! with it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Stores of a thread that are remembered. Between the beginning of a fork and its end there are
/// fewer.
const REMEMBERED: u64 = 1 << 14;

/// One thread's.
#[derive(Debug)]
struct Log {
    /// The last store done.
    done: AtomicU64,
    /// The slot of a store, plus one; 0 if it was refused.
    slots: Box<[AtomicU64]>,
    /// What each thread had done when a store began.
    clocks: Box<[AtomicU64]>,
}

/// All threads'.
#[derive(Debug)]
pub struct History {
    logs: Box<[Log]>,
}

impl History {
    /// Nothing stored.
    pub fn new(writers: usize) -> History {
        let many = |n: u64| (0..n).map(|_| AtomicU64::new(0)).collect();
        let log = |_| Log {
            done: AtomicU64::new(0),
            slots: many(REMEMBERED),
            clocks: many(REMEMBERED * writers as u64),
        };
        History { logs: (0..writers).map(log).collect() }
    }
    fn clock(&self, writer: usize, count: u64, of: usize) -> &AtomicU64 {
        &self.logs[writer].clocks[(count % REMEMBERED) as usize * self.logs.len() + of]
    }
    fn slot(&self, writer: usize, count: u64) -> &AtomicU64 {
        &self.logs[writer].slots[(count % REMEMBERED) as usize]
    }
    /// A store is about to be tried.
    pub fn begin(&self, writer: usize, count: u64, slot: usize) {
        for of in 0..self.logs.len() {
            self.clock(writer, count, of).store(self.last(of), SeqCst);
        }
        self.slot(writer, count).store(slot as u64 + 1, SeqCst);
    }
    /// It was refused.
    pub fn void(&self, writer: usize, count: u64) {
        self.slot(writer, count).store(0, SeqCst);
    }
    /// It is done.
    pub fn done(&self, writer: usize, count: u64) {
        self.logs[writer].done.store(count, SeqCst);
    }
    /// The last store of a thread that is done.
    pub fn last(&self, writer: usize) -> u64 {
        self.logs[writer].done.load(SeqCst)
    }
    /// What of another thread's stores was done before a thread's store number `count` began; 0 if
    /// nobody remembers.
    pub fn before(&self, writer: usize, count: u64, of: usize) -> u64 {
        let known = self.clock(writer, count, of).load(SeqCst);
        let remembered = count != 0 && count + REMEMBERED / 2 > self.last(writer);
        if remembered { known } else { 0 }
    }
    /// The slots of a thread's stores after one up to another, and their numbers, as far as
    /// somebody remembers.
    pub fn between(
        &self,
        writer: usize,
        after: u64,
        upto: u64,
    ) -> impl Iterator<Item = (u64, usize)> + '_ {
        let first = (after + 1).max(self.last(writer).saturating_sub(REMEMBERED / 2));
        let slot = move |count| self.slot(writer, count).load(SeqCst).checked_sub(1);
        (first..=upto).filter_map(move |count| Some((count, slot(count)? as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_remembered_in_order_with_what_came_before() {
        let history = History::new(2);
        history.begin(0, 1, 7);
        history.done(0, 1);
        history.begin(1, 1, 8);
        history.done(1, 1);
        history.begin(0, 2, 9);
        history.void(0, 2);
        history.begin(0, 3, 5);
        history.done(0, 3);
        assert_eq!(history.between(0, 0, 3).collect::<Vec<_>>(), [(1, 7), (3, 5)]);
        assert_eq!(
            (history.before(1, 1, 0), history.before(0, 3, 1), history.before(0, 1, 1)),
            (1, 1, 0)
        );
    }
}
