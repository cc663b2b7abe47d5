//! Accesses that miss the first level, of a core with a prefetcher or with lines on their way.
//!
//! The program's loads, stores and fetches train it, and page walks where the machine says so. The
//! kernel's own accesses do not: a run that the kernel clears or copies has a fixed cost, measured
//! with whatever the hardware fetches ahead. A line that is fetched is in the L2 at once, and on
//! its way until the time of a read has passed: an access that comes earlier waits for the rest.

use super::Kind;
use super::access::Touch;
use crate::cache::Level;
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::{Coming, Ticks};
use crate::mmu::fresh::{self, Fresh};

/// Lines of a page.
const LINES: u64 = 64;

/// What served an access that missed the first level, and the time that takes.
pub(crate) struct Miss {
    pub level: Level,
    pub latency: Ticks,
    /// A dirty line left the first level for it.
    pub pushed: bool,
}

impl<F: Format> SimState<F> {
    /// Charges the miss, and fetches what it makes the prefetcher want.
    #[inline(never)]
    pub(super) fn miss_trains(&mut self, c: usize, touch: &Touch, miss: &Miss) {
        let (ready, dependent) = (touch.late.unwrap_or_default(), touch.is_dependent());
        let set = self.caches.first_set(c, touch.line);
        let crosses = self.cpus[c].prefetcher.as_ref().is_some_and(|p| p.crosses_pages());
        let seen = if crosses { touch.va >> 6 } else { touch.line };
        let mut arrival = self.fetched_ahead(c, touch.line, miss.level);
        let fetches = self.cpus[c].prefetcher.as_mut().map(|p| p.miss(seen));
        let cpu = &mut self.cpus[c];
        let now = cpu.core.miss_starts(ready.at, dependent);
        let mut source = miss.level;
        if arrival > now {
            source = Level::Memory;
            cpu.core.served_by(source as u8);
        }
        if let Some(first) = &mut cpu.first
            && touch.kind != Kind::Fetch
        {
            let times = [cpu.core.now(), (now + miss.latency).max(arrival)];
            let line = Coming { line: touch.line, set, tag: 0, source: source as u8 };
            arrival = first.arrives(line, touch.va, miss.pushed, times);
        }
        match touch.kind {
            Kind::Store => cpu.core.store_arriving(ready, miss.latency, arrival),
            _ => cpu.core.load_arriving(ready, miss.latency, arrival, dependent),
        };
        for line in fetches.into_iter().flatten() {
            let physical = if crosses { self.line_ahead(c, touch, line) } else { Some(line) };
            if let Some(line) = physical {
                self.prefetch(c, line, now);
            }
        }
        self.forget_recalled();
    }

    /// The physical line of a virtual one near an access; `None` where nothing is mapped. Takes no
    /// time, and tells no TLB.
    fn line_ahead(&mut self, c: usize, touch: &Touch, line: u64) -> Option<u64> {
        let place = line % LINES;
        if line / LINES == touch.va >> 12 {
            return Some(touch.line - touch.line % LINES + place);
        }
        let cpu = &mut self.cpus[c];
        let pages = cpu.prefetcher.as_mut()?;
        if let Some(frame) = pages.frame_of(line / LINES) {
            return Some(frame * LINES + place);
        }
        let va = line << 6;
        let table = self.oracle.roots[cpu.root? as usize].table << 12;
        let found = fresh::walk::<F>(&self.ram, table, self.mmu.levels, va);
        let Fresh::Leaf { frame, size, .. } = found else { return None };
        let frame = (frame + (va & (size.bytes() - 1))) >> 12;
        if va >= self.user_end || frame >= self.ram.frames() {
            return None;
        }
        pages.knows(line / LINES, frame);
        Some(frame * LINES + place)
    }

    /// A read of a walk missed the first level, some time from now, in a machine whose prefetcher
    /// watches walks. Returns the time that the read takes.
    #[inline(never)]
    pub(crate) fn walk_trains(&mut self, c: usize, line: u64, miss: Miss, after: Ticks) -> Ticks {
        let now = self.cpus[c].core.now() + after;
        let arrival = self.fetched_ahead(c, line, miss.level);
        let fetches = self.cpus[c].prefetcher.as_mut().map(|p| p.miss_of_walk(line));
        for line in fetches.into_iter().flatten() {
            self.prefetch(c, line, now);
        }
        self.forget_recalled();
        miss.latency.max(arrival.saturating_sub(now))
    }

    /// When a missed line arrives, if it was fetched ahead.
    fn fetched_ahead(&mut self, c: usize, line: u64, level: Level) -> Ticks {
        let cpu = &mut self.cpus[c];
        let Some(prefetcher) = &mut cpu.prefetcher else { return Ticks::ZERO };
        // What the caches have lost again was fetched for nothing.
        let fetched = prefetcher.take(line).filter(|_| level != Level::Memory);
        cpu.counts.prefetch_hits += u64::from(fetched.is_some());
        fetched.unwrap_or_default()
    }

    /// A line is fetched into the L2, if it is not there.
    fn prefetch(&mut self, c: usize, line: u64, now: Ticks) {
        let Some(served) = self.caches.prefetch(c, line) else { return };
        let mut latency = self.caches.latency(served.level);
        if served.level == Level::Memory {
            latency += self.memory.read(now, self.cpus[c].node, line);
        }
        if served.write_backs > 0 {
            self.write_back(c);
        }
        let cpu = &mut self.cpus[c];
        if served.level == Level::Llc {
            latency += cpu.core.from_last_level(now);
        }
        cpu.counts.prefetches += 1;
        if let Some(prefetcher) = &mut cpu.prefetcher {
            prefetcher.sent(line, now + latency);
        }
    }
}
