//! The machine on which instructions are counted: one CPU, no TLB, methods of a few instructions.
//!
//! The cost of the machine's methods is the embedder's, so here it is close to nothing: an entry is
//! one load or store, a flush increments a counter, clearing and copying do nothing. The host
//! machine of the other benchmarks polls for interrupts and checks addresses at every call; a fault
//! on it takes a third more instructions.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{Order, PAGE_SIZE, Pfn};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::machine::{
    CpuId, CpuMask, Hooks, Machine, MmuRules, PageAnswer, PageRun, Root, Scope, Topology,
};
use vellum::vm::Vm;

use crate::memory::Memory;

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// CPUs; only the first ever runs.
    pub cpus: usize,
    /// Frames, of which only table nodes and slabs are ever touched.
    pub frames: u64,
    /// Levels of page tables.
    pub levels: u8,
    /// `file.around`, if it is not the default.
    pub around: Option<Order>,
}

/// One CPU, 1 GiB, four levels.
pub const SMALL: Size = Size { cpus: 1, frames: 1 << 18, levels: 4, around: None };

/// One CPU without a TLB. It trusts the library: no address is checked, as on metal.
pub struct Flat {
    topology: Topology,
    levels: u8,
    base: NonNull<u8>,
    /// What `base` points to.
    _memory: Memory,
    cpu: AtomicU64,
    preempt: AtomicU64,
    flushes: AtomicU64,
}

impl Flat {
    #[inline]
    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        // SAFETY: the library names only table nodes, frames of this memory, and slots below 512.
        unsafe { self.direct(table).cast::<AtomicU64>().add(slot).as_ref() }
    }
    #[inline]
    fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Hooks for Flat {}

// SAFETY: one thread, no programs and so no translations; entries are atomics in memory that the
// machine owns, and the bytes of pages are nobody's.
unsafe impl Machine for Flat {
    type Codec = X86_64;
    #[inline]
    fn topology(&self) -> &Topology {
        &self.topology
    }
    #[inline]
    fn rules(&self) -> MmuRules {
        MmuRules { levels: self.levels, ..MmuRules::X86_64 }
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.cpu.load(Ordering::Relaxed) as CpuId
    }
    #[inline]
    fn preempt_off(&self) {
        Flat::add(&self.preempt, 1);
    }
    #[inline]
    unsafe fn preempt_on(&self) {
        Flat::add(&self.preempt, u64::MAX);
    }
    #[inline]
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot).load(Ordering::Acquire)
    }
    #[inline]
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Ordering::Release);
    }
    #[inline]
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
    #[inline]
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        // SAFETY: every frame of the topology lies in the memory.
        unsafe { self.base.add(pfn.0 as usize * PAGE_SIZE) }
    }
    #[inline]
    unsafe fn clear(&self, _first: Pfn, _frames: u64) {}
    #[inline]
    unsafe fn copy(&self, _to: Pfn, _from: Pfn, _frames: u64) {}
    #[inline]
    unsafe fn read(&self, _pfn: Pfn, _offset: usize, _bytes: &mut [u8]) {}
    #[inline]
    unsafe fn write(&self, _pfn: Pfn, _offset: usize, _bytes: &[u8]) {}
    #[inline]
    unsafe fn load_root(&self, _root: Option<Root>) {}
    #[inline]
    fn flush_local(&self, _scope: Scope) {
        Flat::add(&self.flushes, 1);
    }
    #[inline]
    fn flush_remote(&self, _cpus: &CpuMask, _scope: Scope) {
        Flat::add(&self.flushes, 1);
    }
    #[inline]
    fn relax(&self) {
        std::hint::spin_loop();
    }
    #[inline]
    fn now(&self) -> u64 {
        0
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        let bytes = run.bytes();
        Some(run.done(bytes))
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        self.page_in(run)
    }
}

/// The subsystem on it, with everything at its default.
pub struct Bench {
    /// The subsystem.
    pub vm: Vm<Flat>,
    /// What it lives in; it goes last.
    _metadata: Memory,
}

/// Boots it.
///
/// # Errors
/// The system has no memory for it.
pub fn boot(size: Size) -> io::Result<Bench> {
    let memory = Memory::new(size.frames as usize * PAGE_SIZE, false)?;
    let machine = Flat {
        topology: Topology::flat(size.cpus, Pfn(0), size.frames),
        levels: size.levels,
        base: memory.base(),
        _memory: memory,
        cpu: AtomicU64::new(0),
        preempt: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
    };
    let metadata = Memory::new(Vm::<Flat>::layout(machine.topology()).size(), false)?;
    let usual = Config::default();
    let config = Config { file_around: size.around.unwrap_or(usual.file_around), ..usual };
    // SAFETY: zeroed, long enough, aligned to 2 MiB, and it outlives the value beside it.
    let vm = unsafe { Vm::new(machine, config, metadata.base()) };
    Ok(Bench { vm: vm.map_err(|e| io::Error::other(e.to_string()))?, _metadata: metadata })
}
