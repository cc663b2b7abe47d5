//! A flat machine for tests: frames in one zeroed allocation, CPUs that are whatever thread says
//! so, no TLB.
//!
//! It does what the trait promises and nothing more, so a test that passes here says nothing about
//! stale translations (the simulator's oracle does) but can run on real threads, where the memory
//! model is the host's. A thread is CPU 0 until it calls [`Flat::run_on`]; two threads must not be
//! the same CPU at once unless the test is about that.
#![allow(dead_code, unused_imports)]

mod hands;

pub use hands::{FrameHands, MachineHands, VmHands};

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn};
use vellum::entry::{Codec, X86_64};
use vellum::machine::{
    CpuId, CpuMask, Event, Invalidation, Machine, MmuRules, Root, Scope, Topology, USES,
};

thread_local! {
    static CPU: Cell<CpuId> = const { Cell::new(0) };
    static PREEMPT_OFF: Cell<u32> = const { Cell::new(0) };
    static WEAVE: RefCell<VecDeque<Woven>> = const { RefCell::new(VecDeque::new()) };
    /// In an act of another CPU: how many shared words it may touch yet.
    static WEAVING: Cell<Option<u32>> = const { Cell::new(None) };
    static SWITCHES: Cell<u64> = const { Cell::new(0) };
    static JITTER: Cell<u64> = const { Cell::new(0) };
    static DURING: RefCell<Option<During>> = const { RefCell::new(None) };
    static EACH: RefCell<Option<Each>> = const { RefCell::new(None) };
    static POINT: RefCell<Option<Woven>> = const { RefCell::new(None) };
}

/// Another task runs on this CPU from here.
#[allow(dead_code)]
pub fn switch_tasks() {
    SWITCHES.set(SWITCHES.get() + 1);
}

/// Shared words that an act of another CPU touches at most; what ends touches some thousands.
const MOST_WORDS: u32 = 10_000_000;

/// Runs `body`; the scheduling point after `points` others runs `act` as if this CPU, or another,
/// ran another task there to its end. Says whether there was such a point.
pub fn rescheduled(points: u64, act: Box<dyn FnOnce()>, body: impl FnOnce()) -> bool {
    POINT.set(Some((points, act)));
    body();
    POINT.take().is_none()
}

/// For machines that have scheduling points.
pub fn at_point() {
    match POINT.take() {
        Some((0, act)) => as_another(act),
        Some((points, act)) => POINT.set(Some((points - 1, act))),
        None => {}
    }
}

/// An act of another CPU while a flush is under way.
type During = Box<dyn FnMut(Scope)>;

/// Runs `body`; each flush on its way runs `act` as if another CPU did it after the flush was asked
/// for and before it is over.
pub fn during_flushes<R>(act: impl FnMut(Scope) + 'static, body: impl FnOnce() -> R) -> R {
    DURING.set(Some(Box::new(act)));
    let result = body();
    DURING.set(None);
    result
}

fn flush_under_way(scope: Scope) {
    if let Some(mut act) = DURING.take() {
        as_another(|| act(scope));
        DURING.set(Some(act));
    }
}

/// What another CPU does while this one stands still. It must not wait, and has an end.
fn as_another(act: impl FnOnce()) {
    let (cpu, preempt) = (CPU.get(), PREEMPT_OFF.replace(0));
    WEAVING.set(Some(MOST_WORDS));
    act();
    WEAVING.set(None);
    CPU.set(cpu);
    PREEMPT_OFF.set(preempt);
}

/// From here this thread lets others run now and then before it touches a shared word, as `seed`
/// has it: on few processors threads would else meet at the ends of their time slices only. 0 ends
/// it.
pub fn jitter(seed: u64) {
    JITTER.set(seed);
}

fn jittered() {
    let mut seed = JITTER.get();
    if seed != 0 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        JITTER.set(seed);
        if seed >> 32 & 15 == 0 {
            std::thread::yield_now();
        }
    }
}

/// An act of another CPU, and how many shared words this thread touches before it.
pub type Woven = (u64, Box<dyn FnOnce()>);

/// What a woven act panics with when it waits: the CPU it would wait for is this thread, and stands
/// still.
pub struct Waits;

/// What an act comes to, or nothing if it waits.
#[allow(dead_code)]
pub fn unless_it_waits<R>(act: impl FnOnce() -> R) -> Option<R> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(why) if why.is::<Waits>() => None,
        Err(why) => std::panic::resume_unwind(why),
    }
}

/// Runs `body`. When it has touched as many shared words as the first act says, and is about to
/// touch another, the act runs to its end, as if another CPU did it all in that moment; then the
/// count for the next act starts. Says how many acts ran.
pub fn weave(acts: Vec<Woven>, body: impl FnOnce()) -> usize {
    let all = acts.len();
    WEAVE.set(acts.into());
    body();
    all - WEAVE.take().len()
}

fn shared_word_touched() {
    if let Some(left) = WEAVING.get() {
        assert!(left > 0, "the act of another CPU has no end");
        WEAVING.set(Some(left - 1));
        return;
    }
    let due = WEAVE.with_borrow_mut(|acts| {
        let (left, _) = acts.front_mut()?;
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                None
            }
            None => acts.pop_front(),
        }
    });
    if let Some((_, act)) = due {
        as_another(act);
    }
}

/// What to do at each step of a thread; told whether the thread waits.
type Each = Box<dyn FnMut(bool)>;

/// From here `act` runs whenever this thread is about to touch a shared word or to fill a portion
/// of a block, or waits for another CPU. It may wait for other threads.
pub fn at_each_step(act: impl FnMut(bool) + 'static) {
    EACH.set(Some(Box::new(act)));
}

fn step(waits: bool) {
    if let Some(mut act) = EACH.take() {
        act(waits);
        EACH.set(Some(act));
    }
}

/// What the machine was asked to do, so far.
#[derive(Default)]
pub struct Asked {
    pub local_flushes: AtomicU64,
    pub remote_flushes: AtomicU64,
    pub root_loads: AtomicU64,
    /// Frame of the root loaded last, on any CPU.
    pub last_root: AtomicU64,
    pub cleared_frames: AtomicU64,
    pub copied_frames: AtomicU64,
    pub relaxed: AtomicU64,
    /// CPU numbers asked for where the next instruction may run on another.
    pub loose_cpus: AtomicU64,
    /// Base frames given out by use (index: `Use as usize`), as the frame events tell it.
    pub became: [AtomicU64; USES],
}

/// The machine.
pub struct Flat<C: Codec = X86_64> {
    topology: Topology,
    rules: MmuRules,
    base: NonNull<u8>,
    _memory: Meta,
    backed: u64,
    first: u64,
    clock: AtomicU64,
    pub asked: Asked,
    codec: PhantomData<C>,
}

// SAFETY: the memory behind `base` belongs to the value; who touches which bytes is the library's
// business, as on metal.
unsafe impl<C: Codec> Send for Flat<C> {}
// SAFETY: as above.
unsafe impl<C: Codec> Sync for Flat<C> {}

/// A machine of one node with `cpus` CPUs and `frames` frames from frame 512 (so that frame 0 is
/// nobody's).
pub fn flat(cpus: usize, frames: u64) -> Flat {
    Flat::new(Topology::flat(cpus, Pfn(512), frames), MmuRules::X86_64)
}

impl<C: Codec> Flat<C> {
    /// A machine with that topology and those habits. Its memory is zero and costs nothing until
    /// touched.
    pub fn new(topology: Topology, rules: MmuRules) -> Self {
        let frames = topology.frames_end() - topology.frames_start();
        Self::with_frames(topology, rules, frames)
    }

    /// As [`new`](Flat::new), but with no memory behind its frames: for tests of the allocator on
    /// machines larger than the host.
    pub fn hollow(topology: Topology, rules: MmuRules) -> Self {
        Self::with_frames(topology, rules, 0)
    }

    fn with_frames(topology: Topology, rules: MmuRules, frames: u64) -> Self {
        let first = topology.frames_start();
        let bytes = frames as usize * PAGE_SIZE;
        let memory =
            Meta::new(Layout::from_size_align(bytes, PAGE_SIZE).expect("a size that fits"));
        Flat {
            topology,
            rules,
            base: memory.base(),
            _memory: memory,
            backed: frames,
            first,
            clock: AtomicU64::new(0),
            asked: Asked::default(),
            codec: PhantomData,
        }
    }

    /// From here this thread is CPU `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        assert!(cpu < self.topology.cpus);
        CPU.set(cpu);
    }

    /// How many `preempt_off` of this thread await their `preempt_on`.
    pub fn preempt_depth(&self) -> u32 {
        PREEMPT_OFF.get()
    }

    fn frame(&self, pfn: Pfn) -> NonNull<u8> {
        assert!(self.topology.node_of(pfn).is_some(), "{pfn:?} is no memory of this machine");
        assert!(pfn.0 - self.first < self.backed, "{pfn:?} has no memory behind it");
        // SAFETY: the frame lies in a node, every node inside the allocation.
        unsafe { self.base.add((pfn.0 - self.first) as usize * PAGE_SIZE) }
    }

    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        assert!(slot < ENTRIES);
        // SAFETY: inside the frame, aligned, and entries are only ever touched as atomics.
        unsafe { self.frame(table).cast::<AtomicU64>().add(slot).as_ref() }
    }
}

// SAFETY: CPUs are threads that stay on theirs; entries are atomics in memory that the machine
// owns; no hardware walks them, so there are no translations to flush.
unsafe impl<C: Codec> Machine for Flat<C> {
    type Codec = C;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        self.rules
    }
    fn cpu(&self) -> CpuId {
        if PREEMPT_OFF.get() == 0 {
            self.asked.loose_cpus.fetch_add(1, Ordering::Relaxed);
        }
        CPU.get()
    }
    fn preempt_off(&self) {
        PREEMPT_OFF.set(PREEMPT_OFF.get() + 1);
    }
    unsafe fn preempt_on(&self) {
        let depth = PREEMPT_OFF.get();
        assert!(depth > 0, "preempt_on without preempt_off");
        PREEMPT_OFF.set(depth - 1);
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
        self.frame(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        self.frame(first.add(frames - 1));
        self.asked.cleared_frames.fetch_add(frames, Ordering::Relaxed);
        // SAFETY: all of the run lies in the machine's memory; the library owns it while it clears.
        unsafe { self.frame(first).write_bytes(0, frames as usize * PAGE_SIZE) }
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.frame(to.add(frames - 1));
        self.frame(from.add(frames - 1));
        self.asked.copied_frames.fetch_add(frames, Ordering::Relaxed);
        // SAFETY: both runs lie in the machine's memory and do not overlap, by contract.
        unsafe {
            self.frame(to).copy_from_nonoverlapping(self.frame(from), frames as usize * PAGE_SIZE)
        }
    }
    unsafe fn read(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: inside one frame; `bytes` is ours and cannot overlap machine memory.
        unsafe {
            self.frame(pfn)
                .add(offset)
                .as_ptr()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
    }
    unsafe fn write(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE);
        // SAFETY: as in `read`.
        unsafe {
            self.frame(pfn)
                .add(offset)
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }
    unsafe fn load_root(&self, root: Option<Root>) {
        self.asked.root_loads.fetch_add(1, Ordering::Relaxed);
        if let Some(root) = root {
            self.asked.last_root.store(root.table.0, Ordering::Relaxed);
        }
    }
    fn flush_local(&self, scope: Scope) {
        self.asked.local_flushes.fetch_add(1, Ordering::Relaxed);
        flush_under_way(scope);
    }
    fn flush_remote(&self, _cpus: &CpuMask, scope: Scope) {
        self.asked.remote_flushes.fetch_add(1, Ordering::Relaxed);
        flush_under_way(scope);
    }
    fn relax(&self) {
        if WEAVING.get().is_some() {
            std::panic::panic_any(Waits);
        }
        self.asked.relaxed.fetch_add(1, Ordering::Relaxed);
        step(true);
        std::thread::yield_now();
    }
    fn switches(&self) -> u64 {
        SWITCHES.get()
    }
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
    fn sched_point(&self) {
        assert_eq!(PREEMPT_OFF.get(), 0, "a scheduling point with a lock held");
    }
    fn stop_pending(&self) -> bool {
        step(false);
        false
    }
    fn hook(&self, event: Event) {
        if let Event::Shared { .. } = event {
            jittered();
            step(false);
            shared_word_touched();
        }
        if let Event::Frame { first, order, to } = event {
            step(false);
            shared_word_touched();
            assert!(
                self.topology.node_of(first).is_some(),
                "{first:?} is no memory of this machine"
            );
            self.asked.became[to as usize].fetch_add(order.frames(), Ordering::Relaxed);
        }
    }
}

/// Zeroed memory handed to the library, freed when dropped (after what lives in it). The host's
/// allocator clears lazily only at its own alignment, so this asks for more and aligns by itself:
/// untouched parts of it cost nothing.
pub struct Meta {
    start: NonNull<u8>,
    base: NonNull<u8>,
    whole: Layout,
}

impl Meta {
    /// Memory of that layout.
    pub fn new(layout: Layout) -> Meta {
        let whole =
            Layout::from_size_align(layout.size() + layout.align(), 16).expect("a size that fits");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(whole) }).expect("host memory");
        // SAFETY: less than `align` bytes further, and `align` more were asked for.
        let base = unsafe { start.add(start.align_offset(layout.align())) };
        Meta { start, base, whole }
    }
    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.whole) }
    }
}

// SAFETY: plain memory.
unsafe impl Send for Meta {}
// SAFETY: plain memory.
unsafe impl Sync for Meta {}
