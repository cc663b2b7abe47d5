//! The simulated machine, apart from the `Vm` over it, so that the library's memory alone can be
//! watched.

use std::cell::Cell;
use std::ptr::NonNull;

use vellum::addr::{Order, Pfn};
use vellum::machine::{
    CpuId, CpuMask, Hooks, Machine, MmuRules, Root, Scope, Topology, Use, Verb, Work,
};
use vellum_sim::SimMachine;
use vellum_sim::format::Format;

/// What a fault went for beside its own node.
#[derive(Default)]
pub struct Notes {
    pub allocator: Cell<bool>,
    pub table: Cell<bool>,
}

/// The machine.
pub struct Beside<'s, F: Format> {
    pub sim: &'s SimMachine<F>,
    pub notes: &'s Notes,
}

impl<F: Format> Hooks for Beside<'_, F> {
    fn work(&self, work: Work, count: u64) {
        match work {
            Work::Refill | Work::Block => self.notes.allocator.set(true),
            Work::Table => self.notes.table.set(true),
            _ => {}
        }
        self.sim.work(work, count);
    }
    fn shared(&self, line: usize, write: bool) {
        self.sim.shared(line, write);
    }
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        // SAFETY: as the caller promises.
        unsafe { self.sim.frame(first, order, to) };
    }
    fn fill(&self, first: Pfn, frames: u64) {
        self.sim.fill(first, frames);
    }
    fn begin(&self, verb: Verb) {
        self.sim.begin(verb);
    }
    fn end(&self, verb: Verb) {
        self.sim.end(verb);
    }
}

// SAFETY: the simulated machine does the work.
unsafe impl<F: Format> Machine for Beside<'_, F> {
    type Codec = F::Codec;
    fn topology(&self) -> &Topology {
        self.sim.topology()
    }
    fn rules(&self) -> MmuRules {
        self.sim.rules()
    }
    fn cpu(&self) -> CpuId {
        self.sim.cpu()
    }
    fn preempt_off(&self) {
        self.sim.preempt_off()
    }
    unsafe fn preempt_on(&self) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.preempt_on() }
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        // SAFETY: the caller promises it.
        unsafe { self.sim.entry_load(table, slot) }
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.entry_store(table, slot, raw) }
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        // SAFETY: the caller promises it.
        unsafe { self.sim.entry_cas(table, slot, old, new) }
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.sim.direct(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.clear(first, frames) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.copy(to, from, frames) }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.read(pfn, offset, bytes) }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.write(pfn, offset, bytes) }
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        // SAFETY: the caller promises it.
        unsafe { self.sim.load_root(root) }
    }
    fn flush_local(&self, scope: Scope) {
        self.sim.flush_local(scope)
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        self.sim.flush_remote(cpus, scope)
    }
    fn relax(&self) {
        self.sim.relax()
    }
    fn now(&self) -> u64 {
        self.sim.now()
    }
}
