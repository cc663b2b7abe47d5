//! A core and its clock: what overlaps with a miss and what waits for it.
//!
//! An out-of-order core goes on past a miss until one of three things runs out: its line-fill
//! buffers (each miss holds one until its line arrives), its window (instructions retire in order,
//! so the core is at most a window ahead of the oldest unfinished load), or the data (a load whose
//! address is the result of the load before starts when that one ends). So independent misses cost
//! `latency / buffers` each, dependent ones `latency`. Page walks are limited by the number of
//! walkers, and delay their access.
//!
//! The model has two short queues: loads in program order, which is the order of retirement, and
//! fill buffers in the order in which they become free. Each operation looks at the head of one of
//! them. Rejected: a cycle-by-cycle pipeline, a hundred times slower and with unpublished
//! constants; a fixed "memory parallelism" divisor, which cannot tell a chain from a stride.

use super::pending::{CAPACITY, Pending, Queue};
use super::store_buffer::StoreBuffer;
use super::ticks::Ticks;
use super::waits::{SOURCES, Translating, Waits};

/// The constants of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// Line-fill buffers: misses of the first level in flight, 1 to 64.
    pub fill_buffers: u32,
    /// Page walks in flight, 1 to 8.
    pub walkers: u32,
    /// Instructions the core runs ahead of its oldest unfinished load.
    pub window: u32,
    /// Places of the store buffer; 0 where it is never full.
    pub store_buffer: u32,
    /// Time an instruction takes when nothing misses.
    pub instruction: Ticks,
    /// Load-to-use time of a first-level hit.
    pub l1: Ticks,
    /// Time a load keeps the port that all loads go through; zero where loads are not limited by
    /// it.
    pub load: Ticks,
    /// From a branch that turns out to be predicted wrongly to the first instruction behind it;
    /// zero where such branches hold up nothing but the load behind them.
    pub mispredict: Ticks,
    /// Time between two lines that come from the last level, however many are on their way; zero
    /// where all come at once.
    pub last_level_line: Ticks,
}

/// When an access is translated, and by what.
#[derive(Clone, Copy, Default)]
pub struct Ready {
    /// The translation is there.
    pub at: Ticks,
    /// A page walk brought it, not the second-level TLB.
    pub walked: bool,
}

/// Times before which an access cannot be done.
#[derive(Clone, Copy, Default)]
struct Bounds {
    /// Its address is known.
    known: Ticks,
    /// It is translated.
    ready: Ready,
    /// Its line, fetched ahead, arrives; zero for all others.
    arrival: Ticks,
}

/// A core: its clock, its retired instructions and its unfinished accesses.
#[derive(Clone, Debug)]
pub struct Core {
    now: Ticks,
    position: u64,
    /// Retiring this instruction must first look at unfinished loads.
    limit: u64,
    overlap: Overlap,
    /// How long it runs ahead of its oldest unfinished load: the time of a window of instructions.
    ahead: Ticks,
    /// When the data of the last load is there.
    last: Ticks,
    walkers: [Ticks; 8],
    /// When the load port has issued all loads so far.
    port: Ticks,
    /// When the last level can give the next line.
    last_level: Ticks,
    /// By position.
    loads: Queue,
    /// By the time they come free. Those that are free already are taken out when all seem in use.
    fills: Queue,
    stores: StoreBuffer,
    /// Since they were last taken.
    translating: Translating,
    /// What serves the access that is about to be started.
    source: u8,
    waits: Waits,
    /// Until when it is settled what time was spent on. Since then it only retired instructions.
    settled: Ticks,
}

impl Core {
    /// A core at time zero.
    pub fn new(overlap: Overlap) -> Core {
        debug_assert!(
            (1..=CAPACITY as u32).contains(&overlap.fill_buffers)
                && (1..=8).contains(&overlap.walkers)
        );
        Core {
            now: Ticks::ZERO,
            position: 0,
            limit: u64::MAX,
            overlap,
            ahead: Ticks(overlap.instruction.0.saturating_mul(u64::from(overlap.window))),
            last: Ticks::ZERO,
            walkers: [Ticks::ZERO; 8],
            port: Ticks::ZERO,
            last_level: Ticks::ZERO,
            loads: Queue::EMPTY,
            fills: Queue::EMPTY,
            stores: StoreBuffer::new(overlap.store_buffer),
            translating: Translating::default(),
            source: 0,
            waits: Waits::NONE,
            settled: Ticks::ZERO,
        }
    }

    /// This core's time.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// Misses of the first level that it has in flight at most.
    pub fn fill_buffers(&self) -> u32 {
        self.overlap.fill_buffers
    }

    /// The next access is served by what the caller knows by that number, below four.
    #[inline]
    pub fn served_by(&mut self, source: u8) {
        self.source = source % SOURCES as u8;
    }

    /// What it waited for so far.
    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    /// Time of the instructions that it retired while nothing held it up.
    pub(crate) fn retiring(&self) -> Ticks {
        (self.overlap.instruction * self.position).saturating_sub(self.waits.hidden)
    }

    /// Instructions retired.
    #[inline]
    pub fn instructions(&self) -> u64 {
        self.position
    }

    /// Runs instructions that do not touch memory, or the non-memory part of ones that do. Returns
    /// the time lost because the window was full, on top of the instructions' own.
    #[inline]
    pub fn retire(&mut self, instructions: u64) -> Ticks {
        self.now += self.overlap.instruction * instructions;
        self.position += instructions;
        if self.position < self.limit { Ticks::ZERO } else { self.window_full() }
    }

    /// Loads go through the load port, wherever their data is. The core runs ahead of the port by a
    /// window of instructions, so that bursts cost nothing as long as instructions between them
    /// take as long.
    #[inline]
    pub fn issue(&mut self, loads: u64) {
        if self.overlap.load == Ticks::ZERO {
            return;
        }
        self.port = self.port.max(self.now) + self.overlap.load * loads;
        if self.port.saturating_sub(self.ahead) > self.now {
            self.port_full();
        }
    }

    #[inline(never)]
    fn port_full(&mut self) {
        let wait = self.port - self.ahead - self.now;
        self.now += wait;
        self.settled += wait;
        self.waits.port += wait;
    }

    /// A store takes a place in the store buffer, and the core waits for one if there is none.
    #[inline(always)]
    pub fn issue_store(&mut self) {
        if !self.stores.has_place() {
            self.store_buffer_full();
        }
    }

    #[inline(never)]
    fn store_buffer_full(&mut self) {
        while let Some(p) = self.stores.in_the_way() {
            self.wait_for(p);
            self.stores.leaves();
        }
    }

    /// The store that was issued last leaves the buffer no sooner than `p` is done.
    fn store_waits(&mut self, p: Pending) {
        if let Some(oldest) = self.stores.waits(p, self.now) {
            self.wait_for(oldest);
        }
    }

    /// A line comes from the last level for an access or a prefetch that begins at `start`; returns
    /// how long it waits for those before it. They come in program order, from this core's time on:
    /// one whose address is known late holds up none that overtakes it.
    #[inline]
    pub fn from_last_level(&mut self, start: Ticks) -> Ticks {
        let comes = self.last_level.max(self.now);
        self.last_level = comes + self.overlap.last_level_line;
        comes.saturating_sub(start.max(self.now))
    }

    /// A branch on what the last load brings was predicted wrongly. The core gives up what it has
    /// begun; what depends on that load begins so much later, and so does all the rest from now on.
    /// Returns the time, for the caller to pass. Loads that do not depend on it wait for nothing
    /// else: the core may have begun them on the way that it predicted. Rejected: that they begin
    /// behind the branch, too. It brings the times of the binary searches of `scripts/truth` 11 to
    /// 14 points nearer, makes those of its hash table 11 and 40 % too long (10 to 21 too short),
    /// and worsens both ratios, from 9 to 13 % and from 8 to 20 (an AMD EPYC, 2026-11-27).
    pub fn mispredicted(&mut self) -> Ticks {
        self.last += self.overlap.mispredict;
        self.overlap.mispredict
    }

    /// Waits for the oldest loads until the window has room. Those behind them that are done leave,
    /// too: nobody will wait for them.
    #[inline(never)]
    fn window_full(&mut self) -> Ticks {
        let start = self.now;
        let window = u64::from(self.overlap.window);
        while let Some(p) = self.loads.first()
            && (p.position + window <= self.position || p.done <= self.now)
        {
            self.wait_for(p);
            self.loads.pop();
        }
        self.set_limit();
        self.now - start
    }

    #[inline]
    fn set_limit(&mut self) {
        let window = u64::from(self.overlap.window);
        self.limit = self.loads.first().map_or(u64::MAX, |p| p.position + window);
    }

    #[inline]
    fn wait_for(&mut self, p: Pending) {
        let wait = p.done.saturating_sub(self.now);
        self.now += wait;
        self.translating.blame(&p, wait);
        if wait > Ticks::ZERO {
            self.held_up(p, wait);
        }
    }

    /// The clock stands at the end of an access, the last part of which was waited for.
    fn held_up(&mut self, p: Pending, wait: Ticks) {
        let from = p.start.min(self.now - wait).max(self.settled);
        self.waits.access(&p, self.now - from, wait);
        self.settled = self.now;
    }

    /// Time lost by waiting for translations (walks, second-level lookups) since this was last
    /// asked: of each wait for an access, the part that its translation had in the access's time.
    #[inline]
    pub fn take_translating(&mut self) -> Translating {
        std::mem::take(&mut self.translating)
    }

    /// The same, left where it is.
    pub fn translating(&self) -> Translating {
        self.translating
    }

    /// Starts an access that is not done at once; returns when it is. `loads`: it retires only when
    /// it is done. `fills`: it holds a fill buffer until then, and a store its place in the store
    /// buffer.
    #[inline]
    fn start(&mut self, bounds: Bounds, latency: Ticks, loads: bool, fills: bool) -> Ticks {
        if fills && self.fills.len() == self.overlap.fill_buffers as usize {
            let first = *self.fills.at(0);
            self.wait_for(first);
            self.fills.pop();
        }
        if loads && self.loads.len() == CAPACITY {
            let first = *self.loads.at(0);
            self.wait_for(first);
            self.loads.pop();
        }
        let issue = self.now.max(bounds.known);
        let done = (issue.max(bounds.ready.at) + latency).max(bounds.arrival);
        let late = bounds.ready.at.saturating_sub(issue).0;
        let translation = if late == 0 { 0 } else { (late * 255 / (done - issue).0) as u8 };
        let (walked, source) = (bounds.ready.walked, self.source);
        let (start, position) = (issue, self.position);
        let p = Pending { done, start, position, translation, walked, source };
        if fills {
            self.fills.push_by_time(p);
        }
        if loads {
            self.loads.push(p);
            self.set_limit();
        } else if fills {
            self.store_waits(p);
        }
        done
    }

    /// A load that hits the first level. Independent ones are hidden by the pipeline and cost
    /// nothing; one whose address is the last load's result waits for that.
    #[inline]
    pub fn hit(&mut self, dependent: bool) -> Ticks {
        if dependent {
            return self.hit_after_last();
        }
        // What depends next depends on this load, not on a miss before it: `a[b[i]]` waits for
        // `b[i]`.
        self.last = self.now + self.overlap.l1;
        Ticks::ZERO
    }

    /// As [`load_after`](Core::load_after) for a load that hits and whose translation is there.
    #[inline]
    fn hit_after_last(&mut self) -> Ticks {
        if self.loads.len() == CAPACITY {
            return self.load_after(Ready::default(), self.overlap.l1, true, false);
        }
        let start = self.now.max(self.last);
        self.last = start + self.overlap.l1;
        let (done, position, source) = (self.last, self.position, self.source);
        self.loads.push(Pending { done, start, position, translation: 0, walked: false, source });
        if self.loads.len() == 1 {
            self.set_limit();
        }
        Ticks::ZERO
    }

    /// A load that misses the first level and whose data takes `latency`. Returns the time the core
    /// lost right now.
    #[inline]
    pub fn load(&mut self, latency: Ticks, dependent: bool) -> Ticks {
        self.load_after(Ready::default(), latency, dependent, true)
    }

    /// A page walk that takes `latency`, on the first walker that is free. Returns when the
    /// translation is there.
    #[inline]
    pub fn walk(&mut self, latency: Ticks) -> Ready {
        self.walk_after(Ticks::ZERO, latency)
    }

    /// A page walk for an address that is known at `known`.
    #[inline]
    pub fn walk_after(&mut self, known: Ticks, latency: Ticks) -> Ready {
        let walkers = &mut self.walkers[..self.overlap.walkers as usize];
        let mut first = 0;
        for i in 1..walkers.len() {
            if walkers[i] < walkers[first] {
                first = i;
            }
        }
        let done = walkers[first].max(self.now).max(known) + latency;
        walkers[first] = done;
        Ready { at: done, walked: true }
    }

    /// When the last load's data is there: what an access that depends on it must wait for.
    #[inline]
    pub fn last_load(&self) -> Ticks {
        self.last
    }

    /// A load whose translation is there at `ready`; `fills` says that it misses the first level.
    /// Returns the time lost now.
    #[inline]
    pub fn load_after(
        &mut self,
        ready: Ready,
        latency: Ticks,
        dependent: bool,
        fills: bool,
    ) -> Ticks {
        let bounds = Bounds { known: self.known(dependent), ready, arrival: Ticks::ZERO };
        self.load_within(bounds, latency, fills)
    }

    /// When the address of the next access is known.
    #[inline]
    fn known(&self, dependent: bool) -> Ticks {
        if dependent { self.last } else { Ticks::ZERO }
    }

    #[inline]
    fn load_within(&mut self, bounds: Bounds, latency: Ticks, fills: bool) -> Ticks {
        let start = self.now;
        self.last = self.start(bounds, latency, true, fills);
        self.now - start
    }

    /// A store that misses the first level. It has retired, so that the window does not wait for
    /// it, but it needs a fill buffer.
    #[inline]
    pub fn store(&mut self, latency: Ticks) -> Ticks {
        self.store_after(Ready::default(), latency, true)
    }

    /// A store whose translation is there at `ready`. The walk holds the window: a store retires
    /// only when it cannot fault.
    #[inline]
    pub fn store_after(&mut self, ready: Ready, latency: Ticks, fills: bool) -> Ticks {
        let start = self.now;
        self.translated_store(ready);
        if fills {
            self.start(Bounds { ready, ..Bounds::default() }, latency, false, true);
        } else {
            self.store_keeps_place(ready.at, ready);
        }
        self.now - start
    }

    /// The translation of a store holds the window.
    fn translated_store(&mut self, ready: Ready) {
        if ready.at > self.now {
            self.start(Bounds { ready, ..Bounds::default() }, Ticks::ZERO, true, false);
        }
    }

    /// A store that needs no fill buffer keeps its place in the store buffer until `done`.
    fn store_keeps_place(&mut self, done: Ticks, ready: Ready) {
        if done > self.now {
            let (start, position, source) = (self.now, self.position, self.source);
            let late = ready.at.saturating_sub(start).0;
            let translation = (late * 255 / (done - start).0) as u8;
            let walked = ready.walked;
            self.store_waits(Pending { done, start, position, translation, walked, source });
        }
    }

    /// When a miss would go beyond the first level that is translated at `ready`: with its address
    /// known and a fill buffer free.
    pub fn miss_starts(&self, ready: Ticks, dependent: bool) -> Ticks {
        let full = self.fills.len() == self.overlap.fill_buffers as usize;
        let buffer = if full { self.fills.at(0).done } else { Ticks::ZERO };
        self.now.max(self.known(dependent)).max(ready).max(buffer)
    }

    /// When an access would ask the first level that is translated at `ready`.
    pub fn starts(&self, ready: Ticks, dependent: bool) -> Ticks {
        self.now.max(self.known(dependent)).max(ready)
    }

    /// A load of a line that is on its way into the first level, until `arrival`, for an earlier
    /// access.
    pub fn load_joining(&mut self, ready: Ready, arrival: Ticks, dependent: bool) -> Ticks {
        let bounds = Bounds { known: self.known(dependent), ready, arrival };
        self.load_within(bounds, self.overlap.l1, false)
    }

    /// As [`load_after`](Core::load_after) for a load that misses the first level and whose line,
    /// fetched ahead, arrives at `arrival`.
    pub fn load_arriving(
        &mut self,
        ready: Ready,
        latency: Ticks,
        arrival: Ticks,
        dependent: bool,
    ) -> Ticks {
        let bounds = Bounds { known: self.known(dependent), ready, arrival };
        self.load_within(bounds, latency, true)
    }

    /// As [`store_after`](Core::store_after) for a store that misses the first level and whose
    /// line, fetched ahead, arrives at `arrival`.
    pub fn store_arriving(&mut self, ready: Ready, latency: Ticks, arrival: Ticks) -> Ticks {
        let start = self.now;
        self.translated_store(ready);
        self.start(Bounds { known: Ticks::ZERO, ready, arrival }, latency, false, true);
        self.now - start
    }

    /// A store to a line that is on its way into the first level, until `arrival`, for an earlier
    /// access.
    pub fn store_joining(&mut self, ready: Ready, arrival: Ticks) -> Ticks {
        let start = self.now;
        self.translated_store(ready);
        self.store_keeps_place(arrival.max(ready.at), ready);
        self.now - start
    }

    /// Waits for everything unfinished: a fault, an interrupt, a fence, a root load.
    pub fn serialize(&mut self) -> Ticks {
        let start = self.now;
        let pending = self.loads.iter().chain(self.fills.iter()).chain(self.stores.waiting());
        let last = pending.max_by_key(|p| p.done).copied();
        if let Some(last) = last {
            let wait = self.pass_to(last.done);
            if wait > Ticks::ZERO {
                self.held_up(last, wait);
            }
        }
        let walked = self.walkers.iter().max().copied().unwrap_or_default();
        let walking = self.pass_to(walked);
        self.settled += walking;
        self.waits.translating.walks += walking;
        self.loads.clear();
        self.fills.clear();
        self.set_limit();
        self.now - start
    }

    /// Passes time doing something of fixed cost. Unfinished accesses go on meanwhile.
    #[inline]
    pub fn advance(&mut self, time: Ticks) {
        self.now += time;
        self.settled = self.now;
    }

    /// Passes the time of a walk that ended in a fault.
    pub(crate) fn translated(&mut self, time: Ticks) {
        self.advance(time);
        self.waits.translating.walks += time;
    }

    /// Waits until `time`, if that is in the future; returns how long.
    #[inline]
    pub fn advance_to(&mut self, time: Ticks) -> Ticks {
        let wait = self.pass_to(time);
        self.settled = self.now;
        wait
    }

    fn pass_to(&mut self, time: Ticks) -> Ticks {
        let wait = time.saturating_sub(self.now);
        self.now += wait;
        wait
    }

    /// Unfinished accesses are counted right and within bounds.
    pub fn validate(&self) -> Result<(), String> {
        if self.fills.len() > self.overlap.fill_buffers as usize {
            return Err(format!(
                "{} fill buffers in use of {}",
                self.fills.len(),
                self.overlap.fill_buffers
            ));
        }
        if !self.fills.iter().is_sorted_by_key(|p| p.done)
            || !self.loads.iter().is_sorted_by_key(|p| p.position)
        {
            return Err("a queue is out of order".into());
        }
        let oldest =
            self.loads.first().map_or(u64::MAX, |p| p.position + u64::from(self.overlap.window));
        if self.limit != oldest {
            return Err(format!(
                "the window ends at {}, by the oldest load at {oldest}",
                self.limit
            ));
        }
        self.stores.validate()
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
