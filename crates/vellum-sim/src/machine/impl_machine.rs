//! [`Machine`] for [`SimMachine`]: the library's side.
//!
//! At every call, CPUs may change turns and due flush requests are served, as an interrupt could
//! come between any two instructions. The cheap checks are made here: table accesses only to
//! tables, frames in range.

use core::ptr::NonNull;

use vellum::addr::{Order, Pfn, Va};
use vellum::config::Preemption;
use vellum::machine::{
    CacheLevel, Caches, CpuId, CpuMask, Hooks, Invalidation, Machine, MmuRules, PageAnswer,
    PageRun, Root, Scope, Stores, Topology, Use, Verb, Work,
};

use super::SimMachine;
use super::fills::FillNote;
use crate::cpu::{Account, Price};
use crate::format::Format;
use crate::oracle::{Bug, Rule};
use crate::tlb::PageSize;

/// Frames cleared between two moments at which an interrupt can arrive: some 20,000 bytes, a
/// microsecond or two.
const SLICE: u64 = 4;

impl<F: Format> SimMachine<F> {
    fn in_memory(&self, first: Pfn, frames: u64, what: &str) -> bool {
        let end = self.state.with(|s| s.ram.own());
        let inside = first.0.checked_add(frames).is_some_and(|e| e <= end);
        if !inside {
            self.act(|s, c| {
                s.fail(
                    c,
                    Rule::Contract,
                    None,
                    Some(first.0),
                    format!("{what} of {frames} frames past the end of memory, or of a device"),
                )
            });
        }
        inside
    }
}

impl<F: Format> Hooks for SimMachine<F> {
    #[inline]
    fn work(&self, work: Work, count: u64) {
        self.state.with(|s| s.work(self.current.get(), work, count))
    }

    #[inline]
    fn shared(&self, _: usize, _: bool) {
        self.point_if_hunting();
    }

    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        self.act(|s, c| {
            if s.bug == Some(Bug::Leak)
                && to == Use::Free
                && order == Order::BASE
                && s.planted == 0
                && s.oracle.uses[first.0 as usize] == Use::Data as u8
            {
                s.planted += 1;
                return;
            }
            s.charge_frame(c, first, order, to);
            s.frame_event(c, first, order, to);
        });
    }

    fn fill(&self, first: Pfn, frames: u64) {
        self.act(|s, c| s.note_fill(c, FillNote::Range { first, frames }));
    }

    fn begin(&self, verb: Verb) {
        self.point();
        self.act(|s, c| s.begin(c, verb));
    }

    fn end(&self, verb: Verb) {
        self.act(|s, c| s.end(c, verb));
        self.point();
    }
}

// SAFETY: one thread runs all CPUs in turns; memory, walkers and translations are the simulator's
// own data, and the oracle compares what they do with what the contract says.
unsafe impl<F: Format> Machine for SimMachine<F> {
    type Codec = F::Codec;

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn rules(&self) -> MmuRules {
        let mmu = self.state.with(|s| s.mmu);
        MmuRules {
            levels: mmu.levels,
            max_leaf: if mmu.max_leaf == PageSize::G1 { Order::GIANT } else { Order::HUGE },
            hardware_ad: mmu.sets_accessed && mmu.sets_dirty,
            fault_invalidates: mmu.fault_invalidates,
            break_before_make: mmu.break_before_make,
            asids: mmu.contexts,
            invalidation: if mmu.broadcast {
                Invalidation::Broadcast
            } else {
                Invalidation::Interrupt
            },
        }
    }

    fn caches(&self) -> Caches {
        self.state.with(|s| {
            let [l1d, l2, llc] = s.caches.geometry().map(|g| CacheLevel {
                sets: g.sets,
                ways: g.ways.into(),
                line: 64,
            });
            Caches { l1d, l2, llc }
        })
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        self.current.get()
    }

    fn preempt_off(&self) {
        self.state.with(|s| s.cpus[self.current.get()].preempt_off += 1);
    }

    unsafe fn preempt_on(&self) {
        self.act(|s, c| match s.cpus[c].preempt_off.checked_sub(1) {
            Some(n) => s.cpus[c].preempt_off = n,
            None => s.fail(c, Rule::Contract, None, None, "preempt_on without preempt_off".into()),
        });
    }

    #[inline]
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.point();
        debug_assert!(slot < 512);
        self.state.with(|s| s.ram.load(table.addr() | (slot as u64) << 3))
    }

    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.point();
        self.act(|s, c| {
            let address = table.addr() | (slot as u64) << 3;
            let old = s.ram.load(address);
            s.idle_rounds = 0;
            if s.loses_store(old, raw, table.0) {
                return;
            }
            s.ram.store(address, raw);
            s.stored(c, table.0, slot, old, raw);
            s.after_store(c, old, raw, table.0);
        });
    }

    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.point();
        self.act(|s, c| {
            let address = table.addr() | (slot as u64) << 3;
            let seen = s.ram.load(address);
            if seen != old {
                return Err(seen);
            }
            s.idle_rounds = 0;
            if s.loses_store(old, new, table.0) {
                return Ok(());
            }
            s.ram.store(address, new);
            s.stored(c, table.0, slot, old, new);
            s.after_store(c, old, new, table.0);
            Ok(())
        })
    }

    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.state.with(|s| s.ram.page(pfn.0))
    }

    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.clear_run(first, frames, Stores::Cached, Va(0)) }
    }

    unsafe fn clear_run(&self, first: Pfn, frames: u64, stores: Stores, _at: Va) {
        self.point();
        if !self.in_memory(first, frames, "a clear") {
            return;
        }
        let Some(way) = self.act(|s, c| {
            s.note_fill(c, FillNote::Run { first, frames, stores });
            s.clear_way(c, first.0, frames, stores)
        }) else {
            return;
        };
        let mut done = 0;
        while done < frames {
            // An interrupt does not wait for the end of a run.
            let slice = SLICE.min(frames - done);
            self.act(|s, c| s.clear(c, first.0 + done, slice, way));
            done += slice;
            if done < frames {
                self.point();
            }
        }
    }

    fn store_fence(&self) {
        self.act(|s, c| s.settle(c));
    }

    fn preemption(&self) -> Option<Preemption> {
        self.state.with(|s| s.preemption)
    }

    fn stop_pending(&self) -> bool {
        self.state.with(|s| s.cpus[self.current.get()].stop_pending)
    }

    fn cycles_per_us(&self) -> u64 {
        self.state.with(|s| s.clock_hz / 1_000_000)
    }

    fn nt_threshold(&self) -> u64 {
        0
    }

    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.point();
        if self.in_memory(to, frames, "a copy") && self.in_memory(from, frames, "a copy") {
            self.act(|s, c| s.copy(c, to.0, from.0, frames));
        }
    }

    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        self.point();
        if !self.in_memory(pfn, 1, "a read") {
            return;
        }
        self.act(|s, c| {
            s.ram.read(pfn.0, offset, bytes);
            s.kernel_bytes(c, pfn.0, offset, bytes.len(), crate::cache::Kind::Load);
        });
    }

    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        self.point();
        if !self.in_memory(pfn, 1, "a write") {
            return;
        }
        self.act(|s, c| {
            if s.oracle.uses[pfn.0 as usize] == Use::Zero as u8 {
                return s.fail(
                    c,
                    Rule::Zero,
                    None,
                    Some(pfn.0),
                    "the kernel writes into the shared zero frame".into(),
                );
            }
            s.ram.write(pfn.0, offset, bytes);
            s.contents.write(pfn.0, offset, bytes.len());
            s.forget_written();
            s.kernel_bytes(c, pfn.0, offset, bytes.len(), crate::cache::Kind::Store);
        });
    }

    unsafe fn load_root(&self, root: Option<Root>) {
        self.point();
        self.act(|s, c| s.load_root(c, root));
    }

    fn flush_local(&self, scope: Scope) {
        self.point();
        self.act(|s, c| {
            if s.bug == Some(Bug::SkippedLocalFlush) {
                s.planted += 1;
                return;
            }
            s.invalidate(c, scope);
        });
    }

    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        self.point();
        self.flush_others(cpus, scope);
    }

    fn relax(&self) {
        self.pause(Account::Idle);
    }

    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        self.point();
        self.act(|s, c| s.begin_io(c, run, false))
    }

    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        self.point();
        self.act(|s, c| s.begin_io(c, run, true))
    }

    fn page_answer(&self) -> Option<PageAnswer> {
        self.point();
        self.act(|s, c| s.end_io(c))
    }

    fn wait(&self, _key: u64, still: &dyn Fn() -> bool) {
        if still() && self.state.with(|s| s.disk.next_due().is_some()) {
            self.pause(Account::Io);
        } else if still() {
            self.relax();
        }
    }

    fn now(&self) -> u64 {
        self.state.with(|s| s.cpus[self.current.get()].core.now().cycles())
    }

    fn sched_point(&self) {
        self.point();
        self.act(|s, c| s.note_fill(c, FillNote::Point));
        self.state.with(|s| {
            let cost = s.costs.sched_point;
            s.cpus[self.current.get()].charge(Price::SchedPoint, cost);
        });
    }
}
