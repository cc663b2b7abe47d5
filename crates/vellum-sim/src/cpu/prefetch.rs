//! Accesses of a core with a prefetcher that miss the first level.
//!
//! The program's loads, stores and fetches train it. Walks and the kernel's own accesses do not: a
//! run that the kernel clears or copies has a fixed cost, measured with whatever the hardware
//! fetches ahead. A line that is fetched is in the L2 at once, and on its way until the time of a
//! read has passed: an access that comes earlier waits for the rest.

use super::Kind;
use crate::cache::Level;
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::{Ready, Ticks};

/// An access that missed the first level.
pub(super) struct Miss {
    pub line: u64,
    pub kind: Kind,
    pub dependent: bool,
    /// When its translation is there.
    pub ready: Ready,
    /// What served it, and the time that takes.
    pub level: Level,
    pub latency: Ticks,
}

impl<F: Format> SimState<F> {
    /// Charges the miss, and fetches what it makes the prefetcher want.
    #[inline(never)]
    pub(super) fn miss_trains(&mut self, c: usize, miss: &Miss) {
        let cpu = &mut self.cpus[c];
        let Some(prefetcher) = &mut cpu.prefetcher else { return };
        // What the caches have lost again was fetched for nothing.
        let fetched = prefetcher.take(miss.line).filter(|_| miss.level != Level::Memory);
        cpu.counts.prefetch_hits += u64::from(fetched.is_some());
        let fetches = prefetcher.miss(miss.line);
        let dependent = miss.dependent && miss.kind == Kind::Load;
        let now = cpu.core.miss_starts(miss.ready.at, dependent);
        let arrival = fetched.unwrap_or_default();
        if arrival > now {
            cpu.core.served_by(Level::Memory as u8);
        }
        match miss.kind {
            Kind::Store => cpu.core.store_arriving(miss.ready, miss.latency, arrival),
            _ => cpu.core.load_arriving(miss.ready, miss.latency, arrival, dependent),
        };
        for line in fetches {
            self.prefetch(c, line, now);
        }
        self.forget_recalled();
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
