//! A page cache: an object whose contents a pager has, here a vector of bytes.
//!
//! The machine is like the one of `embed.rs`, and has the two methods of a pager. Run it with
//! `cargo run --example files`.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use vellum::{
    Access, Attrs, Config, CpuId, CpuMask, FaultError, Hooks, Machine, MmuRules, NoZeroTables,
    ObjectPart, PAGE_SIZE, PageAnswer, PageRun, Pfn, Placement, Rights, Root, Scope, Topology, Va,
    Vm, X86_64,
};

const FRAMES: usize = 1 << 13; // 32 MiB

struct Flat {
    topology: Topology,
    memory: &'static [AtomicU64],
    file: RefCell<Vec<u8>>,
    is_broken: Cell<bool>,
}

fn words(bytes: usize) -> &'static [AtomicU64] {
    // Room to begin at a multiple of 4096.
    let words: &[AtomicU64] = Vec::leak((0..bytes / 8 + 512).map(|_| AtomicU64::new(0)).collect());
    &words[words.as_ptr().align_offset(PAGE_SIZE)..][..bytes / 8]
}

impl Flat {
    fn at(&self, pfn: Pfn, offset: usize) -> *mut u8 {
        let frame = &self.memory[pfn.0 as usize * 512..][..512];
        frame.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset)
    }
    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        &self.memory[table.0 as usize * 512..][..512][slot]
    }
}

impl Hooks for Flat {}
// SAFETY: one thread and no hardware: nothing runs beside anything, there is nothing to flush.
unsafe impl Machine for Flat {
    type Codec = NoZeroTables<X86_64>;
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
        self.entry(table, slot).load(SeqCst)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, SeqCst);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot).compare_exchange(old, new, SeqCst, SeqCst).map(drop)
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
        unsafe { self.at(to, 0).copy_from(self.at(from, 0), frames as usize * PAGE_SIZE) }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: inside one frame, as the contract says.
        unsafe { bytes.as_mut_ptr().copy_from(self.at(pfn, offset), bytes.len()) }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `read`.
        unsafe { self.at(pfn, offset).copy_from(bytes.as_ptr(), bytes.len()) }
    }
    unsafe fn load_root(&self, _root: Option<Root>) {}
    fn flush_local(&self, _scope: Scope) {}
    fn flush_remote(&self, _cpus: &CpuMask, _scope: Scope) {}
    fn relax(&self) {}
    fn now(&self) -> u64 {
        0
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        if self.is_broken.get() {
            return Some(run.failed());
        }
        let file = self.file.borrow();
        for part in run.parts() {
            let bytes = &file[part.offset as usize..][..part.len];
            // SAFETY: the frame is the pager's until it answers.
            unsafe { self.write(part.frame, 0, bytes) };
        }
        let bytes = run.bytes();
        Some(run.done(bytes))
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        let mut file = self.file.borrow_mut();
        for part in run.parts() {
            let bytes = &mut file[part.offset as usize..][..part.len];
            // SAFETY: the frame stays what it is until the pager answers.
            unsafe { self.read(part.frame, 0, bytes) };
        }
        let bytes = run.bytes();
        Some(run.done(bytes))
    }
}

fn main() {
    let topology = Topology::flat(1, Pfn(0), FRAMES as u64);
    let layout = Vm::<Flat>::layout(&topology);
    let file = RefCell::new(b"line one\nline two\n".to_vec());
    let memory = words(FRAMES * PAGE_SIZE);
    let machine = Flat { topology, memory, file, is_broken: Cell::new(false) };
    let meta = NonNull::from(words(layout.size().next_multiple_of(8))).cast();
    // SAFETY: zeroed memory of that layout, never given back.
    let vm = unsafe { Vm::new(machine, Config::default(), meta) }.expect("a machine");
    let (objects, on_disk) = (vm.objects(), || vm.machine().file.borrow().clone());

    let file = objects.create_paged(on_disk().len() as u64, 1).expect("memory");
    let (editor, viewer) = (vm.create().expect("memory"), vm.create().expect("memory"));
    let (at, page) = (Placement::At(Va(0x40_0000)), PAGE_SIZE as u64);
    let (attrs, part) =
        (Attrs::anonymous(Rights::READ_WRITE), ObjectPart { object: &file, offset: 0 });
    let va = vm.map_object(&editor, at, page, attrs, part).expect("a hole");
    vm.map_private(&viewer, at, page, attrs, part).expect("a hole");

    vm.machine().is_broken.set(true);
    assert_eq!(vm.fault(&editor, va, Access::Read), Err(FaultError::Io));
    vm.machine().is_broken.set(false);

    vm.copy_in(&editor, va, b"LINE").expect("a file that can be read");
    let mut line = [0; 8];
    vm.copy_out(&viewer, va, &mut line).expect("the same page");
    assert_eq!((&line, &on_disk()[..8]), (b"LINE one", &b"line one"[..]));
    vm.copy_in(&viewer, va, b"mine").expect("memory for a copy");
    objects.sync(&file, 0, u64::MAX).expect("a file that can be written");
    assert_eq!(on_disk(), b"LINE one\nline two\n");
    assert_eq!(objects.evict(&file, 0, u64::MAX), 1);
    println!("{:?}, and the file: {}", objects.usage(&file), on_disk().escape_ascii());
}
