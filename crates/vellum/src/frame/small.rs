//! Orders 0 to 8: finding an open block with room.
//!
//! In this order: the block this CPU claims for the class; open blocks of the class nobody claims (a few of them, near where the
//! last was found); a free block; and when there is none, any open block whatever its class and whoever claims it. So
//! pieces keep to their class's blocks and CPUs to their own, until memory is scarce.

use super::block::{KIND, OPEN, class_of};
use super::magazine::Held;
use super::node::{BLOCK, GROUP, Node};
use crate::machine::Machine;
use crate::sync::atomic::Ordering;

/// Open blocks that are tried before a free one is opened.
const TRIES: usize = 8;
/// Open blocks that are looked at for that, and hint words.
const LOOKS: usize = 64;
const WINDOW: usize = 64;

const LOW: u64 = (1 << GROUP) - 1;

impl Node {
    /// Takes up to `max` single frames that lie as near together as may be; hands their indices over. Says how many, 0 only if
    /// the node's blocks have none.
    pub(super) fn singles<M: Machine>(&self, m: &M, held: Option<&Held>, max: u32, mut each: impl FnMut(u32)) -> u32 {
        let mut got = 0;
        while got < max {
            let some = self.search(m, held, 0, |block| {
                let base = (block << BLOCK) as u32;
                let n = self.take_many(m, block, max - got, |at| each(base + at));
                (n != 0).then_some(n)
            });
            match some {
                Some(n) => got += n,
                None => break,
            }
        }
        got
    }

    /// Takes a piece of order 0 to 8; gives its index.
    pub(super) fn piece<M: Machine>(&self, m: &M, held: Option<&Held>, order: u32) -> Option<u32> {
        self.search(m, held, class_of(order), |block| self.take(m, block, order).map(|at| (block << BLOCK) as u32 + at))
    }

    fn search<M: Machine, R>(
        &self,
        m: &M,
        held: Option<&Held>,
        class: usize,
        mut attempt: impl FnMut(usize) -> Option<R>,
    ) -> Option<R> {
        if let Some(held) = held {
            if let Some(block) = held.current(class) {
                if let Some(found) = attempt(block) {
                    return Some(found);
                }
                self.note_if_full(m, block);
                held.drop_current(m, self, class);
            }
            if let Some(found) = self.search_class(m, held, class, &mut attempt) {
                return Some(found);
            }
        }
        let start = held.map_or(0, |h| h.magazine.whole_cursor.load(Ordering::Relaxed) as usize);
        for group in around(start, self.groups()) {
            let mut free = !self.hint(group).load(Ordering::Relaxed) & LOW;
            while free != 0 {
                let block = group * GROUP + free.trailing_zeros() as usize;
                free &= free - 1;
                if !self.open(m, block, class) {
                    continue;
                }
                let found = attempt(block);
                match held {
                    Some(held) => {
                        held.set_current(class, block);
                        held.magazine.whole_cursor.store(group as u32, Ordering::Relaxed);
                    }
                    None => self.unclaim(m, block),
                }
                if found.is_some() {
                    return found;
                }
                if let Some(held) = held {
                    held.drop_current(m, self, class);
                }
            }
        }
        self.search_any(m, &mut attempt)
    }

    /// Open, unclaimed blocks of the class; the one that serves becomes this CPU's.
    fn search_class<M: Machine, R>(
        &self,
        m: &M,
        held: &Held,
        class: usize,
        attempt: &mut impl FnMut(usize) -> Option<R>,
    ) -> Option<R> {
        let cursor = &held.magazine.cursor;
        let (mut tries, mut looks) = (0, 0);
        for group in around(cursor.load(Ordering::Relaxed) as usize, self.groups()).take(WINDOW) {
            let hint = self.hint(group).load(Ordering::Relaxed);
            let mut partial = hint & !(hint >> GROUP) & LOW;
            while partial != 0 {
                if tries == TRIES || looks == LOOKS {
                    cursor.store(group as u32, Ordering::Relaxed);
                    return None;
                }
                let block = group * GROUP + partial.trailing_zeros() as usize;
                partial &= partial - 1;
                looks += 1;
                if !self.claim(m, block, class) {
                    continue;
                }
                tries += 1;
                if let Some(found) = attempt(block) {
                    held.set_current(class, block);
                    cursor.store(group as u32, Ordering::Relaxed);
                    return Some(found);
                }
                self.note_if_full(m, block);
                self.unclaim(m, block);
            }
        }
        None
    }

    /// Any open block.
    #[cold]
    fn search_any<M: Machine, R>(&self, m: &M, attempt: &mut impl FnMut(usize) -> Option<R>) -> Option<R> {
        for group in 0..self.groups() {
            let hint = self.hint(group).load(Ordering::Relaxed);
            let mut partial = hint & !(hint >> GROUP) & LOW;
            while partial != 0 {
                let block = group * GROUP + partial.trailing_zeros() as usize;
                partial &= partial - 1;
                if self.state(block).load(Ordering::Relaxed) & KIND != OPEN {
                    continue;
                }
                if let Some(found) = attempt(block) {
                    return Some(found);
                }
                self.note_if_full(m, block);
            }
        }
        None
    }

    fn note_if_full<M: Machine>(&self, m: &M, block: usize) {
        if self.words(block).iter().all(|w| w.load(Ordering::Relaxed) == !0) {
            self.mark_full(m, block);
        }
    }
}

/// All of `0..n`, from `start` on and round.
pub(super) fn around(start: usize, n: usize) -> impl Iterator<Item = usize> {
    let start = if start < n { start } else { 0 };
    (start..n).chain(0..start)
}
