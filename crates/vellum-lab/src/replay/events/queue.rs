//! The trace as one queue of events for each thread, read ahead as far as a thread needs, and no
//! further than [`LIMIT`].
//!
//! Every event has a number, its position in the file. A thread's queue is a list of runs of
//! consecutive numbers, parts of decoded blocks. While distributing, the queue looks at calls: a
//! call that is not done blocks later accesses to its mappings (rule 1 of the module).

use std::collections::VecDeque;
use std::sync::Arc;

use vellum_sim::schedule::Earliest;
use vellum_trace::TraceError;
use vellum_trace::event::{Advice, Change, Event};

use super::block::{Block, Part};
use super::first_touches::FirstTouches;
use crate::replay::maps::Maps;

/// Events read and not yet taken by a thread, beyond which nobody reads on; 16 bytes each, and at
/// most 64 with the rest of the blocks that they are parts of.
pub const LIMIT: usize = 1 << 20;

/// Thread numbers count from 0 without gaps; a jump this large is damage, and would only cost
/// memory.
const MOST_NEW_THREADS: usize = 1 << 16;

/// Where events come from: a trace file, or a list made by a test.
pub trait Source {
    /// The next events; `None` at the end.
    fn next(&mut self) -> Result<Option<Arc<Block>>, Arc<TraceError>>;
}

/// Consecutive events of one thread.
#[derive(Debug)]
pub struct Run {
    /// Number of the first.
    pub first: u64,
    /// The events.
    pub events: Part,
}

/// A thread of the trace.
#[derive(Debug)]
struct Thread {
    runs: VecDeque<Run>,
    /// Its start is an event of the file, read already.
    announced: bool,
    started: bool,
    ended: bool,
}

/// See the module.
pub struct EventQueue<'s> {
    source: &'s mut dyn Source,
    threads: Vec<Thread>,
    /// For each thread the number of the event that is being done, or of the next one; `u64::MAX`
    /// when none is known.
    at: Earliest,
    /// The thread of the events that are being distributed.
    current: u32,
    next: u64,
    held: usize,
    ended: bool,
    first_touches: FirstTouches,
    /// Calls read and not done that no thread passes before they are, in order.
    barriers: VecDeque<u64>,
    changes: u64,
}

/// What a thread gets when it asks for events.
#[derive(Debug)]
pub enum TakenEvents {
    /// These.
    Run(Run),
    /// None now: the queue is full, and other threads have to go on first.
    Later,
    /// None ever.
    Never,
}

impl<'s> EventQueue<'s> {
    /// A queue that has read nothing. Thread 0 is there from the beginning.
    pub fn new(source: &'s mut dyn Source) -> EventQueue<'s> {
        let mut queue = EventQueue {
            source,
            threads: Vec::new(),
            at: Earliest::default(),
            current: 0,
            next: 0,
            held: 0,
            ended: false,
            first_touches: FirstTouches::default(),
            barriers: VecDeque::new(),
            changes: 0,
        };
        queue.thread(0).started = true;
        queue
    }

    /// Grows whenever an answer of this queue may have become another one.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Threads seen so far.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Whether a thread's creator has come to the point where it starts, and it has not ended.
    pub fn is_live(&self, thread: usize) -> bool {
        self.threads.get(thread).is_some_and(|t| t.started && !(t.ended && t.runs.is_empty()))
    }

    /// Whether a live thread can go on: it has events, or more can be read.
    pub fn has_work(&self, thread: usize) -> bool {
        self.is_live(thread)
            && match self.threads[thread].runs.front() {
                Some(run) => !self.is_beyond_a_barrier(run),
                None => self.may_read(),
            }
    }

    /// A run has numbers without gaps, so that of a barrier, another thread's, is in none.
    fn is_beyond_a_barrier(&self, run: &Run) -> bool {
        self.barriers.front().is_some_and(|barrier| run.first > *barrier)
    }

    /// The call of this number, a barrier, is done.
    pub fn pass(&mut self, number: u64) {
        self.barriers.retain(|barrier| *barrier != number);
        self.changes += 1;
    }

    /// Whether a thread has events or may yet get some.
    pub fn is_over(&self, thread: usize) -> bool {
        self.threads.get(thread).is_none_or(|t| t.runs.is_empty() && (t.ended || self.ended))
    }

    /// Whether the file is read to its end.
    pub fn is_read(&self) -> bool {
        self.ended
    }

    /// Reads on although no thread asked: when none is live that could.
    pub fn read_on(&mut self, maps: &mut Maps) -> Result<bool, Arc<TraceError>> {
        let stalled = self.may_read() && !(0..self.threads.len()).any(|t| self.is_live(t));
        if stalled {
            self.read(maps)?;
        }
        Ok(stalled)
    }

    fn may_read(&self) -> bool {
        !self.ended && self.held < LIMIT
    }

    /// The next events of `thread`; reads on if there are none.
    pub fn take(&mut self, thread: usize, maps: &mut Maps) -> Result<TakenEvents, Arc<TraceError>> {
        loop {
            if self.threads[thread].runs.front().is_some_and(|run| self.is_beyond_a_barrier(run)) {
                return Ok(TakenEvents::Later);
            }
            let t = &mut self.threads[thread];
            if let Some(run) = t.runs.pop_front() {
                self.changes += 1;
                self.at.set(thread, run.first);
                self.held -= run.events.len();
                return Ok(TakenEvents::Run(run));
            }
            if self.ended || t.ended {
                self.changes += 1;
                self.at.set(thread, u64::MAX);
                return Ok(TakenEvents::Never);
            }
            if !self.may_read() {
                return Ok(TakenEvents::Later);
            }
            self.read(maps)?;
        }
    }

    /// A run is done, or the rest of it is given back; `left` events at its end are not done.
    pub fn finish(&mut self, thread: usize, mut run: Run, left: usize) {
        let done = run.events.len() - left;
        self.changes += 1;
        if left > 0 {
            run.events.skip(done);
            run.first += done as u64;
            self.held += left;
            self.threads[thread].runs.push_front(run);
        }
        let next = self.threads[thread].runs.front().map_or(u64::MAX, |r| r.first);
        self.at.set(thread, next);
    }

    /// `thread` has come to the event of this number.
    #[inline]
    pub fn at(&mut self, thread: usize, number: u64) {
        self.changes += 1;
        self.at.set(thread, number);
    }

    /// Whether every event before `number` of every other thread is done.
    pub fn all_before(&self, number: u64, thread: usize) -> bool {
        // The thread that asks has come to that event, so that it is not the least.
        debug_assert!(self.at.get(thread) >= number);
        self.at.least() >= number
    }

    /// A thread starts, or ends.
    pub fn start(&mut self, thread: u32) {
        self.changes += 1;
        self.thread(thread).started = true;
    }

    /// A thread has ended.
    pub fn end(&mut self, thread: u32) {
        self.changes += 1;
        self.thread(thread).ended = true;
    }

    fn check_number(&self, thread: u32) -> Result<(), TraceError> {
        if thread as usize >= self.threads.len() + MOST_NEW_THREADS {
            return Err(TraceError::BadEvent { what: "a thread number far above those before it" });
        }
        Ok(())
    }

    fn thread(&mut self, number: u32) -> &mut Thread {
        let n = number as usize;
        while self.threads.len() <= n {
            self.threads.push(Thread {
                runs: VecDeque::new(),
                announced: false,
                started: false,
                ended: false,
            });
        }
        &mut self.threads[n]
    }

    /// Distributes one more block.
    fn read(&mut self, maps: &mut Maps) -> Result<(), Arc<TraceError>> {
        self.changes += 1;
        let Some(block) = self.source.next()? else {
            self.ended = true;
            return Ok(());
        };
        // Cut points: where the thread changes. Most blocks of most programs have none.
        let (mut from, mut seen) = (0, 0);
        for &at in &block.others {
            let at = at as usize;
            self.see(&block, seen, at);
            seen = at;
            match &block.events[at] {
                Event::Switch { thread } => {
                    let thread = *thread;
                    self.hand(&block, from, at);
                    from = at + 1;
                    self.check_number(thread)?;
                    self.current = thread;
                    // A thread nobody announced before (it announces itself, or never) may begin;
                    // at its own announcement it waits for everything before it.
                    let t = self.thread(thread);
                    t.started |= !t.announced;
                }
                Event::Call(call) => {
                    maps.announce(&call.change, self.next + at as u64);
                    if is_barrier(&call.change) {
                        self.barriers.push_back(self.next + at as u64);
                    }
                    if let Change::Advise { mapping, offset, len, advice: Advice::DontNeed } =
                        &call.change
                    {
                        self.first_touches.forget(*mapping, *offset, *len);
                    }
                }
                Event::ThreadStart { thread } => {
                    self.check_number(*thread)?;
                    self.thread(*thread).announced = true;
                }
                _ => {}
            }
        }
        self.see(&block, seen, block.events.len());
        self.hand(&block, from, block.events.len());
        self.next += block.events.len() as u64;
        let at = &self.at;
        self.first_touches.prune(|thread, number| at.get(thread as usize) > number);
        Ok(())
    }

    /// Notes who touches which pages, once there is more than one thread.
    fn see(&mut self, block: &Block, from: usize, to: usize) {
        if self.threads.len() < 2 {
            return;
        }
        for (event, number) in block.events[from..to].iter().zip(self.next + from as u64..) {
            if let Event::Access { mapping, size, offset, .. } = *event {
                self.first_touches.see(mapping, offset, size, number, self.current);
            }
        }
    }

    /// The event that touches a page first, if it comes before event `number` of `thread`, is
    /// another thread's and not done.
    pub fn touched_by(
        &self,
        mapping: u32,
        offset: u64,
        number: u64,
        thread: usize,
    ) -> Option<(usize, u64)> {
        let (first, at) = self.first_touches.before(mapping, offset, number)?;
        (first as usize != thread && !self.is_done(first as usize, at))
            .then_some((first as usize, at))
    }

    /// Whether a thread is past an event.
    pub fn is_done(&self, thread: usize, number: u64) -> bool {
        self.at.get(thread) > number
    }

    /// Puts a part of a block into the queue of the current thread.
    fn hand(&mut self, block: &Arc<Block>, from: usize, to: usize) {
        if from == to {
            return;
        }
        let run = Run { first: self.next + from as u64, events: Part::of(block, from, to) };
        self.held += to - from;
        let current = self.current;
        if self.thread(current).runs.is_empty() && self.at.get(current as usize) == u64::MAX {
            self.at.set(current as usize, run.first);
        }
        self.thread(current).runs.push_back(run);
    }
}

/// Whether a call is before or after what each thread writes, wherever that is: a page is copied
/// while a child has it, and only then.
pub fn is_barrier(change: &Change) -> bool {
    matches!(change, Change::Fork { child: Some(_) } | Change::ChildEnd { .. })
}

/// Whether a call takes something away, so that it has to wait for everything before it. Whether
/// new rights are fewer only the table of mappings knows.
pub fn takes(change: &Change, maps: &Maps) -> bool {
    match change {
        Change::Map(m) => m.inside.is_some(),
        Change::Unmap { .. } | Change::Remap { .. } => true,
        Change::Protect { mapping, prot, .. } => maps.takes_rights(*mapping, *prot),
        Change::Advise { advice, .. } => matches!(advice, Advice::DontNeed),
        Change::Brk { mapping, len } => maps.shrinks(*mapping, *len),
        // It may take pages from mappings.
        Change::FileResize { .. } => true,
        Change::Fork { child: Some(_) } | Change::ChildEnd { .. } => true,
        Change::Fork { child: None } | Change::Vfork | Change::Exec | Change::Exit { .. } => false,
        Change::File { .. }
        | Change::FileRead { .. }
        | Change::FileWrite { .. }
        | Change::FileSync { .. }
        | Change::FileAdvise { .. } => false,
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
