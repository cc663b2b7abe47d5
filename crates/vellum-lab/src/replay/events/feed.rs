//! One reader of a trace for several replays that go on at the same time.
//!
//! Decoding is a fifth to a third of a replay. So the columns of a table share it: whoever comes to
//! a block first decodes it, all others find it. A replay that is [`AHEAD`] blocks before the last
//! of them waits, which bounds the memory and costs nothing while each has a core.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vellum_trace::{TraceError, TraceReader};

use super::block::Block;
use super::queue::Source;

/// Blocks between the first replay and the last; 4 MiB each.
const AHEAD: u64 = 8;

/// A trace that is read once.
pub struct Feed<R: std::io::Read> {
    state: Mutex<State<R>>,
    /// A block was decoded or taken, or a taker is gone.
    moved: Condvar,
}

struct State<R: std::io::Read> {
    /// Nobody's while a block is being decoded.
    reader: Option<TraceReader<R>>,
    /// Blocks that someone has yet to take or has only just taken, the first of which has this
    /// number.
    blocks: VecDeque<Arc<Block>>,
    first: u64,
    /// The block that each takes next; `u64::MAX` for those that are gone.
    next: Vec<u64>,
    /// What stands behind the last block: nothing, or an error.
    end: Option<Result<(), Arc<TraceError>>>,
    /// Blocks that all have taken, of which some may still be in use: their memory is for the next.
    taken: Vec<Arc<Block>>,
}

/// One of those who read the trace. It has to be asked for blocks to its end, or dropped: others
/// wait for it.
pub struct Taker<'f, R: std::io::Read> {
    feed: &'f Feed<R>,
    number: usize,
    decodes: bool,
}

impl<R: std::io::Read> Feed<R> {
    /// A feed for so many takers.
    pub fn new(reader: TraceReader<R>, takers: usize) -> Feed<R> {
        let state = State {
            reader: Some(reader),
            blocks: VecDeque::new(),
            first: 0,
            next: vec![0; takers],
            end: None,
            taken: Vec::new(),
        };
        Feed { state: Mutex::new(state), moved: Condvar::new() }
    }

    /// One of the takers; each number is for one.
    pub fn taker(&self, number: usize) -> Taker<'_, R> {
        Taker { feed: self, number, decodes: false }
    }

    /// A panic of another taker leaves nothing half-done here.
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: std::io::Read> State<R> {
    fn last(&self) -> u64 {
        self.next.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Forgets what everybody has taken, and is done with: who comes for the next one is.
    fn forget(&mut self) {
        while self.first + 1 < self.last()
            && let Some(block) = self.blocks.pop_front()
        {
            self.first += 1;
            self.taken.push(block);
        }
        let too_many = self.taken.len().saturating_sub(AHEAD as usize);
        self.taken.drain(..too_many);
    }

    /// Memory for one more block: that of one that nobody uses any more, if there is any.
    fn room(&mut self) -> Block {
        let free = self.taken.iter_mut().position(|block| Arc::get_mut(block).is_some());
        free.and_then(|n| Arc::into_inner(self.taken.swap_remove(n))).unwrap_or_default()
    }
}

impl<R: std::io::Read> Source for Taker<'_, R> {
    fn next(&mut self) -> Result<Option<Arc<Block>>, Arc<TraceError>> {
        let feed = self.feed;
        let mut state = feed.lock();
        loop {
            let wanted = state.next[self.number];
            if let Some(block) = state.blocks.get((wanted - state.first) as usize) {
                let block = Arc::clone(block);
                state.next[self.number] += 1;
                state.forget();
                feed.moved.notify_all();
                return Ok(Some(block));
            }
            if let Some(end) = &state.end {
                return end.clone().map(|()| None);
            }
            if wanted < state.last() + AHEAD
                && let Some(mut reader) = state.reader.take()
            {
                let mut block = state.room();
                drop(state);
                self.decodes = true;
                let read = reader.next_block_with(&mut block.events, &mut block.others);
                self.decodes = false;
                state = feed.lock();
                state.reader = Some(reader);
                match read {
                    Ok(true) => state.blocks.push_back(Arc::new(block)),
                    Ok(false) => state.end = Some(Ok(())),
                    Err(e) => state.end = Some(Err(Arc::new(e))),
                }
                feed.moved.notify_all();
                continue;
            }
            state = feed.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R: std::io::Read> Drop for Taker<'_, R> {
    fn drop(&mut self) {
        let mut state = self.feed.lock();
        state.next[self.number] = u64::MAX;
        if self.decodes {
            // A panic, which goes on where threads are joined. The reader is gone with it.
            state.end = Some(Ok(()));
        }
        state.forget();
        self.feed.moved.notify_all();
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
