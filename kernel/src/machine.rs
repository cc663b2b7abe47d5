//! [`Metal`]: the library's `Machine` trait over this processor's own page tables.
//!
//! There is one CPU, with interrupts off and no ASIDs: `preempt_off` has nothing to
//! switch off, and a remote flush is a local one. The rest is real: the processor walks the entries
//! that are written, its TLB holds translations, and it sets accessed and dirty bits. `Metal`
//! counts the flushes for the tests to compare.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn, Va};
use vellum::entry::X86_64;
use vellum::machine::{
    Caches, CpuId, CpuMask, Hooks, Machine, MmuRules, PageAnswer, PageRun, Root, Scope, Stores,
    Topology,
};

use crate::arch::{PHYSMAP, cpu};

/// A range longer than this many leaves is dropped by dropping everything: an `invlpg` costs about
/// as much as two reloads.
const SINGLY: u64 = 32;
const WORDS: usize = PAGE_SIZE / 8;

/// Bytes of the one file.
pub const FILE: usize = 8 * PAGE_SIZE;
/// What the one file has, by words.
static DISK: [AtomicU64; FILE / 8] = [const { AtomicU64::new(0) }; FILE / 8];

/// The word of the file at a byte.
pub fn on_disk(offset: u64) -> &'static AtomicU64 {
    &DISK[offset as usize / 8]
}

/// The machine.
pub struct Metal {
    topology: Topology,
    rules: MmuRules,
    caches: Caches,
    kernel_root: Pfn,
    preempt_depth: AtomicU64,
    /// Addresses dropped singly so far.
    pub dropped_pages: AtomicU64,
    /// Times everything was dropped.
    pub dropped_all: AtomicU64,
    /// Frames cleared with non-temporal stores.
    pub cleared_non_temporal: AtomicU64,
}

impl Metal {
    /// The machine whose frames those are. Takes the root in force for the kernel's, and empties
    /// its user half.
    ///
    /// # Safety
    /// Nothing lives in the user half any more, and the frames are memory, seen through the
    /// physmap, that only the machine's owner uses.
    pub unsafe fn new(first: Pfn, frames: u64) -> Metal {
        let metal = Metal {
            topology: Topology::flat(1, first, frames),
            rules: MmuRules {
                max_leaf: if cpu::has_giant_pages() { Order::GIANT } else { Order::HUGE },
                ..MmuRules::X86_64
            },
            caches: cpu::caches(),
            kernel_root: Pfn(cpu::root() / PAGE_SIZE as u64),
            preempt_depth: AtomicU64::new(0),
            dropped_pages: AtomicU64::new(0),
            dropped_all: AtomicU64::new(0),
            cleared_non_temporal: AtomicU64::new(0),
        };
        for slot in 0..ENTRIES / 2 {
            metal.entry(metal.kernel_root, slot).store(0, Ordering::Release);
        }
        // SAFETY: the kernel's own root, whose user half is empty.
        unsafe { metal.load_root(None) };
        metal
    }

    /// How many `preempt_off` await their `preempt_on`.
    pub fn preempt_depth(&self) -> u64 {
        self.preempt_depth.load(Ordering::Relaxed)
    }

    fn frame(&self, pfn: Pfn) -> *mut u8 {
        debug_assert!(self.topology.node_of(pfn).is_some(), "{pfn:?} is not managed memory");
        PHYSMAP.wrapping_add(pfn.addr()) as *mut u8
    }

    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: table nodes (the kernel's root included) lie in the physmap, and entries are only
        // touched as atomics.
        unsafe { AtomicU64::from_ptr(((PHYSMAP + table.addr()) as *mut u64).add(slot)) }
    }

    fn drop_all(&self) {
        bump(&self.dropped_all, 1);
        // SAFETY: the root in force is loaded again.
        unsafe { cpu::set_root(cpu::root()) }
    }

    fn drop_page(&self, at: Va) {
        bump(&self.dropped_pages, 1);
        cpu::invlpg(at.0);
    }
}

/// Adds without a locked instruction: there is one writer.
fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Hooks for Metal {}

// SAFETY: one CPU, so nothing runs beside anything; frames lie in the physmap, which `new` was
// promised; entries are atomics, and the flushes are the processor's own instructions.
unsafe impl Machine for Metal {
    type Codec = X86_64;

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
        0
    }
    fn preempt_off(&self) {
        bump(&self.preempt_depth, 1);
    }
    unsafe fn preempt_on(&self) {
        self.preempt_depth.store(self.preempt_depth() - 1, Ordering::Relaxed);
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
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
        NonNull::new(self.frame(pfn)).expect("the physmap is not at 0")
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        self.frame(first.add(frames - 1));
        // SAFETY: the library clears only frames that are its own to give.
        unsafe { cpu::zero(self.frame(first).cast(), frames as usize * WORDS) }
    }
    unsafe fn clear_run(&self, first: Pfn, frames: u64, stores: Stores, _at: Va) {
        if stores == Stores::Cached {
            // SAFETY: the caller promises it.
            return unsafe { self.clear(first, frames) };
        }
        self.frame(first.add(frames - 1));
        bump(&self.cleared_non_temporal, frames);
        // SAFETY: as in `clear`; a frame is a multiple of 8 words.
        unsafe { cpu::zero_non_temporal(self.frame(first).cast(), frames as usize * WORDS) }
    }
    fn store_fence(&self) {
        cpu::fence();
    }
    fn nt_threshold(&self) -> u64 {
        0
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.frame(to.add(frames - 1));
        // SAFETY: two runs of managed memory that do not overlap, by the trait's contract.
        unsafe {
            self.frame(to).copy_from_nonoverlapping(self.frame(from), frames as usize * PAGE_SIZE)
        }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: inside one frame; what programs do to it meanwhile is theirs.
        unsafe {
            self.frame(pfn).add(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: as in `read`.
        unsafe { self.frame(pfn).add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        let table = root.map_or(self.kernel_root, |r| r.table);
        // SAFETY: the kernel's own root, or one whose upper half `prepare_root` copied from it.
        unsafe { cpu::set_root(table.addr()) }
    }
    fn flush_local(&self, scope: Scope) {
        match scope {
            Scope::Page(_, at) => self.drop_page(at),
            Scope::Range(_, range, level) if range.bytes() / level.entry_bytes() <= SINGLY => {
                // From the first leaf's own start: a range may begin inside a leaf, and the steps
                // must meet each.
                let mut at = range.start().align_down(level.entry_bytes());
                while at < range.end() {
                    self.drop_page(at);
                    at = Va(at.0 + level.entry_bytes());
                }
            }
            Scope::Range(..) | Scope::Space(_) | Scope::All => self.drop_all(),
        }
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        if cpus.contains(0) {
            self.flush_local(scope);
        }
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        for part in run.parts() {
            for n in 0..part.len / 8 {
                let word = on_disk(part.offset + 8 * n as u64).load(Ordering::Relaxed);
                // SAFETY: a word of a frame that is the pager's until it answers.
                unsafe { self.frame(part.frame).cast::<u64>().add(n).write(word) };
            }
        }
        let bytes = run.bytes();
        Some(run.done(bytes))
    }

    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        for part in run.parts() {
            for n in 0..part.len / 8 {
                // SAFETY: as above; with one CPU no program stores to it meanwhile.
                let word = unsafe { self.frame(part.frame).cast::<u64>().add(n).read() };
                on_disk(part.offset + 8 * n as u64).store(word, Ordering::Relaxed);
            }
        }
        let bytes = run.bytes();
        Some(run.done(bytes))
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }
    fn now(&self) -> u64 {
        cpu::cycles()
    }
    unsafe fn prepare_root(&self, root: Pfn) {
        for slot in ENTRIES / 2..ENTRIES {
            let kernels = self.entry(self.kernel_root, slot).load(Ordering::Acquire);
            self.entry(root, slot).store(kernels, Ordering::Release);
        }
    }
}
