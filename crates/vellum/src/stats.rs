//! Counters, one block a CPU, read as a sum.
//!
//! Each CPU adds to its own block, so that counting never shares a written cache line; a reader
//! sums the blocks and may see a sum that no instant had. Names are those of Linux's `/proc/vmstat`
//! where it has one. Gauges (`nr_*` of pages) are kept the same way: a CPU's part may be negative,
//! only the sum means something.

use core::sync::atomic::{AtomicI64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter or gauge.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        impl Counter {
            /// Every counter, in the order they are printed.
            pub const ALL: &[Counter] = &[$(Counter::$variant,)*];
            /// The counter's public name.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Faults served, of every kind.
    Faults = "pgfault",
    /// Faults refused: no region, or not the right.
    FaultsRefused = "pgfault_refused",
    /// Faults that found the entry already as they needed it.
    FaultsSpurious = "pgfault_spurious",
    /// Faults served by the shared zero page.
    FaultsZero = "zero_page_fault",
    /// Of those, faults served by the shared huge page of zeros.
    FaultsZeroHuge = "thp_zero_page_fault",
    /// Of those, faults served by a table of zeros: a shared one, or one of 512 entries made for
    /// it.
    FaultsZeroTable = "zero_table_fault",
    /// Private tables made because shared tables of zeros were written below, or split.
    ZeroTableUnshare = "zero_table_unshare",
    /// Write faults that copied a shared page.
    CowCopies = "cow_copy",
    /// Write faults that kept the page, its last user being the one who faulted.
    CowReuses = "cow_reuse",
    /// Base frames allocated, a larger block counting all its frames.
    Alloc = "pgalloc",
    /// Base frames freed.
    Free = "pgfree",
    /// Allocations from the node that was wanted.
    NumaHit = "numa_hit",
    /// Allocations from another node than was wanted.
    NumaMiss = "numa_miss",
    /// Huge pages given at a fault.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that wanted a huge page and got a base page.
    ThpFaultFallback = "thp_fault_fallback",
    /// Huge pages made from base pages.
    ThpCollapse = "thp_collapse_alloc",
    /// Huge mappings split into base mappings.
    ThpSplit = "thp_split_pmd",
    /// Times the huge page of zeros was made.
    ThpZeroAlloc = "thp_zero_page_alloc",
    /// Times there was no memory for it, and base pages were used.
    ThpZeroAllocFailed = "thp_zero_page_alloc_failed",
    /// Times it was given back.
    ThpZeroRelease = "thp_zero_page_release",
    /// Mappings of it that became a table of base zeros.
    ThpZeroSplit = "thp_zero_page_split",
    /// Flush calls that had to reach another CPU.
    FlushRemote = "nr_tlb_remote_flush",
    /// Local flushes of everything, of a whole space, or of a range of several pages. Linux counts
    /// each page of a range as a flush of a single page.
    FlushLocalAll = "nr_tlb_local_flush_all",
    /// Local flushes of single pages.
    FlushLocalOne = "nr_tlb_local_flush_one",
    /// Gauge: anonymous base pages mapped, a shared page once for each mapping.
    AnonPages = "nr_anon_pages",
    /// Gauge: anonymous huge pages mapped, in 2 MiB units.
    AnonHuge = "nr_anon_transparent_hugepages",
    /// Gauge: frames that are table nodes of a space.
    TablePages = "nr_page_table_pages",
    /// Gauge: frames that are slab memory.
    SlabPages = "nr_slab",
    /// Gauge: base frames taken out of use because they are suspected bad.
    FramesPoisoned = "frames_poisoned",
    /// Times that was asked of shared zeros, in whatever form, and refused.
    PoisonSkippedZero = "poison_skipped_zero",
    /// Gauge: pages of objects that anonymous memory is behind.
    ShmemPages = "nr_shmem",
    /// Gauge: blocks of 2 MiB among them.
    ShmemHugePages = "nr_shmem_hugepages",
    /// Blocks of 2 MiB that were made for objects.
    ThpFileAlloc = "thp_file_alloc",
    /// Times that such a block was wanted, and there was none.
    ThpFileFallback = "thp_file_fallback",
    /// Leaves of 2 MiB that map such a block.
    ThpFileMapped = "thp_file_mapped",
    /// Such blocks that have become single pages.
    ThpSplitPage = "thp_split_page",
    /// Gauge: pages of objects that are the kernel's own memory.
    KernelPages = "object_kernel_pages",
    /// Gauge: pages of objects that a pager is behind.
    FilePages = "nr_file_pages",
    /// Gauge: blocks of 2 MiB among them.
    FileHugePages = "nr_file_hugepages",
    /// Gauge: pages of objects that were written since their pager last had them, or since they
    /// were last harvested.
    DirtyPages = "nr_dirty",
    /// Pages that became so by a write.
    Dirtied = "nr_dirtied",
    /// Gauge: pages that pagers are writing.
    WritebackPages = "nr_writeback",
    /// Pages that pagers have written.
    Written = "nr_written",
    /// KiB that pagers have read.
    PageIn = "pgpgin",
    /// KiB that pagers have written.
    PageOut = "pgpgout",
    /// Faults for which a pager had to read.
    MajorFaults = "pgmajfault",
    /// Pages that pagers have read before anybody wanted them.
    ReadaheadPages = "readahead_pages",
    /// Gauge: those of them that nobody has mapped, read or written so far, freed ones included.
    ReadaheadUnused = "readahead_unused",
    /// Runs that a pager could not write.
    WritebackErrors = "writeback_errors",
    /// Gauge: pages of objects that at least one entry of 4 KiB maps, and 512 for each block that
    /// at least one of 2 MiB maps. A page that is mapped in both ways counts twice.
    Mapped = "nr_mapped",
    /// Gauge: pages of objects that entries map, one for each entry, and 512 for each of 2 MiB:
    /// what they add to the resident sets of all spaces.
    ObjectRss = "nr_object_rss",
    /// Gauge: nodes of tries, those that wait to be freed included.
    ObjectNodes = "object_nodes",
    /// Nodes of tries that lookups and cursors have visited.
    ObjectNodeVisits = "object_node_visits",
    /// Cursors that went on at the node they had kept while the guard was not held.
    CursorKept = "cursor_kept",
    /// Cursors that began at the root again, since a node had left the trie meanwhile.
    CursorRestarted = "cursor_restarted",
}

/// Number of counters.
pub const COUNTERS: usize = Counter::ALL.len();

/// Places in a CPU's block: a power of two, so that a CPU's block is found by a shift.
const PLACES: usize = 64;

const _: () = assert!(COUNTERS <= PLACES && PLACES.is_power_of_two());

/// One CPU's counters; a whole number of cache lines.
#[repr(C, align(64))]
pub struct CpuCounters([AtomicI64; PLACES]);

impl CpuCounters {
    /// Adds to a counter. To be called by the CPU that owns the block, preemption off; a plain load
    /// and store.
    #[inline]
    pub fn add(&self, counter: Counter, n: i64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

/// A reading of every counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats([i64; COUNTERS]);

impl Stats {
    /// The sums over `cpus`.
    pub fn sum(cpus: &[CpuCounters]) -> Stats {
        let mut sum = [0i64; COUNTERS];
        for cpu in cpus {
            for (s, c) in sum.iter_mut().zip(&cpu.0) {
                *s = s.wrapping_add(c.load(Ordering::Relaxed));
            }
        }
        Stats(sum)
    }
    /// Adds what is counted elsewhere (the frame allocator counts in lines it writes anyway).
    pub fn add(&mut self, counter: Counter, n: i64) {
        self.0[counter as usize] = self.0[counter as usize].wrapping_add(n);
    }
    /// One counter's value.
    pub fn get(&self, counter: Counter) -> i64 {
        self.0[counter as usize]
    }
}
