//! Orders 0 to 8: finding an open block that has a free run.
//!
//! Each CPU has an area of the node and keeps to it while it can. There it takes the run that fits
//! best (`free_index`), or opens a free block, which it then claims. Only when its area has nothing
//! does it search the rest of the node, and blocks that other CPUs claim after that. So a CPU
//! writes no line that another one writes until memory is scarce.

use core::ops::Range;

use crate::frame::alloc::request::Contention;
use crate::frame::block::bits::{BLOCK, ROWS};
use crate::frame::block::free_index::DIRTY_ROW;
use crate::frame::block::lock::Locked;
use crate::frame::block::state::{self, CLAIMED, KIND, OPEN};
use crate::frame::block::sweep::Dirty;
use crate::frame::cpu::magazine::Held;
use crate::frame::node::numa_node::NumaNode;
use crate::machine::Machine;
use crate::sync::atomic::Ordering::Relaxed;

/// A batch of single frames that is not empty goes on with runs below this order only.
const SCRAPS: usize = 1;
/// How often some dirty blocks are swept before something larger is split, and how many.
const SWEEPS: usize = 4;
const SWEPT: usize = 8;

/// A search for free runs of one node, by one CPU.
pub struct Search<'a, M: Machine> {
    pub m: &'a M,
    pub node: &'a NumaNode,
    pub held: Option<&'a Held<'a>>,
    /// The CPU's area of the node.
    pub area: Range<usize>,
    pub contention: &'a Contention,
}

impl<M: Machine> Search<'_, M> {
    /// Takes up to `max` single frames that lie as near together as possible, and pushes them on
    /// the stack, the lowest on top. Says how many, 0 only if the node's blocks have none.
    pub fn singles(&self, onto: &Held, max: u32) -> u32 {
        let mut got = 0;
        while got < max {
            let most = if got == 0 { ROWS } else { SCRAPS };
            let some = self.search(0..most, got == 0, |block, row| {
                self.some_singles(onto, block, row, max - got)
            });
            match some {
                Some(n) => got += n,
                None => break,
            }
        }
        got
    }

    fn some_singles(&self, onto: &Held, from: &mut Locked, row: usize, max: u32) -> Option<u32> {
        let (n, which) = from.take_many(self.m, onto, max, row);
        let base = (from.block << BLOCK) as u32;
        for (word, &mask) in which.iter().enumerate().rev() {
            onto.fill(base + word as u32 * 64, mask);
        }
        (n != 0).then_some(n)
    }

    /// Takes a run of the first of `rows` that has one; gives its index and its order. `anywhere`:
    /// it opens free blocks and searches other CPUs' areas, too.
    pub fn run(&self, rows: Range<usize>, anywhere: bool) -> Option<(u32, u32)> {
        self.search(rows, anywhere, |block, row| {
            self.take(block, row as u32, row).map(|index| (index, row as u32))
        })
    }

    /// Takes a sub-block of order 0 to 8 out of the run that fits best; gives its index.
    pub fn sub_block(&self, order: u32) -> Option<u32> {
        self.search(order as usize..ROWS, true, |block, row| self.take(block, order, row))
    }

    #[inline]
    fn take(&self, block: &mut Locked, order: u32, row: usize) -> Option<u32> {
        let base = (block.block << BLOCK) as u32;
        block.take(self.m, self.held, order, row).map(|at| base + at)
    }

    /// As [`singles`](Search::singles), from a block that another CPU claims.
    pub fn singles_of(&self, onto: &Held, block: usize, max: u32) -> Option<u32> {
        self.search_claimed(block, 0..ROWS, |block, row| self.some_singles(onto, block, row, max))
    }

    /// As [`sub_block`](Search::sub_block), from a block that another CPU claims.
    pub fn sub_block_of(&self, block: usize, order: u32) -> Option<u32> {
        let rows = order as usize..ROWS;
        self.search_claimed(block, rows, |block, row| self.take(block, order, row))
    }

    fn search_claimed<R>(
        &self,
        block: usize,
        mut rows: Range<usize>,
        mut attempt: impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let mut locked = self.lock(block)?;
        locked.sweep(self.m, self.held);
        let found =
            rows.find_map(|row| if locked.says(row) { attempt(&mut locked, row) } else { None });
        locked.leave(self.m, self.held);
        found
    }

    fn search<R>(
        &self,
        rows: Range<usize>,
        anywhere: bool,
        mut attempt: impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let (m, held, node, area) = (self.m, self.held, self.node, &self.area);
        // A run that fits exactly is taken as it comes. Before a larger one is split, dirty blocks
        // are swept, which may have one that fits.
        let exact = rows.start..rows.start + 1;
        for _ in 0..SWEEPS {
            if !node.free_index.any(DIRTY_ROW, area) {
                break;
            }
            let found = self.search_index(exact.clone(), area.clone(), &mut attempt);
            if found.is_some() {
                return found;
            }
            let some = Dirty { range: area.clone(), most: SWEPT, wait: false };
            if node.sweep(m, held, some) == 0 {
                break;
            }
        }
        if let Some(found) = self.search_index(rows.clone(), area.clone(), &mut attempt) {
            return Some(found);
        }
        if !anywhere {
            return None;
        }
        if let Some(found) = self.open_for(area.clone(), &mut attempt) {
            return Some(found);
        }
        // Little is left: dirty blocks may have it.
        node.sweep(m, held, node.all_dirty(self.contention.wait.get()));
        if node.free_index.next(DIRTY_ROW, node.blocks.first, node.blocks.end).is_some() {
            self.contention.passed_over.set(true);
        }
        for part in [area.clone(), area.end..node.blocks.end, node.blocks.first..area.start] {
            if let Some(found) = self.search_index(rows.clone(), part.clone(), &mut attempt) {
                return Some(found);
            }
            if let Some(found) = self.open_for(part, &mut attempt) {
                return Some(found);
            }
        }
        None
    }

    /// Opens a free block, which is empty, and takes from it. The CPU claims it, unless it cannot
    /// give up the block that it claims already.
    fn open_for<R>(
        &self,
        part: Range<usize>,
        attempt: &mut impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let block = self.take_run(part, 0)?;
        let claimed = self.held.is_some_and(|held| self.node.drop_claim(self.m, held));
        let mut opened = self.node.open(self.m, block, claimed);
        if claimed && let Some(held) = self.held {
            held.set_current(Some(block));
        }
        let found = attempt(&mut opened, ROWS - 1);
        opened.leave(self.m, self.held);
        found
    }

    /// Takes the busy bits of an aligned run of 2^blocks free blocks.
    pub fn take_run(&self, part: Range<usize>, blocks: u32) -> Option<usize> {
        let cursor = self.held.map(|held| &held.magazine.huge_cursor);
        self.node.blocks.take_run(self.m, cursor, part, blocks)
    }

    /// Searches open blocks that no other CPU claims, the best fit first and the first of the
    /// range.
    fn search_index<R>(
        &self,
        rows: Range<usize>,
        part: Range<usize>,
        attempt: &mut impl FnMut(&mut Locked, usize) -> Option<R>,
    ) -> Option<R> {
        let (m, node) = (self.m, self.node);
        let own = self.held.and_then(|held| held.current());
        let mut left = node.rows_known(own, &part) & among(&rows);
        while left != 0 {
            let row = left.trailing_zeros() as usize;
            left &= left - 1;
            // The block this CPU claims takes its turn by address, since only its state has its
            // rows.
            let mut turn = own.filter(|_| node.own_rows(own) >> row & 1 == 1);
            let mut from = part.start;
            loop {
                let noted = node.free_index.next(row, from, part.end);
                let Some(block) = noted.into_iter().chain(turn).min() else {
                    break;
                };
                if noted == Some(block) {
                    from = block + 1;
                }
                let state = node.blocks.state(block).load(Relaxed);
                if turn == Some(block) {
                    turn = None;
                } else if state & KIND != OPEN {
                    node.free_index.clear_stale(m, &node.blocks, block, row);
                    continue;
                } else if state & CLAIMED != 0 && own != Some(block) {
                    continue;
                }
                let Some(mut locked) = self.lock(block) else {
                    continue;
                };
                let found = attempt(&mut locked, row);
                if found.is_some() {
                    // Something of it is taken, so it is not empty.
                    locked.release(m);
                    return found;
                }
                locked.leave(m, self.held);
            }
        }
        None
    }

    /// Locks an open block, or notes that another CPU has locked it.
    #[inline]
    fn lock(&self, block: usize) -> Option<Locked<'_>> {
        let locked = if self.contention.wait.get() {
            self.node.lock_waiting(self.m, block)
        } else {
            self.node.lock(self.m, block)
        };
        if locked.is_none() {
            self.contention.passed_over.set(true);
        }
        locked
    }
}

impl NumaNode {
    /// Whether the block that a CPU claims, or one of its area, may have a run of one of the rows.
    #[inline]
    pub fn fits_better(&self, held: &Held, cpu: usize, rows: Range<usize>) -> bool {
        let wanted = among(&rows);
        held.magazine.rows.load(Relaxed) & wanted != 0 && self.read_rows(held, cpu) & wanted != 0
    }

    #[inline(never)]
    fn read_rows(&self, held: &Held, cpu: usize) -> u32 {
        let rows = self.rows_known(held.current(), &self.area(cpu));
        held.magazine.rows.store(rows, Relaxed);
        rows
    }

    /// The rows that a block, or blocks of a range, may have, as bits.
    #[inline]
    fn rows_known(&self, own: Option<usize>, part: &Range<usize>) -> u32 {
        self.own_rows(own) | self.free_index.rows_of(part)
    }

    #[inline]
    fn own_rows(&self, own: Option<usize>) -> u32 {
        own.map_or(0, |own| state::rows(self.blocks.state(own).load(Relaxed)))
    }
}

/// Rows as bits.
#[inline]
fn among(rows: &Range<usize>) -> u32 {
    (1 << rows.end) - (1 << rows.start)
}
