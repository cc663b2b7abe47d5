//! Sums over a whole trace, kept in its trailer.
//!
//! They serve twice: a screen can say "61 M accesses, 311 MiB touched" after reading 200 bytes, and
//! a reader that has decoded everything compares its own sums with them, so that a lost block is
//! noticed even if every checksum holds.
use crate::varint::{Bytes, put};

/// Sums over all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Program loads in the trace.
    pub loads: u64,
    /// Program stores in the trace.
    pub stores: u64,
    /// Accesses by the kernel for the program, one a 64-byte line.
    pub kernel: u64,
    /// Instruction lines entered.
    pub fetches: u64,
    /// Instructions that ran in those lines.
    pub instructions: u64,
    /// Program accesses left out by sampling windows.
    pub skipped_accesses: u64,
    /// Instructions left out by sampling windows.
    pub skipped_instructions: u64,
    /// Calls.
    pub calls: u64,
    /// Threads started.
    pub threads: u64,
    /// Mappings made.
    pub mappings: u64,
    /// Distinct 4096-byte pages touched, where the same page of a mapping counts once; 0 if the
    /// writer did not count.
    pub touched_pages: u64,
    /// Child processes made; what they did is not in the trace.
    pub forks: u64,
    /// Times the program replaced itself by another, 0 or 1: the trace ends there.
    pub execs: u64,
}

impl Totals {
    const FIELDS: usize = 13;
    /// The last two came later: a trailer without them says 0.
    const REQUIRED: usize = 11;

    /// Program accesses in the trace.
    pub fn accesses(&self) -> u64 {
        self.loads.saturating_add(self.stores)
    }

    /// Program accesses of the recorded run, those left out included.
    pub fn recorded_accesses(&self) -> u64 {
        self.accesses().saturating_add(self.skipped_accesses)
    }

    fn fields(&self) -> [u64; Self::FIELDS] {
        [
            self.loads,
            self.stores,
            self.kernel,
            self.fetches,
            self.instructions,
            self.skipped_accesses,
            self.skipped_instructions,
            self.calls,
            self.threads,
            self.mappings,
            self.touched_pages,
            self.forks,
            self.execs,
        ]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for f in self.fields() {
            put(&mut out, f);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Totals> {
        let mut b = Bytes::new(bytes);
        let mut f = [0u64; Self::FIELDS];
        for (i, slot) in f.iter_mut().enumerate() {
            if i >= Self::REQUIRED && b.is_empty() {
                break;
            }
            *slot = b.varint()?;
        }
        b.is_empty().then_some(Totals {
            loads: f[0],
            stores: f[1],
            kernel: f[2],
            fetches: f[3],
            instructions: f[4],
            skipped_accesses: f[5],
            skipped_instructions: f[6],
            calls: f[7],
            threads: f[8],
            mappings: f[9],
            touched_pages: f[10],
            forks: f[11],
            execs: f[12],
        })
    }

    /// The sums an independent reader can check; it cannot know `touched_pages` without keeping a
    /// set.
    pub(crate) fn countable(mut self) -> Totals {
        self.touched_pages = 0;
        self
    }
}
