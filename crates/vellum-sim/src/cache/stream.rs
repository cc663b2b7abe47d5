//! Long runs of stores by the kernel: clearing and copying extents.
//!
//! A store that allocates is an ordinary store. A store that bypasses the caches ("elided"
//! write-allocate, or a non-temporal store) fetches nothing and leaves nothing behind. It
//! invalidates the copies of the line in this CPU and in every last level, and, where an inclusive
//! last level held the line, those in its CPUs. Other private caches are not searched: a frame that
//! changes owner was last written through the caches of its last owner. To hit such a stale copy,
//! that CPU would need the frame again, and the frame is cleared first.

use super::hierarchy::{Agent, Hierarchy, Inclusion, Kind, Level};
use super::single::Lookup;

/// What a run of stores did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamCost {
    /// Lines stored.
    pub lines: u64,
    /// Lines that had to be read from memory first (write-allocate).
    pub fetched: u64,
    /// Dirty lines that went to memory, the stream's own included.
    pub written_back: u64,
}

impl Hierarchy {
    /// Stores `count` whole lines in ascending order. With `elide`, without allocating them;
    /// bypassing stores are counted as no cache access.
    pub fn store_stream(
        &mut self,
        cpu: usize,
        agent: Agent,
        first_line: u64,
        count: u64,
        elide: bool,
    ) -> StreamCost {
        self.uses(cpu);
        if elide {
            return self.store_around(cpu, first_line, count);
        }
        let mut served = [0; 4];
        let mut written_back = 0;
        for line in first_line..first_line + count {
            let level = match self.cpus[cpu].l1d.access(line, true) {
                Lookup::Hit => Level::L1,
                Lookup::Miss(victim) => {
                    self.out.clear();
                    let level = self.serve(cpu, line, victim);
                    written_back += u64::from(self.out.count());
                    level
                }
            };
            served[level as usize] += 1;
        }
        for (level, lines) in
            [Level::L1, Level::L2, Level::Llc, Level::Memory].into_iter().zip(served)
        {
            self.count(cpu, agent, Kind::Store, level, lines);
        }
        StreamCost { lines: count, fetched: served[Level::Memory as usize], written_back }
    }

    /// As [`store_stream`](Hierarchy::store_stream) for lines that no cache holds, in a state in
    /// which every line stored drives one out: counted, and not kept.
    pub fn count_cold(&mut self, cpu: usize, agent: Agent, count: u64, elide: bool) -> StreamCost {
        self.uses(cpu);
        let fetched = if elide { 0 } else { count };
        self.count(cpu, agent, Kind::Store, Level::Memory, fetched);
        StreamCost { lines: count, fetched, written_back: count }
    }

    fn store_around(&mut self, cpu: usize, first_line: u64, count: u64) -> StreamCost {
        for line in first_line..first_line + count {
            let private = &mut self.cpus[cpu];
            private.l1d.take(line);
            private.l2.take(line);
            for (group, llc) in self.llcs.iter_mut().enumerate() {
                if llc.take(line).is_some() && self.inclusion == Inclusion::Inclusive {
                    let first = group * self.cpus_per_llc;
                    let last = (first + self.cpus_per_llc).min(self.used);
                    for private in self.cpus.get_mut(first..last).unwrap_or_default() {
                        for cache in [&mut private.l1d, &mut private.l1i, &mut private.l2] {
                            self.recalled |= cache.take(line).is_some();
                        }
                    }
                }
            }
        }
        StreamCost { lines: count, fetched: 0, written_back: count }
    }
}
