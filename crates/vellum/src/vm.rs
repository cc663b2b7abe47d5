//! The subsystem as one value: a machine, its switches, and the memory handed in.
//!
//! A `Vm` owns its machine and is owned by whoever embeds it; two of them live side by side. It asks once for memory, sized
//! by [`Vm::layout`], for everything that is per frame or per CPU; table nodes, regions and spaces live in the frames it manages.
//!
//! The verbs are methods of `Vm`, one file each in `space`; running a space on a CPU is in `tlb`.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::addr::{Order, Pfn, Va};
use crate::clear::pace::Pace;
use crate::config::Config;
use crate::entry::{Codec, Entry};
use crate::error::{InitError, ReserveError};
use crate::frame::{Frames, Slab};
use crate::machine::{Act, Event, MAX_CPUS, Machine, MmuRules, Topology, Verb, Work};
use crate::memory::pool::Pools;
use crate::space::SpaceRecord;
use crate::stats::{Counter, CpuCounters, Stats};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{Epochs, Hands};
use crate::tlb::CONTEXT_WORDS;
use crate::vma::pairs::LIST_PAIRS;
use crate::zero::page::{ByColour, Zeros};
use crate::zero::{HugeZero, ZeroTables};

/// What a CPU runs: its own line.
#[repr(C, align(64))]
struct Current(AtomicU64);

/// The subsystem on one machine.
pub struct Vm<M: Machine> {
    pub(crate) machine: M,
    pub(crate) config: Config,
    pub(crate) rules: MmuRules,
    /// Levels of every table.
    pub(crate) levels: u8,
    /// First address past what programs may map.
    end: Va,
    /// Where the metadata lies, which no other living `Vm` has: what spaces say whose they are.
    pub(crate) id: usize,
    pub(crate) cpus: usize,
    pub(crate) frames: Frames,
    pub(crate) epochs: Epochs,
    /// Who has memory in hand that may come back, but for faults inside an epoch.
    pub(crate) hands: Hands,
    counters: NonNull<CpuCounters>,
    current: NonNull<Current>,
    contexts: NonNull<AtomicU64>,
    /// The shared zeros.
    pub(crate) zeros: Zeros,
    by_colour: NonNull<ByColour>,
    /// How fast clearing has been, by memory node.
    pub(crate) pace: Pace,
    /// Attempts under way that hold a layout lock: while there are any, clearing and copying have no scheduling points.
    pub(crate) holding: AtomicU32,
    /// Large blocks kept aside.
    pub(crate) pools: Pools,
    pub(crate) huge_zero: HugeZero,
    pub(crate) zero_tables: ZeroTables,
    pub(crate) spaces: Slab,
    pub(crate) regions: Slab,
    pub(crate) lists: [Slab; 3],
    /// Fork families and pieces of displacement lists.
    pub(crate) small: Slab,
}

// SAFETY: what the pointers name is made of atomics and belongs to the value by the contract of `new`; `M` is asked to be `Send`.
unsafe impl<M: Machine + Send> Send for Vm<M> {}
// SAFETY: as above; `M` is asked to be `Sync`.
unsafe impl<M: Machine + Sync> Sync for Vm<M> {}

/// Where the parts of the handed-in memory begin.
struct Parts {
    whole: Layout,
    epochs: usize,
    hands: usize,
    counters: usize,
    current: usize,
    contexts: usize,
    by_colour: usize,
}

impl Parts {
    fn of(topology: &Topology) -> Result<Parts, InitError> {
        let frames = Frames::layout(topology)?;
        let cpus = topology.cpus.clamp(1, MAX_CPUS);
        let too_large = |_| InitError::TooLarge;
        let array = |one: Layout, n: usize| Layout::from_size_align(one.size() * n, one.align()).map_err(too_large);
        let (whole, epochs) = frames.extend(Epochs::layout(cpus)).map_err(too_large)?;
        let (whole, hands) = whole.extend(Hands::layout(cpus)).map_err(too_large)?;
        let (whole, counters) = whole.extend(array(Layout::new::<CpuCounters>(), cpus)?).map_err(too_large)?;
        let (whole, current) = whole.extend(array(Layout::new::<Current>(), cpus)?).map_err(too_large)?;
        let (whole, contexts) = whole.extend(array(Layout::new::<AtomicU64>(), CONTEXT_WORDS)?).map_err(too_large)?;
        let (whole, by_colour) = whole.extend(array(Layout::new::<ByColour>(), cpus)?).map_err(too_large)?;
        let whole = whole.pad_to_align();
        Ok(Parts { whole, epochs, hands, counters, current, contexts, by_colour })
    }
}

impl<M: Machine> Vm<M> {
    /// The memory [`Vm::new`] wants for a machine of that topology; one page's worth for a topology `new` refuses. About 64 bytes
    /// a frame (1.6 %), plus 1.6 KiB per CPU and 752 bytes per CPU and node.
    pub fn layout(topology: &Topology) -> Layout {
        Parts::of(topology).map_or(Layout::new::<[u64; 512]>(), |parts| parts.whole)
    }

    /// A `Vm` that manages every frame of the machine's topology. Frames that are not for it, this very memory included if it
    /// lies in them, are to be [`reserve`](Vm::reserve)d before anything is allocated.
    ///
    /// # Errors
    /// What is wrong with the topology or the switches. [`InitError::Levels`]: the switch `levels` names a depth that the machine
    /// does not walk.
    ///
    /// # Safety
    /// - `meta` is memory of [`Vm::layout`]`(machine.topology())`, all zero, nobody else's while the value lives.
    /// - It is not handed to another `Vm` while a [`Space`](crate::space::Space) of this one still exists: by its address spaces
    ///   say whose they are.
    /// - The frames of the topology are nobody else's while the value lives, but for those that the caller reserves before anything is
    ///   allocated. If `meta` lies in them the caller reserves it.
    /// - The value is dropped only after every CPU has left its spaces, by [`idle`](Vm::idle) or `exit`; or else neither the
    ///   frames nor `meta` are used for anything until every CPU has loaded another root and dropped its translations. Dropping
    ///   touches no CPU: one that still runs a space goes on walking its tables.
    pub unsafe fn new(machine: M, config: Config, meta: NonNull<u8>) -> Result<Vm<M>, InitError> {
        let parts = Parts::of(machine.topology())?;
        if !meta.cast::<u8>().as_ptr().addr().is_multiple_of(parts.whole.align()) {
            return Err(InitError::Unaligned);
        }
        let rules = machine.rules();
        let levels = config.levels.unwrap_or(rules.levels);
        if levels != rules.levels || !(4..=5).contains(&levels) {
            return Err(InitError::Levels);
        }
        let cpus = machine.topology().cpus;
        // SAFETY: the memory is zero, aligned and as long as the caller promises; the parts do not overlap.
        let (frames, epochs, hands, counters, current, contexts, by_colour) = unsafe {
            (
                Frames::new(machine.topology(), meta)?,
                Epochs::new(cpus, meta.add(parts.epochs)),
                Hands::new(cpus, meta.add(parts.hands)),
                meta.add(parts.counters).cast(),
                meta.add(parts.current).cast(),
                meta.add(parts.contexts).cast(),
                meta.add(parts.by_colour).cast(),
            )
        };
        Ok(Vm {
            machine,
            config,
            rules,
            levels,
            end: M::Codec::user_end(levels),
            id: meta.addr().get(),
            cpus,
            frames,
            epochs,
            hands,
            counters,
            current,
            contexts,
            zeros: Zeros::new(),
            by_colour,
            pace: Pace::new(),
            holding: AtomicU32::new(0),
            pools: Pools::new(),
            huge_zero: HugeZero::new(),
            zero_tables: ZeroTables::new(),
            spaces: Slab::new(size_of::<SpaceRecord>()),
            regions: Slab::new(64),
            lists: LIST_PAIRS.map(|pairs| Slab::new(pairs * 8)),
            small: Slab::new(64),
        })
    }

    /// Keeps frames out of the allocator for good; frames of no node are left alone.
    ///
    /// # Errors
    /// [`ReserveError::InUse`] once anything was allocated, as by the first space; [`ReserveError::Twice`]. Nothing changed.
    pub fn reserve(&mut self, first: Pfn, frames: u64) -> Result<(), ReserveError> {
        self.frames.reserve(first, frames)
    }

    /// The machine below.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The switches in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The frames: for tests, tools and embedders that allocate for themselves.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// First address past what programs may map: the user half, without its last page where the processor demands it (x86).
    #[inline]
    pub fn user_end(&self) -> Va {
        self.end
    }

    /// A reading of every counter, summed over the CPUs.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::sum(self.counters());
        self.frames.stats(&mut stats);
        stats.add(Counter::SlabPages, self.slabs().iter().map(|slab| slab.pages() as i64).sum());
        stats
    }

    /// Every slab.
    pub(crate) fn slabs(&self) -> [&Slab; 6] {
        let [a, b, c] = &self.lists;
        [&self.spaces, &self.regions, &self.small, a, b, c]
    }

    fn counters(&self) -> &[CpuCounters] {
        // SAFETY: `new` laid out one per CPU; zero is a valid block and they are atomics.
        unsafe { core::slice::from_raw_parts(self.counters.as_ptr(), self.cpus) }
    }

    /// Zero faults by colour, by CPU.
    #[inline]
    pub(crate) fn by_colour(&self) -> &[ByColour] {
        // SAFETY: `new` laid out one per CPU; zero is a valid block and they are atomics.
        unsafe { core::slice::from_raw_parts(self.by_colour.as_ptr(), self.cpus) }
    }

    pub(crate) fn context_words(&self) -> &[AtomicU64] {
        // SAFETY: `new` laid out that many words.
        unsafe { core::slice::from_raw_parts(self.contexts.as_ptr(), CONTEXT_WORDS) }
    }

    /// The name of the space a CPU runs, 0 for none. Written by that CPU alone.
    pub(crate) fn current(&self, cpu: usize) -> &AtomicU64 {
        assert!(cpu < self.cpus);
        // SAFETY: `new` laid out one per CPU.
        unsafe { &self.current.add(cpu).as_ref().0 }
    }

    /// This CPU's counters; preemption is off already.
    #[inline]
    pub(crate) fn counters_here(&self) -> &CpuCounters {
        &self.counters()[self.machine.cpu()]
    }

    /// Adds to this CPU's counter; preemption is off already.
    #[inline]
    pub(crate) fn count_here(&self, counter: Counter, n: i64) {
        self.counters_here().add(counter, n);
    }

    /// Adds to this CPU's counter.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: i64) {
        self.machine.preempt_off();
        self.count_here(counter, n);
        self.machine.allow_preemption();
    }

    /// Counts base pages (or 2 MiB pages) that a space maps, or maps no longer.
    #[inline]
    pub(crate) fn count_pages(&self, order: Order, n: i64) {
        if order == Order::BASE {
            self.count(Counter::AnonPages, n);
        } else {
            self.count(Counter::AnonHuge, n << (order.get() - Order::HUGE.get()));
        }
    }

    /// Runs a verb between the machine's two events.
    #[inline(always)]
    pub(crate) fn verb<R>(&self, verb: Verb, body: impl FnOnce() -> R) -> R {
        self.begins(verb);
        let result = body();
        self.ends(verb);
        result
    }

    #[inline(always)]
    pub(crate) fn begins(&self, verb: Verb) {
        self.machine.hook(Event::Begin(verb));
        self.machine.hook(Event::Work(if verb == Verb::Fault { Work::Fault } else { Work::Call }, 1));
    }

    #[inline(always)]
    pub(crate) fn ends(&self, verb: Verb) {
        self.machine.hook(Event::End(verb));
    }

    #[inline]
    pub(crate) fn load(&self, table: Pfn, slot: usize, level: crate::addr::Level) -> Entry {
        M::Codec::decode(self.machine.entry(table, slot), level)
    }

    #[inline]
    pub(crate) fn store(&self, table: Pfn, slot: usize, level: crate::addr::Level, entry: Entry) {
        self.machine.set_entry(table, slot, M::Codec::encode(entry, level));
    }
}
