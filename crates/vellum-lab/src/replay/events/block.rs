//! A decoded block, which several replays may read, and parts of it.

use std::ops::Deref;
use std::sync::Arc;

use vellum_trace::event::Event;

/// Consecutive events of a trace.
#[derive(Debug, Default)]
pub struct Block {
    /// All of them.
    pub events: Vec<Event>,
    /// Where those are that are neither accesses nor fetches, in order.
    pub others: Vec<u32>,
}

/// Events of one thread without a gap: a part of a block.
#[derive(Clone, Debug)]
pub struct Part {
    block: Arc<Block>,
    from: usize,
    to: usize,
}

/// Parts of less than a block over this are copied: what waits keeps at most so many times its own
/// size in memory.
const SMALL: usize = 4;

impl Part {
    /// Events `from .. to` of a block.
    pub fn of(block: &Arc<Block>, from: usize, to: usize) -> Part {
        let events = &block.events[from..to];
        if events.len() < block.events.len() / SMALL {
            let copy = Block { events: events.to_vec(), others: Vec::new() };
            return Part { block: Arc::new(copy), from: 0, to: to - from };
        }
        Part { block: Arc::clone(block), from, to }
    }
    /// Leaves out the first `n`.
    pub fn skip(&mut self, n: usize) {
        self.from = (self.from + n).min(self.to);
    }
}

impl Deref for Part {
    type Target = [Event];
    #[inline]
    fn deref(&self) -> &[Event] {
        &self.block.events[self.from..self.to]
    }
}
