//! Orders 0 to 8: finding an open block with room.
//!
//! In this order: open blocks that others do not claim, the best fit first (`rooms`); a free block, which becomes this CPU's; and when
//! there is none, any open block whoever claims it. CPUs start their searches apart, and so keep apart until memory is scarce.

use core::ops::Range;

use super::block::{CLAIMED, KIND, OPEN};
use super::magazine::Held;
use super::node::{BLOCK, GROUP, Node};
use super::rooms::ROWS;
use crate::machine::Machine;
use crate::sync::atomic::Ordering;

/// A batch of single frames that has something already goes on with runs below this order only.
const SCRAPS: usize = 1;

const LOW: u64 = (1 << GROUP) - 1;

impl Node {
    /// Takes up to `max` single frames that lie as near together as may be; hands their indices over. Says how many, 0 only if
    /// the node's blocks have none.
    pub(super) fn singles<M: Machine>(&self, m: &M, held: Option<&Held>, max: u32, mut each: impl FnMut(u32)) -> u32 {
        let mut got = 0;
        while got < max {
            let most = if got == 0 { ROWS } else { SCRAPS };
            let some = self.search(m, held, 0..most, |block, row| {
                let base = (block << BLOCK) as u32;
                let (n, left) = self.take_many(m, block, max - got, row.unwrap_or(ROWS), |at| each(base + at));
                (n != 0).then_some((n, left))
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
        self.search(m, held, order as usize..ROWS, |block, row| {
            // Halves: of each order from the one taken up to the one broken.
            let left = row.map_or(0, |row| (1 << row) - (1 << order));
            self.take(m, block, order, row).map(|at| ((block << BLOCK) as u32 + at, left))
        })
    }

    fn search<M: Machine, R>(
        &self,
        m: &M,
        held: Option<&Held>,
        rows: Range<usize>,
        mut attempt: impl FnMut(usize, Option<usize>) -> Option<(R, u32)>,
    ) -> Option<R> {
        if let Some(held) = held
            && let Some(found) = self.search_rooms(m, held, rows.clone(), &mut attempt)
        {
            return Some(found);
        }
        if rows.end != ROWS {
            return None;
        }
        for group in around(self.whole_start(m.cpu(), held), self.groups()) {
            let mut free = !self.hint(group).load(Ordering::Relaxed) & LOW;
            while free != 0 {
                let block = group * GROUP + free.trailing_zeros() as usize;
                free &= free - 1;
                if !self.open(m, block) {
                    continue;
                }
                let found = attempt(block, Some(ROWS - 1));
                let left = found.as_ref().map_or(0, |(_, left)| left | 1 << (ROWS - 1));
                match held {
                    Some(held) => {
                        held.drop_current(m, self);
                        held.set_current(block, left);
                        held.magazine.whole_cursor.store(group as u32 + 1, Ordering::Relaxed);
                    }
                    None => {
                        self.note_rooms(m, block, left);
                        self.unclaim(m, block);
                    }
                }
                if let Some((found, _)) = found {
                    return Some(found);
                }
            }
        }
        self.search_any(m, &mut attempt)
    }

    /// Open blocks nobody else claims, the best fit first and the first from where this CPU begins.
    fn search_rooms<M: Machine, R>(
        &self,
        m: &M,
        held: &Held,
        rows: Range<usize>,
        attempt: &mut impl FnMut(usize, Option<usize>) -> Option<(R, u32)>,
    ) -> Option<R> {
        let (own, start) = (held.current(), self.begin(m.cpu()));
        let own_rows = &held.magazine.current_rows;
        for row in rows {
            if let Some(block) = own
                && own_rows.load(Ordering::Relaxed) >> row & 1 == 1
            {
                if let Some((found, left)) = attempt(block, Some(row)) {
                    own_rows.store(own_rows.load(Ordering::Relaxed) | left, Ordering::Relaxed);
                    return Some(found);
                }
                own_rows.store(own_rows.load(Ordering::Relaxed) & !(1 << row), Ordering::Relaxed);
            }
            let (mut from, mut to) = (start, self.blocks);
            loop {
                let Some(block) = self.next_room(row, from, to) else {
                    if to <= start {
                        break;
                    }
                    (from, to) = (self.lead, start);
                    if start == self.lead {
                        break;
                    }
                    continue;
                };
                from = block + 1;
                let state = self.state(block).load(Ordering::Relaxed);
                if state == OPEN | CLAIMED && own != Some(block) {
                    continue;
                }
                if state & KIND == OPEN
                    && let Some((found, left)) = attempt(block, Some(row))
                {
                    if own == Some(block) {
                        own_rows.store(own_rows.load(Ordering::Relaxed) | left, Ordering::Relaxed);
                    } else {
                        self.note_rooms(m, block, left);
                    }
                    return Some(found);
                }
                self.forget_room(m, block, row);
            }
        }
        None
    }

    /// Any open block.
    #[cold]
    fn search_any<M: Machine, R>(
        &self,
        m: &M,
        attempt: &mut impl FnMut(usize, Option<usize>) -> Option<(R, u32)>,
    ) -> Option<R> {
        for group in 0..self.groups() {
            let hint = self.hint(group).load(Ordering::Relaxed);
            let mut partial = hint & !(hint >> GROUP) & LOW;
            while partial != 0 {
                let block = group * GROUP + partial.trailing_zeros() as usize;
                partial &= partial - 1;
                if self.state(block).load(Ordering::Relaxed) & KIND != OPEN {
                    continue;
                }
                if let Some((found, left)) = attempt(block, None) {
                    self.note_rooms(m, block, left);
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
