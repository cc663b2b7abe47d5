//! Orders 0 to 8: finding an open block with room.
//!
//! Each CPU has an area of the node, and keeps to it while it can: there it takes what fits best
//! (`rooms`), or opens a free block, which becomes its own; for larger pieces it rather cuts up a 2
//! MiB block that it keeps (`kept`). Only when its area has nothing does it look at all of memory,
//! and then at blocks that contention claim. So CPUs write no line that another writes until memory is
//! scarce.

use core::cell::Cell;
use core::ops::Range;

use crate::frame::block::free_index::{DIRTY_ROW, ROWS};
use crate::frame::block::lock::{CLAIMED, KIND, Locked, OPEN};
use crate::frame::block::sweep::SOME;
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::{BLOCK, NumaNode};
use crate::machine::Machine;
use crate::sync::atomic::Ordering;

/// A batch of single frames that has something already goes on with runs below this order only.
const SCRAPS: usize = 1;

/// How often some dirty blocks are swept before something larger is broken.
const ROUNDS: usize = 4;

/// What an allocation knows of contention that it meets.
#[derive(Default)]
pub struct Contention {
    /// Something was passed_over over because another was at it.
    pub passed_over: Cell<bool>,
    /// They are waited for.
    pub wait: Cell<bool>,
}

/// Whoever looks for room, and what came in between.
pub struct Search<'a, M: Machine> {
    pub m: &'a M,
    pub held: Option<&'a Held<'a>>,
    /// Its CPU's area of the node.
    pub area: Range<usize>,
    pub contention: &'a Contention,
}

impl<M: Machine> Search<'_, M> {
    /// The block its CPU claims.
    #[inline]
    fn own(&self) -> Option<usize> {
        self.held.and_then(|held| held.current())
    }

    /// Locks an open block, or notes that another has it.
    #[inline]
    fn lock<'n>(&self, node: &'n NumaNode, block: usize) -> Option<Locked<'n>> {
        let locked = if self.contention.wait.get() {
            node.lock_waiting(self.m, block)
        } else {
            node.lock(self.m, block)
        };
        if locked.is_none() {
            self.contention.passed_over.set(true);
        }
        locked
    }
}

impl NumaNode {
    /// Takes up to `max` single frames that lie as near together as may be, and puts them on the
    /// stack, the lowest on top. Says how many, 0 only if the node's blocks have none.
    pub fn singles<M: Machine>(&self, by: &Search<M>, onto: &Held, max: u32) -> u32 {
        let mut got = 0;
        while got < max {
            let most = if got == 0 { ROWS } else { SCRAPS };
            let some = self.search(by, 0..most, got == 0, |block, row| {
                self.some_singles(by, onto, block, row, max - got)
            });
            match some {
                Some(n) => got += n,
                None => break,
            }
        }
        got
    }

    fn some_singles<M: Machine>(
        &self,
        by: &Search<M>,
        onto: &Held,
        from: &mut Locked,
        row: usize,
        max: u32,
    ) -> Option<u32> {
        let (n, which) = from.take_many(by.m, onto, max, row);
        let base = (from.block << BLOCK) as u32;
        for (word, &mask) in which.iter().enumerate().rev() {
            onto.fill(base + word as u32 * 64, mask);
        }
        (n != 0).then_some(n)
    }

    /// Whether this CPU's own block, or one of its area, may have a run of one of the rows.
    #[inline]
    pub fn fits_better(&self, held: &Held, cpu: usize, rows: Range<usize>) -> bool {
        let wanted = among(&rows);
        held.magazine.rows.load(Ordering::Relaxed) & wanted != 0
            && self.look_at_rows(held, cpu) & wanted != 0
    }

    #[inline(never)]
    fn look_at_rows(&self, held: &Held, cpu: usize) -> u32 {
        let rows = self.rows_known(held.current(), &self.area(cpu));
        held.magazine.rows.store(rows, Ordering::Relaxed);
        rows
    }

    /// The rows that a block, or blocks of a range, may have, as bits.
    #[inline]
    fn rows_known(&self, own: Option<usize>, part: &Range<usize>) -> u32 {
        self.own_rows(own) | self.rows_of(part)
    }

    #[inline]
    fn own_rows(&self, own: Option<usize>) -> u32 {
        own.map_or(0, |own| {
            crate::frame::block::lock::rows(self.state(own).load(Ordering::Relaxed))
        })
    }

    /// Takes a run of the first of `rows` that has one; gives its index and its order. `anywhere`:
    /// free blocks are opened, and other CPUs' areas searched.
    pub fn run<M: Machine>(
        &self,
        by: &Search<M>,
        rows: Range<usize>,
        anywhere: bool,
    ) -> Option<(u32, u32)> {
        self.search(by, rows, anywhere, |block, row| {
            let base = (block.block << BLOCK) as u32;
            block.take(by.m, by.held, row as u32, row).map(|at| (base + at, row as u32))
        })
    }

    /// Takes a piece of order 0 to 8, out of the best fit; gives its index.
    pub fn sub_block<M: Machine>(&self, by: &Search<M>, order: u32) -> Option<u32> {
        self.search(by, order as usize..ROWS, true, |block, row| {
            let base = (block.block << BLOCK) as u32;
            block.take(by.m, by.held, order, row).map(|at| base + at)
        })
    }

    /// As [`singles`](NumaNode::singles), from a block that another CPU claims.
    pub fn singles_of<M: Machine>(
        &self,
        by: &Search<M>,
        onto: &Held,
        block: usize,
        max: u32,
    ) -> Option<u32> {
        self.attempt_claimed(by, block, 0..ROWS, |block, row| {
            self.some_singles(by, onto, block, row, max)
        })
    }

    /// As [`piece`](NumaNode::piece), from a block that another CPU claims.
    pub fn sub_block_of<M: Machine>(
        &self,
        by: &Search<M>,
        block: usize,
        order: u32,
    ) -> Option<u32> {
        self.attempt_claimed(by, block, order as usize..ROWS, |block, row| {
            let base = (block.block << BLOCK) as u32;
            block.take(by.m, by.held, order, row).map(|at| base + at)
        })
    }

    fn attempt_claimed<M: Machine, R>(
        &self,
        by: &Search<M>,
        block: usize,
        rows: Range<usize>,
        mut attempt: impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let mut locked = by.lock(self, block)?;
        locked.sweep(by.m, by.held);
        let found = rows
            .into_iter()
            .find_map(|row| if locked.says(row) { attempt(&mut locked, row) } else { None });
        locked.leave(by.m, by.held);
        found
    }

    fn search<M: Machine, R>(
        &self,
        by: &Search<M>,
        rows: Range<usize>,
        anywhere: bool,
        mut attempt: impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        // What fits exactly is taken as it comes. Before something larger is broken, what came back
        // may fit.
        let (area, exact) = (&by.area, rows.start..rows.start + 1);
        for _ in 0..ROUNDS {
            if !self.any_indexed(DIRTY_ROW, area) {
                break;
            }
            if let Some(found) = self.search_index(by, exact.clone(), area.clone(), &mut attempt) {
                return Some(found);
            }
            if self.sweep(by.m, by.held, area.clone(), SOME, false) == 0 {
                break;
            }
        }
        if let Some(found) = self.search_index(by, rows.clone(), area.clone(), &mut attempt) {
            return Some(found);
        }
        if !anywhere {
            return None;
        }
        if let Some(found) = self.open_for(by, area.clone(), &mut attempt) {
            return Some(found);
        }
        // Little is left: what is dirty may have it.
        self.sweep(by.m, by.held, self.lead..self.blocks, usize::MAX, by.contention.wait.get());
        if self.next_indexed(DIRTY_ROW, self.lead, self.blocks).is_some() {
            by.contention.passed_over.set(true);
        }
        for part in [area.clone(), area.end..self.blocks, self.lead..area.start] {
            if let Some(found) = self.search_index(by, rows.clone(), part.clone(), &mut attempt) {
                return Some(found);
            }
            if let Some(found) = self.open_for(by, part, &mut attempt) {
                return Some(found);
            }
        }
        None
    }

    /// Opens a free block, which is empty, and takes from it. The CPU claims it, unless it cannot
    /// let go of the one it has.
    fn open_for<M: Machine, R>(
        &self,
        by: &Search<M>,
        part: Range<usize>,
        attempt: &mut impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let block = self.take_free(by.m, by.held, part)?;
        let claimed = by.held.is_some_and(|held| held.drop_current(by.m, self));
        let mut opened = self.open(by.m, block, claimed);
        if claimed && let Some(held) = by.held {
            held.set_current(block);
        }
        let found = attempt(&mut opened, ROWS - 1);
        opened.leave(by.m, by.held);
        found
    }

    /// Open blocks nobody else claims, the best fit first and the first of the range.
    fn search_index<M: Machine, R>(
        &self,
        by: &Search<M>,
        rows: Range<usize>,
        part: Range<usize>,
        attempt: &mut impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let own = by.own();
        let mut left = self.rows_known(own, &part) & among(&rows);
        while left != 0 {
            let row = left.trailing_zeros() as usize;
            left &= left - 1;
            // The one this CPU claims takes its turn by address, since its rows are noted in its
            // state only.
            let mut turn = own.filter(|_| self.own_rows(own) >> row & 1 == 1);
            let mut from = part.start;
            loop {
                let noted = self.next_indexed(row, from, part.end);
                let Some(block) = noted.into_iter().chain(turn).min() else {
                    break;
                };
                if noted == Some(block) {
                    from = block + 1;
                }
                let state = self.state(block).load(Ordering::Relaxed);
                if turn == Some(block) {
                    turn = None;
                } else if state & KIND != OPEN {
                    self.clear_stale(by.m, block, row);
                    continue;
                } else if state & CLAIMED != 0 && own != Some(block) {
                    continue;
                }
                let Some(mut locked) = by.lock(self, block) else {
                    continue;
                };
                let found = attempt(&mut locked, row);
                if found.is_some() {
                    // Something of it is taken, so it is not empty.
                    locked.release(by.m);
                    return found;
                }
                locked.leave(by.m, by.held);
            }
        }
        None
    }
}

/// Rows as bits.
#[inline]
fn among(rows: &Range<usize>) -> u32 {
    (1 << rows.end) - (1 << rows.start)
}
