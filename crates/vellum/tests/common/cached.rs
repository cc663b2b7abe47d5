//! The flat machine with caches that a test describes: nothing is cached, the library is only told
//! so.
#![allow(dead_code)]

use std::ops::Deref;
use std::ptr::NonNull;

use crate::flat::{Flat, Meta, VmHands};
use vellum::addr::{Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::machine::{
    CacheLevel, Caches, CpuId, CpuMask, Event, Machine, MmuRules, Root, Scope, Topology,
};
use vellum::space::{Attrs, Rights, Space};
use vellum::vm::Vm;

pub const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

/// Page `n` of the mapping the tests use, which begins at a multiple of every colour count.
pub fn at(n: u64) -> Va {
    Va(0x4000_0000 + n * 4096)
}

/// A level whose way has that many bytes.
pub fn way(bytes: u64) -> CacheLevel {
    CacheLevel { sets: bytes / 64, ways: 8, line: 64 }
}

pub struct Cached {
    flat: Flat,
    caches: Caches,
}

impl Cached {
    pub fn new(topology: Topology, caches: Caches) -> Cached {
        Cached { flat: Flat::new(topology, MmuRules::X86_64), caches }
    }
}

impl Deref for Cached {
    type Target = Flat;
    fn deref(&self) -> &Flat {
        &self.flat
    }
}

/// Two CPUs, one node.
pub fn machine(frames: u64, caches: Caches) -> Cached {
    Cached::new(Topology::flat(2, Pfn(512), frames), caches)
}

/// A `Vm` over it and the memory it was handed.
pub struct Lab {
    pub vm: Vm<Cached>,
    _meta: Meta,
}

pub fn lab(machine: Cached, config: Config) -> Lab {
    machine.run_on(0);
    let meta = Meta::new(Vm::<Cached>::layout(machine.topology()));
    // SAFETY: zeroed memory of that layout, kept as long as the value.
    let vm = unsafe { Vm::new(machine, config, meta.base()) }.expect("a machine that fits");
    Lab { vm, _meta: meta }
}

impl Lab {
    /// Everything adds up; the frames nobody uses.
    pub fn check(&self, spaces: &[&Space]) -> u64 {
        let audit = self.vm.audit(spaces).expect("a valid state");
        assert_eq!(audit.other_frames, 0, "frames lost");
        audit.free_frames
    }
}

// SAFETY: `Flat` does the work.
unsafe impl Machine for Cached {
    type Codec = X86_64;
    fn topology(&self) -> &Topology {
        self.flat.topology()
    }
    fn rules(&self) -> MmuRules {
        self.flat.rules()
    }
    fn caches(&self) -> Caches {
        self.caches
    }
    fn cpu(&self) -> CpuId {
        self.flat.cpu()
    }
    fn preempt_off(&self) {
        self.flat.preempt_off();
    }
    unsafe fn preempt_on(&self) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.preempt_on() }
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        // SAFETY: the caller promises it.
        unsafe { self.flat.entry_load(table, slot) }
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.entry_store(table, slot, raw) }
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        // SAFETY: the caller promises it.
        unsafe { self.flat.entry_cas(table, slot, old, new) }
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.flat.direct(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.clear(first, frames) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.copy(to, from, frames) }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.read(pfn, offset, bytes) }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.write(pfn, offset, bytes) }
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        // SAFETY: the caller promises it.
        unsafe { self.flat.load_root(root) }
    }
    fn flush_local(&self, scope: Scope) {
        self.flat.flush_local(scope);
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        self.flat.flush_remote(cpus, scope);
    }
    fn relax(&self) {
        self.flat.relax();
    }
    fn now(&self) -> u64 {
        self.flat.now()
    }
    fn hook(&self, event: Event) {
        self.flat.hook(event);
    }
}
