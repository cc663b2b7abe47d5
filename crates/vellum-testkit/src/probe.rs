//! A machine that records what it is asked to do, follows each frame of data, and may have caches
//! that alias.
//!
//! It stands over the flat machine and passes everything on. Its caches, where they alias, are one
//! dirty page for each frame and colour: what a program stored by an address stays under that
//! address's colour, and is what the next program that comes by an address of that colour reads,
//! until the frame is cleared through it.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ext::MachineExt;
use super::fixture::{AT, FixtureOn, KIB4, MIB2, RW};
use super::flat::{Flat, at_point, flat};
use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn, Va};
use vellum::config::{Config, Preemption};
use vellum::entry::X86_64;
use vellum::machine::{
    CacheLevel, Caches, CpuId, CpuMask, Hooks, Machine, MmuRules, Root, Scope, Stores, Topology,
    Use,
};
use vellum::space::{Access, Attrs, Fault, LeafSize, Space};

/// How far a frame of data has come on its way to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The allocator, or a pool, gave it out.
    Taken,
    /// It was cleared, or copied to, as a whole.
    Filled,
    /// An entry of a page table names it, or of a table that is linked somewhere.
    Mapped,
}

/// What was done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A range begins.
    Range(Pfn, u64),
    /// A scheduling point.
    Point,
    /// A run was cleared.
    Run(Pfn, u64, Stores),
    /// A run was copied.
    Copy(Pfn, u64, Stores),
    /// Stores around the caches were ordered.
    StoreFence,
}

/// Acts in order.
#[derive(Debug)]
pub struct Acts(Vec<Act>);

impl Deref for Acts {
    type Target = [Act];
    fn deref(&self) -> &[Act] {
        &self.0
    }
}

impl Acts {
    pub fn count(&self, act: Act) -> usize {
        self.iter().filter(|&&a| a == act).count()
    }
    /// Scheduling points.
    pub fn points(&self) -> usize {
        self.count(Act::Point)
    }
    /// The ranges (first and last page), relative to a block.
    pub fn ranges(&self, block: Pfn) -> Vec<(u64, u64)> {
        let of = |act: &Act| match *act {
            Act::Range(at, frames) => Some((at.0 - block.0, at.0 - block.0 + frames - 1)),
            _ => None,
        };
        self.iter().filter_map(of).collect()
    }
    /// Every page that was cleared or copied to, in order, relative to a block.
    pub fn pages(&self, block: Pfn) -> Vec<u64> {
        let of = |act: &Act| match *act {
            Act::Run(at, frames, _) | Act::Copy(at, frames, _) => {
                Some(at.0 - block.0..at.0 - block.0 + frames)
            }
            _ => None,
        };
        self.iter().filter_map(of).flatten().collect()
    }
    /// The runs that were cleared: first page, relative to a block, and length; by which stores.
    pub fn runs_at(&self, block: Pfn) -> Vec<((u64, u64), Stores)> {
        let of = |act: &Act| match *act {
            Act::Run(at, frames, stores) => Some(((at.0 - block.0, frames), stores)),
            _ => None,
        };
        self.iter().filter_map(of).collect()
    }
    /// Their lengths, and by which stores.
    pub fn runs(&self) -> Vec<(u64, Stores)> {
        self.runs_at(Pfn(0)).into_iter().map(|((_, frames), stores)| (frames, stores)).collect()
    }
}

/// For a page of 512 that faulted: the ranges that are cleared, in order.
pub const NEAR_LAST: [(u64, &[(u64, u64)]); 5] = [
    (100, &[(103, 511), (0, 97), (98, 102)]),
    (0, &[(3, 511), (0, 2)]),
    (511, &[(0, 508), (509, 511)]),
    (2, &[(5, 511), (0, 4)]),
    (509, &[(0, 506), (507, 511)]),
];

/// The first four pages of a block, and the last four.
pub fn edges(frames: u64) -> impl Iterator<Item = u64> {
    (0..frames.min(4)).chain((1..=4).filter_map(move |back| frames.checked_sub(back)))
}

/// A preemption model, and what it becomes after so many more runs.
type Model = (Option<Preemption>, Option<(u64, Preemption)>);

/// The machine.
pub struct Probe {
    pub flat: Flat,
    /// There is no memory behind the frames.
    hollow: bool,
    acts: Mutex<Vec<Act>>,
    model: Mutex<Model>,
    /// Scheduling points until a stop is pending; `u64::MAX` never.
    stop_after: AtomicU64,
    caches: Mutex<Caches>,
    bypass: AtomicU64,
    aliases: AtomicBool,
    /// Old bytes by (frame, colour): one byte stands for a page.
    stale: Mutex<BTreeMap<(u64, u64), u8>>,
    /// Cycles a base page takes to clear, and the clock.
    page_cycles: AtomicU64,
    clock: AtomicU64,
    per_us: AtomicU64,
    /// Use of each frame that was ever given to someone.
    given: Mutex<BTreeMap<u64, Use>>,
    /// The stage of each frame of data, once somebody wants to know.
    stages: Mutex<Option<BTreeMap<u64, Stage>>>,
}

/// Colours of the caches that alias: two, as on a first level of twice the page size a way.
pub const COLOURS: u64 = 2;

impl Probe {
    pub fn new(frames: u64) -> Probe {
        Probe::over(flat(2, frames), false)
    }
    /// A machine without bytes, for traces of blocks larger than the host would like to fill.
    pub fn hollow(frames: u64) -> Probe {
        Probe::over(Flat::hollow(Topology::flat(2, Pfn(512), frames), MmuRules::X86_64), true)
    }
    fn over(flat: Flat, hollow: bool) -> Probe {
        Probe {
            flat,
            hollow,
            acts: Mutex::new(Vec::new()),
            model: Mutex::new((None, None)),
            stop_after: AtomicU64::new(u64::MAX),
            caches: Mutex::new(Caches::UNKNOWN),
            bypass: AtomicU64::new(u64::MAX),
            aliases: AtomicBool::new(false),
            stale: Mutex::new(BTreeMap::new()),
            page_cycles: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            per_us: AtomicU64::new(0),
            given: Mutex::new(BTreeMap::new()),
            stages: Mutex::new(None),
        }
    }
    /// From here frames of data are followed: it is a panic if one is mapped before it was filled,
    /// or filled while it is mapped.
    pub fn follow(&self) {
        *self.stages.lock().unwrap() = Some(BTreeMap::new());
    }
    /// Whether a frame was never taken, or was given back, since [`follow`](Probe::follow); frames
    /// of pools were.
    pub fn is_idle(&self, pfn: Pfn) -> bool {
        let used = self.given.lock().unwrap().get(&pfn.0).copied();
        matches!(used, None | Some(Use::Data | Use::Object))
            && self.stages.lock().unwrap().iter().all(|s| !s.contains_key(&pfn.0))
    }
    /// How many frames are mapped now of those that were taken since [`follow`](Probe::follow).
    pub fn followed(&self) -> usize {
        let stages = self.stages.lock().unwrap();
        stages.iter().flat_map(|s| s.values()).filter(|&&stage| stage == Stage::Mapped).count()
    }
    /// The frames of a run that are followed come to a stage. None is at stage `bad` before.
    fn come_to(&self, stage: Stage, run: Range<u64>, bad: Stage, what: &str) {
        let mut stages = self.stages.lock().unwrap();
        for (pfn, was) in stages.iter_mut().flat_map(|s| s.range_mut(run.clone())) {
            assert_ne!(*was, bad, "frame {pfn:#x} {what}");
            *was = stage;
        }
    }
    fn filled(&self, first: Pfn, frames: u64) {
        let what = "is filled while it is mapped";
        self.come_to(Stage::Filled, first.0..first.0 + frames, Stage::Mapped, what);
    }
    /// An entry is about to be seen, and with it all below. Whether it is a table is known by what
    /// its frame is used for.
    fn seen(&self, raw: u64) {
        const PRESENT: u64 = 1;
        const SIZE: u64 = 1 << 7;
        let first = raw >> 12 & ((1 << 40) - 1);
        let used = self.given.lock().unwrap().get(&first).copied();
        if raw & PRESENT == 0 || self.stages.lock().unwrap().is_none() {
            return;
        }
        match used {
            Some(Use::Table) => {
                (0..ENTRIES).for_each(|slot| self.seen(self.flat.entry(Pfn(first), slot)));
            }
            Some(Use::Data | Use::Object) => {
                let frames = if raw & SIZE == 0 { 1 } else { Order::HUGE.frames() };
                let what = "is mapped before it was filled";
                self.come_to(Stage::Mapped, first..first + frames, Stage::Taken, what);
            }
            _ => {}
        }
    }
    /// What was done since this was last asked.
    pub fn acts(&self) -> Acts {
        Acts(std::mem::take(&mut self.acts.lock().unwrap()))
    }
    pub fn set_model(&self, model: Option<Preemption>) {
        *self.model.lock().unwrap() = (model, None);
    }
    /// `runs` runs from now the model becomes another.
    pub fn change_model(&self, runs: u64, to: Preemption) {
        self.model.lock().unwrap().1 = Some((runs, to));
    }
    /// A stop is pending once `points` more scheduling points have passed.
    pub fn stop_after(&self, points: u64) {
        self.stop_after.store(points, Ordering::Relaxed);
    }
    /// The second level's size, and from which length stores go around the caches.
    pub fn set_caches(&self, l2: u64, bypass: u64) {
        let l2 = CacheLevel { sets: l2 / 64 / 8, ways: 8, line: 64 };
        *self.caches.lock().unwrap() = Caches { l2, ..Caches::UNKNOWN };
        self.bypass.store(bypass, Ordering::Relaxed);
    }
    /// From here the caches alias.
    pub fn alias(&self) {
        self.aliases.store(true, Ordering::Relaxed);
    }
    /// The clock from here: what a base page takes, and cycles in a microsecond.
    pub fn set_clock(&self, page_cycles: u64, per_us: u64) {
        self.page_cycles.store(page_cycles, Ordering::Relaxed);
        self.per_us.store(per_us, Ordering::Relaxed);
    }
    pub fn clock(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
    /// Every frame there is.
    pub fn frames(&self) -> impl Iterator<Item = Pfn> {
        let node = self.flat.topology().node[0];
        (0..node.frames).map(move |i| node.first.add(i))
    }
    /// Fills every frame with a byte, behind everyone's back: before the library gets the machine.
    pub fn fill_all(&self, byte: u8) {
        let page = vec![byte; PAGE_SIZE];
        self.frames().for_each(|pfn| self.flat.poke(pfn, 0, &page));
    }
    /// Whether a frame was ever anything but free.
    pub fn was_given(&self, pfn: Pfn) -> bool {
        self.given.lock().unwrap().contains_key(&pfn.0)
    }
    /// The bytes of a frame, all equal or not.
    pub fn uniform(&self, pfn: Pfn) -> Option<u8> {
        let mut bytes = [0; PAGE_SIZE];
        self.flat.peek(pfn, 0, &mut bytes);
        bytes.iter().all(|&b| b == bytes[0]).then_some(bytes[0])
    }
    /// A program stores by an address: the page stays in the cache under its colour.
    pub fn user_store(&self, pfn: Pfn, va: Va, byte: u8) {
        self.stale.lock().unwrap().insert((pfn.0, va.page() % COLOURS), byte);
    }
    /// What a program reads by an address.
    pub fn user_load(&self, pfn: Pfn, va: Va) -> u8 {
        let cached = self.stale.lock().unwrap().get(&(pfn.0, va.page() % COLOURS)).copied();
        let mut byte = [0];
        self.flat.peek(pfn, va.offset(), &mut byte);
        cached.unwrap_or(byte[0])
    }
    fn ran(&self, frames: u64) {
        self.clock.fetch_add(frames * self.page_cycles.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut model = self.model.lock().unwrap();
        if let Some((runs, to)) = model.1 {
            *model = if runs <= 1 { (Some(to), None) } else { (model.0, Some((runs - 1, to))) };
        }
    }
}

impl Hooks for Probe {
    fn shared(&self, line: usize, write: bool) {
        self.flat.shared(line, write);
    }
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        let frames = first.0..first.0 + order.frames();
        if let Some(stages) = &mut *self.stages.lock().unwrap() {
            match to {
                Use::Data | Use::Object => {
                    stages.extend(frames.clone().map(|pfn| (pfn, Stage::Taken)))
                }
                _ => frames.clone().for_each(|pfn| _ = stages.remove(&pfn)),
            }
        }
        if to != Use::Free && to != Use::Pending {
            self.given.lock().unwrap().extend(frames.map(|pfn| (pfn, to)));
        }
        // SAFETY: as the caller promises.
        unsafe { self.flat.frame(first, order, to) };
    }
    fn fill(&self, first: Pfn, frames: u64) {
        self.acts.lock().unwrap().push(Act::Range(first, frames));
    }
}

// SAFETY: `Flat` does the work.
unsafe impl Machine for Probe {
    type Codec = X86_64;
    fn topology(&self) -> &Topology {
        self.flat.topology()
    }
    fn rules(&self) -> MmuRules {
        self.flat.rules()
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
        self.seen(raw);
        // SAFETY: the caller promises it.
        unsafe { self.flat.entry_store(table, slot, raw) }
    }
    unsafe fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.seen(new);
        // SAFETY: the caller promises it.
        unsafe { self.flat.entry_cas(table, slot, old, new) }
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        self.flat.direct(pfn)
    }
    unsafe fn clear(&self, first: Pfn, frames: u64) {
        // Through the kernel's own addresses, which have colour 0 here.
        for i in 0..frames {
            self.stale.lock().unwrap().remove(&(first.0 + i, 0));
        }
        self.filled(first, frames);
        // SAFETY: the caller promises it.
        unsafe { self.flat.clear(first, frames) }
    }
    unsafe fn clear_run(&self, first: Pfn, frames: u64, stores: Stores, at: Va) {
        assert!(self.flat.preempt_depth() == 0 || frames == 1, "a long clear with preemption off");
        self.acts.lock().unwrap().push(Act::Run(first, frames, stores));
        self.filled(first, frames);
        if self.aliases() {
            for i in 0..frames {
                let colour = (at.page() + i) % COLOURS;
                self.stale.lock().unwrap().remove(&(first.0 + i, colour));
            }
        }
        if !self.hollow {
            // SAFETY: the caller promises it.
            unsafe { self.flat.clear(first, frames) }
        }
        self.ran(frames);
    }
    unsafe fn copy(&self, to: Pfn, from: Pfn, frames: u64) {
        self.filled(to, frames);
        // SAFETY: the caller promises it.
        unsafe { self.flat.copy(to, from, frames) }
    }
    unsafe fn copy_run(&self, to: Pfn, from: Pfn, frames: u64, stores: Stores, _at: Va) {
        self.acts.lock().unwrap().push(Act::Copy(to, frames, stores));
        self.filled(to, frames);
        // SAFETY: the caller promises it.
        unsafe { self.flat.copy(to, from, frames) }
        self.ran(frames);
    }
    fn store_fence(&self) {
        self.acts.lock().unwrap().push(Act::StoreFence);
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
        self.clock()
    }
    fn preemption(&self) -> Option<Preemption> {
        self.model.lock().unwrap().0
    }
    fn sched_point(&self) {
        assert_eq!(self.flat.preempt_depth(), 0, "a scheduling point with a lock held");
        self.acts.lock().unwrap().push(Act::Point);
        at_point();
        let left = self.stop_after.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.stop_after.store(left.saturating_sub(1), Ordering::Relaxed);
        }
    }
    fn stop_pending(&self) -> bool {
        self.stop_after.load(Ordering::Relaxed) == 0
    }
    fn cycles_per_us(&self) -> u64 {
        self.per_us.load(Ordering::Relaxed)
    }
    fn caches(&self) -> Caches {
        *self.caches.lock().unwrap()
    }
    fn nt_threshold(&self) -> u64 {
        self.bypass.load(Ordering::Relaxed)
    }
    fn aliases(&self) -> bool {
        self.aliases.load(Ordering::Relaxed)
    }
}

/// A `Vm` over such a machine.
pub type ProbeFixture = FixtureOn<Probe>;

/// With the switches as they are set on a command line.
pub fn probe_fixture_on(machine: Probe, switches: &[(&str, &str)]) -> ProbeFixture {
    let mut config = Config::default();
    switches.iter().for_each(|(name, value)| config.set(name, value).expect("a switch"));
    FixtureOn::new(machine, config)
}

pub fn probe_fixture(frames: u64, switches: &[(&str, &str)]) -> ProbeFixture {
    probe_fixture_on(Probe::new(frames), switches)
}

/// The byte that old contents are made of.
pub const OLD: u8 = 0xa5;

/// A fixture whose every frame held old bytes before the library came.
pub fn old_fixture(frames: u64, switches: &[(&str, &str)]) -> ProbeFixture {
    probe_fixture_on(old_machine(frames), switches)
}

pub fn old_machine(frames: u64) -> Probe {
    let machine = Probe::new(frames);
    machine.fill_all(OLD);
    machine
}

/// A fixture whose machine follows frames.
pub fn followed(switches: &[(&str, &str)]) -> ProbeFixture {
    let machine = Probe::new(512 * 8);
    machine.follow();
    probe_fixture_on(machine, switches)
}

impl ProbeFixture {
    /// Maps leaves of one size at `at`.
    pub fn map_leaves(&self, space: &Space, at: Va, bytes: u64, leaf: Order) {
        self.map(space, at, bytes, Attrs { leaf: LeafSize::Exactly(leaf), ..RW });
    }
    /// A new space with such leaves mapped.
    pub fn leaves(&self, at: Va, bytes: u64, leaf: Order) -> Space {
        let space = self.vm.create().expect("memory");
        self.map_leaves(&space, at, bytes, leaf);
        space
    }
    /// A write fault on page `page` of a fresh huge mapping; gives the block.
    pub fn huge_fault(&self, space: &Space, at: Va, page: u64) -> Pfn {
        self.map_leaves(space, at, MIB2, Order::HUGE);
        self.m().acts();
        let va = Va(at.0 + page * KIB4 + 8);
        assert_eq!(self.vm.fault(space, va, Access::Write), Ok(Fault::Huge));
        self.frame(space, at)
    }
    /// Whether all of a block is zero.
    pub fn is_zero(&self, first: Pfn, frames: u64) -> bool {
        (0..frames).all(|i| self.m().uniform(first.add(i)) == Some(0))
    }
    /// Writes a byte all over a block.
    pub fn soil(&self, first: Pfn, frames: u64, byte: u8) {
        let page = vec![byte; PAGE_SIZE];
        (0..frames).for_each(|i| self.m().flat.poke(first.add(i), 0, &page));
    }
}
