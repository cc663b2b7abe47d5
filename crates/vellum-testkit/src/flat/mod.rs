//! A flat machine for tests: frames in one zeroed allocation, CPUs that are whatever thread says
//! so, no TLB.
//!
//! It does what the trait promises and nothing more, so a test that passes here says nothing about
//! stale translations (the simulator's oracle does) but can run on real threads, where the memory
//! model is the host's. A thread is CPU 0 until it calls [`set_cpu`]; two threads must not be the
//! same CPU at once unless the test is about that.

mod disk;
mod memory;
mod schedule;
mod whims;

pub use disk::{Block, Disk, DiskCall, Habits, Ram};
pub use memory::Meta;
pub use schedule::*;
pub use whims::{Told, Whims};

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::machine::{
    Caches, CpuId, CpuMask, Hooks, Machine, MmuRules, NodeInfo, PageAnswer, PageRun, Root, Scope,
    Topology, USES, Use,
};

/// A format of entries and the MMU that goes with it.
pub trait Arch: Codec {
    const RULES: MmuRules;
}

impl Arch for X86_64 {
    const RULES: MmuRules = MmuRules::X86_64;
}

impl Arch for Aarch64 {
    const RULES: MmuRules = MmuRules::AARCH64;
}

/// Makes a test of a function that is generic over the architecture: `on_both!(function, test)`.
#[macro_export]
macro_rules! on_both {
    ($function:ident, $test:ident) => {
        #[test]
        fn $test() {
            $function::<::vellum::entry::X86_64>();
            $function::<::vellum::entry::Aarch64>();
        }
    };
}

/// A count.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// What the machine was asked to do, so far.
#[derive(Default)]
pub struct Asked {
    pub local_flushes: Count,
    pub remote_flushes: Count,
    pub root_loads: Count,
    /// Frame of the root loaded last, on any CPU.
    last_root: AtomicU64,
    pub cleared_frames: Count,
    pub copied_frames: Count,
    /// Entries of tables that the library has read.
    pub entries_read: Count,
    pub relaxed: Count,
    /// CPU numbers asked for where the next instruction may run on another.
    pub loose_cpus: Count,
    /// Base frames given out by use (index: `Use as usize`), as the frame events tell it.
    pub became: [Count; USES],
}

/// The machine.
pub struct Flat<C: Codec = X86_64> {
    topology: Topology,
    rules: MmuRules,
    caches: Caches,
    base: NonNull<u8>,
    _memory: Meta,
    backed: u64,
    first: u64,
    clock: AtomicU64,
    /// The CPU whose task is to end.
    stopped: AtomicUsize,
    pub asked: Asked,
    pub disk: Disk,
    codec: PhantomData<C>,
}

// SAFETY: the memory behind `base` belongs to the value; who touches which bytes is the library's
// business, as on metal.
unsafe impl<C: Codec> Send for Flat<C> {}
// SAFETY: as above.
unsafe impl<C: Codec> Sync for Flat<C> {}

/// A machine of one node with `cpus` CPUs and `frames` frames from frame 512 (so that frame 0 is
/// nobody's).
pub fn flat(cpus: usize, frames: u64) -> Flat {
    flat_with(cpus, frames, MmuRules::X86_64)
}

/// The same with other rules, and another format of entries.
pub fn flat_with<C: Codec>(cpus: usize, frames: u64, rules: MmuRules) -> Flat<C> {
    Flat::new(Topology::flat(cpus, Pfn(512), frames), rules)
}

/// Nodes with those frames (first, how many); all CPUs are on node 0.
pub fn nodes(cpus: usize, ranges: &[(u64, u64)]) -> Topology {
    let mut t = Topology::flat(cpus, Pfn(0), 1);
    t.nodes = ranges.len();
    for (i, &(first, frames)) in ranges.iter().enumerate() {
        t.node[i] = NodeInfo { first: Pfn(first), frames };
        for j in 0..ranges.len() {
            t.distance[i][j] = 10 + 10 * i.abs_diff(j) as u8;
        }
    }
    t
}

impl<C: Codec> Flat<C> {
    /// From here on the task of that CPU is to end, or of none.
    pub fn stop(&self, cpu: Option<CpuId>) {
        self.stopped.store(cpu.unwrap_or(CpuId::MAX), Ordering::Relaxed);
    }

    /// A machine with that topology and those rules. Its memory is zero and costs nothing until
    /// touched.
    pub fn new(topology: Topology, rules: MmuRules) -> Self {
        let frames = topology.frames_end() - topology.frames_start();
        Self::with_frames(topology, rules, frames)
    }

    /// Says that it has those caches; nothing is cached.
    pub fn with_caches(self, caches: Caches) -> Self {
        Flat { caches, ..self }
    }

    /// As [`new`](Flat::new), but with no memory behind its frames: for tests of the allocator on
    /// machines larger than the host.
    pub fn hollow(topology: Topology, rules: MmuRules) -> Self {
        Self::with_frames(topology, rules, 0)
    }

    fn with_frames(topology: Topology, rules: MmuRules, frames: u64) -> Self {
        let first = topology.frames_start();
        let bytes = frames as usize * PAGE_SIZE;
        let memory =
            Meta::new(Layout::from_size_align(bytes, PAGE_SIZE).expect("a size that fits"));
        Flat {
            topology,
            rules,
            caches: Caches::UNKNOWN,
            base: memory.base(),
            _memory: memory,
            backed: frames,
            first,
            clock: AtomicU64::new(0),
            stopped: AtomicUsize::new(CpuId::MAX),
            asked: Asked::default(),
            disk: Disk::default(),
            codec: PhantomData,
        }
    }

    /// From here this thread is CPU `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        assert!(cpu < self.topology.cpus);
        set_cpu(cpu);
    }

    /// The root loaded last, on any CPU.
    pub fn last_root(&self) -> Pfn {
        Pfn(self.asked.last_root.load(Ordering::Relaxed))
    }

    /// How many `preempt_off` of this thread await their `preempt_on`.
    pub fn preempt_depth(&self) -> u32 {
        PREEMPT_OFF.get()
    }

    fn frame(&self, pfn: Pfn) -> NonNull<u8> {
        assert!(self.topology.node_of(pfn).is_some(), "{pfn:?} is no memory of this machine");
        assert!(pfn.0 - self.first < self.backed, "{pfn:?} has no memory behind it");
        // SAFETY: the frame lies in a node, every node inside the allocation.
        unsafe { self.base.add((pfn.0 - self.first) as usize * PAGE_SIZE) }
    }

    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: inside the frame, aligned, and entries are only ever touched as atomics.
        unsafe { self.frame(table).cast::<AtomicU64>().add(slot).as_ref() }
    }
}

impl<C: Codec> Ram for Flat<C> {
    fn fill(&self, pfn: Pfn, bytes: &[u8]) {
        // SAFETY: a page that is being read is the pager's.
        unsafe { self.write(pfn, 0, bytes) }
    }
    fn take(&self, pfn: Pfn, bytes: &mut [u8]) {
        // SAFETY: a page that is being written stays what it is.
        unsafe { self.read(pfn, 0, bytes) }
    }
}

impl<C: Codec> Hooks for Flat<C> {
    fn shared(&self, line: usize, write: bool) {
        if write {
            note_written(line);
        }
        jittered();
        step(false);
        shared_word_touched();
    }
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        step(false);
        shared_word_touched();
        assert!(self.topology.node_of(first).is_some(), "{first:?} is no memory of this machine");
        self.asked.became[to as usize].add(order.frames());
    }
}

// SAFETY: CPUs are threads that stay on theirs; entries are atomics in memory that the machine
// owns; no hardware walks them, so there are no translations to flush.
unsafe impl<C: Codec> Machine for Flat<C> {
    type Codec = C;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        self.rules
    }
    fn caches(&self) -> Caches {
        self.caches
    }
    fn cpu(&self) -> CpuId {
        if PREEMPT_OFF.get() == 0 {
            self.asked.loose_cpus.add(1);
        }
        CPU.get()
    }
    fn preempt_off(&self) {
        PREEMPT_OFF.set(PREEMPT_OFF.get() + 1);
    }
    unsafe fn preempt_on(&self) {
        let depth = PREEMPT_OFF.get();
        assert!(depth > 0, "preempt_on without preempt_off");
        PREEMPT_OFF.set(depth - 1);
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.asked.entries_read.add(1);
        self.entry(table, slot).load(Ordering::Acquire)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Ordering::Release);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.frame(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        self.frame(first.add(frames - 1));
        self.asked.cleared_frames.add(frames);
        // SAFETY: all of the run lies in the machine's memory; the library owns it while it clears.
        unsafe { self.frame(first).write_bytes(0, frames as usize * PAGE_SIZE) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.frame(to.add(frames - 1));
        self.frame(from.add(frames - 1));
        self.asked.copied_frames.add(frames);
        // SAFETY: both runs lie in the machine's memory and do not overlap, by contract.
        unsafe {
            self.frame(to).copy_from_nonoverlapping(self.frame(from), frames as usize * PAGE_SIZE)
        }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: inside one frame; `bytes` is ours and cannot overlap machine memory.
        unsafe {
            self.frame(pfn)
                .add(offset)
                .as_ptr()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        step(false);
        shared_word_touched();
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: as in `read`.
        unsafe {
            self.frame(pfn)
                .add(offset)
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        self.asked.root_loads.add(1);
        if let Some(root) = root {
            self.asked.last_root.store(root.table.0, Ordering::Relaxed);
        }
    }
    fn flush_local(&self, scope: Scope) {
        self.asked.local_flushes.add(1);
        flush_under_way(scope);
    }
    fn flush_remote(&self, _cpus: &CpuMask, scope: Scope) {
        self.asked.remote_flushes.add(1);
        flush_under_way(scope);
    }
    fn relax(&self) {
        assert_need_not_wait();
        self.asked.relaxed.add(1);
        step(true);
        std::thread::yield_now();
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        assert_eq!(PREEMPT_OFF.get(), 0, "a pager is asked with a lock held");
        asked_to_read();
        self.disk.ask(self, run, (false, CPU.get()))
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        assert_eq!(PREEMPT_OFF.get(), 0, "a pager is asked with a lock held");
        self.disk.ask(self, run, (true, CPU.get()))
    }
    fn object_gone(&self, pager: u64) {
        assert_eq!(PREEMPT_OFF.get(), 0, "a pager is told with a lock held");
        self.disk.object_gone(pager);
    }
    fn switches(&self) -> u64 {
        task_switches()
    }
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
    fn sched_point(&self) {
        assert_eq!(PREEMPT_OFF.get(), 0, "a scheduling point with a lock held");
    }
    fn stop_pending(&self) -> bool {
        step(false);
        self.stopped.load(Ordering::Relaxed) == CPU.get()
    }
}
