//! By which constant of the machine file each tick of a CPU was charged.
//!
//! The clock moves for one reason at a time, and each but waiting for others has a constant, so
//! that all charges add up to the clock. Where several accesses are on their way at once, a wait
//! belongs to the level that served the one that is waited for, from its beginning on, less the
//! part for which its translation is to blame. That part is divided as all translations are, by
//! what their walks read and where it was. So a charge says how much of the time hangs on a
//! constant: in proportion, as long as the constant does not change what overlaps with what.

use vellum::machine::{WORKS, Work};

use crate::cache::Level;
use crate::memory::{Ticks, Waits};

/// A constant that time is charged by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Price {
    Instruction,
    LoadPort,
    Mispredict,
    L1,
    L2,
    Llc,
    Memory,
    /// Hits of the second-level TLB.
    TlbL2,
    /// Walks, beside their reads.
    WalkStart,
    /// The memory's, where it and not the core limits a run that is cleared or copied.
    Bandwidth,
    FlushPage,
    FlushContext,
    FlushFull,
    InterruptSend,
    InterruptHandle,
    Broadcast,
    BroadcastPerCpu,
    RootLoad,
    SchedPoint,
    ClearPage,
    ClearNext,
    ClearExtent,
    ClearElided,
    ClearCached,
    Copy,
    ChargePage,
    UnchargePage,
    UnchargeLarge,
    MapFile,
    UnmapFile,
    FileCall,
    FileLine,
    WriteCall,
    GrowCall,
    AddFile,
    DropFile,
    Disk,
    /// Other CPUs, or the disk, are waited for.
    Waiting,
    /// The first of the kinds of work; see [`Price::work`].
    Fault,
}

/// Their keys in machine files, work excepted.
const KEYS: [&str; Price::Fault as usize] = [
    "core.instruction",
    "core.load",
    "core.mispredict",
    "l1d.latency",
    "l2.latency",
    "llc.latency",
    "memory.latency",
    "tlb.l2.latency",
    "tlb.walk.start",
    "nodes.bandwidth",
    "costs.flush_page",
    "costs.flush_context",
    "costs.flush_full",
    "costs.interrupt_send",
    "costs.interrupt_handle",
    "costs.broadcast_base",
    "costs.broadcast_per_cpu",
    "costs.root_load",
    "costs.sched_point",
    "costs.clear_page_line",
    "costs.clear_next_line",
    "costs.clear_extent_line",
    "costs.clear_elided_line",
    "costs.clear_cached_line",
    "costs.copy_line",
    "costs.charge_page",
    "costs.uncharge_page",
    "costs.uncharge_large",
    "costs.map_file",
    "costs.unmap_file",
    "costs.file_call",
    "costs.file_line",
    "costs.write_call",
    "costs.grow_call",
    "costs.add_file",
    "costs.drop_file",
    "disk.cpu",
    "waiting",
];

/// Those of work, in the order of [`Work`].
const WORK_KEYS: [&str; WORKS] = [
    "costs.work.fault",
    "costs.work.call",
    "costs.work.descend",
    "costs.work.scan",
    "costs.work.entry",
    "costs.work.region",
    "costs.work.magazine",
    "costs.work.refill",
    "costs.work.block",
    "costs.work.large",
    "costs.work.table",
    "costs.work.contended",
];

/// Number of prices.
pub(crate) const PRICES: usize = KEYS.len() + WORKS;

/// What a CPU was charged so far; its core has its own part.
#[derive(Clone, Copy)]
pub(crate) struct Charges {
    /// By constant, on the program's account and on others.
    pub(crate) sums: [[Ticks; PRICES]; 2],
    /// What the core waited for on others than the program's.
    pub(crate) elsewhere: Waits,
    /// What it had waited for when the account changed last.
    pub(crate) marked: Waits,
}

impl Charges {
    pub(crate) const NONE: Charges =
        Charges { sums: [[Ticks::ZERO; PRICES]; 2], elsewhere: Waits::NONE, marked: Waits::NONE };
}

impl Price {
    /// The place of a kind of work among all prices.
    pub(crate) fn work(work: Work) -> usize {
        KEYS.len() + work as usize
    }

    /// That of a wait for a level.
    pub(crate) fn of_level(level: Level) -> Price {
        match level {
            Level::L1 => Price::L1,
            Level::L2 => Price::L2,
            Level::Llc => Price::Llc,
            Level::Memory => Price::Memory,
        }
    }
}

/// All keys, in the order of charges. `waiting` stands for no constant.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(WORK_KEYS)
}
