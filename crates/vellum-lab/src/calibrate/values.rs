//! The constants that simulated runs decide.

/// The page size of the hypervisor's tables.
pub type Nested = Option<&'static str>;

/// Times in nanoseconds; where one is not known, nothing is charged.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Values {
    /// The page size by which a hypervisor backs this guest.
    pub nested: Nested,
    /// What a walk takes beside its reads.
    pub walk_start: f64,
    /// By how much steps of chases through page tables are off at the worst, as a share.
    pub walks_off: f64,
    /// Page walks that go on at once, where chases show it.
    pub walkers: Option<u32>,
    /// How many lines the prefetcher runs ahead; 0: there is none.
    pub depth: u32,
    /// A fault taken and returned from.
    pub fault: f64,
    /// A call that makes or unmakes a mapping.
    pub call: f64,
    /// A page that becomes a program's, and one that is given back.
    pub charge_page: f64,
    /// See [`charge_page`](Values::charge_page).
    pub uncharge_page: f64,
    /// A fault served by a huge page, beside the fault and clearing; not known where the kernel
    /// gave none.
    pub large: Option<f64>,
    /// A huge page that is given back; not known there either.
    pub uncharge_large: Option<f64>,
    /// A page of a file that an entry comes to map, and one that it maps no longer; not known where
    /// there was none.
    pub map_file: Option<f64>,
    /// See [`map_file`](Values::map_file).
    pub unmap_file: Option<f64>,
    /// What system calls on files take; not known where there was none.
    pub calls: Option<CallPrices>,
    /// A line copied at copy-on-write.
    pub copy_line: f64,
}

/// Prices of system calls that move bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CallPrices {
    /// The call.
    pub call: f64,
    /// A line that it moves.
    pub line: f64,
    /// What a write takes more.
    pub write: f64,
    /// A write that gives a file pages.
    pub grow: f64,
    /// A page of a file that comes into memory, and one that leaves it.
    pub add: f64,
    /// See [`add`](CallPrices::add).
    pub drop: f64,
}
