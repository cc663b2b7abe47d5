//! The `Machine` trait on the small machine.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{ENTRIES, Level, Order, PAGE_SIZE, Pfn};
use vellum::entry::{Codec, Entry};
use vellum::machine::{
    CpuId, CpuMask, Hooks, Invalidation, Machine, MmuRules, PageAnswer, PageRun, Root, Scope,
    Topology, Use,
};
use vellum_host::mmu::walk::Tables;

use crate::explore::footprint::{Touch, note};
use crate::explore::{Stop, is_explored, pause, tale, touch};

use super::{BYTES, Small, samples};

impl<C: Codec> Small<C> {
    pub(super) fn word(&self, frame: usize, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: the frame is one of this machine's, the slot inside it, aligned; words are
        // touched as atomics by this machine, and by one thread.
        unsafe { self.ground.base().add(frame * PAGE_SIZE).cast::<AtomicU64>().add(slot).as_ref() }
    }

    /// The library's access.
    #[inline]
    fn entry(&self, table: Pfn, slot: usize, write: bool) -> &AtomicU64 {
        if is_explored() {
            touch(Touch::entry(table.0, slot, write));
        }
        self.walked(table, slot)
    }

    /// The walker's, which with the access it is for is one act.
    #[inline]
    fn walked(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        let i = self.index(table);
        let is = self.uses[i].get();
        let table_of_some_kind = is == Use::Table as u8 || is == Use::ZeroTable as u8;
        assert!(table_of_some_kind, "{table:?} is used as a table node, and its use is {is}");
        self.soil(i);
        self.word(i, slot)
    }

    fn drop_on(&self, cpu: CpuId, scope: Scope) {
        let mut core = self.cores[cpu].borrow_mut();
        core.buffer.drop_scope(scope);
        core.cache.drop_scope(scope);
    }

    /// A live entry may not turn into another live one where break-before-make is the rule. The
    /// level is not known here, so both readings are compared where they agree.
    fn check_break(&self, old: u64, new: u64) {
        let frame = |raw| match C::decode(raw, Level::TWO) {
            Entry::Table(p) | Entry::ZeroTable(p) => Some((p, true)),
            Entry::Leaf(p, _) | Entry::Shared(p, _) | Entry::Device(p, ..) => Some((p, false)),
            _ => None,
        };
        if self.plan.rules.break_before_make
            && let (Some(was), Some(is)) = (frame(old), frame(new))
        {
            assert!(
                was == is,
                "a live entry of {was:?} became one of {is:?} without being absent and flushed \
                 first"
            );
        }
    }

    fn becomes(&self, first: Pfn, order: Order, to: Use) {
        let at = self.index(first);
        for (n, is) in self.uses[at..at + order.frames() as usize].iter().enumerate() {
            let was = is.get();
            let (free, pending) = (was == Use::Free as u8, was == Use::Pending as u8);
            let poisoned = was == Use::Poisoned as u8;
            let legal = match to {
                Use::Free => !free && !poisoned,
                Use::Pending => !free && !pending && !poisoned,
                Use::Poisoned => was == Use::Data as u8 || was == Use::Object as u8,
                _ => free,
            };
            assert!(
                legal,
                "frame {n} of {first:?}, order {}, was {was} and becomes {to:?}",
                order.get()
            );
            is.set(to as u8);
        }
        if to == Use::Free {
            self.scribble(at, order);
        }
    }

    /// Tells of an entry that is written. Its level is not known here: a leaf of 4 KiB reads as a
    /// table above.
    fn tell_entry(&self, table: Pfn, slot: usize, raw: u64) {
        tale::tell(self.cpu.get(), || {
            format!("[{:x}:{slot}] = {:x?}", table.0, C::decode(raw, Level::ONE))
        });
    }

    /// Frames of one use.
    pub fn count(&self, of: Use) -> u64 {
        self.uses.iter().filter(|is| is.get() == of as u8).count() as u64
    }
}

impl<C: Codec> Tables for Small<C> {
    fn load(&self, table: Pfn, slot: usize) -> u64 {
        note(Touch::entry(table.0, slot, false));
        self.walked(table, slot).load(Ordering::Relaxed)
    }
    fn exchange(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        note(Touch::entry(table.0, slot, true));
        self.walked(table, slot)
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| ())
    }
}

impl<C: Codec> Hooks for Small<C> {
    fn shared(&self, line: usize, write: bool) {
        if is_explored() {
            touch(Touch::word(line, write));
        }
    }
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        self.becomes(first, order, to);
    }
    /// Others may run before a block is filled: somebody may see it who should not yet.
    fn fill(&self, first: Pfn, _frames: u64) {
        touch(Touch::page(first.0, true));
    }
}

// SAFETY: one thread runs all CPUs in turns; entries lie in memory that the machine owns, pages and
// translations are its own data.
unsafe impl<C: Codec> Machine for Small<C> {
    type Codec = C;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        self.plan.rules
    }
    fn cpu(&self) -> CpuId {
        self.cpu.get()
    }
    fn preempt_off(&self) {
        self.preempt_off.set(self.preempt_off.get() + 1);
    }
    unsafe fn preempt_on(&self) {
        let depth = self.preempt_off.get().checked_sub(1);
        self.preempt_off.set(depth.expect("preempt_on without preempt_off"));
    }
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot, false).load(Ordering::Relaxed)
    }
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        let word = self.entry(table, slot, true);
        self.check_break(word.load(Ordering::Relaxed), raw);
        self.tell_entry(table, slot, raw);
        word.store(raw, Ordering::Relaxed);
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot, true).compare_exchange(
            old,
            new,
            Ordering::Relaxed,
            Ordering::Relaxed,
        )?;
        self.check_break(old, new);
        self.tell_entry(table, slot, new);
        Ok(())
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        let i = self.index(pfn);
        self.soil(i);
        // SAFETY: a frame of this machine.
        unsafe { self.ground.base().add(i * PAGE_SIZE) }
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        note(Touch::page(first.0, true));
        let (from, to) = (self.index(first), self.index(first.add(frames - 1)) + 1);
        self.data[from..to].iter().for_each(|page| page.set([0; BYTES]));
        self.wash(from, to);
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        touch(Touch::page(from.0, false));
        tale::tell(self.cpu.get(), || format!("copy {:x} to {:x}", from.0, to.0));
        (1..frames).for_each(|i| note(Touch::page(from.0 + i, false)));
        self.index(to.add(frames - 1));
        let (to, from) = (self.index(to), self.index(from));
        (0..frames as usize).for_each(|i| self.data[to + i].set(self.data[from + i].get()));
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        note(Touch::page(pfn.0, false));
        let page = self.contents(pfn);
        samples(offset, bytes.len()).for_each(|(i, at)| bytes[at] = page[i]);
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        note(Touch::page(pfn.0, true));
        let mut page = self.contents(pfn);
        samples(offset, bytes.len()).for_each(|(i, at)| page[i] = bytes[at]);
        self.data[self.index(pfn)].set(page);
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        let contexts = self.plan.rules.asids != 0;
        let scope = match root {
            _ if !contexts => Some(Scope::All),
            Some(r) if r.flush => Some(Scope::Space(r.asid)),
            _ => None,
        };
        if let Some(scope) = scope {
            self.drop_on(self.cpu.get(), scope);
        }
        self.cores[self.cpu.get()].borrow_mut().root = root;
    }
    fn flush_local(&self, scope: Scope) {
        tale::tell(self.cpu.get(), || format!("flush here: {scope:x?}"));
        self.drop_on(self.cpu.get(), scope);
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        let broadcast = self.plan.rules.invalidation == Invalidation::Broadcast;
        for cpu in (0..self.plan.cpus).filter(|&cpu| broadcast || cpus.contains(cpu)) {
            touch(Touch::tlb(cpu, true));
            tale::tell(self.cpu.get(), || format!("flush CPU {cpu}: {scope:x?}"));
            self.drop_on(cpu, scope);
        }
    }
    fn relax(&self) {
        assert!(is_explored(), "a wait, and there is nobody to wait for");
        pause(Stop::Wait);
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        assert_eq!(self.preempt_off.get(), 0, "a pager is asked with a lock held");
        self.ask_disk(run, false)
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        assert_eq!(self.preempt_off.get(), 0, "a pager is asked with a lock held");
        self.ask_disk(run, true)
    }
    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }
}
