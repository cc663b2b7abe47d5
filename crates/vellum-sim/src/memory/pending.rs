//! Accesses of a core that are not done, in a short queue.

use super::ticks::Ticks;

/// Entries of each queue: loads that have not retired (a core's load queue is of this size), and
/// fill buffers at most.
pub const CAPACITY: usize = 64;

/// An access that is not done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// When it is.
    pub(super) done: Ticks,
    /// When it was begun.
    pub(super) start: Ticks,
    /// Number of the instruction.
    pub(super) position: u64,
    /// The part of its time that its translation took, in 255ths.
    pub(super) translation: u8,
    /// It took a page walk.
    pub(super) walked: bool,
    /// What serves it, by the caller's number.
    pub(super) source: u8,
}

impl Pending {
    const NONE: Pending = Pending {
        done: Ticks::ZERO,
        start: Ticks::ZERO,
        position: 0,
        translation: 0,
        walked: false,
        source: 0,
    };

    /// How much of a wait for this access its translation is to blame for.
    pub(super) fn blame(&self, wait: Ticks) -> Ticks {
        Ticks(wait.0 * u64::from(self.translation) / 255)
    }
}

/// A ring of pending accesses.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    ring: [Pending; CAPACITY],
    head: usize,
    len: usize,
}

impl Queue {
    pub(super) const EMPTY: Queue = Queue { ring: [Pending::NONE; CAPACITY], head: 0, len: 0 };

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }
    #[inline(always)]
    pub(super) fn at(&self, n: usize) -> &Pending {
        &self.ring[(self.head + n) % CAPACITY]
    }
    #[inline(always)]
    pub(super) fn first(&self) -> Option<Pending> {
        (self.len > 0).then(|| self.ring[self.head])
    }
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.head = (self.head + 1) % CAPACITY;
        self.len -= 1;
    }
    #[inline(always)]
    pub(super) fn push(&mut self, p: Pending) {
        self.ring[(self.head + self.len) % CAPACITY] = p;
        self.len += 1;
    }
    /// Pushes, keeping the order of `done`; the newest is nearly always the last.
    #[inline(always)]
    pub(super) fn push_by_time(&mut self, p: Pending) {
        let mut n = self.len;
        self.len += 1;
        while n > 0 && self.at(n - 1).done > p.done {
            self.ring[(self.head + n) % CAPACITY] = *self.at(n - 1);
            n -= 1;
        }
        self.ring[(self.head + n) % CAPACITY] = p;
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending> {
        (0..self.len).map(|n| self.at(n))
    }
}
