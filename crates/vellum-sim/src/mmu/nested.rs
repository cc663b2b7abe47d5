//! Nested paging: the machine is a guest, and its physical addresses are translated once more.
//!
//! Each entry that a walk reads has a guest-physical address, and so has what the walk finds. The
//! walker looks up the host address of each in the hypervisor's tables before it goes on. Four
//! levels on four levels are 24 reads where nothing is cached. A cached table entry holds the host
//! address of the table (Intel's manual: combined mappings), so that the first read behind one
//! needs no translation. The hypervisor has memory behind all of the guest's and changes nothing
//! while the guest runs: no exits, no nested faults.
//!
//! Simulated memory has the same numbers in both address spaces. So contents, guest tables and the
//! oracle know nothing of all this: it costs reads and time.

use crate::format::Format;
use crate::machine::SimState;
use crate::memory::Ticks;

impl<F: Format> SimState<F> {
    /// Finds the host address of a guest-physical one for a walk of CPU `c` that has taken some
    /// time already; returns the time. A translation at hand takes none.
    #[inline(never)]
    pub(crate) fn nested_walk(&mut self, c: usize, address: u64, after: Ticks) -> Ticks {
        let mut time = Ticks::ZERO;
        let Some(tables) = self.nested else { return time };
        let Some(kept) = &mut self.cpus[c].nested else { return time };
        if kept.lookup(address) {
            return time;
        }
        let start = kept.start(address, tables.levels());
        for level in (tables.leaf()..=start).rev() {
            // A node of the tables lies in the memory node that it describes.
            time += self.walker_read(c, tables.line(address, level), address >> 6, after + time);
            if let Some(kept) = &mut self.cpus[c].nested
                && level > tables.leaf()
            {
                kept.insert_table(address, level);
            }
        }
        let cpu = &mut self.cpus[c];
        cpu.counts.nested_steps += u64::from(start + 1 - tables.leaf());
        if let Some(kept) = &mut cpu.nested {
            kept.insert(address);
        }
        time
    }
}
