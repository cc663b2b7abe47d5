//! Where leaf entries were found last, for the host's prefetching only.
//!
//! A random access over a gigabyte costs the simulator four or five dependent cache misses of the
//! host. The first, the simulated leaf entry, can start long before it is needed if its table is
//! guessed. A wrong guess costs one useless prefetch; nothing simulated depends on these values.

/// Slots; 512 of them reach 1 GiB.
const SLOTS: usize = 1024;

/// A direct-mapped guess of the level-1 table for each 2 MiB of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    tables: Vec<(u64, u64)>,
    /// Addresses announced and not yet seen through to their data.
    announced: [u64; LAG],
    next: usize,
}

/// Announcements between bringing the leaf entry near and reading it to bring the data's places
/// near.
const LAG: usize = 8;

impl Hints {
    #[inline]
    pub(crate) fn note(&mut self, va: u64, table: u64) {
        if self.tables.is_empty() {
            self.tables = vec![(u64::MAX, 0); SLOTS];
        }
        self.tables[(va >> 21) as usize % SLOTS] = (va >> 21, table);
    }

    /// Physical address where the leaf entry of `va` probably is.
    #[inline]
    pub(crate) fn find(&self, va: u64) -> Option<u64> {
        let &(region, table) = self.tables.get((va >> 21) as usize % SLOTS)?;
        (region == va >> 21).then_some(table | (va >> 12 & 511) << 3)
    }

    /// Announces an address and returns the one announced [`LAG`] times ago, whose leaf entry
    /// should be near by now.
    #[inline]
    pub(crate) fn announce(&mut self, va: u64) -> u64 {
        self.next = (self.next + 1) % LAG;
        core::mem::replace(&mut self.announced[self.next], va)
    }
}
