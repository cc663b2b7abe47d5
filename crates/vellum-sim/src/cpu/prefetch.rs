//! Accesses that miss the first level, of a core with a prefetcher or with lines on their way.
//!
//! The program's loads, stores and fetches train it, and page walks where the machine says so. The
//! kernel's own accesses do not: a run that the kernel clears or copies has a fixed cost, measured
//! with whatever the hardware fetches ahead. A line that is fetched is in the L2 at once, and on
//! its way until the time of a read has passed: an access that comes earlier waits for the rest.

use super::Kind;
use super::access::Touch;
use crate::cache::{Fetch, Level};
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::Ticks;

/// What served an access that missed the first level, and the time that takes.
pub(crate) struct Miss {
    pub level: Level,
    pub latency: Ticks,
}

impl<F: Format> SimState<F> {
    /// Charges the miss, and fetches what it makes the prefetcher want.
    #[inline(never)]
    pub(super) fn miss_trains(&mut self, c: usize, touch: &Touch, miss: &Miss) {
        let (ready, dependent) = (touch.late.unwrap_or_default(), touch.is_dependent());
        let set = self.caches.first_set(c, touch.line);
        let (mut arrival, fetches) = self.trains(c, touch.line, miss.level);
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
            arrival = first.arrives((touch.line, set), touch.va, source as u8, times);
        }
        match touch.kind {
            Kind::Store => cpu.core.store_arriving(ready, miss.latency, arrival),
            _ => cpu.core.load_arriving(ready, miss.latency, arrival, dependent),
        };
        for line in fetches.into_iter().flatten() {
            self.prefetch(c, line, now);
        }
        self.forget_recalled();
    }

    /// A read of a walk missed the first level, some time from now, in a machine whose prefetcher
    /// watches walks. Returns the time that the read takes.
    #[inline(never)]
    pub(crate) fn walk_trains(&mut self, c: usize, line: u64, miss: Miss, after: Ticks) -> Ticks {
        let now = self.cpus[c].core.now() + after;
        let (arrival, fetches) = self.trains(c, line, miss.level);
        for line in fetches.into_iter().flatten() {
            self.prefetch(c, line, now);
        }
        self.forget_recalled();
        miss.latency.max(arrival.saturating_sub(now))
    }

    /// What the prefetcher makes of a miss: when the line arrives, if it was fetched ahead, and
    /// what to fetch.
    fn trains(&mut self, c: usize, line: u64, level: Level) -> (Ticks, Option<Fetch>) {
        let cpu = &mut self.cpus[c];
        let Some(prefetcher) = &mut cpu.prefetcher else { return (Ticks::ZERO, None) };
        // What the caches have lost again was fetched for nothing.
        let fetched = prefetcher.take(line).filter(|_| level != Level::Memory);
        cpu.counts.prefetch_hits += u64::from(fetched.is_some());
        (fetched.unwrap_or_default(), Some(prefetcher.miss(line)))
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
        cpu.counts.prefetches += 1;
        if let Some(prefetcher) = &mut cpu.prefetcher {
            prefetcher.sent(line, now + latency);
        }
    }
}
