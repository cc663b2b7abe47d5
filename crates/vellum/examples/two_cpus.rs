//! The library under two CPUs that run at once, each a thread with a TLB in software.
//!
//! A flush is a rendezvous: who flushes counts up what it asks of each CPU and waits; a CPU answers
//! between two accesses and in `relax` (on metal: in an interrupt) by emptying its TLB. Two
//! programs store to, load from and drop the same pages, and check what they find there.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};
use vellum::entry::{Codec, Entry};
use vellum::*;
const CPUS: usize = 2;
const FRAMES: u64 = 1 << 14; // 64 MiB
const PAGES: u64 = 1024; // of the programs
thread_local! {
    static CPU: Cell<CpuId> = const { Cell::new(0) };
    static ROOT: Cell<Pfn> = const { Cell::new(Pfn(0)) };
    static TLB: RefCell<HashMap<u64, (Pfn, bool)>> = RefCell::default(); // page: frame, writable
}
struct Smp {
    topology: Topology,
    memory: NonNull<u8>,
    flushes: [[AtomicU64; 2]; CPUS], // asked of each CPU, and answered by it
}
// SAFETY: the memory is the machine's for good, and used by the rules of `Machine`.
unsafe impl Sync for Smp {}
fn zeroed(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty. The memory is kept until the program ends.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory of the host")
}
impl Smp {
    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        // SAFETY: inside a frame, aligned, and entries are touched through atomics only.
        unsafe { AtomicU64::from_ptr(self.direct(table).cast::<u64>().as_ptr().add(slot)) }
    }
    fn byte(&self, pfn: Pfn, offset: usize) -> &AtomicU8 {
        // SAFETY: inside a frame; bytes that programs share are touched through atomics only.
        unsafe { AtomicU8::from_ptr(self.direct(pfn).as_ptr().add(offset)) }
    }
    /// One access of a program: the byte there, or `None` for a page fault.
    fn access(&self, va: Va, store: Option<u8>) -> Option<u8> {
        self.relax();
        TLB.with_borrow_mut(|tlb| {
            let held = tlb.remove(&(va.0 >> 12)).filter(|held| held.1 || store.is_none());
            let (mut found, mut table, mut level) = (held, ROOT.get(), Level(4));
            while found.is_none() {
                match X86_64::decode(self.entry(table, level.slot(va)).load(Acquire), level) {
                    Entry::Table(below) => (table, level) = (below, level.child()),
                    Entry::Leaf(pfn, f) if f.accessed && (f.dirty || store.is_none()) => {
                        let page = (va.0 % level.entry_bytes()) >> 12;
                        found = Some((Pfn(pfn.0 + page), f.write && f.dirty));
                    }
                    _ => return None,
                }
            }
            tlb.insert(va.0 >> 12, found?);
            let byte = self.byte(found?.0, va.0 as usize % PAGE_SIZE);
            store.inspect(|&value| byte.store(value, Relaxed)).or_else(|| Some(byte.load(Relaxed)))
        })
    }
}
impl Hooks for Smp {}
// SAFETY: entries and shared bytes are atomics; a flush returns after each CPU asked has emptied
// its TLB between two accesses; a thread is a CPU, so nothing else runs on one.
unsafe impl Machine for Smp {
    type Codec = X86_64;
    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        MmuRules { hardware_ad: false, ..MmuRules::X86_64 }
    }
    fn cpu(&self) -> CpuId {
        CPU.get()
    }
    fn preempt_off(&self) {}
    unsafe fn preempt_on(&self) {}
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot).load(Acquire)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Release);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot).compare_exchange(old, new, AcqRel, Acquire).map(drop)
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        assert!(pfn.0 < FRAMES);
        // SAFETY: inside the memory.
        unsafe { self.memory.add(pfn.0 as usize * PAGE_SIZE) }
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the library owns the frames while it clears them.
        unsafe { self.direct(first).write_bytes(0, frames as usize * PAGE_SIZE) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        let bytes = frames as usize * PAGE_SIZE;
        // SAFETY: the target is the library's, nobody stores to the source, they do not overlap.
        unsafe { self.direct(to).copy_from_nonoverlapping(self.direct(from), bytes) }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        bytes.iter_mut().zip(offset..).for_each(|(b, at)| *b = self.byte(pfn, at).load(Relaxed));
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        bytes.iter().zip(offset..).for_each(|(&b, at)| self.byte(pfn, at).store(b, Relaxed));
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        self.flush_local(Scope::All);
        ROOT.set(root.map_or(Pfn(0), |r| r.table));
    }
    fn flush_local(&self, _scope: Scope) {
        TLB.with_borrow_mut(HashMap::clear);
    }
    fn flush_remote(&self, cpus: &CpuMask, _scope: Scope) {
        for [asked, answered] in cpus.iter().map(|cpu| &self.flushes[cpu]) {
            let asked = asked.fetch_add(1, AcqRel) + 1;
            while answered.load(Acquire) < asked {
                self.relax();
                std::thread::yield_now();
            }
        }
    }
    fn relax(&self) {
        let [asked, answered] = &self.flushes[self.cpu()];
        let asked = asked.load(Acquire);
        if answered.load(Relaxed) != asked {
            self.flush_local(Scope::All);
            answered.store(asked, Release);
        }
    }
    fn now(&self) -> u64 {
        0
    }
}
/// Two programs for so long; how many turns they made.
pub fn run(time: Duration) -> u64 {
    // A CPU that stops answering would keep the other waiting.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::abort()
    }));
    let layout = Layout::from_size_align(FRAMES as usize * PAGE_SIZE, 2 << 20).expect("a layout");
    let (topology, memory) = (Topology::flat(CPUS, Pfn(0), FRAMES), zeroed(layout));
    let machine = Smp { topology, memory, flushes: Default::default() };
    let meta = zeroed(Vm::<Smp>::layout(machine.topology()));
    // SAFETY: zeroed memory of that layout, never given back.
    let vm = unsafe { Vm::new(machine, Config::default(), meta) }.expect("a machine");
    let space = vm.create().expect("memory");
    let (attrs, at_work) = (Attrs::anonymous(Rights::READ_WRITE), AtomicUsize::new(CPUS));
    let start = vm.map(&space, Placement::Anywhere, PAGES * 4096, attrs).expect("a hole");
    let until = Instant::now() + time;
    let program = |cpu: CpuId| {
        CPU.set(cpu);
        vm.activate(&space);
        let (mut turns, mut random) = (0, cpu as u64);
        while Instant::now() < until {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (random >> 32) % PAGES;
            let (at, tag) = (start.0 + page * 4096, (page % 255 + 1) as u8);
            let access = |va: Va, store: Option<u8>| loop {
                if let Some(value) = vm.machine().access(va, store) {
                    return value;
                }
                let wanted = if store.is_some() { Access::Write } else { Access::Read };
                vm.fault(&space, va, wanted).expect("mapped, and memory is plenty");
            };
            // Each program has a byte of each page to store to, always the page's tag.
            let [own, others] = [cpu, 1 - cpu].map(|byte| Va(at + byte as u64));
            access(own, Some(tag));
            let found = access(others, None);
            assert!(found == tag || found == 0, "page {page} holds {found} of another page");
            if random >> 60 == 0 {
                vm.advise(&space, Va(at), 4096, Advice::DontNeed).expect("mapped");
                assert_eq!(access(own, None), 0, "dropped, and its owner has not stored since");
            }
            turns += 1;
        }
        vm.deactivate();
        at_work.fetch_sub(1, AcqRel);
        while at_work.load(Acquire) > 0 {
            vm.machine().relax(); // a CPU without work answers, too
        }
        turns
    };
    let turns = std::thread::scope(|scope| {
        let other = scope.spawn(|| program(1));
        program(0) + other.join().expect("an end")
    });
    println!("{turns} turns, {} flushes asked of CPU 0", vm.machine().flushes[0][0].load(Relaxed));
    // SAFETY: the other thread is gone, so no other call runs meanwhile.
    unsafe { vm.validate(&[&space]) }.expect("a valid state");
    vm.exit(space);
    turns
}
fn main() {
    run(Duration::from_secs(std::env::args().nth(1).map_or(1, |s| s.parse().expect("seconds"))));
}
