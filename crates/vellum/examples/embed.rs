//! The library under a machine of your own: what a kernel has to bring, and what it gets.
//!
//! The machine is a `Vec` of memory with one CPU and no TLB. On metal the same methods are an
//! atomic load, `invlpg`, `rep stosb`, a write to CR3, and an interrupt to other CPUs. Run it with
//! `cargo run --example embed`.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::{
    Access, Advice, Attrs, Config, Counter, CpuId, CpuMask, ENTRIES, Fault, Hooks, Level, Machine,
    MmuRules, NoZeroTables, PAGE_SIZE, Page, Pfn, Placement, Rights, Root, Scope, Space, Topology,
    Va, Vm, X86_64,
};

const FRAMES: u64 = 1 << 15; // 128 MiB

struct Flat {
    topology: Topology,
    memory: NonNull<u8>,
}

impl Flat {
    fn new() -> Flat {
        let memory = zeroed(FRAMES as usize * PAGE_SIZE, 2 << 20);
        Flat { topology: Topology::flat(1, Pfn(0), FRAMES), memory }
    }
    fn at(&self, pfn: Pfn, offset: usize) -> *mut u8 {
        assert!(pfn.0 < FRAMES && offset < PAGE_SIZE);
        // SAFETY: inside the memory of `new`.
        unsafe { self.memory.as_ptr().add(pfn.0 as usize * PAGE_SIZE + offset) }
    }
    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: inside a frame, aligned, and the library touches entries through atomics only.
        unsafe { AtomicU64::from_ptr(self.at(table, slot * 8).cast()) }
    }
}

fn zeroed(bytes: usize, align: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes, align).expect("a layout");
    // SAFETY: the layout is not empty. The memory is kept until the program ends.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory of the host")
}

impl Hooks for Flat {}
// SAFETY: one thread and no hardware: nothing runs beside anything, there is nothing to flush.
unsafe impl Machine for Flat {
    type Codec = NoZeroTables<X86_64>; // `zero.huge` stays `page` or `off` here
    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        MmuRules::X86_64
    }
    fn cpu(&self) -> CpuId {
        0
    }
    fn preempt_off(&self) {}
    unsafe fn preempt_on(&self) {}
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot).load(Ordering::Acquire)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Ordering::Release);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        NonNull::new(self.at(pfn, 0)).expect("memory is not at 0")
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the library owns the frames while it clears them.
        unsafe { self.at(first, 0).write_bytes(0, frames as usize * PAGE_SIZE) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        // SAFETY: as in `clear`; the runs do not overlap.
        unsafe {
            self.at(to, 0).copy_from_nonoverlapping(self.at(from, 0), frames as usize * PAGE_SIZE)
        }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: inside one frame, as the contract says.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.at(pfn, offset), bytes.len()) }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `read`.
        unsafe { self.at(pfn, offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
    unsafe fn load_root(&self, _root: Option<Root>) {}
    fn flush_local(&self, _scope: Scope) {}
    fn flush_remote(&self, _cpus: &CpuMask, _scope: Scope) {}
    fn relax(&self) {
        std::hint::spin_loop();
    }
    fn now(&self) -> u64 {
        0
    }
}

fn main() {
    let machine = Flat::new();
    let layout = Vm::<Flat>::layout(machine.topology());
    // SAFETY: zeroed memory of that layout, never given back.
    let vm = unsafe { Vm::new(machine, Config::default(), zeroed(layout.size(), layout.align())) }
        .expect("a machine");
    // SAFETY: one thread, so no other call runs meanwhile.
    let validate = |spaces: &[&Space]| unsafe { vm.validate(spaces) }.expect("a valid state");
    vm.exit(vm.create().expect("the first space makes the shared zeros"));
    let before = validate(&[]);

    let space = vm.create().expect("memory");
    vm.activate(&space);
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let heap = vm.map(&space, Placement::Anywhere, 64 << 20, attrs).expect("a hole");
    let small = Va(0x40_0000);
    vm.map(&space, Placement::At(small), 16 * PAGE_SIZE as u64, attrs).expect("a hole");
    assert_eq!(vm.fault(&space, small, Access::Read), Ok(Fault::Zero));
    assert_eq!(vm.fault(&space, small, Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(vm.fault(&space, Va(small.0 + 4096), Access::Write), Ok(Fault::Base));
    assert_eq!(vm.fault(&space, heap, Access::Write), Ok(Fault::Huge));
    vm.copy_in(&space, small, b"of the parent").expect("mapped memory");

    let child = vm.fork(&space).expect("memory");
    vm.copy_in(&child, small, b"of the child!").expect("mapped memory");
    let mut text = [0; 13];
    vm.copy_out(&space, small, &mut text).expect("mapped memory");
    assert_eq!(&text, b"of the parent");
    assert_eq!(vm.fault(&space, small, Access::Write), Ok(Fault::Reused(Level::ONE)));

    vm.advise(&space, heap, 64 << 20, Advice::DontNeed).expect("mapped memory");
    vm.unmap(&space, heap, 1 << 20).expect("memory to cut a promise of 2 MiB");
    assert_eq!(vm.query(&space, heap), Page::Unmapped);
    let audit = validate(&[&space, &child]);
    println!("while two spaces share pages: {audit:?}");
    vm.exit(child);
    vm.exit(space);

    let after = validate(&[]);
    assert_eq!((after.free_frames, after.other_frames), (before.free_frames, 0));
    let per_gib = layout.size() as u64 * (1 << 30) / (FRAMES * PAGE_SIZE as u64);
    let percent = per_gib as f64 / (1u64 << 30) as f64 * 100.0;
    println!("page faults served: {}", vm.stats().get(Counter::Faults));
    println!("free frames before and after: {}, {}", before.free_frames, after.free_frames);
    println!("metadata: {per_gib} bytes per GiB managed ({percent:.2} %)");
}
