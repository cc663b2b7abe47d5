//! A disk whose habits are drawn from a seed, anew for each run.

use vellum::addr::PAGE_SIZE;
use vellum::machine::{CpuId, PageRun};

use super::super::random::Random;
use super::Habits;

/// CPUs that may ask.
const CPUS: usize = 8;

/// What came of a disk's whims.
#[derive(Clone, Copy, Default, Debug)]
pub struct Told {
    /// Runs that it was asked for.
    pub asked: u64,
    /// Runs that it answered late, and reads that were short.
    pub late: u64,
    pub short: u64,
    /// Runs that it did not write, or not all of, by the CPU that asked, and whether the pager's
    /// number is even or odd.
    pub failed_writes: [[u64; 2]; CPUS],
    /// Runs that it could not read; those of one page, whose end somebody is told.
    pub failed_reads: u64,
    pub failed_pages: u64,
    /// Those of one page that are over.
    pub reads_over: u64,
}

/// The whims.
pub struct Whims {
    random: Random,
    pub told: Told,
}

impl Whims {
    pub fn new(seed: u64) -> Whims {
        Whims { random: Random::new(seed), told: Told::default() }
    }

    /// One of so many; sometimes none.
    pub fn choose(&mut self, count: u64) -> Option<u64> {
        if count == 0 || self.random.one_in(4) { None } else { Some(self.random.below(count)) }
    }

    /// How a run is read of which so many bytes exist. What fails comes late.
    pub fn read(&mut self, run: &PageRun, there: u64) -> Habits {
        let fails_reads = self.random.one_in(6);
        let late = fails_reads || self.random.one_in(2);
        let bytes = (run.frames().len() * PAGE_SIZE) as u64;
        self.told.asked += 1;
        self.told.late += u64::from(late);
        self.told.short += u64::from(!fails_reads && there < bytes);
        self.told.failed_reads += u64::from(fails_reads);
        self.told.failed_pages += u64::from(fails_reads && run.frames().len() == 1);
        Habits { late, fails_reads, fails_writes: false, most: Some(there) }
    }

    /// How a run is written that a CPU asks for.
    pub fn write(&mut self, run: &PageRun, cpu: CpuId) -> Habits {
        let (fails_writes, late) = (self.random.one_in(8), self.random.one_in(2));
        let part = (self.random.one_in(8) && !fails_writes && run.bytes() != 0)
            .then(|| self.random.below(run.bytes()));
        self.told.asked += 1;
        self.told.late += u64::from(late);
        let failed = &mut self.told.failed_writes[cpu][run.pager() as usize % 2];
        *failed += u64::from(fails_writes || part.is_some());
        Habits { late, fails_reads: false, fails_writes, most: part }
    }
}
