//! The `Machine` trait on threads.
//!
//! Every method that touches shared state polls for interrupts first. `cpu` and the preemption
//! guard do not poll: they are on the allocator's hot path, and an interrupt may arrive one call
//! later.

use std::hint::spin_loop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vellum::addr::{ENTRIES, Level, Order, PAGE_SIZE, Pfn, Va};
use vellum::entry::{Codec, Entry};
use vellum::machine::{
    Caches, CpuId, CpuMask, Hooks, Invalidation, Machine, MmuRules, PageAnswer, PageRun, Root,
    Scope, Stores, Topology, Use,
};

use super::{Host, INACCESSIBLE, MISSED, PREEMPT_OFF, bindings};
use crate::stores::{copies, fence};

/// Pages of the longest run that is cleared like single pages: the neighbourhood of a fault.
const SHORT: u64 = 5;
/// Turns of a wait loop before the waiter yields to the system.
const SPINS: u32 = 50;
/// The content of freed memory when the plan scribbles. As a table entry, it names a frame that
/// no machine here has.
const JUNK: u64 = 0x000f_eeee_eeee_e023;

impl<C: Codec, const WATCH: bool> Host<C, WATCH> {
    /// Serves the requests pending for this CPU, and pauses now and then (jitter).
    #[inline]
    pub(super) fn poll(&self) {
        let cpu = self.bound_cpu();
        if self.cpus[cpu].flags.load(Ordering::Relaxed) != 0 {
            self.serve(cpu);
        }
        if WATCH && self.plan.jitter != 0 {
            self.pause();
        }
    }

    #[cold]
    pub(super) fn serve(&self, cpu: CpuId) {
        let mut flags = self.cpus[cpu].flags.swap(0, Ordering::AcqRel);
        while flags != 0 {
            let from = flags.trailing_zeros() as usize;
            flags &= flags - 1;
            let slot = &self.cpus[cpu].ipis[from];
            let (n, scope) = slot.take();
            self.drop_here(scope);
            slot.acknowledge(n);
        }
    }

    pub(super) fn drop_here(&self, scope: Scope) {
        self.local(|l| {
            l.buffer.drop_scope(scope);
            l.cache.drop_scope(scope);
        });
    }

    #[cold]
    fn pause(&self) {
        self.give_up_if_poisoned();
        let (now, how) = self.local(|l| (l.jitter.once_in(self.plan.jitter), l.jitter.below(400)));
        match (now, how) {
            (false, _) => {}
            (true, 0..100) => std::thread::yield_now(),
            (true, 100..360) => (0..how).for_each(|_| spin_loop()),
            // Long enough for another CPU to get through a whole verb.
            (true, _) => {
                let until = Instant::now() + Duration::from_micros(how - 340);
                while Instant::now() < until {
                    spin_loop();
                }
            }
        }
    }

    /// The place where a thread waits is printed when another failed, or when nothing moved for too
    /// long.
    fn give_up_if_poisoned(&self) {
        // A device answers all the same: who is at his end may have lent it memory.
        let gives_up = || !std::thread::panicking() && !bindings::bound(self.id).is_device;
        if self.is_poisoned() && gives_up() {
            panic!("another CPU of this machine panicked, or nothing moved for too long");
        }
    }

    /// Waits until `cpu` served request `n` of this CPU, or is parked and will drop everything when
    /// it wakes.
    fn wait_for(&self, cpu: CpuId, me: CpuId, n: u64) {
        let target = &self.cpus[cpu];
        while !target.ipis[me].is_served(n) {
            let state = target.state.load(Ordering::Acquire);
            if state & INACCESSIBLE != 0
                && target
                    .state
                    .compare_exchange(state, state + MISSED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            self.relax();
        }
    }

    /// A live entry may not turn into another live one where break-before-make is the rule. The
    /// node's level is not known here, so both readings are compared where they agree: the frame,
    /// and whether a node above level 1 changed between table and leaf.
    fn check_break(&self, old: u64, new: u64) {
        let frame = |raw| match C::decode(raw, Level::TWO) {
            Entry::Table(p) | Entry::ZeroTable(p) => Some((p, true)),
            Entry::Leaf(p, _) | Entry::Shared(p, _) | Entry::Device(p, ..) => Some((p, false)),
            _ => None,
        };
        if let (Some(was), Some(is)) = (frame(old), frame(new)) {
            assert!(
                was == is,
                "a live entry of {:?} became one of {:?} without being absent and flushed first",
                was,
                is
            );
        }
    }
}

impl<C: Codec, const WATCH: bool> Hooks for Host<C, WATCH> {
    #[inline(always)]
    fn shared(&self, _: usize, _: bool) {
        if WATCH {
            self.poll();
        }
    }
    #[inline(always)]
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        if WATCH {
            self.watch.set(first, order, to);
            if to == Use::Free && self.plan.scribble {
                self.scribble(first);
                self.scribble(first.add(order.frames() - 1));
            }
        }
    }
}

// SAFETY: CPUs are threads that stay bound; entries and programs' words are atomics in
// memory that the machine owns, other bytes are moved by instructions; a flush returns when each
// CPU's thread has dropped what it holds, or will before it goes on.
unsafe impl<C: Codec, const WATCH: bool> Machine for Host<C, WATCH> {
    type Codec = C;

    #[inline]
    fn topology(&self) -> &Topology {
        &self.topology
    }
    #[inline]
    fn rules(&self) -> MmuRules {
        self.plan.rules
    }
    fn caches(&self) -> Caches {
        self.plan.caches
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        self.bound_cpu()
    }
    #[inline]
    fn preempt_off(&self) {
        if WATCH {
            PREEMPT_OFF.set(PREEMPT_OFF.get() + 1);
        }
    }
    #[inline]
    unsafe fn preempt_on(&self) {
        if WATCH {
            let depth = PREEMPT_OFF.get().checked_sub(1);
            PREEMPT_OFF.set(depth.expect("preempt_on without preempt_off"));
        }
    }

    #[inline]
    unsafe fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.poll();
        self.word(table, slot).load(Ordering::Acquire)
    }
    #[inline]
    unsafe fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.poll();
        let word = self.word(table, slot);
        if WATCH && self.plan.rules.break_before_make {
            self.check_break(word.load(Ordering::Relaxed), raw);
        }
        word.store(raw, Ordering::Release);
    }
    #[inline]
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.poll();
        self.word(table, slot).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)?;
        if WATCH && self.plan.rules.break_before_make {
            self.check_break(old, new);
        }
        Ok(())
    }

    #[inline]
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.frame(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.clear_run(first, frames, Stores::Cached, Va(0)) }
    }
    #[inline]
    unsafe fn clear_run(&self, first: Pfn, frames: u64, stores: Stores, _at: Va) {
        self.poll();
        let at = self.frames(first, frames);
        if !self.plan.moves_bytes {
            return;
        }
        let clears = &self.plan.clears;
        let method = match stores {
            Stores::NonTemporal => clears.non_temporal,
            Stores::Cached if frames <= SHORT => clears.page,
            Stores::Cached => clears.run,
        };
        // SAFETY: the run is inside the mapping and the library owns it while it clears. The plan's
        // methods exist: `Host::new` looked.
        unsafe { method.clear(at.as_ptr(), frames as usize * PAGE_SIZE) }
    }
    unsafe fn clear_pages(&self, pages: &[(Pfn, Va)], stores: Stores) {
        let (fours, rest) = pages.as_chunks();
        let fours =
            if stores == Stores::NonTemporal && self.plan.moves_bytes { fours } else { &[] };
        for four in fours {
            self.poll();
            // SAFETY: frames of the mapping, all different, which the library owns while it clears;
            // `Host::new` saw that the method exists.
            unsafe {
                let scattered = self.plan.clears.scattered;
                scattered.clear_four(four.map(|(pfn, _)| self.frame(pfn).as_ptr()))
            }
        }
        let rest = if fours.is_empty() { pages } else { rest };
        // SAFETY: the caller promises it.
        rest.iter().for_each(|&(pfn, at)| unsafe { self.clear_run(pfn, 1, stores, at) });
    }
    #[inline]
    fn store_fence(&self) {
        fence();
    }
    fn nt_threshold(&self) -> u64 {
        self.plan.clears.from
    }
    fn cycles_per_us(&self) -> u64 {
        clock_rate()
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        // SAFETY: the caller promises it.
        unsafe { self.copy_run(to, from, frames, Stores::Cached, Va(0)) }
    }
    #[inline]
    unsafe fn copy_run(&self, to: Pfn, from: Pfn, frames: u64, stores: Stores, _at: Va) {
        self.poll();
        let (to, from) = (self.frames(to, frames).as_ptr(), self.frames(from, frames).as_ptr());
        if !self.plan.moves_bytes {
            return;
        }
        let bytes = frames as usize * PAGE_SIZE;
        // SAFETY: both runs are inside the mapping and do not overlap, and nobody writes the source
        // meanwhile, by contract.
        unsafe {
            match stores {
                Stores::Cached => copies::through(to, from, bytes),
                Stores::NonTemporal => copies::non_temporal(to, from, bytes),
            }
        }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        self.poll();
        assert!(offset + bytes.len() <= PAGE_SIZE);
        each(offset, bytes.len(), |at, whole| {
            let i = at - offset;
            if whole {
                let word = self.word(pfn, at / 8).load(Ordering::Relaxed);
                bytes[i..i + 8].copy_from_slice(&word.to_ne_bytes());
            } else {
                bytes[i] = self.byte(pfn, at).load(Ordering::Relaxed);
            }
        });
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        self.poll();
        assert!(offset + bytes.len() <= PAGE_SIZE);
        each(offset, bytes.len(), |at, whole| {
            let i = at - offset;
            if whole {
                let mut word = [0; 8];
                word.copy_from_slice(&bytes[i..i + 8]);
                self.word(pfn, at / 8).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            } else {
                self.byte(pfn, at).store(bytes[i], Ordering::Relaxed);
            }
        });
    }

    unsafe fn load_root(&self, root: Option<Root>) {
        self.poll();
        let contexts = self.plan.rules.asids != 0;
        self.local(|l| {
            let scope = match root {
                _ if !contexts => Some(Scope::All),
                Some(r) if r.flush => Some(Scope::Space(r.asid)),
                _ => None,
            };
            if let Some(scope) = scope {
                l.buffer.drop_scope(scope);
                l.cache.drop_scope(scope);
            }
            l.root = root;
        });
    }
    fn flush_local(&self, scope: Scope) {
        self.poll();
        self.drop_here(scope);
    }
    fn flush_remote(&self, cpus: &CpuMask, scope: Scope) {
        self.poll();
        let me = self.bound_cpu();
        let broadcast = self.plan.rules.invalidation == Invalidation::Broadcast;
        let wanted = |cpu: CpuId| broadcast || cpus.contains(cpu);
        let mut numbers = [0; super::MAX_HOST_CPUS];
        for cpu in (0..self.plan.cpus).filter(|&c| c != me && wanted(c)) {
            numbers[cpu] = self.cpus[cpu].ipis[me].post(scope);
            self.cpus[cpu].flags.fetch_or(1 << me, Ordering::AcqRel);
        }
        if wanted(me) {
            self.drop_here(scope);
        }
        for cpu in (0..self.plan.cpus).filter(|&c| numbers[c] != 0) {
            self.wait_for(cpu, me, numbers[cpu]);
        }
    }
    fn relax(&self) {
        let cpu = self.bound_cpu();
        if self.cpus[cpu].flags.load(Ordering::Relaxed) != 0 {
            self.serve(cpu);
        }
        let long = self.local(|l| {
            l.spins = (l.spins + 1) % SPINS;
            l.spins == 0
        });
        if !long {
            return spin_loop();
        }
        self.give_up_if_poisoned();
        // Another may need the core to end what is waited for here.
        self.give_core();
        std::thread::yield_now();
    }
    fn wait(&self, key: u64, still: &dyn Fn() -> bool) {
        if WATCH {
            assert!(PREEMPT_OFF.get() == 0, "a CPU may not sleep here");
        }
        for _ in 0..SPINS {
            if !still() {
                return;
            }
            self.relax();
        }
        self.parked(|| self.sleepers.sleep(key, &|| still() && !self.is_poisoned()));
        self.give_up_if_poisoned();
    }
    fn wake(&self, key: u64) {
        self.sleepers.wake(key);
    }
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        match self.pager.get() {
            Some(pager) => pager.page_in(run),
            None => Some(run.failed()),
        }
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        match self.pager.get() {
            Some(pager) => pager.page_out(run),
            None => Some(run.failed()),
        }
    }
    fn object_gone(&self, pager: u64) {
        if let Some(files) = self.pager.get() {
            files.object_gone(pager);
        }
    }
    #[inline]
    fn now(&self) -> u64 {
        clock()
    }
    fn sched_point(&self) {
        self.poll();
    }
}

impl<C: Codec, const WATCH: bool> Host<C, WATCH> {
    fn byte(&self, pfn: Pfn, at: usize) -> &AtomicU8 {
        assert!(at < PAGE_SIZE);
        // SAFETY: inside the frame; a byte needs no alignment. Programs' data is touched as atomics
        // on this machine.
        unsafe { self.frame(pfn).add(at).cast::<AtomicU8>().as_ref() }
    }
    /// Fills a frame with junk.
    fn scribble(&self, pfn: Pfn) {
        (0..ENTRIES).for_each(|i| self.word(pfn, i).store(JUNK, Ordering::Relaxed));
    }
    /// A word of a data frame, for a program's load or store.
    pub(super) fn data(&self, pfn: Pfn, offset: usize) -> &AtomicU64 {
        self.word(pfn, offset / 8)
    }
}

/// Calls `f(position, whole word)` for bytes `offset .. offset + len`, whole aligned words at once.
fn each(offset: usize, len: usize, mut f: impl FnMut(usize, bool)) {
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let whole = at % 8 == 0 && at + 8 <= end;
        f(at, whole);
        at += if whole { 8 } else { 1 };
    }
}

/// Ticks of [`clock`] in a microsecond, measured once against the system's clock over 2 ms.
pub fn clock_rate() -> u64 {
    static RATE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, began) = (Instant::now(), clock());
        while start.elapsed() < Duration::from_millis(2) {
            spin_loop();
        }
        let (ticks, ns) = (clock().wrapping_sub(began), start.elapsed().as_nanos() as u64);
        ((ticks.saturating_mul(1000) + ns / 2) / ns).max(1)
    })
}

/// The time-stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn clock() -> u64 {
    // SAFETY: the instruction exists on every x86_64 and touches nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the first call: this host has no counter we know how to read.
#[cfg(not(target_arch = "x86_64"))]
pub fn clock() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}
