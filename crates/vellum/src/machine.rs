//! What the subsystem asks of the machine below it.
//!
//! One trait, `&self` methods, no globals: a machine is a value, and two of them live in one
//! process without knowing of each other (the simulator depends on it, so do tests). Every hardware
//! act says its reach: this CPU, these CPUs, or all. Hardware that differs in kind (entry format)
//! is an associated type, so that it costs nothing on metal; hardware that differs in habit
//! ([`MmuRules`]) is a value, so that one simulator can be any of them.
//!
//! The trait is `unsafe` to implement: what the library promises about memory rests on what is said
//! there. Its methods that write memory, or tables, are `unsafe` to call, since
//! [`Vm::machine`](crate::vm::Vm::machine) hands the machine to everybody.
//!
//! What only simulators and tests want to hear is a second trait, [`Hooks`], with empty defaults.
//!
//! Rejected: traits without `self` (one machine a program), and a trait per topic (an embedder then
//! writes eight impls that share all their state).

mod act;
pub mod cpuid;
mod hooks;
mod pager;

pub(crate) use act::Act;
pub use hooks::{Hooks, USES, Use, Verb, WORKS, Work};
pub use pager::{PageAnswer, PagePart, PageRun, RUN_PAGES};

use core::ptr::NonNull;

use crate::addr::{Level, Order, Pfn, Va, VaRange};
use crate::config::Preemption;
use crate::entry::Codec;

/// CPUs a machine may have. The bound sizes [`CpuMask`]; 256 covers the largest machine in our
/// presets twice.
pub const MAX_CPUS: usize = 256;
/// Memory nodes a machine may have.
pub const MAX_NODES: usize = 16;

/// A CPU's number, from 0 to `topology().cpus - 1`.
pub type CpuId = usize;

/// A memory node: a run of frames at one distance from each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// First frame.
    pub first: Pfn,
    /// Number of frames.
    pub frames: u64,
}

/// What the machine is made of. Fixed for its life.
#[derive(Clone, Debug)]
pub struct Topology {
    /// CPUs, at least 1, at most [`MAX_CPUS`].
    pub cpus: usize,
    /// Memory nodes in use, at least 1, at most [`MAX_NODES`]; the first `nodes` items of the
    /// arrays below count.
    pub nodes: usize,
    /// The frames of each node. Nodes do not overlap.
    pub node: [NodeInfo; MAX_NODES],
    /// The node of each CPU; a node no CPU names has no CPUs (slow memory).
    pub cpu_node: [u8; MAX_CPUS],
    /// Distance from node to node in ACPI SLIT units: 10 is local.
    pub distance: [[u8; MAX_NODES]; MAX_NODES],
}

impl Topology {
    /// A machine of one node: `cpus` CPUs and the frames from `first`.
    pub const fn flat(cpus: usize, first: Pfn, frames: u64) -> Topology {
        let none = NodeInfo { first: Pfn(0), frames: 0 };
        let mut node = [none; MAX_NODES];
        node[0] = NodeInfo { first, frames };
        Topology {
            cpus,
            nodes: 1,
            node,
            cpu_node: [0; MAX_CPUS],
            distance: [[10; MAX_NODES]; MAX_NODES],
        }
    }
    /// One past the highest frame number of any node.
    pub fn frames_end(&self) -> u64 {
        self.node[..self.nodes].iter().map(|n| n.first.0 + n.frames).max().unwrap_or(0)
    }
    /// The lowest frame number of any node.
    pub fn frames_start(&self) -> u64 {
        self.node[..self.nodes].iter().map(|n| n.first.0).min().unwrap_or(0)
    }
    /// The node that holds `pfn`, if one does.
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> Option<usize> {
        (0..self.nodes).find(|&n| pfn.0.wrapping_sub(self.node[n].first.0) < self.node[n].frames)
    }
}

/// The shape of one level of data cache; any field 0: not known. It comes from firmware tables, a
/// manual or, on x86_64, [`cpuid`]; Arm's identification registers are known to lie about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheLevel {
    /// Sets, of all slices together.
    pub sets: u64,
    /// Lines in a set.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
}

impl CacheLevel {
    /// Nothing is known.
    pub const UNKNOWN: CacheLevel = CacheLevel { sets: 0, ways: 0, line: 0 };
    /// Bytes of one way, in which no two addresses share a set; 0 if not known, and no more than
    /// `u64` holds.
    #[inline]
    pub const fn way_bytes(self) -> u64 {
        self.sets.saturating_mul(self.line)
    }
    /// Bytes in all; 0 if not known.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.way_bytes().saturating_mul(self.ways)
    }
}

/// The caches a CPU's data goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caches {
    /// First level, data.
    pub l1d: CacheLevel,
    /// Second level.
    pub l2: CacheLevel,
    /// Last level.
    pub llc: CacheLevel,
}

impl Caches {
    /// Nothing is known.
    pub const UNKNOWN: Caches =
        Caches { l1d: CacheLevel::UNKNOWN, l2: CacheLevel::UNKNOWN, llc: CacheLevel::UNKNOWN };

    /// Of levels that hold data, each told with its number, the first being 1, in any order. The
    /// last level is the outermost beyond the first.
    pub fn of_levels(levels: impl IntoIterator<Item = (u32, CacheLevel)>) -> Caches {
        let (mut found, mut last) = (Caches::UNKNOWN, 1);
        for (number, level) in levels {
            match number {
                1 => found.l1d = level,
                2 => found.l2 = level,
                _ => {}
            }
            if number > last {
                (found.llc, last) = (level, number);
            }
        }
        found
    }
}

/// How translations on other CPUs are invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// An interrupt asks each CPU to do it (x86_64).
    Interrupt,
    /// One instruction reaches every CPU (aarch64, newer AMD).
    Broadcast,
}

/// What this MMU does and does not do by itself. The verbs of `space` and `tlb` read these, never
/// the architecture's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MmuRules {
    /// Levels of the page table the machine walks, 4 or 5.
    pub levels: u8,
    /// Largest leaf: 1 GiB or 2 MiB.
    pub max_leaf: Order,
    /// The walker sets the accessed and dirty bits itself. If not, a missing one is a fault, of
    /// which [`Vm::fault`](crate::vm::Vm::fault) sets it.
    pub hardware_ad: bool,
    /// A fault drops the faulting address's translation on its CPU (x86). If not,
    /// [`Vm::fault`](crate::vm::Vm::fault) does before it returns.
    pub fault_invalidates: bool,
    /// Changing address, size or table under a live entry must go through "absent, flush" first.
    pub break_before_make: bool,
    /// Address-space identifiers the TLB keeps apart, 0 when a root load flushes everything.
    /// Identifier 0 is never given.
    pub asids: u16,
    /// How other CPUs' translations are dropped.
    pub invalidation: Invalidation,
}

impl MmuRules {
    /// x86_64 with 4 levels and pages of 1 GiB, address-space identifiers (PCID) not in use.
    /// Source: Intel SDM volume 3A, 4.5 (levels and page sizes), 4.8 (accessed and dirty bits),
    /// 4.10.4.1 (a page fault drops the translation it used).
    pub const X86_64: MmuRules = MmuRules {
        levels: 4,
        max_leaf: Order::GIANT,
        hardware_ad: true,
        fault_invalidates: true,
        break_before_make: false,
        asids: 0,
        invalidation: Invalidation::Interrupt,
    };
    /// aarch64 with granules of 4 KiB, hardware-managed access flag and dirty state (FEAT_HAFDBS),
    /// and address-space identifiers of 8 bits, the least the architecture allows. Source: Arm
    /// ARM (DDI 0487), D8.5 (table descriptors), D8.16 (TLB maintenance, break-before-make).
    pub const AARCH64: MmuRules = MmuRules {
        fault_invalidates: false,
        break_before_make: true,
        asids: 256,
        invalidation: Invalidation::Broadcast,
        ..MmuRules::X86_64
    };
}

/// A space's identifier in TLBs that keep several apart; 0 where they do not, or when identifiers
/// ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asid(pub u16);

/// A root to run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The root node's frame.
    pub table: Pfn,
    /// The space's identifier.
    pub asid: Asid,
    /// Drop what this CPU still holds for `asid` while loading.
    pub flush: bool,
}

/// Which translations an invalidation drops. All of these drop walk-cache entries of the same
/// addresses too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The translation of one address, whatever its size.
    Page(Asid, Va),
    /// All translations in a range whose smallest leaf is of this level.
    Range(Asid, VaRange, Level),
    /// All of one space.
    Space(Asid),
    /// All of every space.
    All,
}

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuMask(pub [u64; MAX_CPUS / 64]);

impl CpuMask {
    /// No CPU.
    pub const EMPTY: CpuMask = CpuMask([0; MAX_CPUS / 64]);
    /// Adds a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }
    /// Takes a CPU out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.0[cpu / 64] &= !(1 << (cpu % 64));
    }
    /// Whether a CPU is in the set.
    #[inline]
    pub const fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu / 64] & (1 << (cpu % 64)) != 0
    }
    /// Whether no CPU is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }
    /// CPUs in the set.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &w)| {
            let mut w = w;
            core::iter::from_fn(move || {
                (w != 0).then(|| {
                    let bit = w.trailing_zeros() as usize;
                    w &= w - 1;
                    i * 64 + bit
                })
            })
        })
    }
}

impl core::fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What a long run of stores does to the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    /// Goes through them: someone reads the memory soon, or the run is short. On most machines fast
    /// strings.
    Cached,
    /// Goes around them, by stores that fetch nothing and leave nothing behind or by an instruction
    /// that zeroes lines. Other CPUs see them in order only after [`Machine::store_fence`].
    NonTemporal,
}

/// The machine below. Methods marked *local* act on the calling CPU only.
///
/// # Safety
/// Whoever implements it promises all of this; the library writes page tables and hands out frames
/// by it.
///
/// **Constants.** [`topology`](Machine::topology), [`rules`](Machine::rules) and
/// [`Codec`](Machine::Codec) are the truth about the hardware, and say the same at every call. The
/// frames of the topology are memory that only the library and those it gives frames to use, but
/// for those that were reserved.
///
/// **CPUs and preemption.** [`cpu`](Machine::cpu) is below `topology().cpus`. From
/// [`preempt_off`](Machine::preempt_off) to its counterpart it says the same, and nothing else that
/// calls the library runs on this CPU: no other task, and no interrupt handler but the one that
/// serves flushes. Both nest. A spin lock of the library is held like that. A kernel that runs
/// another task elsewhere in a call of the library counts that in [`switches`](Machine::switches):
/// without it memory may be refused that is free.
///
/// **Memory.** Every frame is ordinary write-back memory, shareable by all CPUs and by the table
/// walkers. Whoever maps it a second time (the kernel's direct map, a program's page) does so with
/// the same attributes, or there is one alias only. The machine's table of memory types is filled
/// as the entry format says, if there are devices. [`direct`](Machine::direct) may be called for
/// any frame number; the pointer for a frame of the topology stays valid for reads and writes as
/// long as the machine lives, also when the machine is moved.
///
/// **Entries.** A load of an entry is an acquire, a store a release, an exchange both, each of 64
/// bits at once and coherent with the walkers. What a CPU stored through
/// [`direct`](Machine::direct) before it stored an entry that leads there, every CPU and walker
/// sees that finds the entry. Where the architecture wants a barrier before walkers see a store
/// (`dsb ishst` on Arm), the flush that follows has it, and a store over an absent entry may go
/// without: the fault it causes is spurious.
///
/// **Flushes.** [`flush_local`](Machine::flush_local) and [`flush_remote`](Machine::flush_remote)
/// are *done when they return*: on each of the CPUs no later access of a program, and none that
/// began before and still runs, uses a translation of the scope, nor an entry of a walk cache for
/// one of its addresses, that was read before the call. They are ordered after the caller's earlier
/// stores to entries and before its later ones. So on Arm `dsb ishst` stands before the `TLBI`
/// instructions and `dsb ish` and `isb` after them; on x86 another CPU acknowledges after its
/// `INVLPG`. A scope names an ASID, not a root: its translations go also on CPUs that have
/// another root loaded, or none. With asids the library counts on it: it asks only CPUs that may
/// hold some.
///
/// **Interrupts.** A CPU that is asked by [`flush_remote`](Machine::flush_remote) serves the
/// request whenever interrupts are on, and always inside [`relax`](Machine::relax) and
/// `flush_remote`, whatever locks of the library it holds; the handler takes none.
///
/// **What runs beside [`copy`](Machine::copy), [`clear`](Machine::clear), [`read`](Machine::read)
/// and [`write`](Machine::write).** The target of a clear or a copy is the caller's alone. The
/// source of a copy is not: other CPUs load from it, by a program's translations and as the source
/// of another copy. Nobody stores to it: the flush of every translation that allowed it is done.
/// Programs load and store the page that `read` and `write` are about. An implementation keeps that
/// from being undefined behaviour: programs outside the Rust machine, as on metal, are no concern
/// of its; threads of the same process need atomics. Stores by these methods are seen by every CPU
/// before what the calling CPU stores later, with `Stores::NonTemporal` after
/// [`store_fence`](Machine::store_fence).
///
/// **Roots.** After [`load_root`](Machine::load_root) this CPU walks that root and no other user
/// root, not even speculatively. [`prepare_root`](Machine::prepare_root) leaves the user half
/// empty.
///
/// **The rest.** [`now`](Machine::now) and what else returns numbers decide pace and order, never
/// what may be freed. No method calls a verb of the same `Vm`, but for
/// [`sched_point`](Machine::sched_point), which may run other tasks. No method unwinds, but to end
/// a test. The same holds for the methods of [`Hooks`].
pub unsafe trait Machine: Hooks {
    /// The entry format of this MMU.
    type Codec: Codec;

    /// CPUs, nodes, distances.
    fn topology(&self) -> &Topology;
    /// The habits of this MMU.
    fn rules(&self) -> MmuRules;

    /// The data caches. They decide how many colours the shared zeros have (where nothing is known,
    /// one) and which runs are stored around them.
    fn caches(&self) -> Caches {
        Caches::UNKNOWN
    }

    /// *Local.* The CPU this runs on. Stable only between [`preempt_off`](Machine::preempt_off) and
    /// its counterpart.
    fn cpu(&self) -> CpuId;
    /// *Local.* From here the caller stays on this CPU and is not preempted. Nests.
    fn preempt_off(&self);
    /// *Local.* Undoes one `preempt_off`.
    ///
    /// # Safety
    /// The caller made that `preempt_off`, on this CPU, and has not undone it yet.
    unsafe fn preempt_on(&self);

    /// Reads an entry of a table node, with acquire order.
    ///
    /// # Safety
    /// `table` is a frame of the topology that is used as a table, and stays one meanwhile; `slot`
    /// is below 512. So for all methods that touch an entry.
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64;
    /// Writes an entry of a table node, with release order. Nothing is flushed.
    ///
    /// # Safety
    /// As for [`entry_load`](Machine::entry_load). The caller owns the entry, and whoever walks to
    /// what it says may do there what it says.
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64);
    /// Exchanges an entry if it still is `old`, with acquire-release order; otherwise says what it
    /// is. The walker's own updates of accessed and dirty bits make it fail, never get lost.
    ///
    /// # Safety
    /// As for [`entry_store`](Machine::entry_store).
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64>;

    /// A pointer to a frame whose use is [`Use::Table`], [`Use::Slab`], [`Use::ZeroTable`], or
    /// which is about to become one of them. Valid for 4096 bytes, aligned to 4096, the same for
    /// the machine's life. Of a frame that the topology has not it says anything aligned, or
    /// panics.
    fn direct(&self, pfn: Pfn) -> NonNull<u8>;
    /// Fills data frames with zeros, through the caches.
    ///
    /// # Safety
    /// The frames are of the topology, at least one, and the caller's alone.
    unsafe fn clear(&self, first: Pfn, frames: u64);
    /// Copies data frames.
    ///
    /// # Safety
    /// The frames of both runs are of the topology, at least one, and the runs do not overlap.
    /// Those copied to are the caller's alone; the others are data that nobody stores to meanwhile,
    /// and that does not become anything else.
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64);
    /// Reads bytes of one data frame.
    ///
    /// # Safety
    /// The frame is of the topology, and data that does not become anything else meanwhile;
    /// `offset + bytes.len()` is at most 4096.
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]);
    /// Writes bytes of one data frame.
    ///
    /// # Safety
    /// As for [`read`](Machine::read), and whoever owns the frame asked for it. It is none of the
    /// shared zeros.
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]);

    /// *Local.* Runs on `root` from here, or on no user root at all. Where [`MmuRules::asids`]
    /// is 0 it drops every user translation of this CPU; elsewhere only if [`Root::flush`] says so.
    ///
    /// # Safety
    /// The root is a table that [`prepare_root`](Machine::prepare_root) prepared, and it and all
    /// below it stay what they are until this CPU has loaded another and dropped what it holds for
    /// the asid. Nobody else decides what runs on this CPU.
    unsafe fn load_root(&self, root: Option<Root>);
    /// *Local.* Drops translations of this CPU; done when it returns.
    fn flush_local(&self, scope: Scope);
    /// Drops translations on `cpus` (the caller's own CPU, if in the set, included); done on all of
    /// them when it returns. Waits by [`relax`](Machine::relax). Called without locks held that an
    /// interrupt handler could want.
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope);
    /// *Local.* Serves the flush requests pending for this CPU, then pauses. Every wait loop of the
    /// library calls it.
    fn relax(&self);
    /// *Local.* A clock that never runs backwards on one CPU, in cycles.
    fn now(&self) -> u64;

    /// The preemption model in force, where the machine knows better than the switch `preempt`. It
    /// may change while running; it is asked before each portion of a long clear.
    fn preemption(&self) -> Option<Preemption> {
        None
    }
    /// A place where the caller may be rescheduled: between portions of a long clear, and while it
    /// waits for memory that another task has in hand. Called with no lock held.
    fn sched_point(&self) {}
    /// Waits while `still` says so: for a pager's answer. Called with no lock held and outside of
    /// epochs; it may return early. A machine that lets the task sleep calls `still` once more
    /// after the task was put where [`wake`](Machine::wake) of the same key finds it.
    fn wait(&self, key: u64, still: &dyn Fn() -> bool) {
        let _ = key;
        if still() {
            self.relax();
        }
    }
    /// Wakes everybody who waits for the key.
    fn wake(&self, key: u64) {
        let _ = key;
    }
    /// A run that the machine has kept and that its pager is done with, if there is one. Who waits
    /// for a page asks before each [`wait`](Machine::wait), with no lock held and outside of
    /// epochs, and answers it. For pagers that no interrupt or thread of their own answers for.
    fn page_answer(&self) -> Option<PageAnswer> {
        None
    }
    /// Starts to fill a run of an object's pages from its pager: `Some` answers at once, `None`
    /// means that the machine keeps the run and answers later. Called with no lock held, also from
    /// inside [`Objects::answer`](crate::vm::Objects::answer). The
    /// default is a machine without pagers.
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        Some(run.failed())
    }
    /// Starts to write a run of an object's pages to its pager. As [`page_in`](Machine::page_in).
    /// Programs may store to the pages meanwhile; what they store is written later once more.
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        Some(run.failed())
    }
    /// An object with that pager is gone: its last handle was given back and nobody maps it any
    /// more. No run of it is left, and none comes. Called with no lock held and outside of epochs,
    /// from inside the verb that was the last to keep it: it takes no memory of the library's.
    fn object_gone(&self, pager: u64) {
        let _ = pager;
    }
    /// *Local.* How often this CPU has gone from one task to another. Who was refused memory tells
    /// by it whether what was given back here meanwhile was all its own. The default is for kernels
    /// in which no other task runs on a CPU before a call of the library is over.
    fn switches(&self) -> u64 {
        0
    }
    /// *Local.* Whether the task that runs here is to end whatever it returns with: long work stops
    /// half-done and gives back what it took.
    fn stop_pending(&self) -> bool {
        false
    }
    /// Cycles of [`now`](Machine::now) in a microsecond; 0 where that is not known.
    fn cycles_per_us(&self) -> u64 {
        0
    }
    /// Bytes from which a run is better stored around the caches ([`Stores::NonTemporal`]): what
    /// measuring found; 0 leaves it to [`caches`](Machine::caches), half of whose second level
    /// decides (a longer run leaves little of what its user had there; measuring found the same),
    /// and where that is unknown none is; [`u64::MAX`] says that the machine has no such stores.
    fn nt_threshold(&self) -> u64 {
        u64::MAX
    }
    /// Whether the first data cache is found by virtual address and so wide that two addresses of
    /// one frame may show different bytes.
    fn aliases(&self) -> bool {
        false
    }
    /// As [`clear`](Machine::clear), for memory that programs will see at `at` (which only a
    /// machine whose caches alias must heed) and with the kind of stores that suits the run. A
    /// machine that serves interrupts inside loses no part of the run by one.
    ///
    /// # Safety
    /// As for `clear`.
    #[inline(always)]
    unsafe fn clear_run(&self, first: Pfn, frames: u64, stores: Stores, at: Va) {
        let _ = (stores, at);
        // SAFETY: the caller promises what `clear` asks.
        unsafe { self.clear(first, frames) }
    }
    /// As [`clear_run`](Machine::clear_run) for base frames that lie anywhere, each with the
    /// address it will have. Separate, since memory takes the stores of several pages in turn
    /// faster than those of one page after the other.
    ///
    /// # Safety
    /// As for `clear`, for each frame; none is named twice.
    #[inline(always)]
    unsafe fn clear_pages(&self, pages: &[(Pfn, Va)], stores: Stores) {
        // SAFETY: the caller promises for each frame what `clear_run` asks.
        pages.iter().for_each(|&(pfn, at)| unsafe { self.clear_run(pfn, 1, stores, at) });
    }
    /// As [`copy`](Machine::copy), otherwise as [`clear_run`](Machine::clear_run).
    ///
    /// # Safety
    /// As for `copy`.
    #[inline(always)]
    unsafe fn copy_run(&self, to: Pfn, from: Pfn, frames: u64, stores: Stores, at: Va) {
        let _ = (stores, at);
        // SAFETY: the caller promises what `copy` asks.
        unsafe { self.copy(to, from, frames) }
    }
    /// *Local.* Orders this CPU's stores around the caches before its later stores.
    fn store_fence(&self) {}
    /// Prepares a new root node before its first load: a kernel copies its own half here.
    ///
    /// # Safety
    /// `root` is a table of the top level, the caller's alone, and no CPU has loaded it.
    unsafe fn prepare_root(&self, root: Pfn) {
        let _ = root;
    }
}
