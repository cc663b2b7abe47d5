//! The machine: its plan, its memory, its CPUs.
//!
//! - [`cpu_guard`] binds a thread to a CPU, and makes a program's loads and stores; `bindings` has
//!   the CPUs that a thread is.
//! - [`hardware`] is the `Machine` trait.
//! - [`ipi`] has the requests between CPUs, [`run_permits`] limits how many threads run.
//! - [`sleepers`] has the threads that wait for a page, [`pager`] says who reads and writes pages.
//! - [`watch`] knows the use of each frame, [`geometry`] this computer's caches.
//!
//! `WATCH` picks one of two machines at compile time. With it, every frame's use is checked and
//! schedules get jitter; without it (benchmarks) the hooks are empty, as on metal. A flag in the
//! value was rejected: its test would be in every measured path.

mod bindings;
pub mod cpu_guard;
pub mod geometry;
pub mod hardware;
pub mod ipi;
pub mod pager;
pub mod run_permits;
pub mod sleepers;
pub mod watch;

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn};
use vellum::entry::{Codec, X86_64};
use vellum::machine::{Caches, CpuId, MAX_NODES, MmuRules, NodeInfo, Root, Topology};

use crate::memory::Memory;
use crate::mmu::buffer::{Buffer, Shape};
use crate::mmu::walk::{Tables, WalkCache};
use crate::rng::Rng;
use crate::stores::Choice;
pub use cpu_guard::CpuGuard;
use ipi::IpiSlot;
use pager::Pager;
use run_permits::RunPermits;
use sleepers::Sleepers;
use watch::Watch;

/// CPUs a host machine may have: the flags of one CPU are one word.
pub const MAX_HOST_CPUS: usize = 64;
/// The first frame's number: frame 0 is unused, and alignment is that of the mapping.
pub const FIRST: Pfn = Pfn(512);

/// x86_64 with PCID; few identifiers, so that they run out.
pub const X86_PCID: MmuRules = MmuRules { asids: 6, ..MmuRules::X86_64 };

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// CPUs, 1 to [`MAX_HOST_CPUS`].
    pub cpus: usize,
    /// Memory nodes; memory is split evenly and CPUs go round them. The distance is 10 at home and
    /// 20 elsewhere: all of it is the same memory here, only the policies are exercised.
    pub nodes: usize,
    /// Memory in bytes, at least 2 MiB a node.
    pub bytes: u64,
    /// The rules of the MMU.
    pub rules: MmuRules,
    /// Lengths of each CPU's TLB.
    pub tlb: Shape,
    /// Threads that may run at once; `None` is one a core.
    pub running: Option<usize>,
    /// At about one machine call in this many a CPU pauses for a moment, to vary schedules; 0
    /// never. Needs `WATCH`.
    pub jitter: u64,
    /// Seed of the jitter.
    pub seed: u64,
    /// Ask the system for huge pages.
    pub huge: bool,
    /// Fill the first and last frame of every freed block with junk, so that a program that still
    /// looks there, or counts on zeros it did not make, stumbles. Needs `WATCH`.
    pub scribble: bool,
    /// Clear and copy frames when asked to. Without it, verbs are measured without the cost of
    /// moving bytes; programs must not run then, since they would read old contents.
    pub moves_bytes: bool,
    /// How frames are cleared.
    pub clears: Choice,
    /// The data caches the library is told of.
    pub caches: Caches,
}

impl Plan {
    /// A machine of one node under x86_64's rules.
    pub fn new(cpus: usize, bytes: u64) -> Plan {
        Plan {
            cpus,
            nodes: 1,
            bytes,
            rules: MmuRules::X86_64,
            tlb: Shape::USUAL,
            running: None,
            jitter: 0,
            seed: 0,
            huge: true,
            scribble: false,
            moves_bytes: true,
            clears: Choice::by_features(),
            caches: geometry::here(),
        }
    }

    /// With so many CPUs of devices beside those of the plan.
    fn topology(&self, devices: usize) -> io::Result<Topology> {
        let bad = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let cpus = self.cpus.saturating_add(devices);
        if self.cpus == 0 || cpus > MAX_HOST_CPUS {
            return bad("a host machine has 1 to 64 CPUs");
        }
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return bad("a machine has 1 to 16 memory nodes");
        }
        let each = self.bytes / self.nodes as u64 / Order::HUGE.bytes() * Order::HUGE.frames();
        if each == 0 {
            return bad("every memory node needs at least 2 MiB");
        }
        let mut t = Topology::flat(cpus, FIRST, each);
        t.nodes = self.nodes;
        for n in 0..self.nodes {
            t.node[n] = NodeInfo { first: FIRST.add(n as u64 * each), frames: each };
            for m in 0..self.nodes {
                t.distance[n][m] = if n == m { 10 } else { 20 };
            }
        }
        for cpu in 0..cpus {
            t.cpu_node[cpu] = (cpu % self.nodes) as u8;
        }
        Ok(t)
    }
}

/// What only the thread bound to a CPU touches.
#[derive(Debug)]
struct Local {
    buffer: Buffer,
    cache: WalkCache,
    root: Option<Root>,
    missed: u64,
    spins: u32,
    jitter: Rng,
}

/// A CPU. Its own lines, so that polling shares nothing.
#[repr(align(128))]
struct Cpu {
    /// Initiators with a request in their box.
    flags: AtomicU64,
    /// Bit 0: parked. The bits above: the number of requests missed while parked.
    state: AtomicU64,
    taken: AtomicBool,
    ipis: Box<[IpiSlot]>,
    local: UnsafeCell<Local>,
}

const INACCESSIBLE: u64 = 1;
const MISSED: u64 = 2;

/// The machine. `C` is the entry format, `WATCH` see the module.
pub struct Host<C: Codec = X86_64, const WATCH: bool = true> {
    id: u64,
    topology: Topology,
    plan: Plan,
    /// So many CPUs, the last ones, answer for devices.
    devices: usize,
    memory: Memory,
    cpus: Box<[Cpu]>,
    permits: RunPermits,
    watch: Watch,
    sleepers: Sleepers,
    pager: OnceLock<Arc<dyn Pager>>,
    poisoned: AtomicBool,
    codec: PhantomData<C>,
}

// SAFETY: everything shared is atomic or behind a lock, except `Cpu::local`, which only the bound
// thread reaches (`taken` admits one), and memory, whose bytes belong to whom the library gives
// them.
unsafe impl<C: Codec, const WATCH: bool> Send for Host<C, WATCH> {}
// SAFETY: as above.
unsafe impl<C: Codec, const WATCH: bool> Sync for Host<C, WATCH> {}

thread_local! {
    static PREEMPT_OFF: Cell<u32> = const { Cell::new(0) };
}

static MACHINES: AtomicU64 = AtomicU64::new(1);

impl<C: Codec, const WATCH: bool> Host<C, WATCH> {
    /// Builds it. Memory is zero and costs nothing until touched. Every CPU is parked.
    ///
    /// # Errors
    /// A plan that makes no machine, or memory the system refuses.
    pub fn new(plan: Plan) -> io::Result<Self> {
        Self::with_devices(plan, 0)
    }

    /// The same with so many CPUs more, after those of the plan, which answer for devices.
    pub(crate) fn with_devices(plan: Plan, devices: usize) -> io::Result<Self> {
        let topology = plan.topology(devices)?;
        let plan = Plan { cpus: topology.cpus, ..plan };
        let Choice { page, run, non_temporal, scattered, .. } = plan.clears;
        let ways = [page, run, non_temporal, scattered];
        if let Some(method) = ways.into_iter().find(|m| !m.exists()) {
            let what = format!(
                "this processor has no {} stores: choose other ways to clear",
                method.name()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let frames = topology.frames_end() - FIRST.0;
        let memory = Memory::new(frames as usize * PAGE_SIZE, plan.huge)?;
        let contexts = plan.rules.asids != 0;
        let cpu = |n: usize| Cpu {
            flags: AtomicU64::new(0),
            state: AtomicU64::new(INACCESSIBLE),
            taken: AtomicBool::new(false),
            ipis: (0..plan.cpus).map(|_| IpiSlot::default()).collect(),
            local: UnsafeCell::new(Local {
                buffer: Buffer::new(plan.tlb, contexts),
                cache: WalkCache::new(plan.tlb.nodes, plan.rules.levels, contexts),
                root: None,
                missed: 0,
                spins: 0,
                jitter: Rng::new(plan.seed ^ (n as u64) << 48),
            }),
        };
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Host {
            id: MACHINES.fetch_add(1, Ordering::Relaxed),
            plan,
            devices,
            memory,
            cpus: (0..plan.cpus).map(cpu).collect(),
            permits: RunPermits::new(plan.running.unwrap_or_else(cores)),
            watch: Watch::new(FIRST, if WATCH { frames } else { 0 }),
            sleepers: Sleepers::default(),
            pager: OnceLock::new(),
            poisoned: AtomicBool::new(false),
            topology,
            codec: PhantomData,
        })
    }

    /// What it was built from, with the CPUs of devices.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// The use of each frame, as the library reported it. Empty without `WATCH`.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
    /// Has a pager serve the objects that have one. The first call counts; without any, no page can
    /// be read.
    pub fn set_pager(&self, pager: Arc<dyn Pager>) {
        let _ = self.pager.set(pager);
    }
    /// The threads that wait for a page.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }
    /// The memory itself, to warm it.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
    /// A CPU's thread panicked: every other CPU that waits panics too instead of waiting for ever.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.sleepers.wake_all();
    }
    /// Whether a thread panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    #[inline]
    fn frame(&self, pfn: Pfn) -> NonNull<u8> {
        self.frames(pfn, 1)
    }

    /// The first byte of that many frames, all of which are this machine's.
    #[inline]
    fn frames(&self, first: Pfn, frames: u64) -> NonNull<u8> {
        let (index, all) =
            (first.0.wrapping_sub(FIRST.0), (self.memory.bytes() / PAGE_SIZE) as u64);
        if index >= all || frames > all - index {
            nowhere(first, frames);
        }
        // SAFETY: just checked to be inside the mapping.
        unsafe { self.memory.base().add(index as usize * PAGE_SIZE) }
    }

    #[inline]
    fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        assert!(index < ENTRIES);
        // SAFETY: inside the frame and aligned. Words other CPUs may touch at the same time
        // (entries, program data) are only ever touched as atomics; the rest is the library's to
        // order.
        unsafe { self.frame(pfn).cast::<AtomicU64>().add(index).as_ref() }
    }

    /// The CPU this thread is bound to.
    #[inline]
    fn bound_cpu(&self) -> CpuId {
        bindings::bound(self.id).cpu
    }

    /// Runs `f` on this CPU's own state. `f` must not call back into the machine.
    #[inline]
    fn local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        let cpu = self.bound_cpu();
        // SAFETY: only the thread bound to a CPU gets here for it, one at a time, and no `f` in
        // this crate calls back.
        f(unsafe { &mut *self.cpus[cpu].local.get() })
    }
}

/// Not inlined, so that callers do not store the arguments of the message: those stores would wait
/// behind the stores of a page that is being cleared.
#[cold]
#[inline(never)]
fn nowhere(first: Pfn, frames: u64) -> ! {
    panic!("{frames} frames from {first:?} are no memory of this machine")
}

impl<C: Codec, const WATCH: bool> Tables for Host<C, WATCH> {
    fn load(&self, table: Pfn, slot: usize) -> u64 {
        if WATCH {
            use vellum::machine::Use;
            let is = self.watch.get(table);
            assert!(
                matches!(is, Use::Table | Use::ZeroTable | Use::Pending),
                "a walk reached {table:?}, which is {is:?} and no table"
            );
        }
        self.word(table, slot).load(Ordering::Acquire)
    }
    fn exchange(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.word(table, slot)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }
}
