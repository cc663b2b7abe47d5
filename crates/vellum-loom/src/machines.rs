//! The machines under the library: one with CPUs only, one with memory and TLBs.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

use crate::addr::{ENTRIES, Level, Order, PAGE_SIZE, Pfn, Va};
use crate::atomic::{AtomicU64, Ordering, contents};
use crate::config::Config;
use crate::entry::{Codec, Entry, X86_64};
use crate::fixture::{self, Memory};
use crate::machine::{
    Asid, CpuId, CpuMask, Hooks, Machine, MmuRules, Root, Scope, Topology, Use, Work,
};
use crate::sync::{Inner, Lock};
use crate::vm::Vm;

/// The address whose translations TLBs hold.
pub const PAGE: Va = Va(0x40_0000);
/// Bytes of its page.
pub const BYTES: u64 = PAGE_SIZE as u64;

/// One CPU's view of a machine that has nothing but CPUs. Each thread has its own.
pub struct OneCpu(pub CpuId);

impl Hooks for OneCpu {
    fn work(&self, work: Work, _: u64) {
        if work == Work::Refill
            && let Some(act) = FILLED.take()
        {
            act();
        }
    }
}

// SAFETY: locks, epochs and the allocator ask for CPU numbers and tables of no page; each thread
// has a CPU of its own.
unsafe impl Machine for OneCpu {
    type Codec = X86_64;

    fn cpu(&self) -> CpuId {
        self.0
    }
    fn preempt_off(&self) {}
    unsafe fn preempt_on(&self) {}
    fn relax(&self) {
        fixture::relax();
    }
    fn now(&self) -> u64 {
        0
    }
    fn topology(&self) -> &Topology {
        unreachable!("locks ask for no topology")
    }
    fn rules(&self) -> MmuRules {
        unreachable!("locks ask for no rules")
    }
    unsafe fn entry_load(&self, _: Pfn, _: usize) -> u64 {
        unreachable!("locks load no entry")
    }
    unsafe fn entry_store(&self, _: Pfn, _: usize, _: u64) {
        unreachable!("locks store no entry")
    }
    unsafe fn entry_cas(&self, _: Pfn, _: usize, _: u64, _: u64) -> Result<(), u64> {
        unreachable!("locks exchange no entry")
    }
    fn direct(&self, _: Pfn) -> NonNull<u8> {
        unreachable!("locks have no frames")
    }
    unsafe fn clear(&self, _: Pfn, _: u64) {}
    unsafe fn copy(&self, _: Pfn, _: Pfn, _: u64) {}
    unsafe fn read(&self, _: Pfn, _: usize, _: &mut [u8]) {}
    unsafe fn write(&self, _: Pfn, _: usize, _: &[u8]) {}
    unsafe fn load_root(&self, _: Option<Root>) {}
    fn flush_local(&self, _: Scope) {}
    fn flush_remote(&self, _: &CpuMask, _: Scope) {}
}

thread_local! {
    static FILLED: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Runs `body`, a task that fills a magazine. While it still holds the magazine, another task
/// preempts it and runs `act`.
pub fn preempted(act: impl FnOnce() + 'static, body: impl FnOnce()) {
    FILLED.set(Some(Box::new(act)));
    body();
    assert!(FILLED.take().is_none(), "no magazine was filled");
}

/// Frames with memory behind them: those of tables and slabs, which are allocated first.
const BACKED: u64 = 64;
/// Asids that a TLB keeps apart, on a machine that has them.
const CONTEXTS: u16 = 4;

/// A CPU's root, and its TLB for one address. The lock makes a walk and an interrupt exclude each
/// other.
struct Cpu {
    lock: Lock<Inner>,
    /// The root's frame + 1, 0 for none.
    root: AtomicU64,
    asid: AtomicU64,
    /// For each asid the leaf that the last walk found, 0 for none.
    tlb: [AtomicU64; CONTEXTS as usize],
}

impl Cpu {
    fn drop_context(&self, asid: Asid) {
        self.tlb[asid.0 as usize].store(0, Ordering::Relaxed);
    }
}

/// Two CPUs with TLBs over the frames of one node.
///
/// It orders memory no more than hardware must. A walk loads entries with acquire order, since each
/// load depends on the one before. An invalidation is asked for and answered. A root is loaded
/// without a barrier.
///
/// A page that is read, and a frame that changes its use, are told to `contents`: loom stops where
/// a CPU reads a page that is another owner's.
pub struct Metal {
    topology: Topology,
    asids: u16,
    frames: NonNull<u8>,
    cpus: [Cpu; 2],
}

// SAFETY: one thread at a time works with it.
unsafe impl Send for Metal {}
// SAFETY: as above.
unsafe impl Sync for Metal {}

impl Metal {
    /// A machine of that many frames, whose TLBs keep asids apart or do not.
    fn new(memory: &mut Memory, frames: u64, asids: bool) -> Metal {
        let backed = Layout::from_size_align(BACKED as usize * PAGE_SIZE, PAGE_SIZE);
        let cpu = || Cpu {
            lock: Lock::new(),
            root: AtomicU64::new(0),
            asid: AtomicU64::new(0),
            tlb: [const { AtomicU64::new(0) }; CONTEXTS as usize],
        };
        Metal {
            topology: Topology::flat(2, Pfn(0), frames),
            asids: if asids { CONTEXTS } else { 0 },
            frames: memory.take(backed.expect("a layout")),
            cpus: [cpu(), cpu()],
        }
    }

    /// The library on such a machine.
    pub fn vm(memory: &mut Memory, frames: u64, asids: bool) -> Vm<Metal> {
        let metal = Metal::new(memory, frames, asids);
        let meta = memory.take(Vm::<Metal>::layout(metal.topology()));
        // SAFETY: zeroed memory of that layout, which is never freed.
        unsafe { Vm::new(metal, Config::default(), meta) }.expect("a machine")
    }

    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: inside the frame, aligned, and entries are touched as atomics only.
        unsafe { self.direct(table).cast::<AtomicU64>().add(slot).as_ref() }
    }

    /// Runs `act` on a CPU between two instructions of its own.
    fn on<R>(&self, cpu: CpuId, act: impl FnOnce(&Cpu) -> R) -> R {
        let it = &self.cpus[cpu];
        it.lock.lock_raw(self);
        let result = act(it);
        // SAFETY: taken above.
        unsafe { it.lock.unlock_raw(self) };
        result
    }

    fn drop_on(&self, cpu: CpuId, scope: Scope) {
        let asids = match scope {
            Scope::Page(asid, va) if va == PAGE => asid.0..asid.0 + 1,
            Scope::Range(asid, range, _) if range.contains(PAGE) => asid.0..asid.0 + 1,
            Scope::Space(asid) => asid.0..asid.0 + 1,
            Scope::All => 0..CONTEXTS,
            _ => return,
        };
        self.on(cpu, |it| asids.for_each(|asid| it.drop_context(Asid(asid))));
    }

    /// A program on this CPU reads the page, by its TLB or by a walk. Returns the frame; `None` if
    /// it faults, or if no space runs here.
    pub fn touch(&self) -> Option<Pfn> {
        self.on(self.cpu(), |it| {
            let root = Pfn(it.root.load(Ordering::Relaxed).checked_sub(1)?);
            let held = &it.tlb[it.asid.load(Ordering::Relaxed) as usize];
            if held.load(Ordering::Relaxed) == 0 {
                held.store(self.walk(root)?, Ordering::Relaxed);
            }
            let leaf = X86_64::decode(held.load(Ordering::Relaxed), Level::ONE);
            let Entry::Leaf(pfn, _) = leaf else { panic!("a TLB holds {leaf:?}") };
            contents(pfn.0, false);
            Some(pfn)
        })
    }

    /// The page's leaf, as hardware finds it.
    fn walk(&self, root: Pfn) -> Option<u64> {
        let mut table = root;
        for level in (1..=4).rev().map(Level) {
            contents(table.0, false);
            // SAFETY: the walk names tables that entries name.
            let raw = unsafe { self.entry_load(table, level.slot(PAGE)) };
            match X86_64::decode(raw, level) {
                Entry::Table(next) => table = next,
                Entry::Leaf(..) => return Some(raw),
                _ => return None,
            }
        }
        None
    }
}

impl Hooks for Metal {
    unsafe fn frame(&self, first: Pfn, _: Order, _: Use) {
        // The frame's next owner may write it.
        contents(first.0, true);
    }
}

// SAFETY: entries, frames and roots are words that loom watches; a flush drops what a CPU holds
// before it returns.
unsafe impl Machine for Metal {
    type Codec = X86_64;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        MmuRules { max_leaf: Order::HUGE, asids: self.asids, ..MmuRules::X86_64 }
    }
    fn cpu(&self) -> CpuId {
        fixture::cpu()
    }
    fn preempt_off(&self) {}
    unsafe fn preempt_on(&self) {}
    fn relax(&self) {
        fixture::relax();
    }
    fn now(&self) -> u64 {
        0
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot).load(Ordering::Acquire)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Ordering::Release);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        let entry = self.entry(table, slot);
        entry.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        assert!(pfn.0 < BACKED, "{pfn:?} has no memory behind it");
        // SAFETY: inside the memory of `new`.
        unsafe { self.frames.add(pfn.0 as usize * PAGE_SIZE) }
    }
    unsafe fn clear(&self, first: Pfn, _: u64) {
        contents(first.0, true);
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, _: u64) {
        contents(from.0, false);
        contents(to.0, true);
    }
    unsafe fn read(&self, pfn: Pfn, _: usize, _: &mut [u8]) {
        contents(pfn.0, false);
    }
    unsafe fn write(&self, pfn: Pfn, _: usize, _: &[u8]) {
        contents(pfn.0, true);
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        self.on(self.cpu(), |it| {
            it.root.store(root.map_or(0, |root| root.table.0 + 1), Ordering::Relaxed);
            let asid = root.map_or(Asid(0), |root| root.asid);
            it.asid.store(asid.0.into(), Ordering::Relaxed);
            if self.asids == 0 || root.is_some_and(|root| root.flush) {
                it.drop_context(asid);
            }
        });
    }
    fn flush_local(&self, scope: Scope) {
        self.drop_on(self.cpu(), scope);
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        cpus.iter().for_each(|cpu| self.drop_on(cpu, scope));
    }
}
