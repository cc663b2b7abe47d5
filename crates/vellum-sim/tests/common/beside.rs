//! The simulated machine, apart from the `Vm` over it, so that the library's memory alone can be watched.

use std::cell::Cell;
use std::ptr::NonNull;

use vellum::addr::Pfn;
use vellum::machine::{CpuId, CpuMask, Event, Machine, MmuRules, Root, Scope, Topology, Work};
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

impl<F: Format> Machine for Beside<'_, F> {
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
    fn preempt_on(&self) {
        self.sim.preempt_on()
    }
    fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.sim.entry_load(table, slot)
    }
    fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.sim.entry_store(table, slot, raw)
    }
    fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.sim.entry_cas(table, slot, old, new)
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.sim.direct(pfn)
    }
    fn clear(&self, first: Pfn, frames: u64) {
        self.sim.clear(first, frames)
    }
    fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.sim.copy(to, from, frames)
    }
    fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        self.sim.read(pfn, offset, bytes)
    }
    fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        self.sim.write(pfn, offset, bytes)
    }
    fn load_root(&self, root: Option<Root>) {
        self.sim.load_root(root)
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
    fn hook(&self, event: Event) {
        match event {
            Event::Work(Work::Refill | Work::Block, _) => self.notes.allocator.set(true),
            Event::Work(Work::Table, _) => self.notes.table.set(true),
            _ => {}
        }
        self.sim.hook(event)
    }
}
