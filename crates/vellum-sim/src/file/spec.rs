//! The keys of a machine file, as types. Unknown keys are errors everywhere.

use serde::Deserialize;

use super::constant::Constant;
use super::units::{Bandwidth, Bytes, CpuList, Duration, Threshold};
use crate::cache::{Inclusion, Index, Policy};
use crate::tlb::PageSize;

/// A machine: everything the simulator must know of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name, as in `--machine milan`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Clock of CPUs and caches, in hertz.
    pub clock_hz: Constant<u64>,
    /// Number of CPUs, 1 to 256. Hardware threads are not modelled: a CPU is a core.
    pub cpus: Constant<u32>,
    /// CPUs that share one last-level cache.
    pub cpus_per_llc: Constant<u32>,
    /// The core.
    pub core: CoreSpec,
    /// First-level instruction cache.
    pub l1i: CacheSpec,
    /// First-level data cache.
    pub l1d: CacheSpec,
    /// Second-level cache.
    pub l2: CacheSpec,
    /// Last-level cache.
    pub llc: LlcSpec,
    /// The stream prefetcher of each core. Left out: there is none.
    pub prefetch: Option<PrefetchSpec>,
    /// TLBs and walk caches.
    pub tlb: TlbSpecs,
    /// Memory nodes, in order of their physical addresses.
    pub nodes: Vec<NodeSpec>,
    /// What memory nodes have in common.
    pub memory: MemorySpec,
    /// The MMU and its rules.
    pub mmu: MmuSpec,
    /// Fixed costs.
    pub costs: CostSpec,
    /// The disk that files are on. Left out: the machine has none.
    pub disk: Option<DiskSpec>,
    /// The file's text as a table, for [`Machine::constants`] and [`Machine::scaled`].
    #[serde(skip)]
    pub(super) tree: toml::Table,
    /// The file's name, for messages.
    #[serde(skip)]
    pub(super) file: String,
}

/// `[core]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreSpec {
    /// Misses of the first level in flight, 1 to 64.
    pub fill_buffers: Constant<u32>,
    /// Page walks in flight, 1 to 8.
    pub walkers: Constant<u32>,
    /// Instructions the core runs ahead of its oldest unfinished load.
    pub window: Constant<u32>,
    /// Stores that are issued and not in the first level yet, 1 to 256. Left out: any number.
    pub store_buffer: Option<Constant<u32>>,
    /// Time of an instruction when nothing misses (cycles an instruction).
    pub instruction: Constant<Duration>,
    /// Time a load keeps the load port. Left out: loads are instructions like others.
    pub load: Option<Constant<Duration>>,
    /// From a branch that turns out to be predicted wrongly to the first instruction behind it.
    /// Left out: nothing.
    pub mispredict: Option<Constant<Duration>>,
}

/// `[l1i]`, `[l1d]`, `[l2]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Capacity.
    pub size: Constant<Bytes>,
    /// Ways of a set, 1 to 64.
    pub ways: Constant<u32>,
    /// Load-to-use time of a hit.
    pub latency: Constant<Duration>,
    /// Who leaves a full set.
    pub policy: Constant<Policy>,
    /// How the set of a line is chosen. Left out: modulo the number of sets.
    pub index: Option<Constant<Index>>,
    /// Of `[l1d]`: time between two lines that come into one set. Left out: a line is there from
    /// the access that misses it.
    pub refill: Option<Constant<Duration>>,
    /// Of `[l1d]`: the same where the line that leaves is dirty. Left out: no more than `refill`.
    pub refill_dirty: Option<Constant<Duration>>,
    /// Of `[l1d]`: how its way is predicted. Left out: a line is found in whichever way it is.
    pub way_predictor: Option<Constant<WayPrediction>>,
}

/// How a way is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WayPrediction {
    /// By a hash of the linear address, one line of a set for each.
    Linear,
}

/// `[llc]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcSpec {
    /// Capacity of one last-level cache.
    pub size: Constant<Bytes>,
    /// Ways of a set, 1 to 64.
    pub ways: Constant<u32>,
    /// Load-to-use time of a hit.
    pub latency: Constant<Duration>,
    /// Who leaves a full set.
    pub policy: Constant<Policy>,
    /// How it relates to the private levels.
    pub inclusion: Constant<Inclusion>,
    /// Time between two lines that it gives to one core. Left out: they come at once.
    pub line: Option<Constant<Duration>>,
    /// How the set of a line is chosen. Left out: modulo the number of sets.
    pub index: Option<Constant<Index>>,
}

impl LlcSpec {
    /// What it has in common with the other levels.
    pub(super) fn cache(&self) -> CacheSpec {
        CacheSpec {
            size: self.size.clone(),
            ways: self.ways.clone(),
            latency: self.latency.clone(),
            policy: self.policy.clone(),
            index: self.index.clone(),
            refill: None,
            refill_dirty: None,
            way_predictor: None,
        }
    }
}

/// `[prefetch]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchSpec {
    /// Pages that a core's prefetcher follows at once, 1 to 256.
    pub streams: Constant<u32>,
    /// Misses of the first level in a row, in one direction within a page, after which it fetches;
    /// 2 to 63.
    pub train: Constant<u32>,
    /// Lines it is ahead of the last miss at most, 1 to 63.
    pub depth: Constant<u32>,
    /// Whether page walks train it, too. Left out: they do not.
    pub walks: Option<Constant<bool>>,
    /// Whether it follows virtual addresses from page to page, but for walks. Left out: it stays
    /// within physical pages.
    pub crosses_pages: Option<Constant<bool>>,
}

/// `[tlb]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpecs {
    /// First level, instructions.
    pub l1i: TlbSpec,
    /// First level, data.
    pub l1d: TlbSpec,
    /// Second level, for both.
    pub l2: TlbSpec,
    /// Page-walk caches.
    pub walk: WalkCacheSpec,
}

/// `[tlb.l1i]`, `[tlb.l1d]`, `[tlb.l2]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// What a hit in it adds to an access (0 for first levels).
    pub latency: Constant<Duration>,
    /// Whether page sizes without a bank are kept in pieces of a smaller size.
    pub fracture: Constant<bool>,
    /// Its banks.
    #[serde(default)]
    pub banks: Vec<TlbBank>,
}

/// One bank of a TLB.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbBank {
    /// Page sizes it holds, of "4K", "2M", "1G".
    pub sizes: Constant<Vec<PageSize>>,
    /// Entries.
    pub entries: Constant<u32>,
    /// Ways; equal to `entries` for a fully associative bank.
    pub ways: Constant<u32>,
}

/// `[tlb.walk]`: the walker, and its caches by the level of the entries they hold.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSpec {
    /// What a walk takes beside its reads: finding that it is needed, and bringing back what it
    /// found. Left out: nothing.
    pub start: Option<Constant<Duration>>,
    /// Entries that cover 2 MiB (PDE on x86).
    pub level2: Option<WalkLevel>,
    /// Entries that cover 1 GiB (PDPTE).
    pub level3: Option<WalkLevel>,
    /// Entries that cover 512 GiB (PML4E).
    pub level4: Option<WalkLevel>,
    /// Entries that cover 256 TiB (PML5E).
    pub level5: Option<WalkLevel>,
}

/// One level of walk caches.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkLevel {
    /// Entries.
    pub entries: Constant<u32>,
    /// Ways.
    pub ways: Constant<u32>,
}

/// `[[nodes]]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Memory; a multiple of 2 MiB.
    pub memory: Constant<Bytes>,
    /// Its CPUs; none for a memory-only node.
    pub cpus: Constant<CpuList>,
    /// Lines it moves in a second, as bytes.
    pub bandwidth: Constant<Bandwidth>,
}

/// `[memory]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Load-to-use time from the row's node to the column's, on an idle machine.
    pub latency: Constant<Vec<Vec<Duration>>>,
}

/// A page-table entry format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Codec {
    /// x86_64, 4 or 5 levels.
    #[serde(rename = "x86_64")]
    X86_64,
    /// aarch64, 4 KiB granule.
    #[serde(rename = "aarch64")]
    Aarch64,
}

/// How other CPUs' translations are invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Invalidation {
    /// An interrupt asks them to.
    Interrupt,
    /// One instruction reaches all.
    Broadcast,
}

/// `[mmu]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmuSpec {
    /// Entry format.
    pub codec: Constant<Codec>,
    /// Levels of the page table, 4 or 5.
    pub levels: Constant<u8>,
    /// Largest leaf.
    pub max_leaf: Constant<PageSize>,
    /// Contexts the TLBs tell apart (PCID, ASID); 0: each root load drops everything.
    pub contexts: Constant<u16>,
    /// The walker sets accessed and dirty bits.
    pub hardware_ad: Constant<bool>,
    /// Not-present entries may be cached.
    pub caches_not_present: Constant<bool>,
    /// A fault drops the faulting address's entries.
    pub fault_invalidates: Constant<bool>,
    /// Changing size or address under a live entry must go through "absent" first.
    pub break_before_make: Constant<bool>,
    /// How other CPUs are reached.
    pub invalidation: Constant<Invalidation>,
    /// Nested paging. Left out: the machine is not a guest.
    pub nested: Option<NestedSpec>,
}

/// `[mmu.nested]`: the tables of the hypervisor that this machine is a guest of.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedSpec {
    /// Size of the hypervisor's pages that back the guest.
    pub page: Constant<PageSize>,
    /// Levels of the hypervisor's tables, 4 or 5.
    pub levels: Constant<u8>,
    /// Guest-physical translations that the walker keeps.
    pub entries: Constant<u32>,
    /// Ways; equal to `entries` for a fully associative cache.
    pub ways: Constant<u32>,
    /// Caches for the entries that point to tables. Left out: none.
    #[serde(default)]
    pub walk: NestedWalkSpec,
}

/// `[mmu.nested.walk]`: walk caches of the hypervisor's tables, by the level of the entries they
/// hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedWalkSpec {
    /// Entries that cover 2 MiB.
    pub level2: Option<WalkLevel>,
    /// Entries that cover 1 GiB.
    pub level3: Option<WalkLevel>,
    /// Entries that cover 512 GiB.
    pub level4: Option<WalkLevel>,
    /// Entries that cover 256 TiB.
    pub level5: Option<WalkLevel>,
}

/// `[costs]`: what takes a fixed time.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostSpec {
    /// The sender's time for each CPU it interrupts.
    pub interrupt_send: Constant<Duration>,
    /// From sending to the first instruction of the handler.
    pub interrupt_deliver: Constant<Duration>,
    /// The handler on the target, without the flush it does.
    pub interrupt_handle: Constant<Duration>,
    /// From the handler's acknowledgement to the sender seeing it.
    pub interrupt_ack: Constant<Duration>,
    /// A broadcast invalidation, for the first CPU.
    pub broadcast_base: Constant<Duration>,
    /// What each further CPU adds to it.
    pub broadcast_per_cpu: Constant<Duration>,
    /// Invalidating one page on this CPU.
    pub flush_page: Constant<Duration>,
    /// Invalidating one context on this CPU.
    pub flush_context: Constant<Duration>,
    /// Invalidating everything on this CPU.
    pub flush_full: Constant<Duration>,
    /// Loading a root.
    pub root_load: Constant<Duration>,
    /// A scheduling point where nothing is due.
    pub sched_point: Constant<Duration>,
    /// Going to sleep and being scheduled again, without the time slept.
    pub switch: Constant<Duration>,
    /// Clearing a line of a base page that does not follow the one cleared before.
    pub clear_page_line: Constant<Duration>,
    /// Clearing a line of a base page that follows the one cleared just before: page by page from
    /// end to end.
    pub clear_next_line: Constant<Duration>,
    /// Clearing a line as part of an extent, with write-allocate.
    pub clear_extent_line: Constant<Duration>,
    /// Clearing a line without write-allocate: by non-temporal stores, or as part of an extent
    /// long enough for the core to elide it.
    pub clear_elided_line: Constant<Duration>,
    /// Clearing a line through the caches that one of them holds. Left out: as if none did.
    pub clear_cached_line: Option<Constant<Duration>>,
    /// The shortest extent for which stores through the caches elide write-allocate by themselves;
    /// 0: never.
    pub elision_threshold: Constant<Threshold>,
    /// Copying a line.
    pub copy_line: Constant<Duration>,
    /// A base page that becomes a program's: what a kernel does then beside clearing and mapping it
    /// (charging, reverse mapping, statistics). Left out: nothing.
    pub charge_page: Option<Constant<Duration>>,
    /// A base page that a program gives back. Left out: nothing.
    pub uncharge_page: Option<Constant<Duration>>,
    /// A 2 MiB page that a program gives back. Left out: nothing.
    pub uncharge_large: Option<Constant<Duration>>,
    /// A base page of an object that an entry comes to map. Left out: nothing.
    pub map_file: Option<Constant<Duration>>,
    /// A base page of an object that an entry maps no longer. Left out: nothing.
    pub unmap_file: Option<Constant<Duration>>,
    /// A system call that moves bytes between a program and the kernel, beside the bytes. Left out:
    /// `work.call`, for the call and for each verb that it takes.
    pub file_call: Option<Constant<Duration>>,
    /// A line that such a call moves, where caches hold it. Left out: `copy_line`, once where it is
    /// read and once where it is written.
    pub file_line: Option<Constant<Duration>>,
    /// What such a call takes more where it writes to a file. Left out: nothing.
    pub write_call: Option<Constant<Duration>>,
    /// A write that gives a file pages, beside the call and the pages. Left out: nothing.
    pub grow_call: Option<Constant<Duration>>,
    /// A base page of an object that comes into memory. Left out: nothing.
    pub add_file: Option<Constant<Duration>>,
    /// A base page of an object that leaves memory. Left out: nothing.
    pub drop_file: Option<Constant<Duration>>,
    /// Kernel work, piece by piece.
    pub work: WorkCosts,
}

/// `[disk]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// From the request for a read to its first byte.
    pub read_latency: Constant<Duration>,
    /// The same for a write.
    pub write_latency: Constant<Duration>,
    /// Bytes of all reads together, in a second.
    pub read_bandwidth: Constant<Bandwidth>,
    /// The same for writes.
    pub write_bandwidth: Constant<Bandwidth>,
    /// Requests under way at once; the next one waits.
    pub requests: Constant<u32>,
    /// What a request takes of the CPU, without the two context switches of who waits.
    pub cpu: Constant<Duration>,
}

/// `[costs.work]`: the price of each kind of kernel work the library reports, by the name it has
/// there.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkCosts {
    /// A fault was taken: entry, decoding, return.
    pub fault: Constant<Duration>,
    /// A verb was called by a program: entry and return.
    pub call: Constant<Duration>,
    /// One table node visited.
    pub descend: Constant<Duration>,
    /// One entry looked at in a scan.
    pub scan: Constant<Duration>,
    /// One entry written.
    pub entry: Constant<Duration>,
    /// A region found or changed.
    pub region: Constant<Duration>,
    /// A 4 KiB frame taken from this CPU's magazine, or given to it.
    pub magazine: Constant<Duration>,
    /// A magazine refilled or emptied.
    pub refill: Constant<Duration>,
    /// A larger block allocated or freed.
    pub block: Constant<Duration>,
    /// A fault served with a large page, beside clearing it.
    pub large: Constant<Duration>,
    /// A table node made or given back.
    pub table: Constant<Duration>,
    /// A lock taken that another CPU held last.
    pub contended: Constant<Duration>,
}
